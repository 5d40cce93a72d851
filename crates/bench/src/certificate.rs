//! TLS for one run: a certificate that signs itself, for servers on loopback.

use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

pub(crate) const SERVER_NAME: &str = "127.0.0.1";

/// A certificate with its key, in files that are removed with it.
pub(crate) struct Certificate {
    directory: PathBuf,
    der: CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> io::Result<Self> {
        let signed = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).map_err(io::Error::other)?;
        let directory = std::env::temp_dir().join(format!("redlock-bench-{}", std::process::id()));
        fs::create_dir(&directory)?;
        let certificate = Self { directory, der: signed.cert.der().clone() };
        fs::write(certificate.file(), signed.cert.pem())?;
        fs::write(certificate.key_file(), signed.signing_key.serialize_pem())?;
        Ok(certificate)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("tls.crt")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.join("tls.key")
    }

    /// A configuration that trusts only this certificate.
    pub(crate) fn trusting(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Ok(Arc::new(builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth()))
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
