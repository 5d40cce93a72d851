//! Pure: the text of a kubelet without the details that change with each of its attempts.
//!
//! A status quotes the text. With a detail such as the port of a connection, each attempt would cause a write of that status.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Patterns of the details of one attempt.
///
/// The groups of a match stay. A match without a group becomes `ID`, and a match with only an empty group is removed.
const DETAILS: [&str; 6] = [
    // `back-off 40s restarting`
    r"(?i)\b(back-off) \d\S*",
    // `current time 2026-11-26T12:00:00Z is after`
    r"\b([Tt]ime) \d\S*T\S*",
    // Values that a registry generates for each request. The empty group removes them with their labels.
    r"(?i)()(?:^| )(?:requestid|request-id|hostid|traceid|correlationid): \S+",
    // `dial tcp 192.0.2.1:443:` and `read udp 10.0.0.1:43712->10.0.0.2:53:`
    r"\b(tcp|udp) (?:\[[^\]\s]+\]|[\d.]+):\d+(?:->(?:\[[^\]\s]+\]|[\d.]+):\d+)?(:)",
    // The query of a URL, which can contain a signature
    r#"(://[^\s?]*)\?[^\s",)]*"#,
    // IDs of containers and UIDs, with the number of an attempt. The digest of an image stays, because the reader has to change the image.
    r"(sha256:[[:xdigit:]]+)|(?:[[:xdigit:]]-?){32,}(?:_\d*)?",
];

static PATTERNS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| DETAILS.into_iter().filter_map(|pattern| Regex::new(pattern).ok()).collect());

/// Returns the text without the details of one attempt.
pub(super) fn steady(message: &str) -> String {
    let kept = |found: &Captures<'_>| match found.get(1) {
        Some(_) => found.iter().skip(1).flatten().map(|group| group.as_str()).collect(),
        None => "ID".to_owned(),
    };
    PATTERNS.iter().fold(message.to_owned(), |text, pattern| pattern.replace_all(&text, kept).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_of_a_detail_is_valid() {
        assert_eq!(PATTERNS.len(), DETAILS.len());
    }

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
        for (text, first, second) in [
            ("dial tcp~: connect: connection refused", " 34.205.13.154:443", " 44.208.254.194:443"),
            (
                "dial tcp: lookup registry-1.docker.io on 10.96.0.10:53: read udp~: i/o timeout",
                " 10.244.1.5:43712->10.96.0.10:53",
                " 10.244.1.5:51002->10.96.0.10:53",
            ),
            (
                "read tcp~: read: connection reset by peer",
                " [fd00::5]:43712->[fd00::9]:443",
                " [fd00::5]:60000->[fd00::9]:443",
            ),
            (
                "read tcp~: read: connection reset by peer",
                " [fe80::1%eth0]:43712->[fe80::2%eth0]:443",
                " [fe80::1%eth0]:60000->[fe80::2%eth0]:443",
            ),
            (
                "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time~ is after 2026-01-01T00:00:00Z",
                " 2026-11-26T12:00:00Z",
                " 2026-11-26T12:05:20+01:00",
            ),
        ] {
            let with = |detail| pull(&text.replace('~', detail));
            same(&with(first), &with(second), &with(""));
        }
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
            "Bind for tcp 0.0.0.0:80 failed: port is already allocated",
            "dial tcp cafe:6379: connect: connection refused",
            digest.as_str(),
            "",
        ] {
            assert_eq!(steady(text), text);
        }
    }
}
