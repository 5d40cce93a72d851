//! TLS to members: whose certificates are trusted, and which name one must carry. Both are always checked.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};

use super::TlsClient;

/// An error in the TLS setup, or in a certificate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// A PEM text without a certificate of an authority.
    #[error("there is no certificate of an authority in it (a text that begins with -----BEGIN CERTIFICATE-----)")]
    NoAuthority,
    /// The system has no authorities.
    #[error("this system has no authorities to trust: name a Secret with a ca.crt")]
    NoSystemAuthorities,
    /// A certificate that proves nothing.
    #[error("{0}")]
    Certificate(#[from] rustls::Error),
}

/// The trusted authorities. Cheap to clone, and equal if made from the same authorities.
#[derive(Clone)]
pub struct Authorities {
    id: [u8; 32],
    verifier: Arc<WebPkiServerVerifier>,
    config: Arc<ClientConfig>,
}

impl Authorities {
    /// Reads authorities from a PEM text, such as `ca.crt` in a Secret.
    ///
    /// # Errors
    /// If the text has no authority.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        Self::new(certificates.map_err(|_| TlsError::NoAuthority)?, TlsError::NoAuthority)
    }

    /// Reads the authorities that this system trusts.
    ///
    /// # Errors
    /// If there are none.
    pub fn of_the_system() -> Result<Self, TlsError> {
        Self::new(rustls_native_certs::load_native_certs().certs, TlsError::NoSystemAuthorities)
    }

    fn new(certificates: Vec<CertificateDer<'static>>, none: TlsError) -> Result<Self, TlsError> {
        let mut id = Sha256::new();
        certificates.iter().for_each(|certificate| id.update(Sha256::digest(certificate)));
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(none);
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        // A resumed session has the certificate of its first handshake. The operator needs the certificate that the server uses now.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { id: id.finalize().into(), verifier, config: Arc::new(config) })
    }

    /// The same authorities, which judge certificates by this clock instead of the machine's wall clock.
    pub fn judged_by(mut self, clock: Arc<dyn TimeProvider>) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.time_provider = clock;
        self.config = Arc::new(config);
        self
    }

    /// A TLS client for a server whose certificate has this name.
    ///
    /// # Errors
    /// If the text is not a valid name.
    pub fn server(&self, name: &str) -> Result<TlsClient, TlsError> {
        let server = TlsClient::new(Arc::clone(&self.config), name).map_err(|name| TlsError::Name(name.0))?;
        Ok(server.trusting(self.id))
    }

    /// Checks that a certificate chain proves this name at `at` seconds of Unix time.
    ///
    /// The chain begins with the server's own certificate.
    ///
    /// # Errors
    /// If the chain does not prove the name. The error has the reason.
    pub fn check(&self, chain: &[CertificateDer<'_>], name: &str, at: u64) -> Result<(), TlsError> {
        let (own, intermediates) =
            chain.split_first().ok_or(rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        let name = ServerName::try_from(name).map_err(|_| TlsError::Name(name.to_owned()))?;
        self.verifier.verify_server_cert(own, intermediates, &name, &[], at)?;
        Ok(())
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Authorities {}

opaque!(Authorities);

/// SHA-256 of a server's certificate, which identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The crypto provider, which is the same as in kube.
///
/// The code passes it everywhere, so that nothing depends on the default of the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
