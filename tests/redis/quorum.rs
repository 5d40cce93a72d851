//! Servers, their members and an engine, admitted and opened.

use crate::server::{Server, USERS, client, endpoint, locker, wait_until};
use redlock_operator::redis_member::acl::UserRule;
use redlock_operator::redis_member::{Link, RedisMember};
use redlock_operator::redlock::{
    Acquire, AcquireRequest, Elector, Electorate, ExtendRequest, FencingToken, Grant, LockKey, LockValue, Nonce,
    Redlock, RunId, Settings, ValueSigner,
};
use redlock_operator::time::{Boottime, SystemClock};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TTL: Duration = Duration::from_secs(20);
/// The operator's epoch.
pub(crate) const LEADER: i64 = 3;

/// Settings with a long node timeout, because the machine can be busy.
///
/// Assertions use the timeout as the limit of steps that must not wait.
pub(crate) fn settings() -> Settings {
    Settings { node_timeout: Duration::from_millis(400), ..Settings::default() }
}

pub(crate) fn fresh_value() -> LockValue {
    ValueSigner::new(b"a key").value("uid", &Nonce::random())
}

pub(crate) fn request(key: &str, value: &LockValue) -> AcquireRequest {
    AcquireRequest { key: key.into(), value: value.clone(), ttl: TTL, token: true }
}

pub(crate) fn extension(key: &str, value: &LockValue, ttl: Duration, valid_until: Boottime) -> Vec<ExtendRequest> {
    vec![ExtendRequest { key: key.into(), value: value.clone(), ttl, valid_until: Some(valid_until) }]
}

/// Opens the process for the locker and the client.
///
/// Returns its run ID.
pub(crate) async fn open(server: &Server) -> RunId {
    let mut admin = server.admin().await;
    assert_eq!(admin.raise_epoch(LEADER).await, Ok(()));
    assert_eq!(admin.open(LEADER, &[locker(), client()]).await, Ok(()));
    admin.run_id().clone()
}

pub(crate) fn member(name: &str, address: &str) -> Arc<RedisMember> {
    let endpoint = endpoint(address, &UserRule::locker_name(USERS));
    Arc::new(RedisMember::new(name.into(), endpoint, Arc::new(SystemClock)))
}

pub(crate) async fn connected(member: &RedisMember) {
    let mut link = member.link();
    let open = link.wait_for(|link| matches!(link, Link::Open(_)));
    tokio::time::timeout(Duration::from_secs(10), open).await.expect("the member connects").unwrap();
}

pub(crate) struct Quorum {
    pub(crate) servers: Vec<Server>,
    pub(crate) members: Vec<Arc<RedisMember>>,
    pub(crate) electors: Vec<Elector>,
    pub(crate) redlock: Redlock<SystemClock>,
}

impl Quorum {
    /// Starts a quorum whose members are admitted, opened and connected.
    pub(crate) async fn of(size: usize) -> Self {
        Self::configured(size, "").await
    }

    /// A quorum whose servers have these lines in their redis.conf.
    pub(crate) async fn configured(size: usize, conf: &str) -> Self {
        let quorum = Self::build(size, conf, |_, server| server.address()).await;
        for member in &quorum.members {
            connected(member).await;
        }
        quorum
    }

    /// Members with other addresses than those of their servers.
    pub(crate) async fn with_addresses(size: usize, address: impl Fn(usize, &Server) -> String) -> Self {
        Self::build(size, "", address).await
    }

    async fn build(size: usize, conf: &str, address: impl Fn(usize, &Server) -> String) -> Self {
        let mut servers = Vec::new();
        for _ in 0..size {
            servers.push(Server::configured(conf).await);
        }
        let (mut members, mut electors) = (Vec::new(), Vec::new());
        for (index, server) in servers.iter().enumerate() {
            let admitted = Some(open(server).await);
            let member = member(&format!("m{index}"), &address(index, server));
            electors.push(Elector { member: member.clone(), admitted });
            members.push(member);
        }
        Self { servers, members, electors, redlock: Redlock::new(Arc::new(SystemClock), settings()) }
    }

    pub(crate) fn electorate(&self) -> Electorate {
        Electorate::single(self.electors.clone())
    }

    pub(crate) async fn acquire(&self, key: &str, value: &LockValue) -> Acquire {
        self.redlock.acquire(&self.electorate(), request(key, value)).await
    }

    pub(crate) async fn granted(&self, key: &str, value: &LockValue) -> Grant {
        match self.acquire(key, value).await {
            Acquire::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Acquires and releases the lock `k`. Returns its token, which must be greater than the last one.
    pub(crate) async fn rises(&self, last: FencingToken) -> FencingToken {
        let value = fresh_value();
        let token = self.granted("k", &value).await.token;
        assert!(token > last, "{token} after {last}");
        self.release("k", &value).await;
        token
    }

    /// Acquires a lock, and waits until every server has its key.
    ///
    /// The grant itself needs only a majority.
    pub(crate) async fn granted_everywhere(&self, key: &str, value: &LockValue) -> Grant {
        let grant = self.granted(key, value).await;
        for (index, server) in self.servers.iter().enumerate() {
            let has_key = async || server.keys().await.iter().any(|(name, _)| name == key);
            wait_until(&format!("{key} on server {index}"), has_key).await;
        }
        grant
    }

    pub(crate) async fn release(&self, key: &str, value: &LockValue) -> usize {
        self.redlock.release(&self.electorate(), &LockKey::new(key), value).await.deleted
    }

    /// Waits until the server has executed a SET.
    ///
    /// A key that is missing afterwards was deleted.
    pub(crate) async fn has_voted(&self, server: usize) {
        let has_voted = async || self.servers[server].counter().await.is_some();
        wait_until(&format!("a vote of server {server}"), has_voted).await;
    }

    /// Checks that no server has a lock.
    pub(crate) async fn is_empty(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            wait_until(&format!("no key on server {index}"), async || server.keys().await.is_empty()).await;
        }
    }
}
