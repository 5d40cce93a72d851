use crate::redlock::BoxFuture;
use crate::time::Clock;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

/// Unacknowledged data is given up after this, or a peer behind a black hole would keep the connection for many
/// minutes.
const USER_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The bytes of one connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The way to other machines, so that a simulation can put its own network in place of this machine's.
pub trait Connect: Send + Sync + 'static {
    /// Connects to `host:port`. TLS comes above.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// TCP, as this machine has it. Names are resolved at every connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Connect for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async { Ok(Box::new(open(address, |_| Ok(())).await?) as Box<dyn Stream>) })
    }
}

/// What a connection takes from the machine that it is made on.
#[derive(Clone)]
pub struct Machine {
    /// Its clocks.
    pub clock: Arc<dyn Clock>,
    /// Its way to others.
    pub network: Arc<dyn Connect>,
}

/// A machine with this clock and with TCP.
impl<C: Clock> From<Arc<C>> for Machine {
    fn from(clock: Arc<C>) -> Self {
        Self { clock, network: Arc::new(Tcp) }
    }
}

pub(super) async fn open(address: &str, allowed: impl Fn(IpAddr) -> io::Result<()>) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host(address).await? {
        if let Err(refused) = allowed(address.ip()) {
            failure = refused;
            continue;
        }
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
