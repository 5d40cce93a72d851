//! The TLS settings of connections to one server.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// The TLS settings for one server: a configuration, and the name that its certificate must have.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    trust: Option<[u8; 32]>,
}

/// The text is neither a DNS name nor an IP address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name that a certificate can have")]
pub struct NotAServerName(pub String);

impl TlsClient {
    /// Settings for a server whose certificate has this name.
    ///
    /// # Errors
    /// If the text is no valid name.
    pub fn new(config: Arc<ClientConfig>, server_name: &str) -> Result<Self, NotAServerName> {
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| NotAServerName(server_name.to_owned()))?;
        Ok(Self { config, server_name: name, trust: None })
    }

    /// Makes the settings equal to all with the same name and `trust`.
    ///
    /// Their configurations can be different objects.
    #[must_use]
    pub const fn trusting(mut self, trust: [u8; 32]) -> Self {
        self.trust = Some(trust);
        self
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    pub(super) fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        let same_trust = match (self.trust, other.trust) {
            (Some(one), Some(another)) => one == another,
            _ => Arc::ptr_eq(&self.config, &other.config),
        };
        same_trust && self.server_name == other.server_name
    }
}

impl Eq for TlsClient {}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
