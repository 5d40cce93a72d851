//! Follows an election, in which the operator picks the leader: who holds it, until when, and whether that is the own pod.

mod object_state;

use std::time::Duration;

use anyhow::bail;
use kube::Api;
use kube::runtime::watcher;
use object_state::{ObjectState, read};
use tokio::time::{sleep, timeout};

use super::leadership::{Hold, Leadership};
use super::task::{Agent, now};
use crate::cluster::{Cluster, ClusterArgs, Problem};
use crate::console;
use crate::hold::{
    HoldState, Holding, LONGEST_SLEEP, Members, Source, UNREAD, ValiditySource, Watched, check_wall_clock, reserve,
    send_release,
};
use redlock_api::requests::request;
use redlock_api::{DistributedLock, Validity};
use redlock_engine::time::{Boottime, SystemClock};

/// Pause after a failed request to the API server.
const RETRY: Duration = Duration::from_millis(500);
/// Time limit for a release to reach the API server.
const RELEASE: Duration = Duration::from_secs(5);
/// Pause after a refused release.
const RELEASE_AGAIN: Duration = Duration::from_secs(5);
/// Queries of the members between two readings of their Secret.
const REFRESH: u32 = 5;

/// An election, and the pod of the application in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Election {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) pod_uid: String,
}

