//! Follows an election, in which the operator picks the leader: who holds it, until when, and whether that is the own pod.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::{Stream, StreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::super::holding::{Holding, LONGEST_SLEEP, Look, Members, Trust, check_wall_clock, reserve, send_release};
use super::book::Hold;
use super::desk::{Desk, now};
use crate::api::DistributedLock;
use crate::api::conditions::{LockCondition, find_condition};
use crate::command::cluster::{Cluster, ClusterArgs};
use crate::command::console;
use crate::runtime::api_time::ApiTime;
use crate::runtime::requests::{RequestError, request};
use crate::time::{Boottime, SystemClock};

/// After a request to the API server that failed.
const RETRY: Duration = Duration::from_millis(500);
/// For the holder's word to reach the API server.
const RELEASE: Duration = Duration::from_secs(5);
/// Between two readings of the members' Secret, in looks.
const REFRESH: u32 = 5;

type Events = Pin<Box<dyn Stream<Item = Result<watcher::Event<DistributedLock>, watcher::Error>> + Send>>;

/// Which election, and who the application is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Election {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) pod_uid: String,
}

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sight {
    Held { holding: Holding, is_own: bool },
    NotHeld { why: String },
}

fn sight(lock: &DistributedLock, pod_uid: &str) -> Sight {
    let status = lock.status.clone().unwrap_or_default();
    if let Some(ending) = status.ending {
        let message = ending.message.unwrap_or_default();
        return Sight::NotHeld { why: format!("{message} ({})", ending.reason).trim().to_owned() };
    }
    if let (Some(holder), Some(token)) = (status.holder, status.fencing_token)
        && lock.metadata.deletion_timestamp.is_none()
    {
        let is_own = holder.pod_uid.as_deref() == Some(pod_uid);
        let holding = Holding {
            nonce: holder.nonce.unwrap_or_default(),
            token,
            identity: holder.identity,
            key: holder.key.unwrap_or_default(),
            // Without one the members have to be asked.
            valid_until: status.valid_until.map_or(0, |until| until.as_millis()),
        };
        return Sight::Held { holding, is_own };
    }
    let held = find_condition(&status.conditions, LockCondition::Held);
    let why = held.map_or("no pod leads", |held| if held.message.is_empty() { &held.reason } else { &held.message });
    Sight::NotHeld { why: why.to_owned() }
}

/// The hold that is followed.
struct Followed {
    holding: Holding,
    is_own: bool,
    trust: Trust,
    /// A look has shown that it is lost.
    is_lost: bool,
}

/// One election.
pub(super) struct Follower {
    desk: Arc<Desk>,
    election: Election,
    cluster: ClusterArgs,
    members: Option<Members>,
    skew: Duration,
    begun: Boottime,
    followed: Option<Followed>,
    ttl: Duration,
    /// Of the object that was seen last. A watch can be behind a request.
    version: u64,
    /// The list that a watch begins with has shown it.
    is_listed: bool,
}

/// The way to the API server.
struct Line {
    client: Client,
    locks: Api<DistributedLock>,
    api_time: Arc<ApiTime>,
}

impl Follower {
    pub(super) fn new(
        desk: Arc<Desk>,
        election: Election,
        cluster: ClusterArgs,
        members: Option<Members>,
        skew: Duration,
    ) -> Self {
        let ttl = Duration::from_secs(1);
        Self { desk, election, cluster, members, skew, begun: now(), followed: None, ttl, version: 0, is_listed: false }
    }

    fn nothing(&self, why: &str) {
        self.desk.learns(&self.desk.elected, |book, _| book.learns_nothing(why));
    }

    fn not_held(&self, why: &str) {
        self.desk.learns(&self.desk.elected, |book, _| book.learns_not_held(why));
    }

