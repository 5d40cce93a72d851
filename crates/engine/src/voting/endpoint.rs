//! The address and the user of a member, and new connections to it.

use std::fmt;
use std::io;

#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connect::{Connect, Stream};
use super::resp::{self, Value};
#[cfg(feature = "tls")]
use super::tls::TlsClient;
use super::wire;
use crate::redlock::MemberError;

/// A password.
///
/// `Debug` hides it.
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

/// The address of a member, and the user for its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `host:port`; the name is resolved at every connect.
    pub address: String,
    /// The Redis user.
    ///
    /// It is empty if the member needs no password.
    pub username: String,
    /// Its password.
    pub password: Secret,
    /// The TLS settings, or `None` without TLS.
    ///
    /// There is no fallback: a peer that does not speak TLS never gets the password.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsClient>,
}

impl Endpoint {
    /// Returns true if both endpoints lead to the same peer and user.
    ///
    /// Their passwords and authorities can differ.
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

/// A new connection to a member, before the login.
pub struct Opened {
    /// The bytes of the connection.
    pub stream: Box<dyn Stream>,
    /// The verified certificate of the peer, or `None` without TLS.
    #[cfg(feature = "tls")]
    pub certificate: Option<CertificateDer<'static>>,
}

/// Connects, and verifies the certificate if TLS is on.
///
/// # Errors
/// If the peer is not reached, or has no valid certificate.
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
            return Err(MemberError::closed());
        }
        // The client has sent no other command, so more bytes are an error.
        match resp::parse(&answer) {
            Ok(None) => {}
            Ok(Some((Value::Simple(_), length))) if length == answer.len() => return Ok(stream),
            Ok(Some((Value::Error(line), _))) => return Err(wire::error(line)),
            Ok(_) | Err(resp::Malformed) => return Err(MemberError::unexpected()),
        }
    }
}

/// The text of an error of TLS. It is the same for each attempt, so it has no present time.
#[cfg(feature = "tls")]
fn untrusted(error: &rustls::Error) -> String {
    use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
    use rustls::Error::InvalidCertificate;
    match error {
        InvalidCertificate(ExpiredContext { not_after, .. }) => {
            format!("invalid peer certificate: certificate expired at {} (UNIX)", not_after.as_secs())
        }
        InvalidCertificate(NotValidYetContext { not_before, .. }) => {
            format!("invalid peer certificate: certificate not valid before {} (UNIX)", not_before.as_secs())
        }
        other => other.to_string(),
    }
}

/// The error of a failed connection.
///
/// Errors of TLS, refusals of a [`Connect`] and names that do not resolve keep their text, since it names the cause.
/// Other errors become their kind.
fn unreachable(error: &io::Error) -> MemberError {
    #[cfg(feature = "tls")]
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return MemberError::Untrusted(untrusted(tls));
    }
    match (error.get_ref(), error.kind()) {
        (Some(cause), io::ErrorKind::PermissionDenied | io::ErrorKind::AddrNotAvailable) => {
            MemberError::Unreachable(cause.to_string())
        }
        _ => MemberError::Unreachable(error.kind().to_string()),
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::time::Duration;

    use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
    use rustls::Error::InvalidCertificate;
    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn the_text_about_an_expired_certificate_does_not_change() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let expired = |time| untrusted(&InvalidCertificate(ExpiredContext { time: at(time), not_after: at(7) }));
        let early = |time| untrusted(&InvalidCertificate(NotValidYetContext { time: at(time), not_before: at(9_000) }));
        assert_eq!(expired(8), expired(9));
        assert_eq!(early(5), early(6));
        assert!(expired(8).contains("expired at 7"));
        assert!(early(5).contains("before 9000"));
    }
}
