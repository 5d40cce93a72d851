//! An admin connection, up to its login.

use std::pin::Pin;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value};
use redlock_engine::voting::{Opened, open};

use super::limited::{Incoming, Limited};
use super::tls::Fingerprint;
use super::{Connect, Endpoint, wire};
use crate::redlock::MemberError;

/// Maximum requests that wait for the socket before a sender waits.
const BUFFERED_REQUESTS: usize = 1024;

/// The task that moves the bytes of a connection. It ends when either side closes the connection.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that lives as long as its driver, and never reconnects.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    /// The certificate that the peer has proved to have; `None` without TLS.
    pub(super) certificate: Option<Fingerprint>,
    /// To be told of each complete answer.
    pub(super) incoming: Incoming,
}

/// Connects, checks the certificate where there is to be one, and authenticates.
pub(super) async fn connect(endpoint: &Endpoint, network: &dyn Connect) -> Result<Connected, MemberError> {
    let Opened { stream, certificate } = open(endpoint, network).await?;
    let certificate = certificate.as_ref().map(Fingerprint::of);
    // CLIENT SETINFO is unknown to Redis 7.0 and not granted to anyone.
    let user = RedisConnectionInfo::default().set_skip_set_lib_name();
    // Deadlines are the caller's.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(BUFFERED_REQUESTS);
    let (stream, incoming) = Limited::new(stream);
    let (mut connection, driver) =
        MultiplexedConnection::new_with_config(&user, stream, config).await.map_err(|error| wire::error(&error))?;
    let mut driver: Driver = Box::pin(driver);
    if !endpoint.username.is_empty() {
        tokio::select! {
            logged_in = log_in(&mut connection, endpoint) => logged_in?,
            () = &mut driver => return Err(MemberError::Unreachable("connection closed".to_owned())),
        }
    }
    incoming.answered();
    Ok(Connected { connection, driver, certificate, incoming })
}

/// Logs in by a command of its own, so that its error code is known.
///
/// The library reports a member that refuses connections and one that refuses the password alike.
async fn log_in(connection: &mut MultiplexedConnection, endpoint: &Endpoint) -> Result<(), MemberError> {
    let mut auth = redis::cmd("AUTH");
    auth.arg(&endpoint.username).arg(endpoint.password.expose());
    match connection.send_packed_command(&auth).await {
        Ok(Value::ServerError(failure)) => Err(wire::error(&failure.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(wire::error(&error)),
    }
}