    /// Until the agent is stopped.
    pub(super) async fn run(mut self) {
        let (line, mut events) = loop {
            match self.connect().await {
                Ok(connected) => break connected,
                Err(error) => {
                    console::report(format_args!("{error:#}"));
                    self.nothing(&format!("{error:#}"));
                    sleep(RETRY).await;
                }
            }
        };
        let mut changes = self.desk.changes();
        let mut looks: u32 = 0;
        while !self.desk.is_stopping() {
            let pause = self.followed.as_ref().map_or(LONGEST_SLEEP, |followed| followed.trust.pause(self.ttl));
            tokio::select! {
                event = events.next() => self.hears(event, &line).await,
                _ = changes.changed() => {}
                () = sleep(pause) => {
                    looks = looks.wrapping_add(1);
                    self.looks(looks.is_multiple_of(REFRESH)).await;
                }
            }
            self.reads_first(&line).await;
            self.releases(&line).await;
        }
    }

    async fn connect(&self) -> anyhow::Result<(Line, Events)> {
        let cluster = Cluster::connect(&self.cluster).await?;
        let (client, api_time) = (cluster.client.clone(), cluster.api_time());
        if self.members.is_none() {
            request(client.apiserver_version()).await.context("the API server does not answer")?;
            check_wall_clock(&api_time, &SystemClock, self.skew)?;
        }
        let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &self.election.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.election.name));
        let events = watcher(locks.clone(), only).default_backoff().boxed();
        Ok((Line { client, locks, api_time }, events))
    }

    async fn hears(&mut self, event: Option<Result<watcher::Event<DistributedLock>, watcher::Error>>, line: &Line) {
        match event {
            Some(Ok(watcher::Event::Apply(lock) | watcher::Event::InitApply(lock))) => {
                self.is_listed = true;
                self.sees(&lock, line).await;
            }
            Some(Ok(watcher::Event::Init)) => self.is_listed = false,
            Some(Ok(watcher::Event::InitDone)) if self.is_listed => {}
            Some(Ok(watcher::Event::InitDone | watcher::Event::Delete(_))) => self.is_gone(),
            // The deadline of what is held stands.
            Some(Err(error)) if self.followed.is_none() => {
                self.nothing(&format!("the API server does not tell who leads: {error}"));
            }
            Some(Err(_)) => {}
            None => std::future::pending::<()>().await,
        }
    }

    fn is_gone(&mut self) {
        self.followed = None;
        let Election { namespace, name, .. } = &self.election;
        self.not_held(&format!("there is no dlock {namespace}/{name}"));
    }

    async fn sees(&mut self, lock: &DistributedLock, line: &Line) {
        let version = lock.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        if version.is_some_and(|version: u64| version < self.version) {
            return;
        }
        self.version = version.unwrap_or(self.version);
        if self.followed.is_none() {
            // An agent before this one may have told so much.
            let (begun, ttl) = (self.begun, lock.spec.ttl.get());
            self.desk.learns(&self.desk.elected, |book, _| book.assume_told(begun + ttl));
        }
        self.ttl = lock.spec.ttl.get();
        match sight(lock, &self.election.pod_uid) {
            Sight::NotHeld { why } => {
                if let Some(followed) = &mut self.followed {
                    followed.is_lost = true;
                }
                self.not_held(&why);
            }
            Sight::Held { holding, is_own } => {
                if let Err(error) = self.turns_to(holding, is_own, line).await {
                    console::report(format_args!("{error:#}"));
                    self.nothing(&format!("{error:#}"));
                }
            }
        }
    }

    /// Follows this hold, or goes on with it.
    async fn turns_to(&mut self, holding: Holding, is_own: bool, line: &Line) -> anyhow::Result<()> {
        let ttl = self.ttl;
        match &mut self.followed {
            Some(followed) if followed.holding.nonce == holding.nonce => {}
            Some(followed) if holding.token <= followed.holding.token => return Ok(()),
            Some(followed) => {
                followed.trust.turn_to(&holding)?;
                (followed.is_own, followed.is_lost) = (is_own, false);
                followed.holding = holding.clone();
            }
            None => {
                let trust = Trust::new(self.members.clone(), line.api_time.clone(), self.skew, &holding).await?;
                self.followed = Some(Followed { holding: holding.clone(), is_own, trust, is_lost: false });
            }
        }
        match self.followed.as_mut().map_or(Look::Unknown, |followed| followed.trust.published(&holding, ttl)) {
            // The members are asked at once.
            Look::Unknown => self.looks(false).await,
            look => self.learns(look),
        }
        Ok(())
    }

    async fn looks(&mut self, refreshes: bool) {
        let Some(followed) = &mut self.followed else { return };
        if refreshes {
            followed.trust.refresh();
        }
        let look = followed.trust.look().await;
        self.learns(look);
    }

    fn learns(&mut self, look: Look) {
        let Some(followed) = &mut self.followed else { return };
        match look {
            Look::Until(until) if !followed.is_lost => {
                let Holding { token, identity, .. } = followed.holding.clone();
                let hold = Hold::new(token, identity, followed.is_own, until, reserve(self.ttl));
                self.desk.learns(&self.desk.elected, |book, now| book.learns_hold(&hold, now));
            }
            Look::Lost(why) => {
                followed.is_lost = true;
                self.not_held(&format!("it was lost: {why}"));
            }
            Look::Until(_) | Look::Unknown => {}
        }
    }

    /// An instance has registered: what the API server knows by now was granted before that.
    async fn reads_first(&mut self, line: &Line) {
        while self.desk.look(&self.desk.elected, |book, _| book.reads_first()) == Some(true) {
            match request(line.locks.get(&self.election.name)).await {
                Ok(lock) => self.sees(&lock, line).await,
                Err(RequestError::Gone) => self.is_gone(),
                Err(_) => {
                    // Not in a loop: what is held goes on to be followed.
                    sleep(Duration::from_millis(20)).await;
                    return;
                }
            }
            self.desk.learns(&self.desk.elected, |book, _| book.has_read());
        }
    }

    /// Says the holder's word where nobody relies on the hold.
    async fn releases(&self, line: &Line) {
        let Some(token) = self.desk.look(&self.desk.elected, |book, now| book.releasable(now)).flatten() else {
            return;
        };
        let Ok(lock) = request(line.locks.get(&self.election.name)).await else { return };
        let Election { namespace, name, .. } = &self.election;
        match timeout(RELEASE, send_release(&line.client, &lock, token)).await {
            Ok(Ok(())) => console::report(format_args!("dlock {namespace}/{name}: token {token} is given back")),
            Ok(Err(error)) => {
                console::report(format_args!("dlock {namespace}/{name}: token {token} is not given back: {error:#}"))
            }
            Err(_) => return,
        }
        self.desk.learns(&self.desk.elected, |book, _| book.is_released(token));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(status: &Value) -> Sight {
        let lock = json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "scheduler", "namespace": "shop"},
            "spec": {"election": {"selector": {"matchLabels": {"app": "scheduler"}}}}, "status": status,
        });
        sight(&serde_json::from_value(lock).unwrap(), "u-1")
    }

    fn held(pod_uid: &str) -> Value {
        json!({"holder": {"identity": "pod-a", "podUID": pod_uid, "nonce": "n1", "key": "shop/scheduler"},
            "fencingToken": 7, "validUntil": "2026-01-01T00:00:10.500Z"})
    }

    #[test]
    fn the_own_pod_leads_if_the_status_names_its_uid() {
        assert!(matches!(seen(&held("u-1")), Sight::Held { is_own: true, .. }));
        let Sight::Held { holding, is_own } = seen(&held("u-2")) else { panic!("held") };
        assert_eq!((is_own, holding.identity.as_str(), holding.token), (false, "pod-a", 7));
    }

    #[test]
    fn a_hold_that_ends_is_none() {
        let mut status = held("u-1");
        status["ending"] = json!({"since": "2026-01-01T00:00:01Z", "reason": "Broken", "message": "by alice"});
        assert_eq!(seen(&status), Sight::NotHeld { why: "by alice (Broken)".into() });
        assert_eq!(seen(&json!({})), Sight::NotHeld { why: "no pod leads".into() });
    }

    #[test]
    fn without_a_published_validity_the_members_decide() {
        let mut status = held("u-1");
        status["validUntil"] = Value::Null;
        assert!(matches!(seen(&status), Sight::Held { holding, .. } if holding.valid_until == 0));
    }
}
