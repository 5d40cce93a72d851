//! The leader Lease of an operator, which shows whether the operator works.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;

use crate::cluster::objects::QuorumObject;
use crate::cluster::{Cluster, Problem};
use crate::output::format::{between, span};
use redlock_api::MilliTime;

/// Labels of the operator's pods.
pub const OPERATOR_LABELS: &str = "app.kubernetes.io/name=redlock-operator";
/// Time without a renewal after which a leader does not work, in milliseconds.
const SILENT: i64 = 60_000;

/// The leader of an installation, according to its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This replica leads.
    Works(String),
    /// The last leader has been silent for this number of milliseconds.
    Silent(i64),
    /// The Lease does not exist, or has no holder.
    Absent,
    /// This user cannot read the Lease.
    Hidden,
}

impl Leader {
    /// Pure: reads a Lease.
    fn of(lease: &Lease, now: MilliTime) -> Self {
        let Some(spec) = &lease.spec else { return Self::Absent };
        match (&spec.holder_identity, &spec.renew_time) {
            (Some(holder), Some(renewed)) if !holder.is_empty() => match between(MilliTime::from(renewed.0), now) {
                silence if silence > SILENT => Self::Silent(silence),
                _ => Self::Works(holder.clone()),
            },
            _ => Self::Absent,
        }
    }

    /// A sentence about the leader of this installation.
    #[must_use]
    pub fn text(&self, installation: &str) -> String {
        match self {
            Self::Works(holder) => format!("The operator {installation} works: {holder} leads."),
            Self::Silent(silence) => {
                format!("The operator {installation} does not work: its leader has been silent for {}.", span(*silence))
            }
            Self::Absent => format!("The operator {installation} has no leader."),
            Self::Hidden => {
                format!("You cannot read the Lease {installation}, which shows whether the operator works.")
            }
        }
    }
}

/// Namespaces of the operators that serve the readable quorums.
///
/// # Errors
/// If the API server refuses or does not answer.
pub async fn operator_namespaces(cluster: &Cluster) -> Result<BTreeSet<String>, Problem> {
    let (quorums, _) = cluster.list_readable::<QuorumObject>().await?;
    let namespace = |quorum: &QuorumObject| {
        quorum.status.operator.as_deref()?.split_once('/').map(|(namespace, _)| namespace.to_owned())
    };
    Ok(quorums.iter().filter_map(namespace).collect())
}

/// Reads the leader of an installation, `<namespace>/<Lease name>`.
///
/// # Errors
/// If the API server does not answer.
pub async fn leader(cluster: &Cluster, installation: &str) -> Result<Leader, Problem> {
    let Some((namespace, name)) = installation.split_once('/') else { return Ok(Leader::Absent) };
    let leases = cluster.api::<Lease>(Some(namespace));
    match cluster.call(&format!("read Lease {installation}"), leases.get(name)).await {
        Ok(lease) => Ok(Leader::of(&lease, cluster.now())),
        Err(problem) if problem.is_forbidden() => Ok(Leader::Hidden),
        Err(problem) if problem.is_not_found() => Ok(Leader::Absent),
        Err(problem) => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::now;

    #[test]
    fn a_leader_that_is_silent_does_not_work() {
        let lease = |renewed: &str| -> Lease {
            let spec = serde_json::json!({"spec": {"holderIdentity": "pod-a", "renewTime": renewed}});
            serde_json::from_value(spec).unwrap()
        };
        assert_eq!(Leader::of(&lease("2026-01-01T11:59:58.000000Z"), now()), Leader::Works("pod-a".into()));
        let silent = Leader::of(&lease("2026-01-01T11:57:00.000000Z"), now());
        assert_eq!(silent, Leader::Silent(180_000));
        assert!(silent.text("a/b").contains("silent for 3m00s"));
        assert_eq!(Leader::of(&Lease::default(), now()), Leader::Absent);
    }
}
