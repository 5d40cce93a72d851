//! The format of metrics: that of OpenMetrics, or the older one of Prometheus.

/// Whether a client accepts the format of OpenMetrics.
pub fn wants_open_metrics(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| accept.contains("application/openmetrics-text"))
}

/// Converts metrics from OpenMetrics to Prometheus' older text format.
///
/// The older format describes a counter under the name of its series, and has no lines for units.
pub fn classic(open_metrics: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(open_metrics.len()), None);
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, type_)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if type_ == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", type_, "\n"]);
        } else if !line.starts_with("# ") {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_describes_a_counter_under_its_series() {
        let open = "# HELP a Attempts.\n# TYPE a counter\na_total{x=\"# y\"} 1\n# HELP b_seconds Times.\n# TYPE b_seconds gauge\n\
                    # UNIT b_seconds seconds\nb_seconds 2\n# EOF\n";
        let classic = "# HELP a_total Attempts.\n# TYPE a_total counter\na_total{x=\"# y\"} 1\n# HELP b_seconds Times.\n\
                       # TYPE b_seconds gauge\nb_seconds 2\n";
        assert_eq!(super::classic(open), classic);
        assert!(wants_open_metrics(Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2")));
        assert!(!wants_open_metrics(Some("*/*")) && !wants_open_metrics(None));
    }
}
