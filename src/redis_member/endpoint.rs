use super::wire;
use crate::redlock::MemberError;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

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
}

/// Unacknowledged data is given up after this, or a peer behind a black hole would keep the connection for many
/// minutes.
const USER_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Requests that may wait for the socket before a sender has to.
const BUFFERED_REQUESTS: usize = 1024;

/// What moves the bytes of a connection; it ends when the connection is closed, by either side.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Connects and authenticates. The connection lives as long as its driver, and never reconnects.
pub(super) async fn connect(endpoint: &Endpoint) -> Result<(MultiplexedConnection, Driver), MemberError> {
    let stream = open(&endpoint.address).await.map_err(|error| MemberError::Unreachable(error.kind().to_string()))?;
    // CLIENT SETINFO is unknown to Redis 7.0 and not granted to anyone.
    let mut user = RedisConnectionInfo::default().set_skip_set_lib_name();
    if !endpoint.username.is_empty() {
        user = user.set_username(&endpoint.username).set_password(endpoint.password.expose());
    }
    // Deadlines are the caller's: a request that is given up must stay in line, or its release would overtake it.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(BUFFERED_REQUESTS);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&user, stream, config).await.map_err(|error| wire::error(&error))?;
    Ok((connection, Box::pin(driver)))
}

async fn open(address: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host(address).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
                socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
