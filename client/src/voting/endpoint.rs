use super::connect::{Connect, Stream};
use super::limited::{Incoming, Limited};
#[cfg(feature = "tls")]
use super::tls::TlsClient;
use super::wire;
use crate::redlock::MemberError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use std::pin::Pin;

/// A password. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for authentication only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where a member is, and as whom to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `host:port`; the name is resolved at every connect.
    pub address: String,
    /// The Redis user; empty if the member asks for no password.
    pub username: String,
    /// Its password.
    pub password: Secret,
    /// With TLS or without. There is no way from one to the other: a peer that does not speak TLS is not given the password.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsClient>,
}

impl Endpoint {
    /// Whether a connection to the one is a connection to the other, whatever it takes to make it.
    pub(super) fn is_same_peer(&self, other: &Self) -> bool {
        #[cfg(feature = "tls")]
        let same_name = {
            let name = |endpoint: &Self| endpoint.tls.as_ref().map(TlsClient::server_name);
            name(self) == name(other)
        };
        #[cfg(not(feature = "tls"))]
        let same_name = true;
        same_name && (&self.address, &self.username) == (&other.address, &other.username)
    }
}

/// Requests that may wait for the socket before a sender has to.
const BUFFERED_REQUESTS: usize = 1024;

/// What moves the bytes of a connection; it ends when the connection is closed, by either side.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that lives as long as its driver, and never reconnects.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    /// To be told of each complete answer.
    pub(super) incoming: Incoming,
}

/// The bytes of a new connection to a member, before anybody has logged in.
pub struct Opened {
    /// To read from and to write to.
    pub stream: Box<dyn Stream>,
    /// The certificate that the peer has proved to have; `None` without TLS.
    #[cfg(feature = "tls")]
    pub certificate: Option<CertificateDer<'static>>,
}

/// Connects, and checks the certificate where there is to be one.
///
/// # Errors
/// If the peer is not reached, or proves nothing.
pub async fn open(endpoint: &Endpoint, network: &dyn Connect) -> Result<Opened, MemberError> {
    let stream = network.connect(&endpoint.address).await.map_err(|error| unreachable(&error))?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &endpoint.tls {
        let connector = tokio_rustls::TlsConnector::from(tls.config());
        let stream = connector.connect(tls.server_name(), stream).await.map_err(|error| unreachable(&error))?;
        let own = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = own.map(|certificate| certificate.clone().into_owned());
        return Ok(Opened { stream: Box::new(stream), certificate });
    }
    Ok(Opened {
        stream,
        #[cfg(feature = "tls")]
        certificate: None,
    })
}

/// Connects and authenticates.
pub(super) async fn connect(endpoint: &Endpoint, network: &dyn Connect) -> Result<Connected, MemberError> {
    let Opened { stream, .. } = open(endpoint, network).await?;
    // CLIENT SETINFO is unknown to Redis 7.0 and not granted to anyone.
    let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
    if !endpoint.username.is_empty() {
        user = user.set_username(&endpoint.username).set_password(endpoint.password.expose());
    }
    // Deadlines are the caller's: a request that is given up must stay in line, or its release would overtake it.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(BUFFERED_REQUESTS);
    let (stream, incoming) = Limited::new(stream);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&user, stream, config).await.map_err(|error| wire::error(&error))?;
    incoming.answered();
    Ok(Connected { connection, driver: Box::pin(driver), incoming })
}

/// What TLS says, and what a [`Connect`] says that refuses, is told in its words, since they name what to do; anything else by its kind.
fn unreachable(error: &io::Error) -> MemberError {
    #[cfg(feature = "tls")]
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return MemberError::Untrusted(tls.to_string());
    }
    match error.get_ref() {
        Some(refused) if error.kind() == io::ErrorKind::PermissionDenied => {
            MemberError::Unreachable(refused.to_string())
        }
        _ => MemberError::Unreachable(error.kind().to_string()),
    }
}