impl Election {
    /// `<namespace>/<name>`.
    pub(super) fn lock(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The hold that is followed.
struct Followed {
    holding: Holding,
    is_own: bool,
    trust: ValiditySource,
    /// The members or the object have shown that it is lost.
    is_lost: bool,
    /// When the hold was found, until its validity is known.
    unread_since: Option<Boottime>,
    /// When a refused release can be repeated. `None` before the first refusal.
    release_again: Option<Boottime>,
}

impl Followed {
    fn new(holding: Holding, is_own: bool, trust: ValiditySource) -> Self {
        Self { holding, is_own, trust, is_lost: false, unread_since: Some(now()), release_again: None }
    }
}

/// The task that follows one election.
pub(super) struct Follower {
    agent: Agent,
    election: Election,
    cluster: ClusterArgs,
    members: Option<Members>,
    skew: Duration,
    /// The start of the agent, until it has read the object.
    begun: Option<Boottime>,
    followed: Option<Followed>,
    ttl: Duration,
    validity: Validity,
    /// Why the election or its present hold is not followed. The agent writes a line only for a new reason.
    failure: Option<String>,
}

impl Follower {
    pub(super) fn new(
        agent: Agent,
        election: Election,
        cluster: ClusterArgs,
        members: Option<Members>,
        skew: Duration,
    ) -> Self {
        let (ttl, validity) = (Duration::from_secs(1), Validity::default());
        let (begun, followed, failure) = (Some(now()), None, None);
        Self { agent, election, cluster, members, skew, begun, followed, ttl, validity, failure }
    }

    fn report(&self, report: impl FnOnce(&mut Leadership, Boottime) + Send + 'static) {
        self.agent.report(&self.election.lock(), move |lock, now| report(&mut lock.leadership, now));
    }

    fn unknown(&self, why: String) {
        self.report(move |election, _| election.unknown(&why));
    }

    fn not_held(&self, why: String) {
        self.report(move |election, _| election.not_held(&why));
    }

    /// Follows the election until the agent is stopped.
    pub(super) async fn run(mut self) {
        let (cluster, mut watched) = loop {
            match self.connect().await {
                Ok(connected) => break connected,
                Err(error) => {
                    self.fail(format!("{error:#}"));
                    sleep(RETRY).await;
                }
            }
        };
        let mut changes = self.agent.changes();
        let mut queries: u32 = 0;
        while !self.agent.is_stopping() {
            let pause = self.followed.as_ref().map_or(LONGEST_SLEEP, |followed| followed.trust.pause(self.ttl));
            tokio::select! {
                event = watched.event() => self.handle(event, &cluster).await,
                _ = changes.changed() => {}
                () = sleep(pause) => {
                    queries = queries.wrapping_add(1);
                    self.query_members(queries.is_multiple_of(REFRESH)).await;
                }
            }
            self.release(&cluster).await;
        }
    }

    async fn connect(&self) -> anyhow::Result<(Cluster, Watched)> {
        let cluster = Cluster::connect(&self.cluster).await?;
        if self.members.is_none() {
            let version = request(cluster.client.apiserver_version()).await;
            version.map_err(|error| Problem::of_holder("failed to read the API server's time", &error))?;
            check_wall_clock(&cluster.server_time(), &SystemClock, self.skew)?;
        }
        let watched = Watched::new(&self.locks(&cluster), &self.election.name);
        Ok((cluster, watched))
    }

    fn locks(&self, cluster: &Cluster) -> Api<DistributedLock> {
        cluster.api(Some(&self.election.namespace))
    }

    async fn handle(&mut self, event: Result<Option<DistributedLock>, watcher::Error>, cluster: &Cluster) {
        match event {
            Ok(Some(lock)) => self.observe(&lock, cluster).await,
            Ok(None) => self.is_gone(),
            // A followed hold keeps its deadline, so this reports only if there is none.
            Err(error) if self.followed.is_none() => {
                match Problem::of_watch(&format!("watch dlock {}", self.election.lock()), &error) {
                    Some(denied) => self.fail(denied.to_string()),
                    None => self.unknown(format!("the API server does not report the leader: {error}")),
                }
            }
            Err(_) => {}
        }
    }

    fn is_gone(&mut self) {
        (self.followed, self.begun) = (None, None);
        self.not_held(format!("there is no dlock {}", self.election.lock()));
    }

    async fn observe(&mut self, lock: &DistributedLock, cluster: &Cluster) {
        (self.ttl, self.validity) = (lock.spec.ttl.get(), lock.spec.validity);
        if let Some(begun) = self.begun.take() {
            let token = lock.status.as_ref().and_then(|status| status.fencing_token).unwrap_or_default();
            let until = begun + self.ttl;
            self.agent.send(move |state, _| state.assume_promise(token, until));
        }
        match read(lock, &self.election.pod_uid) {
            ObjectState::NotHeld { why, is_certain } => {
                let was_own = self.followed.as_mut().is_some_and(|followed| {
                    followed.is_lost = true;
                    followed.is_own
                });
                self.report(move |election, now| {
                    // An application that still relies on the own hold must stop now.
                    if is_certain || was_own && election.is_promised(now) {
                        election.not_held(&why);
                    } else {
                        election.unknown(&why);
                    }
                });
            }
            ObjectState::Held { holding, is_own } => {
                if let Err(error) = self.follow(holding, is_own, cluster).await {
                    self.fail(format!("{error:#}"));
                }
            }
        }
    }

    /// Reports that the election or its hold cannot be followed. Each attempt and each renewal repeats the reason.
    fn fail(&mut self, why: String) {
        if self.failure.as_ref() != Some(&why) {
            console::report(&why);
        }
        self.failure = Some(why.clone());
        self.unknown(why);
    }

    /// Refuses an own hold whose end is not known in time.
    ///
    /// Such a hold is not given back, because the agents of the other pods usually have the same options. They would hand it over without
    /// an end.
    fn refuse_unclear_end(&self) -> anyhow::Result<()> {
        let status = Source::Status { skew: self.skew };
        let source = self.members.as_ref().map_or(status, |_| Source::Members);
        if source == status && self.validity == Validity::Transitions {
            bail!(
                "with validity: Transitions no renewal of the lock is published, so its end is not known. Set validity: Published, or give \
                 the Secret of a client with access Read by --members-secret"
            );
        }
        source.refuse_short_ttl(self.ttl.into())
    }

    /// Follows this hold from now on.
    async fn follow(&mut self, holding: Holding, is_own: bool, cluster: &Cluster) -> anyhow::Result<()> {
        let ttl = self.ttl;
        // Another pod's hold is only reported until its published end, which needs neither a margin nor a renewal.
        if is_own {
            self.refuse_unclear_end()?;
        }
        match &mut self.followed {
            Some(followed) if followed.holding.nonce == holding.nonce => {}
            Some(followed) if holding.token <= followed.holding.token => return Ok(()),
            Some(followed) => {
                followed.trust.follow_hold(&holding)?;
                self.followed = self.followed.take().map(|former| Followed::new(holding.clone(), is_own, former.trust));
            }
            None => {
                let (members, server_time) = (self.members.clone(), cluster.server_time());
                let trust = ValiditySource::new(members, server_time, self.skew, &holding).await?;
                self.followed = Some(Followed::new(holding.clone(), is_own, trust));
            }
        }
        match self.followed.as_mut().map_or(HoldState::Unknown, |followed| followed.trust.published(&holding, ttl)) {
            // The status gives no validity, so this queries the members immediately.
            HoldState::Unknown => self.query_members(false).await,
            state => self.apply(state),
        }
        Ok(())
    }

    async fn query_members(&mut self, refreshes: bool) {
        let Some(followed) = &mut self.followed else { return };
        if refreshes {
            followed.trust.refresh();
        }
        let state = followed.trust.read().await;
        self.apply(state);
    }

    fn apply(&mut self, state: HoldState) {
        let Some(followed) = &mut self.followed else { return };
        match state {
            HoldState::Until(until) if !followed.is_lost => {
                followed.unread_since = None;
                self.failure = None;
                let Holding { token, identity, .. } = followed.holding.clone();
                let hold = Hold::new(token, identity, followed.is_own, until, reserve(self.ttl));
                self.report(move |election, now| election.held(hold, now));
            }
            HoldState::Lost(why) => {
                followed.is_lost = true;
                self.not_held(format!("it was lost: {why}"));
            }
            // The pod keeps the lock, because the agent of the next pod would perhaps not reach the members either.
            HoldState::Unknown
                if followed.is_own
                    && !followed.is_lost
                    && followed.unread_since.is_some_and(|since| now().since(since) > self.ttl / 2) =>
            {
                let why = match followed.trust.source() {
                    Source::Members => UNREAD,
                    _ => "the API server has not reported its time, so the end of the hold is unknown",
                };
                self.fail(why.to_owned());
            }
            HoldState::Until(_) | HoldState::Unknown => {}
        }
    }

    /// Releases an own hold that the application can no longer use.
    async fn release(&mut self, cluster: &Cluster) {
        let Some(Followed { is_own: true, is_lost: false, holding, release_again, .. }) = &self.followed else {
            return;
        };
        let token = holding.token;
        // A change of the election can refuse a hold that is already followed. Such a hold is kept.
        if release_again.is_some_and(|at| now() < at) || self.refuse_unclear_end().is_err() {
            return;
        }
        let unused = self.agent.ask(move |state, now| state.is_unused(token, now));
        if unused.await != Ok(true) {
            return;
        }
        let Ok(lock) = request(self.locks(cluster).get(&self.election.name)).await else { return };
        let election = self.election.lock();
        let released = timeout(RELEASE, send_release(&cluster.client, &lock, token)).await;
        let (Ok(released), Some(followed)) = (released, &mut self.followed) else { return };
        match released {
            Ok(()) => {
                console::report(format_args!("dlock {election}: token {token} is given back"));
                followed.is_lost = true;
            }
            Err(error) => {
                let is_first = followed.release_again.replace(now() + RELEASE_AGAIN).is_none();
                if is_first {
                    console::report(format_args!("dlock {election}: token {token} is not given back: {error:#}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
