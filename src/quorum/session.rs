//! One quorum at every replica: connections to its members, their processes, and the highest token.

mod auth_reader;
mod clock;
mod credentials;
mod electorate;
mod latency;
mod link;
mod link_list;
mod placement;
mod registry;
mod renewal_limit;
mod timers;
mod tokens;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::task::AbortOnDropHandle;

pub use crate::redis_member::ActError;
pub(crate) use auth_reader::{auth_of, authorities_of, records_loss};
pub use clock::ClockGuard;
pub use link::{AdminSession, LinkState, MemberLink};
pub use registry::Sessions;
pub use renewal_limit::{MOST_IN_BATCH, RenewalLimit};
pub(crate) use tokens::floor_of;
pub use tokens::{FLOOR_STEP, FloorError};

use super::model::agreement::Agreement;
use super::model::auth::Auth;
use super::model::effective;
use super::model::events::QuorumEvent;
use crate::api::RedisQuorum;
use crate::redis_member::{Authorities, Endpoint};
use crate::redlock::{FencingToken, Redlock, ValueSigner};
use crate::runtime::cache::version;
use crate::runtime::context::Context;
use crate::time::Clock;
use link::Shared;
use timers::Timers;
use tokens::Tokens;

/// Announcements of a session that its quorum must be reconciled.
type Announcements = broadcast::Sender<ObjectRef<RedisQuorum>>;

/// Maximum time to raise the counters of all members.
const RAISE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of Events of the links that wait for their publication.
const EVENTS: usize = 64;

/// The session of one quorum, which lives as long as the object with its UID.
pub struct QuorumSession {
    context: Context,
    uid: String,
    shared: Shared,
    newest: watch::Sender<Arc<RedisQuorum>>,
    auth: Mutex<Option<Auth>>,
    authorities: Mutex<Option<Authorities>>,
    /// Requests an immediate reading of the Secrets.
    read_secrets: Arc<Notify>,
    links: Mutex<Arc<[Arc<MemberLink>]>>,
    /// Users of external masters, by member.
    credentials: Mutex<BTreeMap<String, Endpoint>>,
    tokens: Tokens,
    /// The start times of waits.
    pub(crate) timers: Timers,
    /// The limit for renewals of this replica.
    pub renewal_limit: RenewalLimit,
    /// Makes the links follow the states of the quorum in order, and never an older state.
    placing: Mutex<()>,
    /// Reads the Secrets, and publishes Events. It ends with the session, or by a panic.
    task: OnceLock<AbortOnDropHandle<()>>,
}

impl QuorumSession {
    /// Starts the tasks of a session. `None` for an object without a UID of the API server.
    pub(in crate::quorum) fn start(
        context: &Context,
        quorum: Arc<RedisQuorum>,
        announcements: Announcements,
    ) -> Option<Arc<Self>> {
        let (uid, reference) = (quorum.uid()?, ObjectRef::from_obj(quorum.as_ref()));
        let (events, unpublished) = broadcast::channel(EVENTS);
        let shared = Shared {
            machine: context.machine(),
            clocks: Arc::new(ClockGuard::new(0, effective::clock_rule(&quorum))),
            agreement: Arc::default(),
            quorum: reference,
            announcements,
            events,
        };
        let session = Arc::new(Self {
            context: context.clone(),
            uid,
            shared,
            newest: watch::channel(quorum.clone()).0,
            auth: Mutex::default(),
            authorities: Mutex::default(),
            read_secrets: Arc::default(),
            links: Mutex::default(),
            credentials: Mutex::default(),
            tokens: Tokens::default(),
            timers: Timers::new(context.clock.clone()),
            renewal_limit: RenewalLimit::new(quorum.spec.node_timeout.get()),
            placing: Mutex::default(),
            task: OnceLock::new(),
        });
        session.tokens.update(&quorum);
        let weak = Arc::downgrade(&session);
        let task = tokio::spawn(async move {
            let (auth, users) = (auth_reader::follow(weak.clone()), credentials::follow(weak.clone()));
            tokio::join!(auth, users, publish(weak, unpublished));
        });
        // The task needs the session, so it is set afterwards, and only here.
        session.task.get_or_init(|| AbortOnDropHandle::new(task));
        session.place();
        Some(session)
    }

