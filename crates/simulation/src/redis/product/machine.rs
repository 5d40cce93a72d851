//! One server behind the product's own connections.
//!
//! Each connection is a pair of byte queues, which tasks of this thread move.

use super::{Config, locker};
use crate::redis::{ConnectionId, Server};
use redlock_operator::redis_member::acl::{KeyPrefix, OPERATOR_USER, UserRule, external_user, users_acl};
use redlock_operator::redis_member::{AdminConnection, Connect, Endpoint, Guard, Machine, RedisMember, Secret, Stream};
use redlock_operator::redlock::{BoxFuture, MemberError};
use redlock_operator::time::{Clock, TokioClock};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

pub(super) fn password() -> Secret {
    Secret::new("correct-horse")
}

/// Sends the far end of each connection to the thread of the server.
struct Network(UnboundedSender<DuplexStream>);

impl Connect for Network {
    fn connect<'a>(&'a self, _address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        let (near, far) = duplex(1 << 16);
        let sent = self.0.send(far).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
        Box::pin(async move { sent.map(|()| Box::new(near) as Box<dyn Stream>) })
    }
}

type Writers = BTreeMap<ConnectionId, UnboundedSender<Vec<u8>>>;

struct Inner {
    server: Server,
    writers: Writers,
    clock: TokioClock,
}

impl Inner {
    fn now(&self) -> i64 {
        self.clock.wall().0 * 1_000
    }

    /// Delivers the server's output, and closes the connections that it has closed.
    fn deliver(&mut self) {
        let server = &mut self.server;
        self.writers.retain(|connection, writer| {
            let output = server.take_output(*connection);
            if !output.is_empty() {
                let _ = writer.send(output);
            }
            !server.is_closed(*connection)
        });
    }
}

/// The server, and the connections to it.
pub(super) struct World {
    inner: Rc<RefCell<Inner>>,
    machine: Machine,
}

impl World {
    /// A managed member.
    pub(super) fn new() -> Self {
        let client = UserRule::client("billing", 7, &KeyPrefix::parse("shop/").unwrap(), &password());
        Self::with(users_acl(&[password()], &[locker(), client]))
    }

    /// A master that is not managed, with a user for the operator.
    pub(super) fn external() -> Self {
        let user = external_user("redlock").replace("ACL SETUSER", "user").replace(" reset ", " ");
        Self::with(format!("user default off\n{}\n", user.replace("PASSWORD", password().expose())))
    }

    fn with(acl: String) -> Self {
        let clock = TokioClock::new();
        let server = Server::new(Config { acl: Some(acl), port: 6379, seed: 1 }, clock.wall().0 * 1_000).unwrap();
        let inner = Rc::new(RefCell::new(Inner { server, writers: Writers::new(), clock }));
        let (sender, arriving) = unbounded_channel();
        spawn_local(accept(Rc::clone(&inner), arriving));
        Self { inner, machine: Machine { clock: Arc::new(clock), network: Arc::new(Network(sender)) } }
    }

    pub(super) fn machine(&self) -> Machine {
        self.machine.clone()
    }

    pub(super) fn now(&self) -> i64 {
        self.inner.borrow().now()
    }

    pub(super) fn endpoint(&self, user: &str, password: &Secret) -> Endpoint {
        Endpoint { address: "m0:6379".to_owned(), username: user.to_owned(), password: password.clone(), tls: None }
    }

    pub(super) async fn admin(&self) -> Result<AdminConnection, MemberError> {
        self.admin_with(OPERATOR_USER, &password()).await
    }

    pub(super) async fn admin_with(&self, user: &str, password: &Secret) -> Result<AdminConnection, MemberError> {
        AdminConnection::connect(&self.endpoint(user, password), self.machine(), Duration::from_secs(5)).await
    }

    pub(super) fn voter(&self) -> RedisMember {
        RedisMember::new("m0".into(), self.endpoint(locker().name(), &password()), self.machine())
    }

    pub(super) fn guarded(&self, user: &str, guard: Guard) -> RedisMember {
        RedisMember::guarded("m0".into(), self.endpoint(user, &password()), self.machine(), guard)
    }

    fn change(&self, change: impl FnOnce(&mut Server, i64)) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.now();
        change(&mut inner.server, now);
        inner.deliver();
    }

    pub(super) fn restart(&self) {
        self.change(|server, now| server.restart(server.config().clone(), now).unwrap());
    }

    pub(super) fn freeze(&self) {
        self.change(|server, _| server.freeze());
    }

    pub(super) fn thaw(&self) {
        self.change(Server::thaw);
    }

    pub(super) fn set_busy(&self, has_written: bool) {
        self.change(|server, _| server.set_busy(has_written));
    }

    /// Flushes the scripts, as a user with all permissions does on an external master.
    pub(super) fn flush_scripts(&self) {
        self.change(|server, _| server.scripts.flush());
    }

    pub(super) fn user(&self, name: &str) -> String {
        self.inner.borrow().server.user(name).unwrap()
    }

    /// All keys that are locks.
    pub(super) fn locks(&self) -> Vec<String> {
        let inner = self.inner.borrow();
        let strings = inner.server.strings(inner.now());
        strings.into_iter().map(|(key, ..)| key).filter(|key| !key.starts_with('#')).collect()
    }

    pub(super) fn counter(&self) -> Option<String> {
        let inner = self.inner.borrow();
        inner.server.strings(inner.now()).into_iter().find(|(key, ..)| key == "#token").map(|(_, value, _)| value)
    }

    pub(super) fn is_modelled(&self) {
        assert!(self.inner.borrow().server.not_modelled().is_empty());
    }
}

async fn accept(inner: Rc<RefCell<Inner>>, mut arriving: UnboundedReceiver<DuplexStream>) {
    while let Some(stream) = arriving.recv().await {
        let (reader, writer) = split(stream);
        let (sender, output) = unbounded_channel();
        let connection = {
            let mut inner = inner.borrow_mut();
            let now = inner.now();
            let connection = inner.server.connect(now);
            inner.writers.insert(connection, sender);
            connection
        };
        spawn_local(receive(Rc::clone(&inner), connection, reader));
        spawn_local(send(output, writer));
    }
}

async fn receive(inner: Rc<RefCell<Inner>>, connection: ConnectionId, mut reader: ReadHalf<DuplexStream>) {
    let mut buffer = [0; 4_096];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        let mut inner = inner.borrow_mut();
        let now = inner.now();
        inner.server.feed(connection, &buffer[..count], now);
        inner.deliver();
    }
    let mut inner = inner.borrow_mut();
    inner.server.close(connection);
    inner.deliver();
}

async fn send(mut output: UnboundedReceiver<Vec<u8>>, mut writer: WriteHalf<DuplexStream>) {
    while let Some(bytes) = output.recv().await {
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}
