//! The members' certificates: what a Secret must hold, what members serve, and the messages about it. Pure, but for
//! [`issue`], which makes the operator's own.

pub mod authority;
pub mod issue;
mod report;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::api::QUORUM_LABEL;
use crate::redis_member::{Authorities, Fingerprint, TlsError};

pub use report::{Served, report};

/// Key of the certificate chain in a Secret. The server's own certificate is the first.
pub const CERTIFICATE_KEY: &str = "tls.crt";
/// Key of its private key.
pub const PRIVATE_KEY_KEY: &str = "tls.key";
/// Key of the authorities that verify it.
pub const AUTHORITIES_KEY: &str = "ca.crt";

const END: &str = "-----END CERTIFICATE-----";

/// The content of a Secret.
pub type Data = BTreeMap<String, ByteString>;

/// When a certificate is valid, in seconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The beginning of the validity.
    pub not_before: i64,
    /// The end of the validity.
    pub not_after: i64,
}

impl Span {
    /// The validity of the first certificate in a text in PEM.
    pub fn of_pem(pem: &[u8]) -> Option<Self> {
        Self::of(&CertificateDer::from_pem_slice(pem).ok()?)
    }

    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let validity = parsed.validity();
        Some(Self { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() })
    }

    /// Whether two thirds of its life have passed, so that the operator must make the next one.
    pub const fn is_old(&self, now: i64) -> bool {
        now >= self.not_before + (self.not_after - self.not_before) / 3 * 2
    }
}

/// A certificate that members can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The authorities that verify it, in PEM.
    pub authorities: String,
    /// When it is valid.
    pub span: Span,
}

/// Why the content of a Secret cannot be used as a certificate.
#[derive(Clone, Debug, PartialEq, displaydoc::Display, thiserror::Error)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Unfit {
    /// it has no {0}: set tls.crt, tls.key and ca.crt, all in PEM, as cert-manager does
    Missing(&'static str),
    /// it has no label redlock-operator.io/quorum: {quorum}: set the label on the Secret
    NotLent { quorum: String },
    /// its {0} is not in PEM, or not of a known kind
    Unreadable(&'static str),
    /// its tls.key is not the key of its tls.crt: set both from one and the same issuance
    OtherKey,
    /// its tls.crt does not prove the name {name} by its ca.crt ({error}): issue one that is valid now and has all of {names}
    Unproved { name: String, error: TlsError, names: String },
}

/// Reads a certificate that has to prove all these names at `now`, in seconds of Unix time.
///
/// # Errors
/// If the Secret is unfit. The error names the fault and the required content.
pub fn read(data: &Data, names: &[String], now: i64) -> Result<Certificate, Unfit> {
    let text = |key| data.get(key).map(|bytes| bytes.0.as_slice()).filter(|text| !text.is_empty());
    let text = |key| text(key).ok_or(Unfit::Missing(key));
    let (chain, key, authorities) = (text(CERTIFICATE_KEY)?, text(PRIVATE_KEY_KEY)?, text(AUTHORITIES_KEY)?);
    let unreadable = |_| Unfit::Unreadable(CERTIFICATE_KEY);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(unreadable)?;
    let own = chain.first().ok_or(Unfit::Unreadable(CERTIFICATE_KEY))?;
    let (fingerprint, span) = (Fingerprint::of(own), Span::of(own).ok_or(Unfit::Unreadable(CERTIFICATE_KEY))?);
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Unfit::Unreadable(PRIVATE_KEY_KEY))?;
    let trusted = Authorities::from_pem(authorities).map_err(|_| Unfit::Unreadable(AUTHORITIES_KEY))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain.clone(), key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Unfit::OtherKey,
        _ => Unfit::Unreadable(PRIVATE_KEY_KEY),
    })?;
    let at = u64::try_from(now).unwrap_or_default();
    for name in names {
        let unproved = |error| Unfit::Unproved { name: name.clone(), error, names: names.join(", ") };
        trusted.check(&chain, name, at).map_err(unproved)?;
    }
    // It has certificates only, because it is passed to clients.
    let authorities = union(&String::from_utf8_lossy(authorities), "");
    Ok(Certificate { fingerprint, authorities, span })
}

/// Whether the owner of a Secret permits its use by this quorum, with its label.
pub fn is_lent(secret: &Secret, quorum: &str) -> bool {
    secret.labels().get(QUORUM_LABEL).is_some_and(|name| name == quorum)
}

/// All certificates of two texts in PEM, without duplicates.
pub fn union(one: &str, other: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for certificate in one.split_inclusive(END).chain(other.split_inclusive(END)) {
        let certificate = certificate.find("-----BEGIN CERTIFICATE-----").map(|start| &certificate[start..]);
        all.extend(certificate.filter(|certificate| certificate.ends_with(END) && !all.contains(certificate)));
    }
    all.into_iter().fold(String::new(), |text, certificate| text + certificate + "\n")
}

#[cfg(test)]
mod tests;
