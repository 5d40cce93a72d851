//! The messages about certificates.

use k8s_openapi::jiff::Timestamp;

use super::Certificate;
use crate::quorum::model::status::{MemberWaits, QuorumMessage};
use crate::redis_member::Fingerprint;

/// The state of TLS at one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its name.
    pub member: String,
    /// Whether its pod uses TLS. `None` without a pod.
    pub tls: Option<bool>,
    /// The last served certificate.
    pub certificate: Option<Fingerprint>,
    /// Why the TLS connection of the operator to it failed.
    pub failure: Option<String>,
}

/// The state of TLS. `certificate` is the one to serve, or its fault.
pub fn report(certificate: &Result<Certificate, String>, members: &[Served]) -> QuorumMessage {
    let certificate = match certificate {
        Ok(certificate) => certificate,
        Err(problem) => return QuorumMessage::CertificateInvalid { problem: problem.clone() },
    };
    let waits = members.iter().filter_map(|member| awaited(member, certificate));
    let waits: Vec<String> = waits.map(|waits| waits.to_string()).collect();
    if waits.is_empty() {
        let until = Timestamp::from_second(certificate.span.not_after).map(|at| at.to_string()).unwrap_or_default();
        return QuorumMessage::CertificateServed { certificate: certificate.fingerprint, until };
    }
    QuorumMessage::CertificatePending { waits: waits.join("; ") }
}

fn awaited(served: &Served, certificate: &Certificate) -> Option<MemberWaits> {
    let member = served.member.clone();
    match (served.tls, served.certificate, served.failure.clone()) {
        (None, ..) => Some(MemberWaits::CertificateNoPod { member }),
        (Some(false), ..) => Some(MemberWaits::CertificatePlain { member }),
        (Some(true), _, Some(failure)) => Some(MemberWaits::CertificateRefused { member, failure }),
        (Some(true), None, None) => Some(MemberWaits::CertificateUnconfirmed { member }),
        (Some(true), Some(old), None) if old != certificate.fingerprint => {
            Some(MemberWaits::CertificateOld { member, old, new: certificate.fingerprint })
        }
        (Some(true), Some(_), None) => None,
    }
}
