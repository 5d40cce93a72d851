//! A policy of the cluster that refuses requests in the test's namespace.

use std::{process::Output, time::Duration};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{bench::Bench, poll};

/// The limit until each API server has loaded a policy.
const LOADED: Duration = Duration::from_secs(60);

/// A ValidatingAdmissionPolicy and its binding, with the name of the namespace.
pub(super) struct Policy<'a>(&'a Bench);

impl<'a> Policy<'a> {
    /// Creates the policy, and waits until it refuses the probe.
    pub(super) async fn create<F: Future<Output = anyhow::Result<Output>>>(
        bench: &'a Bench,
        rule: Value,
        expression: &str,
        message: &str,
        probe: impl Fn() -> F,
    ) -> anyhow::Result<Self> {
        let (version, name) = ("admissionregistration.k8s.io/v1", bench.namespace.as_str());
        let policy = json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                    "resourceRules": [rule],
                },
                "validations": [{"expression": expression, "message": message}],
            },
        });
        let binding = json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]}).to_string();
        let applied = bench.cluster.kubectl_output(&["apply", "-f", "-"], &list).await?;
        ensure!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        let refuses = async || {
            let text = String::from_utf8_lossy(&probe().await?.stderr).into_owned();
            Ok(text.contains(message).then_some(()))
        };
        poll::until(LOADED, "the policy refuses requests", refuses).await?;
        Ok(Self(bench))
    }

    /// Deletes both objects.
    pub(super) async fn delete(self) -> anyhow::Result<()> {
        let kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
        self.0.cluster.kubectl(&["delete", kinds, &self.0.namespace]).await.map(drop)
    }
}
