//! An admin connection, up to its login.

use std::pin::{Pin, pin};

use futures::future::{Either, select};
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
    /// The certificate of the peer; `None` without TLS.
    pub(super) certificate: Option<Fingerprint>,
    /// The caller reports each complete answer to it.
    pub(super) incoming: Incoming,
}

/// Connects, checks the certificate if the endpoint uses TLS, and authenticates.
pub(super) async fn connect(endpoint: &Endpoint, network: &dyn Connect) -> Result<Connected, MemberError> {
    let Opened { stream, certificate } = open(endpoint, network).await?;
    let certificate = certificate.as_ref().map(Fingerprint::of);
    // Redis 7.0 does not support CLIENT SETINFO, and no user has the right to run it.
    let user = RedisConnectionInfo::default().set_skip_set_lib_name();
    // The caller sets deadlines.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(BUFFERED_REQUESTS);
    let (stream, incoming) = Limited::new(stream);
    let (mut connection, driver) =
        MultiplexedConnection::new_with_config(&user, stream, config).await.map_err(|error| wire::error(&error))?;
    let mut driver: Driver = Box::pin(driver);
    if !endpoint.username.is_empty() {
        match select(pin!(log_in(&mut connection, endpoint)), &mut driver).await {
            Either::Left((logged_in, _)) => logged_in?,
            // The last answer can be a refusal, for example by a full member.
            Either::Right(((), logged_in)) => logged_in.await?,
        }
    }
    incoming.answered();
    Ok(Connected { connection, driver, certificate, incoming })
}

/// Logs in with a separate command, so that its error code is known.
///
/// The library reports a refused connection and a refused password with the same error.
async fn log_in(connection: &mut MultiplexedConnection, endpoint: &Endpoint) -> Result<(), MemberError> {
    let mut auth = redis::cmd("AUTH");
    auth.arg(&endpoint.username).arg(endpoint.password.expose());
    match connection.send_packed_command(&auth).await {
        Ok(Value::ServerError(failure)) => Err(wire::error(&failure.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(wire::error(&error)),
    }
}
