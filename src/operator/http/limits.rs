//! Serves HTTP to every peer, and gives none of them more than a share: the port is open to every pod that no NetworkPolicy keeps away, and
//! what peers take of this process is taken from the renewal of locks.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Of a request, head and body.
const LONGEST_REQUEST: usize = 16 * 1024;
/// After an accept that failed: most likely the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What peers may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections from one address at once.
    pub of_one: usize,
    /// Connections at once.
    pub of_all: usize,
    /// From the connect to the end of the answer. A connection serves one request.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { of_one: 16, of_all: 512, time: Duration::from_secs(10) }
    }
}

/// How many connections each address has.
#[derive(Clone, Default)]
struct Seats(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection; it counts until it is dropped.
struct Seat {
    seats: Seats,
    address: IpAddr,
}

impl Seats {
    fn take(&self, address: IpAddr, limits: Limits) -> Option<Seat> {
        let mut taken = self.0.lock();
        let of_one = taken.get(&address).copied().unwrap_or(0);
        if of_one >= limits.of_one || taken.values().sum::<usize>() >= limits.of_all {
            return None;
        }
        taken.insert(address, of_one + 1);
        Some(Seat { seats: self.clone(), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.0.lock();
        match taken.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.address)),
        }
    }
}

/// Serves until `stop`. A connection beyond the limits is closed at once.
pub(super) async fn serve(listener: TcpListener, app: Router, limits: Limits, stop: CancellationToken) {
    let seats = Seats::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(seat) = seats.take(peer.ip().to_canonical(), limits) else { continue };
                let (app, stop) = (app.clone(), stop.clone());
                tokio::spawn(async move {
                    let _seat = seat;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = answer(stream, app, limits.time) => {}
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, app: Router, time: Duration) {
    let mut protocol = http1::Builder::new();
    protocol.keep_alive(false).max_buf_size(LONGEST_REQUEST);
    let served = protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    match timeout(time, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "request not answered"),
        Err(_elapsed) => tracing::debug!("request not answered in time"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn served(limits: Limits) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let app = Router::new().route("/", get(|| std::future::ready("hello\n")));
        tokio::spawn(serve(listener, app, limits, stop.clone()));
        (address, stop)
    }

    /// What comes until the other side closes.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let _closed_or_reset = stream.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    async fn asked(mut stream: TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        rest(stream).await
    }

    #[tokio::test]
    async fn a_connection_serves_one_request() {
        let (address, _stop) = served(Limits::default()).await;
        let said = asked(TcpStream::connect(address).await.unwrap()).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("hello\n"), "{said}");
    }

    #[tokio::test]
    async fn a_peer_that_never_ends_its_request_is_let_go() {
        let (address, _stop) = served(Limits { time: Duration::from_millis(20), ..Limits::default() }).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nx:").await.unwrap();
        assert_eq!(rest(stream).await, "");
    }

    #[tokio::test]
    async fn a_request_without_end_fills_no_memory() {
        let (address, _stop) = served(Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nx:").await.unwrap();
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    }

    #[tokio::test]
    async fn one_address_has_a_share_and_others_have_theirs() {
        let limits = Limits { of_one: 2, of_all: 3, ..Limits::default() };
        let seats = Seats::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = seats.take(one, limits);
        let _second = seats.take(one, limits);
        assert!(seats.take(one, limits).is_none(), "a third of one address");
        let _of_another = seats.take(other, limits);
        assert!(seats.take(other, limits).is_none(), "a fourth of all");
        drop(first);
        assert!(seats.take(one, limits).is_some(), "a seat that is free again");

        let (address, _stop) = served(Limits { of_one: 1, ..Limits::default() }).await;
        let first = TcpStream::connect(address).await.unwrap();
        assert_eq!(rest(TcpStream::connect(address).await.unwrap()).await, "");
        assert!(asked(first).await.ends_with("hello\n"));
    }
}
