//! The pod that this process runs in, as its service account token names it. This needs no downward API.

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The own pod. `None` outside of pods, and in pods without a token.
pub(crate) fn own() -> Option<OwnPod> {
    of_token(fs::read_to_string(TOKEN).ok()?.trim())
}

/// The pod to which the kubelet bound the token.
///
/// This does not verify the token, because the API server verifies it in each request.
fn of_token(token: &str) -> Option<OwnPod> {
    let payload: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?).ok()?;
    let text = |path: &str| payload.pointer(path)?.as_str().map(str::to_owned);
    Some(OwnPod {
        namespace: text("/kubernetes.io/namespace")?,
        name: text("/kubernetes.io/pod/name")?,
        uid: text("/kubernetes.io/pod/uid")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_pod() {
        // {"kubernetes.io":{"namespace":"shop","pod":{"name":"job-x","uid":"u-1"}}}
        let payload =
            "eyJrdWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6InNob3AiLCJwb2QiOnsibmFtZSI6ImpvYi14IiwidWlkIjoidS0xIn19fQ";
        let pod = of_token(&format!("head.{payload}.sign")).unwrap();
        assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()), ("shop", "job-x", "u-1"));
        assert_eq!(of_token("not a token"), None);
        // {"kubernetes.io":{"namespace":"shop"}}
        assert_eq!(of_token("a.eyJrdWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6InNob3AifX0.b"), None);
    }
}
