//! Faulty networks.

use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Listens at an address until dropped.
pub(crate) struct Peer {
    pub(crate) address: String,
    task: AbortHandle,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts every connection and never answers.
pub(crate) async fn silent() -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
        }
    });
    Peer { address, task: task.abort_handle() }
}

/// Forwards everything to `target`, each direction late by `delay`.
pub(crate) async fn slow(target: String, delay: Duration) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let Ok(far) = TcpStream::connect(&target).await else { continue };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::spawn(pass_on(near_read, far_write, delay));
            tokio::spawn(pass_on(far_read, near_write, delay));
        }
    });
    Peer { address, task: task.abort_handle() }
}

async fn pass_on(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) {
    let mut buffer = vec![0; 16_384];
    loop {
        let length = match from.readable().await.and_then(|()| from.try_read(&mut buffer)) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        tokio::time::sleep(delay).await;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            match to.writable().await.and_then(|()| to.try_write(rest)) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
