//! Serves HTTP to every peer, and lets none of them keep the others out.
//!
//! The port is open to every pod that no NetworkPolicy blocks, and the kubelet's probes use the same port. So the number of connections is
//! bounded. At the limit, a new connection ends the oldest connection of the address with the most connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

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

/// The connections, which end when this is dropped.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// The address of each open connection, the oldest first.
    open: Vec<(IpAddr, AbortHandle)>,
}

impl Connections {
    /// Serves a connection from this address.
    ///
    /// If there are `most` connections, it ends the oldest one of the address with the most connections.
    fn add(&mut self, address: IpAddr, most: usize, connection: impl Future<Output = ()> + Send + 'static) {
        // The set keeps the result of an ended task until it is read.
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, connection)| !connection.is_finished());
        if self.open.len() >= most {
            self.end_one(address);
        }
        self.open.push((address, self.tasks.spawn(connection)));
    }

    /// Ends a connection in favor of a new one from `newcomer`.
    ///
    /// The new connection is included in the number of its address.
    fn end_one(&mut self, newcomer: IpAddr) {
        let mut numbers = HashMap::from([(newcomer, 1)]);
        self.open.iter().for_each(|(address, _)| *numbers.entry(*address).or_default() += 1);
        // `max_by_key` returns the last of equal numbers, so the order is reversed.
        let oldest = (0..self.open.len()).rev().max_by_key(|at| numbers[&self.open[*at].0]);
        if let Some(at) = oldest {
            self.open.remove(at).1.abort();
        }
    }
}

/// Serves connections until dropped.
pub(super) async fn serve(listener: TcpListener, app: Router, limits: Limits) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let answer = answer(stream, app.clone(), limits.time);
                connections.add(peer.ip().to_canonical(), limits.connections, answer);
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
    use std::future::pending;
    use std::net::{Ipv4Addr, SocketAddr};

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    async fn served(limits: Limits) -> (SocketAddr, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(|| std::future::ready("hello\n")));
        (address, AbortOnDropHandle::new(tokio::spawn(serve(listener, app, limits))))
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
        let (address, _server) = served(Limits::default()).await;
        let response = asked(TcpStream::connect(address).await.unwrap()).await;
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("hello\n"), "{response}");
    }

    #[tokio::test]
    async fn a_peer_that_never_ends_its_request_is_disconnected() {
        let (address, _server) = served(Limits { time: Duration::from_millis(20), ..Limits::default() }).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nx:").await.unwrap();
        assert_eq!(rest(stream).await, "");
    }

    #[tokio::test]
    async fn a_request_without_end_fills_no_memory() {
        let (address, _server) = served(Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nx:").await.unwrap();
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    }

    #[tokio::test]
    async fn a_new_connection_ends_the_oldest_of_the_busiest_address() {
        let mut connections = Connections::default();
        let [greedy, second, kubelet] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        for address in [greedy, second, greedy, second, greedy] {
            connections.add(address, 5, pending());
        }
        let oldest = connections.open[0].1.clone();
        connections.add(kubelet, 5, pending());
        let open = |connections: &Connections| connections.open.iter().map(|(address, _)| *address).collect::<Vec<_>>();
        assert_eq!(open(&connections), [second, greedy, second, greedy, kubelet]);
        tokio::task::yield_now().await;
        assert!(oldest.is_finished() && !connections.open.iter().any(|(_, connection)| connection.is_finished()));
        // A further connection of an address ends its own oldest one.
        connections.add(second, 5, async {});
        assert_eq!(open(&connections), [greedy, second, greedy, kubelet, second]);
        tokio::task::yield_now().await;
        connections.add(kubelet, 5, async {});
        assert_eq!(open(&connections), [greedy, second, greedy, kubelet, kubelet], "an ended connection has no seat");
    }

    #[tokio::test]
    async fn a_new_peer_is_served_when_all_connections_are_taken() {
        let (address, _server) = served(Limits { connections: 1, ..Limits::default() }).await;
        let first = TcpStream::connect(address).await.unwrap();
        assert!(asked(TcpStream::connect(address).await.unwrap()).await.ends_with("hello\n"));
        assert_eq!(rest(first).await, "");
    }
}