    /// The quorum of this session.
    pub fn reference(&self) -> &ObjectRef<RedisQuorum> {
        &self.shared.quorum
    }

    /// Whether one of its tasks panicked, so that the session must be replaced.
    pub(super) fn is_broken(&self) -> bool {
        let panicked = self.task.get().is_some_and(|task| task.is_finished());
        // A link that ends leaves the list under this lock. It is not broken.
        panicked || self.links.lock().iter().any(|link| link.is_broken())
    }

    /// UID of the quorum.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The newest known state of the quorum.
    pub fn quorum(&self) -> Arc<RedisQuorum> {
        self.newest.borrow().clone()
    }

    /// The links to all members at this moment, including those that join or leave.
    pub fn links(&self) -> Arc<[Arc<MemberLink>]> {
        self.links.lock().clone()
    }

    /// The link to the member with this name.
    pub fn link(&self, name: &str) -> Option<Arc<MemberLink>> {
        self.links().iter().find(|link| link.name.as_str() == name).cloned()
    }

    /// The clocks of the members.
    pub fn clocks(&self) -> &ClockGuard {
        &self.shared.clocks
    }

    /// The records of the operators that share masters with this quorum.
    pub fn agreement(&self) -> &Mutex<Agreement> {
        &self.shared.agreement
    }

    /// The engine with this quorum's settings.
    pub fn redlock(&self) -> Redlock<dyn Clock> {
        Redlock::new(self.context.clock.clone(), effective::settings(&self.quorum()))
    }

    /// Signs lock values. `None` until the auth Secret has been read.
    pub fn signer(&self) -> Option<ValueSigner> {
        self.auth.lock().as_ref().map(Auth::signer)
    }

    /// The secrets of the quorum. `None` until they have been read.
    pub fn auth(&self) -> Option<Auth> {
        self.auth.lock().clone()
    }

    /// The longest time to live that can be used.
    ///
    /// A larger `maxTTL` is used only after its publication in the status, which determines the duration of fences.
    pub fn max_ttl_in_force(&self) -> Duration {
        let quorum = self.quorum();
        effective::published(&quorum).unwrap_or_default().min(quorum.spec.max_ttl.get())
    }

    /// How long fences wait under the settings in force. `None` if the status does not have them yet.
    pub fn rejoin_delay(&self) -> Option<Duration> {
        let quorum = self.quorum();
        effective::published(&quorum).map(|_| effective::current_rejoin_delay(&quorum))
    }

    /// The highest token that this replica has observed.
    pub fn hint(&self) -> FencingToken {
        self.tokens.highest()
    }

    /// Takes an observed token, and announces the quorum if the token comes near the floor.
    pub fn observe_token(&self, token: FencingToken) {
        if self.tokens.observe(token) {
            self.shared.announce();
        }
    }

    /// Makes sure that the floor in etcd is at least `token`, before that token is published.
    /// After a loss of every member, the sequence continues above the floor.
    pub async fn ensure_token_floor(&self, token: FencingToken) -> Result<(), FloorError> {
        self.observe_token(token);
        tokens::ensure(self, token).await
    }

    /// Raises all counters at least to this token. Returns whether a majority of each list confirmed it.
    pub async fn raise_counters(&self, to: FencingToken) -> bool {
        self.observe_token(to);
        tokio::time::timeout(RAISE_TIMEOUT, tokens::raise_counters(self, to)).await.unwrap_or(false)
    }

