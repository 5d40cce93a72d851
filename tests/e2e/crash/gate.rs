//! Counts the writes of one replica about one lock, and cuts the replica off after the n-th.
//!
//! The writes go to the API server and to Redis.
//!
//! It can also delay the watches of the replica, so that it acts on an earlier state.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    BoxError,
    body::{Body as Answer, Bytes, HttpBody},
    http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE},
};
use futures::{
    StreamExt as _,
    future::{BoxFuture, pending},
};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::AbortHandle,
};
use tower::{Layer, Service};

/// A part of the names of all objects and keys whose writes are counted.
pub(crate) const SUBJECT: &str = "subject";

/// A gate that all requests of one replica pass.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Whether the last permitted write has finished.
    cut: watch::Sender<bool>,
    /// The plural of the objects whose watches deliver no events.
    held_back: watch::Sender<Option<&'static str>>,
    /// The fault of the next write to an object.
    mishap: watch::Sender<Mishap>,
}

/// The fault of one write to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Mishap {
    #[default]
    Nothing,
    /// The gate will delay the next write to a path with this suffix.
    Delays(&'static str),
    /// The gate delays the write now.
    Delayed,
    /// The gate will answer the next write to a path with this suffix with a fault of the API server.
    Fails(&'static str),
}

#[derive(Default)]
struct State {
    /// The number of writes that still pass, or `None` for all.
    left: Option<usize>,
    writes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    Free,
    /// The last write that passes.
    Last,
    Closed,
}

impl Gate {
    /// A gate without limits.
    pub(crate) fn open() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            cut: watch::channel(false).0,
            held_back: watch::channel(None).0,
            mishap: watch::Sender::default(),
        }))
    }

    /// Delays the next write to a path with this suffix, so that another client can write first.
    ///
    /// A write that is already delayed continues.
    pub(crate) fn delay_write(&self, path: &'static str) {
        self.0.mishap.send_replace(Mishap::Delays(path));
    }

    /// Waits until the gate delays that write.
    pub(crate) async fn until_delayed(&self) {
        self.until_mishap(|mishap| *mishap == Mishap::Delayed).await;
    }

    /// Lets the delayed write continue.
    pub(crate) fn continue_write(&self) {
        self.0.mishap.send_replace(Mishap::Nothing);
    }

    /// Answers the next write to a path with this suffix with a fault of the API server, without effect.
    ///
    /// A write that is already delayed continues.
    pub(crate) fn fail_write(&self, path: &'static str) {
        self.0.mishap.send_replace(Mishap::Fails(path));
    }

    /// Waits until that write has failed.
    pub(crate) async fn until_failed(&self) {
        self.until_mishap(|mishap| *mishap == Mishap::Nothing).await;
    }

    /// The fault of this request.
    fn meets(&self, request: &Request<Body>) -> Mishap {
        let is_write = |path: &str| request.method() != Method::GET && request.uri().path().ends_with(path);
        let mut met = Mishap::Nothing;
        self.0.mishap.send_if_modified(|mishap| {
            (met, *mishap) = match mishap {
                Mishap::Delays(path) if is_write(path) => (Mishap::Delayed, Mishap::Delayed),
                Mishap::Fails(path) if is_write(path) => (mishap.clone(), Mishap::Nothing),
                _ => return false,
            };
            true
        });
        met
    }

    async fn until_mishap(&self, is_so: impl Fn(&Mishap) -> bool) {
        let mut mishap = self.0.mishap.subscribe();
        // The sender lives in the gate.
        let _ended = mishap.wait_for(is_so).await;
    }

    /// Stops all events of the watches of these objects, which are named by their plural.
    ///
    /// The replica's caches become stale.
    pub(crate) fn hold_back(&self, objects: &'static str) {
        self.0.held_back.send_replace(Some(objects));
    }

    /// Delivers the delayed events.
    pub(crate) fn deliver_events(&self) {
        self.0.held_back.send_replace(None);
    }

    /// Waits until a watch with this path can continue.
    async fn until_delivery(&self, path: &str) {
        let mut held_back = self.0.held_back.subscribe();
        // The sender lives in the gate.
        let _ended = held_back.wait_for(|objects| objects.is_none_or(|objects| !path.ends_with(objects))).await;
    }

    /// Lets this number of writes pass, and then blocks everything in both directions.
    pub(crate) fn arm(&self, writes: usize) {
        *self.0.state.lock() = State { left: Some(writes), writes: Vec::new() };
        if writes == 0 {
            self.0.cut.send_replace(true);
        }
    }

    /// Waits until the last write has finished.
    pub(crate) async fn until_cut(&self) {
        let mut cut = self.0.cut.subscribe();
        if cut.wait_for(|cut| *cut).await.is_err() {
            pending::<()>().await;
        }
    }

    /// The writes since it was armed.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.state.lock().writes.clone()
    }

    fn is_closed(&self) -> bool {
        self.0.state.lock().left == Some(0)
    }

    fn pass(&self, write: Option<String>) -> Passage {
        let mut state = self.0.state.lock();
        match (state.left, write) {
            (Some(0), _) => Passage::Closed,
            (Some(left), Some(write)) => {
                state.left = Some(left - 1);
                state.writes.push(write);
                if left == 1 { Passage::Last } else { Passage::Free }
            }
            _ => Passage::Free,
        }
    }

    fn done(&self, passage: Passage) {
        if passage == Passage::Last {
            self.0.cut.send_replace(true);
        }
    }
}

