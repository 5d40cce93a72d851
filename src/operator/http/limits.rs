//! Serves HTTP to every peer, and lets none of them keep the others out.
//!
//! The port is open to every pod that no NetworkPolicy blocks, and the kubelet's probes use the same port. So the number of connections is
//! bounded. At the limit, a new connection ends the oldest connection of the address with the most connections.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
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

/// Maximum bytes of a request, head and body.
const LONGEST_REQUEST: usize = 16 * 1024;
/// The pause after a failed accept. The most likely cause is too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits for all peers together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of simultaneous connections.
    pub connections: usize,
    /// Maximum time from the connect to the end of the answer. A connection serves one request.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 512, time: Duration::from_secs(10) }
    }
}

/// The connections of each address, the oldest first.
#[derive(Clone, Default)]
struct Seats(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    by_address: HashMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
    /// Number of all connections.
    count: usize,
    /// The number of the next connection.
    next: u64,
}

/// One connection. It uses a seat until it is dropped, or until another connection takes the seat.
struct Seat {
    seats: Seats,
    address: IpAddr,
    number: u64,
    ended: CancellationToken,
}

impl Seats {
    /// Takes a seat for a connection from this address.
    ///
    /// If no seat is free, it ends the oldest connection of the address with the most connections.
    fn take(&self, address: IpAddr, limits: Limits) -> Seat {
        let mut taken = self.0.lock();
        if taken.count >= limits.connections {
            taken.end_one(address);
        }
        let (number, ended) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.count += 1;
        taken.by_address.entry(address).or_default().push_back((number, ended.clone()));
        Seat { seats: self.clone(), address, number, ended }
    }
}

impl Taken {
    /// Ends a connection, so that a new one from `newcomer` has a seat.
    ///
    /// The new connection is included in the number of its address.
    fn end_one(&mut self, newcomer: IpAddr) {
        let size = |address: IpAddr, seats: usize| seats + usize::from(address == newcomer);
        let oldest = |seats: &VecDeque<(u64, CancellationToken)>| Reverse(seats.front().map(|(number, _)| *number));
        let most = self.by_address.iter().max_by_key(|(address, seats)| (size(**address, seats.len()), oldest(seats)));
        let Some(address) = most.map(|(address, _)| *address) else { return };
        let first = self.by_address.get(&address).and_then(|seats| seats.front().cloned());
        if let Some((number, ended)) = first {
            ended.cancel();
            self.free(address, number);
        }
    }

    fn free(&mut self, address: IpAddr, number: u64) {
        let Some(seats) = self.by_address.get_mut(&address) else { return };
        let before = seats.len();
        seats.retain(|(other, _)| *other != number);
        self.count -= before - seats.len();
        if seats.is_empty() {
            self.by_address.remove(&address);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.0.lock().free(self.address, self.number);
    }
}

/// Serves connections until `stop`.
pub(super) async fn serve(listener: TcpListener, app: Router, limits: Limits, stop: CancellationToken) {
    let seats = Seats::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let seat = seats.take(peer.ip().to_canonical(), limits);
                let (app, stop) = (app.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = seat.ended.cancelled() => {}
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

    /// Reads until the other side closes.
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
        let response = asked(TcpStream::connect(address).await.unwrap()).await;
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("hello\n"), "{response}");
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
    async fn a_new_connection_ends_the_oldest_of_the_busiest_address() {
        let limits = Limits { connections: 5, ..Limits::default() };
        let seats = Seats::default();
        let [greedy, second, kubelet] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let of_greedy: Vec<_> = (0..3).map(|_| seats.take(greedy, limits)).collect();
        let of_second: Vec<_> = (0..2).map(|_| seats.take(second, limits)).collect();
        let probe = seats.take(kubelet, limits);
        let ended = |seats: &[Seat]| seats.iter().map(|seat| seat.ended.is_cancelled()).collect::<Vec<_>>();
        assert_eq!(ended(&of_greedy), [true, false, false]);
        // A further connection of an address ends its own oldest one.
        let more = seats.take(second, limits);
        assert_eq!(ended(&of_second), [true, false]);
        assert_eq!(ended(&of_greedy), [true, false, false]);
        assert!(!probe.ended.is_cancelled() && !more.ended.is_cancelled());
        drop((of_greedy, of_second, probe, more));
        assert!(seats.0.lock().by_address.is_empty() && seats.0.lock().count == 0);
    }

    #[tokio::test]
    async fn a_peer_is_served_when_others_have_taken_every_seat() {
        let (address, _stop) = served(Limits { connections: 1, ..Limits::default() }).await;
        let first = TcpStream::connect(address).await.unwrap();
        assert!(asked(TcpStream::connect(address).await.unwrap()).await.ends_with("hello\n"));
        assert_eq!(rest(first).await, "");
    }
}
