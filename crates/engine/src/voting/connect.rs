//! Connects to a member by TCP, or by another implementation of the network.

use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::redlock::BoxFuture;
use crate::time::Clock;

/// Deadline for TCP to all addresses of a member, TLS and authentication together.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(1);

/// Time after which unacknowledged data ends a connection.
///
/// Otherwise a peer behind a black hole would keep the connection for many minutes.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Maximum number of concurrent name lookups.
///
/// The runtime has 512 threads for blocking calls, and other work also needs them.
const MAX_LOOKUPS: usize = 64;
static LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

/// The bytes of one connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to other machines.
///
/// A simulation has its own implementation.
pub trait Connect: Send + Sync + 'static {
    /// Connects to `host:port`.
    ///
    /// The caller adds TLS.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// TCP of this machine.
///
/// Names are resolved at every connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Connect for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async { Ok(Box::new(open_tcp(address, |_| Ok(())).await?) as Box<dyn Stream>) })
    }
}

/// The clock and the network of the machine on which a connection is made.
#[derive(Clone)]
pub struct Machine {
    /// Its clocks.
    pub clock: Arc<dyn Clock>,
    /// The network of the machine.
    pub network: Arc<dyn Connect>,
}

/// A machine with this clock and with TCP.
impl<C: Clock> From<Arc<C>> for Machine {
    fn from(clock: Arc<C>) -> Self {
        Self { clock, network: Arc::new(Tcp) }
    }
}

/// Connects to the first address of a name that is `allowed` and accepts.
///
/// Names are resolved at every connect. Each of several addresses has an equal share of the time, so an address that
/// never answers does not block those after it.
///
/// # Errors
/// If no address accepts, or none is allowed.
pub async fn open_tcp(address: &str, allowed: impl Fn(IpAddr) -> io::Result<()>) -> io::Result<TcpStream> {
    let mut refused = None;
    let is_allowed = |address: &SocketAddr| allowed(address.ip()).map_err(|error| refused = Some(error)).is_ok();
    let addresses: Vec<_> = resolved(address).await?.into_iter().filter(is_allowed).collect();
    let stream = match (first_of(&addresses, TcpStream::connect).await, refused) {
        (Err(_), Some(refused)) if addresses.is_empty() => return Err(refused),
        (connected, _) => connected?,
    };
    stream.set_nodelay(true)?;
    set_dead_peer_timeouts(&stream)?;
    Ok(stream)
}

/// The addresses of a name.
///
/// A numeric address needs no lookup.
async fn resolved(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let name = address.to_owned();
    let found = limited(&LOOKUPS, async move { Ok(lookup_host(name).await?.collect()) }).await;
    found.map_err(|error| unresolved(address, &error))
}

/// The error of a failed lookup, with the text of the resolver.
///
/// The resolver's error kind has no meaning.
fn unresolved(address: &str, error: &io::Error) -> io::Error {
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{name} does not resolve: {error}"))
}

/// Runs a lookup in a task that owns one of the permits.
///
/// The lookup of the system cannot be cancelled, and occupies a thread until it returns. The caller gives up at its deadline, and the permit
/// stays with the task. So unresponsive name servers occupy at most as many threads as there are permits, and delay no caller beyond its
/// deadline.
async fn limited<T: Send + 'static>(
    permits: &'static Semaphore,
    lookup: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let permit = permits.acquire().await.map_err(io::Error::other)?;
    let task = tokio::spawn(async move {
        let addresses = lookup.await;
        drop(permit);
        addresses
    });
    task.await.map_err(io::Error::other)?
}

/// The result of the first address that connects.
///
/// One share of the time remains for the steps after the connection.
async fn first_of<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let shares = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_add(1);
    let share = if addresses.len() > 1 { CONNECT_DEADLINE / shares } else { CONNECT_DEADLINE };
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match timeout(share, connect(*address)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Sets timeouts that detect a dead peer.
///
/// On systems other than Linux only the deadlines of the I/O task detect a dead peer.
#[cfg(target_os = "linux")]
fn set_dead_peer_timeouts(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the options are Linux's")]
fn set_dead_peer_timeouts(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::watch;

    use super::*;
    use crate::time::timers_now;

    /// A name server that does not answer, and callers that give up and try again.
    #[tokio::test(start_paused = true)]
    async fn a_hanging_lookup_keeps_its_permit_and_ends_its_caller() {
        static PERMITS: Semaphore = Semaphore::const_new(2);
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let (answer, answers) = watch::channel(false);
        let lookup = || {
            let mut answers = answers.clone();
            async move {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                let _ = answers.wait_for(|is_there| *is_there).await;
                Ok(())
            }
        };
        for _ in 0..5 {
            assert!(timeout(CONNECT_DEADLINE, limited(&PERMITS, lookup())).await.is_err());
        }
        assert_eq!(BEGUN.load(Ordering::Relaxed), 2, "no more threads than permits");
        answer.send_replace(true);
        assert!(limited(&PERMITS, lookup()).await.is_ok());
        assert_eq!(PERMITS.available_permits(), 2);
    }

    #[tokio::test]
    async fn a_numeric_address_needs_no_lookup() {
        let _all = LOOKUPS.acquire_many(MAX_LOOKUPS as u32).await.unwrap();
        for address in ["127.0.0.1:6379", "[::1]:6379"] {
            assert_eq!(resolved(address).await.unwrap(), [address.parse().unwrap()]);
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_named() {
        let error = resolved("absent.invalid:6379").await.unwrap_err().to_string();
        assert!(error.starts_with("absent.invalid does not resolve: "), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_does_not_hide_the_next() {
        let addresses: Vec<SocketAddr> =
            ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(|at| at.parse().unwrap()).into();
        let begun = timers_now();
        let connect = |address: SocketAddr| async move {
            if address.to_string() != "192.0.2.3:1" {
                std::future::pending::<()>().await;
            }
            Ok(address)
        };
        assert_eq!(first_of(&addresses, connect).await.unwrap(), addresses[2]);
        assert!(begun.elapsed() < CONNECT_DEADLINE);
        assert!(first_of(&[], connect).await.is_err());
    }
}
