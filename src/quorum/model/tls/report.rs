//! What people are told.

use k8s_openapi::jiff::Timestamp;

use super::Certificate;
use crate::api::conditions::{CommonReason, QuorumCondition};
use crate::quorum::model::condition::Condition;
use crate::redis_member::Fingerprint;

/// Members that are not as they should be are named up to this many.
const NAMED: usize = 9;

/// How one member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its name.
    pub member: String,
    /// Whether its pod speaks TLS, as `None` without a pod.
    pub tls: Option<bool>,
    /// The certificate that it served last.
    pub certificate: Option<Fingerprint>,
    /// Why the operator cannot speak TLS with it.
    pub failure: Option<String>,
}

/// How TLS stands. `certificate` is the one to be served, or what is wrong with it.
pub fn report(certificate: &Result<Certificate, String>, members: &[Served]) -> Condition {
    let report =
        |ready: bool, reason, message: String| Condition::new(QuorumCondition::TLSReady, ready, reason, message);
    let certificate = match certificate {
        Ok(certificate) => certificate,
        Err(problem) => {
            let message = format!("{problem}; members that run go on as they are, and none is updated meanwhile");
            return report(false, CommonReason::CertificateInvalid, message);
        }
    };
    let waits: Vec<String> = members.iter().filter_map(|member| awaited(member, certificate)).take(NAMED).collect();
    if waits.is_empty() {
        let until = Timestamp::from_second(certificate.span.not_after).map(|at| at.to_string()).unwrap_or_default();
        let message = format!("every member serves the certificate {}, valid until {until}", certificate.fingerprint);
        return report(true, CommonReason::AsExpected, message);
    }
    report(false, CommonReason::CertificatePending, waits.join("; "))
}

fn awaited(served: &Served, certificate: &Certificate) -> Option<String> {
    let name = &served.member;
    match (served.tls, served.certificate) {
        (None, _) => Some(format!("{name} has no pod")),
        (Some(false), _) => Some(format!("{name} speaks plain TCP until its pod has been replaced")),
        (Some(true), _) if served.failure.is_some() => {
            let failure = served.failure.as_deref().unwrap_or_default();
            Some(format!("{name} serves a certificate that is refused ({failure}): if it stays so, delete its pod"))
        }
        (Some(true), None) => Some(format!("{name} has not shown its certificate yet")),
        (Some(true), Some(old)) if old != certificate.fingerprint => Some(format!(
            "{name} still serves {old}, and is asked for {} until the kubelet has brought the file, about a minute",
            certificate.fingerprint
        )),
        (Some(true), Some(_)) => None,
    }
}
