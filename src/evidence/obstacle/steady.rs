//! Pure: the text of a kubelet without the details that change with each of its attempts.
//!
//! A status quotes the text. With a detail such as the port of a connection, each attempt would cause a write of that status.

/// Labels of values that a registry generates for each request.
const DRAWN: [&str; 5] = ["requestid:", "request-id:", "hostid:", "traceid:", "correlationid:"];
/// Minimum number of hexadecimal digits in the ID of a container, or in a UID.
const SHORTEST_ID: usize = 32;

/// Returns the text without the details of one attempt.
///
/// It removes ports of connections, addresses of peers, pauses, times, and IDs of requests and containers.
pub(super) fn steady(message: &str) -> String {
    let mut steady: Vec<String> = Vec::new();
    for word in message.split(' ') {
        let last = steady.last().map(|last| last.to_ascii_lowercase()).unwrap_or_default();
        let is_pause = last == "back-off" && word.starts_with(|c: char| c.is_ascii_digit());
        let is_time = last == "time" && word.contains('T') && word.starts_with(|c: char| c.is_ascii_digit());
        if is_pause || is_time {
            continue;
        }
        if DRAWN.contains(&last.as_str()) {
            // Remove the label and its value.
            steady.pop();
            continue;
        }
        // `dial tcp 192.0.2.1:443:` and `read udp 10.0.0.1:43712->10.0.0.2:53:`
        if let ("tcp" | "udp", Some(_address)) = (last.as_str(), word.strip_suffix(':').filter(|word| is_address(word)))
        {
            if let Some(protocol) = steady.last_mut() {
                protocol.push(':');
            }
            continue;
        }
        steady.push(without_ids(without_query(word)));
    }
    steady.join(" ")
}

/// Whether the text is `ip:port`, or two of these with an arrow between them.
fn is_address(text: &str) -> bool {
    text.split("->").all(|end| end.parse::<std::net::SocketAddr>().is_ok())
}

/// The URL without its query, which can contain a signature.
fn without_query(word: &str) -> String {
    match (word.contains("://"), word.split_once('?')) {
        (true, Some((url, query))) => {
            let end = query.find(['"', ',', ')']).and_then(|end| query.get(end..)).unwrap_or_default();
            format!("{url}{end}")
        }
        _ => word.to_owned(),
    }
}

/// The word with `ID` in place of each ID of a container and each UID.
///
/// It also removes the number of an attempt after an ID. The digest of an image stays, because the reader has to change the image.
fn without_ids(word: String) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let (mut left, mut kept) = (word.as_str(), String::new());
    while let Some(start) = left.find(is_part) {
        let (before, rest) = left.split_at(start);
        let (run, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        kept.push_str(before);
        let digits = run.chars().filter(|c| *c != '-').count();
        if digits >= SHORTEST_ID && !kept.ends_with("sha256:") {
            kept.push_str("ID");
            let attempt = after.strip_prefix('_').unwrap_or(after);
            left = if attempt.len() < after.len() {
                attempt.trim_start_matches(|c: char| c.is_ascii_digit())
            } else {
                after
            };
        } else {
            kept.push_str(run);
            left = after;
        }
    }
    kept + left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the texts of two attempts give the same text.
    fn same(first: &str, second: &str, text: &str) {
        assert_eq!((steady(first).as_str(), steady(second).as_str()), (text, text));
    }

    #[test]
    fn a_pull_that_fails_again_has_the_same_text() {
        let pull = |end: &str| {
            format!(
                "failed to pull and unpack image \"docker.io/library/x:1\": failed to resolve reference \
                 \"docker.io/library/x:1\": failed to do request: Head \
                 \"https://registry-1.docker.io/v2/library/x/manifests/1\": {end}"
            )
        };
        same(
            &pull(
                "dial tcp: lookup registry-1.docker.io on 10.96.0.10:53: read udp 10.244.1.5:43712->10.96.0.10:53: i/o timeout",
            ),
            &pull(
                "dial tcp: lookup registry-1.docker.io on 10.96.0.10:53: read udp 10.244.1.5:51002->10.96.0.10:53: i/o timeout",
            ),
            &pull("dial tcp: lookup registry-1.docker.io on 10.96.0.10:53: read udp: i/o timeout"),
        );
        same(
            &pull("dial tcp 34.205.13.154:443: connect: connection refused"),
            &pull("dial tcp 44.208.254.194:443: connect: connection refused"),
            &pull("dial tcp: connect: connection refused"),
        );
        same(
            &pull("read tcp [fd00::5]:43712->[fd00::9]:443: read: connection reset by peer"),
            &pull("read tcp [fd00::5]:60000->[fd00::9]:443: read: connection reset by peer"),
            &pull("read tcp: read: connection reset by peer"),
        );
        let expired = |now: &str| {
            format!(
                "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time {now} is after 2026-01-01T00:00:00Z"
            )
        };
        same(
            &pull(&expired("2026-11-26T12:00:00Z")),
            &pull(&expired("2026-11-26T12:05:20+01:00")),
            &pull(&expired("T").replace("time T is", "time is")),
        );
    }

    #[test]
    fn the_request_of_a_registry_is_not_part_of_the_text() {
        let denied = |request: &str, signature: &str| {
            format!(
                "failed to copy: httpReadSeeker: failed open: unexpected status code \
                 https://x.s3.amazonaws.com/sha256:abc?X-Amz-Signature={signature}: 403 Forbidden"
            ) + &format!(", api error AccessDenied: Access Denied, RequestID: {request}, no basic auth credentials")
        };
        assert_eq!(steady(&denied("7ZQ3", "1f")), steady(&denied("8AB4", "2e")));
        let text = steady(&denied("7ZQ3", "1f"));
        assert!(!text.contains("7ZQ3") && !text.contains("1f") && text.contains("AccessDenied"), "{text}");
    }

    #[test]
    fn a_container_that_is_created_again_has_the_same_text() {
        let (first, second) = ("3f2a".repeat(16), "99b1".repeat(16));
        let uid = "6f1e0c5a-6c1d-4d6e-9b7a-0a1b2c3d4e5f";
        let reserved = |id: &str, attempt: u8| {
            format!(
                "failed to reserve container name \"app_app-0_ns_{uid}_{attempt}\": name \"app_app-0_ns_{uid}_{attempt}\" is reserved for \"{id}\""
            )
        };
        same(
            &reserved(&first, 1),
            &reserved(&second, 12),
            "failed to reserve container name \"app_app-0_ns_ID\": name \"app_app-0_ns_ID\" is reserved for \"ID\"",
        );
        same(
            &format!("back-off 20s restarting failed container=app pod=app-0_ns({uid})"),
            &format!("back-off 5m0s restarting failed container=app pod=app-0_ns({uid})"),
            "back-off restarting failed container=app pod=app-0_ns(ID)",
        );
    }

    #[test]
    fn a_text_without_such_details_stays_as_it_is() {
        let digest = format!("Failed to pull image \"redis@sha256:{}\": not found", "ab".repeat(32));
        for text in [
            "secret \"app\" not found",
            "couldn't find key password in Secret ns/app",
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }. \
             preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            "exec: \"run\": executable file not found in $PATH: unknown",
            "context deadline exceeded",
            digest.as_str(),
            "",
        ] {
            assert_eq!(steady(text), text);
        }
    }
}
