//! HTTP between programs of one machine: over loopback, or over a socket file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum length of a response.
const LONGEST: usize = 64 * 1024;
/// Time limit for the headers of a request, because an incomplete one would keep its connection.
const HEAD: Duration = Duration::from_secs(10);
/// Pause after a failed accept, because the process probably has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address on which a program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A loopback address, which only this machine reaches.
    Loopback(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let address: SocketAddr =
            text.parse().map_err(|_| "use an address with a port, for example 127.0.0.1:4040, or unix:<path>")?;
        if address.ip().is_loopback() {
            return Ok(Self::Loopback(address));
        }
        Err("only loopback is safe, for example 127.0.0.1:4040: a program that reaches an agent can release the lock")
    }
}

impl Place {
    /// Sends one request to this path and query, with a timeout.
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) async fn ask(
        &self,
        method: Method,
        target: &str,
        longest: Duration,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let asked = async {
            match self {
                Self::Loopback(address) => exchange(TcpStream::connect(address).await?, method, target).await,
                Self::Unix(path) => exchange(UnixStream::connect(path).await?, method, target).await,
            }
        };
        timeout(longest, asked).await.context("no answer in time")?
    }
}

/// The listener for connections of programs on this machine.
pub(super) enum Listener {
    Loopback(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Loopback(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }

    /// Serves connections until `stop`, and then completes the running requests.
    pub(super) async fn serve(self, app: Router, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.accept() => match accepted {
                    Ok(stream) => drop(connections.spawn(converse(stream, app.clone(), stop.clone()))),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

async fn converse(stream: Box<dyn Stream>, app: Router, stop: CancellationToken) {
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    // The error is ignored, because a connection that the peer broke is no failure of this program.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    target: &str,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", "localhost")
        .header("x-redlock", "1")
        .body(Empty::<Bytes>::new())?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| anyhow::anyhow!(error))?;
        Ok((status, body.to_bytes()))
    };
    let answer = answered.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_loopback_address_or_a_socket_file() {
        assert_eq!("127.0.0.1:4040".parse(), Ok(Place::Loopback(([127, 0, 0, 1], 4040).into())));
        assert!("[::1]:0".parse::<Place>().is_ok());
        assert_eq!("unix:/run/a".parse(), Ok(Place::Unix("/run/a".into())));
        for wrong in ["0.0.0.0:4040", "10.0.0.1:1", "4040", "unix:", "localhost:4040"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