    /// Raises the floor when the highest token comes near it. Only the leader calls this.
    pub(crate) async fn raise_floor_ahead(&self) -> Result<(), FloorError> {
        if let Some(ahead) = self.tokens.low_water() { tokens::ensure(self, ahead).await } else { Ok(()) }
    }

    /// Takes a state of the quorum from the watch or from the reply to a write.
    ///
    /// An older state than the newest known one is ignored. So a revoked admission never comes back to this replica through a
    /// delayed watch.
    pub(crate) fn update(&self, quorum: Arc<RedisQuorum>) {
        self.update_if(quorum, is_newer);
    }

    /// Takes the state from the API server's own reply, after the server refused ours as old.
    ///
    /// It is correct even if its version is lower, because etcd can have been restored from a backup.
    pub(crate) fn replace_with_server_state(&self, quorum: Arc<RedisQuorum>) {
        self.update_if(quorum, |old, new| old.resource_version() != new.resource_version());
    }

    fn update_if(&self, quorum: Arc<RedisQuorum>, is_newer: impl Fn(&RedisQuorum, &RedisQuorum) -> bool) {
        let replaced = self.newest.send_if_modified(|newest| {
            let newer = quorum.uid() == newest.uid() && is_newer(newest, &quorum);
            if newer {
                timers::note_fencings(&self.links(), newest, &quorum);
                let rotation = |quorum: &RedisQuorum| quorum.status.as_ref()?.password_rotation.clone();
                if rotation(newest) != rotation(&quorum) || records_loss(newest) != records_loss(&quorum) {
                    self.read_secrets.notify_one();
                }
                *newest = quorum.clone();
            }
            newer
        });
        if replaced {
            self.tokens.update(&quorum);
            self.place();
            self.shared.announce();
        }
    }
}

impl Drop for QuorumSession {
    fn drop(&mut self) {
        self.context.metrics.certificate_expires(self.reference(), None);
        for link in self.links().iter() {
            link.end();
            self.remove_latency(link);
        }
    }
}

/// Publishes the Events of the links until the session is gone.
async fn publish(session: Weak<QuorumSession>, events: broadcast::Receiver<QuorumEvent>) {
    let mut events = BroadcastStream::new(events);
    while let Some(event) = events.next().await {
        // The log has the Events that this task missed.
        let Ok(event) = event else { continue };
        let Some(session) = session.upgrade() else { return };
        session.context.event(session.quorum().as_ref(), event.means(), event.to_string(), None).await;
    }
}

/// Whether `new` is a later state than `old`.
fn is_newer(old: &RedisQuorum, new: &RedisQuorum) -> bool {
    match (version(old), version(new)) {
        (Some(old), Some(new)) => new > old,
        _ => old.resource_version() != new.resource_version(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::runtime::fake_api;
    use crate::tests::found;

    /// A session with a quorum of three members that do not exist.
    pub(super) fn session() -> Arc<QuorumSession> {
        let context = fake_api::context(|_request| (404, json!({})));
        let quorum = parsed(json!({"metadata": {"name": "main", "uid": "q"}, "spec": {}}));
        QuorumSession::start(&context, Arc::new(quorum), broadcast::channel(8).0).unwrap()
    }

    #[tokio::test]
    async fn the_links_of_a_session_end_with_it() {
        let session = session();
        let links = session.links();
        assert!(links.len() == 3 && !session.is_broken());
        drop(session);
        let ended = || links.iter().all(|link| link.is_broken()).then_some(());
        assert!(found(Duration::from_secs(30), ended).await.is_some(), "each task has ended");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |version: &str| parsed(json!({"metadata": {"resourceVersion": version}, "spec": {}}));
        for (old, new, newer) in
            [("9", "10", true), ("10", "9", false), ("10", "10", false), ("a", "b", true), ("a", "a", false)]
        {
            assert_eq!(is_newer(&version(old), &version(new)), newer, "{old} {new}");
        }
    }
}
