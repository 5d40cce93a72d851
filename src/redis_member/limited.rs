//! A bound on what a peer can make this process keep in memory.
//!
//! The client library collects an answer until it is complete, whatever its size. So a hostile external master could fill the memory of this
//! process, and stop the renewal of every other lock. This layer below the library counts the bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of an incomplete answer. The longest expected answer lists all users.
const LONGEST_ANSWER: usize = 256 << 10;

/// The number of bytes that can arrive before an answer must be complete.
///
/// The owner of the connection reports each complete answer.
#[derive(Clone, Debug)]
pub(super) struct Incoming(Arc<AtomicIsize>);

impl Incoming {
    fn new() -> Self {
        Self(Arc::new(AtomicIsize::new(LONGEST_ANSWER as isize)))
    }

    /// Records that an answer is complete. Later bytes belong to the next answer.
    pub(super) fn answered(&self) {
        self.expect(LONGEST_ANSWER);
    }

    /// Sets the maximum bytes of the next answer.
    pub(super) fn expect(&self, bytes: usize) {
        self.0.store(bytes as isize, Ordering::Relaxed);
    }
}

/// A connection that fails when an answer is too long.
pub(super) struct Limited<S> {
    stream: S,
    incoming: Incoming,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S) -> (Self, Incoming) {
        let incoming = Incoming::new();
        (Self { stream, incoming: incoming.clone() }, incoming)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        let read = read as isize;
        if self.incoming.0.fetch_sub(read, Ordering::Relaxed) < read {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn an_answer_that_does_not_end_ends_the_connection() {
        let (near, mut far) = tokio::io::duplex(LONGEST_ANSWER);
        let (mut near, incoming) = Limited::new(near);
        let mut piece = vec![0; LONGEST_ANSWER / 2];
        for _ in 0..4 {
            far.write_all(&piece).await.unwrap();
            near.read_exact(&mut piece).await.unwrap();
            incoming.answered();
        }
        for whole in [true, true, false] {
            far.write_all(&piece).await.unwrap();
            let read = near.read_exact(&mut piece).await;
            assert_eq!(read.is_ok(), whole, "{read:?}");
        }
    }
}
