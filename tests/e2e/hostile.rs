//! Hostile peers: this program, started again on the control plane's network.
//!
//! This network reaches pods, and pods reach it.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpSocket, TcpStream},
};

/// The argument that makes this program such a peer.
///
/// [`Harm`] follows as JSON.
pub(crate) const ARGUMENT: &str = "hostile-peer";
/// The time for which a forgetful master answers after each connect.
const REMEMBERS: Duration = Duration::from_millis(700);
/// Number of elements that an endless answer announces.
const ANNOUNCED: usize = 1_000_000_000;

/// The behaviour of the peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Harm {
    /// A master that answers `AUTH`, and then answers every request with an array without end.
    Endless { listen: SocketAddr },
    /// A master that answers like the one at `behind`.
    ///
    /// Once the file `from` exists, it answers only for a moment after each connect.
    Forgetful { listen: SocketAddr, behind: SocketAddr, from: PathBuf },
    /// `count` connections from each address, each with half a request.
    Half { to: SocketAddr, count: usize, from: Vec<IpAddr> },
}

/// Runs until it is killed.
pub(crate) async fn run(harm: &str) -> anyhow::Result<()> {
    match serde_json::from_str::<Harm>(harm)? {
        Harm::Endless { listen } => serve(listen, endless).await,
        Harm::Forgetful { listen, behind, from } => {
            serve(listen, move |peer| forgetful(peer, behind, from.clone())).await
        }
        Harm::Half { to, count, from } => half(to, count, &from).await,
    }
}

async fn serve<F>(listen: SocketAddr, peer: impl Fn(TcpStream) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let served = peer(stream);
        // A peer usually ends by closing its connection.
        tokio::spawn(async move { drop(served.await) });
    }
}

async fn endless(mut peer: TcpStream) -> anyhow::Result<()> {
    let mut asked = [0; 4096];
    let _auth = peer.read(&mut asked).await?;
    peer.write_all(b"+OK\r\n").await?;
    let _next = peer.read(&mut asked).await?;
    peer.write_all(format!("*{ANNOUNCED}\r\n").as_bytes()).await?;
    let elements = b":1\r\n".repeat(16 * 1024);
    loop {
        peer.write_all(&elements).await?;
    }
}

async fn forgetful(mut peer: TcpStream, behind: SocketAddr, from: PathBuf) -> anyhow::Result<()> {
    let mut master = TcpStream::connect(behind).await?;
    let forgets = async {
        loop {
            tokio::time::sleep(REMEMBERS).await;
            if from.exists() {
                break;
            }
        }
    };
    tokio::select! {
        ended = copy_bidirectional(&mut peer, &mut master) => return Ok(ended.map(drop)?),
        () = forgets => {}
    }
    // It keeps the connection open and sends nothing.
    Ok(tokio::io::copy(&mut peer, &mut tokio::io::sink()).await.map(drop)?)
}

/// Keeps connections with half a request open, and opens closed ones again.
async fn half(to: SocketAddr, count: usize, from: &[IpAddr]) -> anyhow::Result<()> {
    let keep = |from: IpAddr| async move {
        loop {
            if let Ok(mut stream) = connect(from, to).await {
                let sent = stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").await;
                let _closed = sent.is_ok() && stream.read(&mut [0; 64]).await.is_ok();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let peers: Vec<_> =
        from.iter().flat_map(|from| std::iter::repeat_n(*from, count)).map(keep).map(tokio::spawn).collect();
    for peer in peers {
        peer.await.context("a peer ended")?
    }
    Ok(())
}

async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}
