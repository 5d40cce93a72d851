//! A policy of the cluster that refuses requests in the test's namespace.

use std::time::Duration;

use serde_json::json;

use crate::{bench::Bench, cluster::text_of, poll};

/// The limit until each API server has loaded a policy.
const LOADED: Duration = Duration::from_secs(60);

/// A ValidatingAdmissionPolicy for one operation on one resource.
pub(super) struct Policy<'a> {
    pub(super) group: &'a str,
    pub(super) operation: &'a str,
    pub(super) resource: &'a str,
    /// The condition of the admitted requests.
    pub(super) admits: &'a str,
    /// The text of each refusal.
    pub(super) message: &'a str,
}

impl Policy<'_> {
    /// Runs a test while the policy is in force, and deletes it afterwards, even if the test fails.
    ///
    /// The test begins when the policy refuses this kubectl command, which runs without effect.
    pub(super) async fn during(
        &self,
        bench: &Bench,
        probe: &[&str],
        input: &str,
        test: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let (version, name) = ("admissionregistration.k8s.io/v1", bench.namespace.as_str());
        let policy = json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                    "resourceRules": [{
                        "apiGroups": [self.group], "apiVersions": ["*"],
                        "operations": [self.operation], "resources": [self.resource],
                    }],
                },
                "validations": [{"expression": self.admits, "message": self.message}],
            },
        });
        let binding = json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
        bench.cluster.apply(&list.to_string()).await?;
        let probe = [probe, &["--dry-run=server"]].concat();
        let refuses = async || {
            let output = bench.kubectl_output(&probe, input).await?;
            Ok(text_of(&output).contains(self.message).then_some(()))
        };
        poll::until(LOADED, "the policy refuses requests", refuses).await?;
        let result = test.await;
        let kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
        bench.cluster.kubectl(&["delete", kinds, name]).await?;
        result
    }
}
