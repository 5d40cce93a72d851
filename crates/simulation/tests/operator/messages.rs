//! Messages between the product's processes and the coordinator, which owns the time.
//!
//! A process sends messages with the true time. The coordinator takes them after each tick and decides what follows. No
//! message is answered inside a tick.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::client::Body;
use redlock_operator::redis_member::{Connect, Stream};
use redlock_operator::redlock::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tower::{BoxError, Service};

use crate::oracle::ContenderReport;
use crate::time::{At, MachineClock};

/// A message of a process.
pub(crate) enum Sent {
    /// A request for a connection.
    Connect { connection: u64, address: String, end: SharedEnd },
    /// Bytes on a connection.
    Bytes { connection: u64, bytes: Vec<u8> },
    /// The process has closed a connection.
    Close { connection: u64 },
    /// A request to the API server.
    Request { request: Box<Request<Bytes>>, answer: oneshot::Sender<io::Result<Response<AnswerBody>>> },
    /// A belief of a contender, for the oracle.
    ContenderReport(ContenderReport),
    /// The process's main function has returned.
    Ended,
}

/// A message with its time and its sender.
pub(crate) struct Parcel {
    pub(crate) at: At,
    pub(crate) process: usize,
    pub(crate) what: Sent,
}

/// The queue of all messages of processes.
#[derive(Default)]
pub(crate) struct MessageQueue {
    parcels: Mutex<Vec<Parcel>>,
    connections: AtomicU64,
}

impl MessageQueue {
    pub(crate) fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *self.parcels.lock().unwrap())
    }
}

/// The network interface of one life of one process.
pub(crate) struct Port {
    messages: Arc<MessageQueue>,
    process: usize,
    clock: Arc<MachineClock>,
    /// Whether the process can send.
    ///
    /// A killed process cannot, not even from its destructors.
    plugged: AtomicBool,
}

impl Port {
    pub(crate) fn new(messages: Arc<MessageQueue>, process: usize, clock: Arc<MachineClock>) -> Arc<Self> {
        Arc::new(Self { messages, process, clock, plugged: AtomicBool::new(true) })
    }

    pub(crate) fn unplug(&self) {
        self.plugged.store(false, Ordering::Relaxed);
    }

    pub(crate) fn send(&self, what: Sent) {
        if self.plugged.load(Ordering::Relaxed) {
            let parcel = Parcel { at: self.clock.true_time(), process: self.process, what };
            self.messages.parcels.lock().unwrap().push(parcel);
        }
    }
}

impl Connect for Line {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        let port = self.0.clone();
        Box::pin(async move {
            let connection = port.messages.connections.fetch_add(1, Ordering::Relaxed);
            let end = SharedEnd::default();
            port.send(Sent::Connect { connection, address: address.to_owned(), end: end.clone() });
            // Build the stream before the connection is open, so that an abandoned attempt closes it.
            let stream = Wire { connection, end, port };
            std::future::poll_fn(|context| stream.poll_open(context)).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// The network transport of a process.
#[derive(Clone)]
pub(crate) struct Line(pub(crate) Arc<Port>);

/// The process's end of a connection.
///
/// The coordinator changes it.
#[derive(Default)]
pub(crate) struct End {
    pub(crate) open: bool,
    pub(crate) arrived: VecDeque<u8>,
    /// Whether the other side has closed it.
    pub(crate) ended: bool,
    pub(crate) broken: Option<io::ErrorKind>,
    waker: Option<Waker>,
}

pub(crate) type SharedEnd = Arc<Mutex<End>>;

/// Changes an end, and wakes its waiting task.
pub(crate) fn change(end: &SharedEnd, change: impl FnOnce(&mut End)) {
    let waker = {
        let mut end = end.lock().unwrap();
        change(&mut end);
        end.waker.take()
    };
    waker.into_iter().for_each(Waker::wake);
}

struct Wire {
    connection: u64,
    end: SharedEnd,
    port: Arc<Port>,
}

impl Wire {
    fn poll_open(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut end = self.end.lock().unwrap();
        match (end.broken, end.open) {
            (Some(kind), _) => Poll::Ready(Err(kind.into())),
            (None, true) => Poll::Ready(Ok(())),
            (None, false) => {
                end.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut end = self.end.lock().unwrap();
        if !end.arrived.is_empty() {
            let length = buffer.remaining().min(end.arrived.len());
            let bytes: Vec<u8> = end.arrived.drain(..length).collect();
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        if let Some(kind) = end.broken {
            return Poll::Ready(Err(kind.into()));
        }
        if end.ended {
            return Poll::Ready(Ok(()));
        }
        end.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.end.lock().unwrap().broken {
            return Poll::Ready(Err(kind.into()));
        }
        self.port.send(Sent::Bytes { connection: self.connection, bytes: bytes.to_vec() });
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.port.send(Sent::Close { connection: self.connection });
    }
}

/// The body of a response: one chunk, or the lines of a watch as they arrive.
pub(crate) enum AnswerBody {
    Whole(Option<Bytes>),
    Lines(mpsc::UnboundedReceiver<io::Result<Bytes>>),
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(http_body::Frame::data(bytes)))),
            Self::Lines(lines) => {
                lines.poll_recv(context).map(|line| line.map(|line| line.map(http_body::Frame::data)))
            }
        }
    }
}

/// The API server, as a process reaches it.
#[derive(Clone)]
pub(crate) struct ApiLine(pub(crate) Arc<Port>);

impl Service<Request<Body>> for ApiLine {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let port = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let request = Request::from_parts(head, body.collect().await?.to_bytes());
            let (answer, answered) = oneshot::channel();
            port.send(Sent::Request { request: Box::new(request), answer });
            match answered.await {
                Ok(answer) => Ok(answer?),
                Err(_) => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            }
        })
    }
}
