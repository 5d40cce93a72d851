//! The pages of annotations and labels, metrics, and the values of the chart.

use std::fmt::Write;

use super::{
    page,
    source::{block, items},
};
use crate::{chart::all_values, read};

#[test]
fn annotations_and_labels_are_on_one_page() {
    let api = read("crates/api/src/lib.rs");
    let constants: Vec<_> = items(&api).into_iter().filter(|item| item.code.starts_with("pub const")).collect();
    let (mut people, mut operator) = (String::new(), String::new());
    for item in &constants {
        let name = item.code.trim_start_matches("pub const ").split(':').next().unwrap();
        let value = item.code.split('"').nth(1).unwrap();
        let (Some(on), Some(means)) = (item.after("On:"), item.after("Value:")) else {
            assert!(!name.contains("ANNOTATION") && !name.contains("LABEL"), "{name}: say On: and Value:");
            continue;
        };
        let says = item.paragraphs[0].clone();
        match item.after("Set by:").as_deref() {
            Some(_) => writeln!(operator, "| `{value}` | {on} | {means} | {says} |").unwrap(),
            None => writeln!(people, "| `{value}` | {on} | {means} | {says} |").unwrap(),
        }
    }
    let introduction = "Every annotation that the operator reads, and every label and annotation that it sets.";
    let body = format!(
        "## Set by users\n\n[security.md](../security.md) lists the rights for `release` and for the annotations that break a lock.\n\n\
         | annotation | on | value | what the operator does |\n|---|---|---|---|\n{people}\n\
         ## Set by the operator\n\n| label or annotation | on | value | why |\n|---|---|---|---|\n{operator}"
    );
    page("annotations.md", "Annotations and labels", introduction, &body);
}

/// Labels by the type of a family.
fn labels(type_: &str) -> &'static str {
    match type_ {
        _ if type_.contains("<Label,") => "reason",
        _ if type_.contains("KindLabels") => "kind",
        _ if type_.contains("LockLabels") => "namespace, lock",
        _ if type_.contains("QuorumLabels") => "quorum_namespace, quorum",
        _ if type_.contains("StateLabels") => "quorum_namespace, quorum, member, state",
        _ if type_.contains("MemberLabels") || type_.contains("Latencies") => "quorum_namespace, quorum, member",
        _ => "",
    }
}

/// The first text between quotation marks, and the rest of the code.
fn quoted(code: &str) -> (&str, &str) {
    code.split_once('"').unwrap().1.split_once('"').unwrap()
}

/// The row of a metric: `field: Type = add("name", "description", value)`.
fn metric(declared: &str) -> String {
    let (field, made) = declared.split_once(" = ").unwrap();
    let (constructor, arguments) = made.split_once('(').unwrap();
    let type_ = field.split_once(": ").unwrap().1;
    let (name, rest) = quoted(arguments);
    let (help, rest) = quoted(rest);
    let label = if constructor == "counts" { quoted(rest).0 } else { labels(type_) };
    let (kind, suffix) = match () {
        () if type_.contains("Histogram") || type_.contains("Latencies") => ("histogram", ""),
        () if type_.contains("Count") => ("counter", "_total"),
        () => ("gauge", ""),
    };
    let unit = if constructor == "add_seconds" { "_seconds" } else { "" };
    format!("| `redlock_{name}{unit}{suffix}` | {kind} | {label} | {help} |")
}

#[test]
fn metrics_are_on_one_page() {
    let code = read("src/runtime/metrics.rs").replace(" =\n       ", " =");
    let declared = block(&code, "\nmetrics! {").lines().filter(|line| line.contains(" = "));
    let rows: Vec<_> = declared.map(metric).collect();
    assert_eq!(rows.len(), 26, "{rows:#?}");
    let introduction = "\
Each replica serves these metrics at `/metrics` on port 8080. Every replica reports its own view of locks and members. So use `max` over the replicas \
for their gauges, not `sum`. [monitoring.md](../monitoring.md) has probes and alerts.";
    let body = format!(
        "| metric | type | labels | what it measures |\n|---|---|---|---|\n{}\n\n\
         `redlock_build_info{{version}}` is 1. Each replica also reports `process_cpu_seconds_total`, `process_resident_memory_bytes` and \
         `process_open_fds`.",
        rows.join("\n")
    );
    page("metrics.md", "Metrics", introduction, &body);
}

#[test]
fn alerts_and_dashboard_use_existing_metrics() {
    let page = read("docs/reference/metrics.md");
    let files = ["alerts.yaml", "dashboard.json"].map(|name| read(&format!("charts/redlock-operator/files/{name}")));
    let text = files.concat();
    let words: Vec<_> = text.split(|c: char| !c.is_ascii_lowercase() && c != '_').collect();
    let asked: Vec<_> = words.iter().filter(|word| word.starts_with("redlock_")).collect();
    assert!(asked.len() > 25, "{asked:?}");
    for metric in asked {
        assert!(page.contains(&format!("| `{}` |", metric.trim_end_matches("_bucket"))), "there is no metric {metric}");
    }
    let sections = read("docs/alerts.md");
    for alert in files[0].lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(sections.contains(&format!("\n## {alert}\n")), "docs/alerts.md has no section {alert}");
        let runbook = format!(
            "runbook_url: https://github.com/redlock-operator/redlock-operator/blob/main/docs/alerts.md#{}\n",
            alert.to_lowercase()
        );
        assert!(files[0].contains(&runbook), "{alert} has another runbook_url");
    }
}

#[test]
fn values_of_the_chart_are_on_one_page() {
    let rows: String = all_values().iter().map(|value| value.row(true)).collect();
    let introduction = "\
Every value of `charts/redlock-operator`. Helm refuses any other value (`values.schema.json`). A value \"as in a Pod\" has the fields of the \
Kubernetes API.";
    let body = format!("| value | type | default | description |\n|---|---|---|---|\n{rows}");
    page("values.md", "Values of the chart", introduction, &body);
}
