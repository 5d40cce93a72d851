//! Makes keys and certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

use super::authority::{AUTHORITY_LIFE, BACKDATED, CERTIFICATE_LIFE, Pair};

/// A new authority, valid from `now`, in seconds of Unix time.
///
/// # Errors
/// If there is no randomness, or the time is invalid.
pub fn authority(quorum: &str, now: i64) -> Result<Pair, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    // The time makes the names of two authorities different.
    params.distinguished_name.push(DnType::CommonName, format!("redlock {quorum} {now}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = span(now, AUTHORITY_LIFE)?;
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A certificate for these names (DNS names or IP addresses), valid from `now`.
///
/// # Errors
/// If the authority cannot be read, or a name is invalid.
pub fn certificate(authority: &Pair, names: &[String], now: i64) -> Result<Pair, Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "redlock member");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    (params.not_before, params.not_after) = span(now, CERTIFICATE_LIFE)?;
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

fn span(now: i64, life: i64) -> Result<(OffsetDateTime, OffsetDateTime), Error> {
    let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| Error::Time);
    Ok((at(now - BACKDATED)?, at(now + life)?))
}
