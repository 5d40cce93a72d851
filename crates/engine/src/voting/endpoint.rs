use super::connect::{Connect, Stream};
use super::resp::{self, Value};
#[cfg(feature = "tls")]
use super::tls::TlsClient;
use super::wire;
use crate::redlock::MemberError;
#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A password. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for authentication only.
    #[must_use]
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

/// Connects and logs in.
pub(super) async fn login(endpoint: &Endpoint, network: &dyn Connect) -> Result<Box<dyn Stream>, MemberError> {
    let Opened { mut stream, .. } = open(endpoint, network).await?;
    if endpoint.username.is_empty() {
        return Ok(stream);
    }
    let mut request = Vec::new();
    resp::command(&mut request, &["AUTH", &endpoint.username, endpoint.password.expose()]);
    stream.write_all(&request).await.map_err(|error| unreachable(&error))?;
    stream.flush().await.map_err(|error| unreachable(&error))?;
    let mut answer = Vec::with_capacity(64);
    loop {
        if stream.read_buf(&mut answer).await.map_err(|error| unreachable(&error))? == 0 {
            return Err(MemberError::Unreachable("connection closed".to_owned()));
        }
        // Nothing else was asked, so nothing may stand behind it.
        match resp::parse(&answer) {
            Ok(None) => {}
            Ok(Some((Value::Simple(_), length))) if length == answer.len() => return Ok(stream),
            Ok(Some((Value::Error(_), _))) => return Err(MemberError::Refused),
            Ok(_) | Err(resp::Malformed) => return Err(wire::unexpected()),
        }
    }
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
