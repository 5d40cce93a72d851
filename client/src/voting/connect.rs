use crate::redlock::BoxFuture;
use crate::time::Clock;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

/// Unacknowledged data is given up after this, or a peer behind a black hole would keep the connection for many
/// minutes.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
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
        Box::pin(async { Ok(Box::new(open_tcp(address, |_| Ok(())).await?) as Box<dyn Stream>) })
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

/// Connects to the first of the addresses that a name leads to and that is `allowed`. Names are resolved at every connect.
///
/// # Errors
/// If no address accepts, or none is allowed.
pub async fn open_tcp(address: &str, allowed: impl Fn(IpAddr) -> io::Result<()>) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host(address).await? {
        if let Err(refused) = allowed(address.ip()) {
            failure = refused;
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                watch_over(&stream)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A dead peer is noticed. Elsewhere than on Linux the driver's own deadlines alone do that.
#[cfg(target_os = "linux")]
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the options are Linux's")]
fn watch_over(_: &TcpStream) -> io::Result<()> {
    Ok(())
}