/// Describes a write.
///
/// Events are left out, because they have no effect.
fn api_write(request: &Request<Body>) -> Option<String> {
    let path = request.uri().path();
    let about = path.contains(SUBJECT) || path.contains("/redisquorums/");
    (request.method() != Method::GET && about && !path.ends_with("/events"))
        .then(|| format!("{} {path}", request.method()))
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

/// The transport to the API server, through a gate.
pub(crate) struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S, B> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Answer>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Answer>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let passage = self.gate.pass(api_write(&request));
        if passage == Passage::Closed {
            return Box::pin(pending());
        }
        let watched = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let path = request.uri().path().to_owned();
        let mishap = self.gate.meets(&request);
        let (answer, gate) = (self.inner.call(request), self.gate.clone());
        Box::pin(async move {
            match mishap {
                Mishap::Fails(_) => return Ok(fault()),
                Mishap::Delayed => gate.until_mishap(|mishap| *mishap != Mishap::Delayed).await,
                _ => {}
            }
            // The request is sent only when this is polled.
            let answer = answer.await;
            gate.done(passage);
            if gate.is_closed() {
                return pending().await;
            }
            Ok(answer?.map(|body| if watched { slowed(body, gate, path) } else { Answer::new(body) }))
        })
    }
}

/// The response of an API server whose etcd does not answer.
fn fault() -> Response<Answer> {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}"#;
    let mut response = Response::new(Answer::from(status));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response that continues only while the gate delivers its objects.
fn slowed<B>(body: B, gate: Gate, path: String) -> Answer
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Answer::from_stream(Answer::new(body).into_data_stream().then(move |chunk| {
        let (gate, path) = (gate.clone(), path.clone());
        async move {
            gate.until_delivery(&path).await;
            chunk
        }
    }))
}

/// A proxy to one Redis server, through the current gate.
pub(crate) struct Proxy(AbortHandle);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Proxy {
    /// Listens at `near` and forwards to `far`.
    ///
    /// Each connection keeps the gate of its start.
    pub(crate) async fn start(near: &str, far: String, gate: watch::Receiver<Gate>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(near).await?;
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&far).await else { continue };
                let gate = gate.borrow().clone();
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                tokio::spawn(pass_answers(far_read, near_write, gate.clone()));
                tokio::spawn(pass_commands(near_read, far_write, gate));
            }
        });
        Ok(Self(task.abort_handle()))
    }
}

async fn pass_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, gate: Gate) {
    let mut buffer = vec![0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if gate.is_closed() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Forwards one command after the other, so that a pipeline can be cut anywhere.
///
/// The end of the replica's connection ends the connection to the server.
async fn pass_commands(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, gate: Gate) {
    let mut waiting = Vec::new();
    let mut buffer = vec![0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        waiting.extend_from_slice(&buffer[..length]);
        while let Some(length) = command_length(&waiting) {
            let command: Vec<u8> = waiting.drain(..length).collect();
            let passage = gate.pass(redis_write(&command));
            if passage != Passage::Closed && to.write_all(&command).await.is_err() {
                return;
            }
            gate.done(passage);
        }
    }
}

fn redis_write(command: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(command);
    // Scripts are called by their hash, which is one of the words.
    text.contains(SUBJECT).then(|| text.split("\r\n").skip(4).step_by(2).take(1).collect())
}

/// Length of the first complete command: an array of strings.
fn command_length(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number(bytes, b'*', 0)?;
    for _word in 0..words {
        let (length, start) = number(bytes, b'$', at)?;
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number in a line that begins with `kind`, and the start of the next line.
fn number(bytes: &[u8], kind: u8, at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?.strip_prefix(&[kind])?;
    let length = line.iter().position(|byte| *byte == b'\r')?;
    let number = std::str::from_utf8(line.get(..length)?).ok()?.parse().ok()?;
    (line.len() > length + 1).then_some((number, at + 1 + length + 2))
}
