//! One quorum as every replica lives with it: connections to its members, what was seen of their processes, the highest
//! token.

mod agreement;
mod alarm;
mod auth_reader;
mod clock;
mod credentials;
mod electorate;
mod latency;
mod link;
mod link_list;
mod registry;
mod restarts;
mod scripts;
mod timers;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use agreement::SharedAgreement;
pub(crate) use auth_reader::{auth_of, authorities_of, records_loss};
pub use clock::ClockGuard;
pub use link::{ActError, AdminSession, Credentials, LinkReading, MemberLink, ScriptNews};
pub use registry::Sessions;
pub(crate) use tokens::floor_of;
pub use tokens::{FLOOR_STEP, FloorError};

use super::model::auth::Auth;
use super::model::lists::Lists;
use super::model::record::{admitted_run_id, record_named};
use super::model::{effective, plan, users};
use crate::api::RedisQuorum;
use crate::redis_member::{Authorities, Guard, TlsError};
use crate::redlock::{FencingToken, MemberError, Redlock, ValueSigner};
use crate::runtime::context::Context;
use crate::runtime::metrics::MemberLabels;
use crate::time::Clock;
use alarm::Alarm;
use link::{Access, Shared};
use link_list::LinkList;
use timers::Timers;
use tokens::Tokens;

/// News of a session: the quorum is to be looked at again.
type Announcements = broadcast::Sender<ObjectRef<RedisQuorum>>;

/// One quorum, as long as an object with its UID exists.
pub struct QuorumSession {
    context: Context,
    reference: ObjectRef<RedisQuorum>,
    uid: String,
    newest: watch::Sender<Arc<RedisQuorum>>,
    auth: watch::Sender<Option<Auth>>,
    authorities: watch::Sender<Option<Authorities>>,
    /// The Secrets are to be read now.
    read_secrets: Arc<Notify>,
    links: LinkList,
    clocks: Arc<ClockGuard>,
    agreement: SharedAgreement,
    /// Users of masters that others run, by member.
    credentials: Mutex<BTreeMap<String, Credentials>>,
    tokens: Tokens,
    timers: Timers,
    /// The links follow one state of the quorum after the other, never an older one.
    placing: Mutex<()>,
    announcements: Announcements,
    /// Raised when one of its tasks has panicked.
    alarm: Alarm,
    /// Ends the tasks of this session.
    _end: DropGuard,
}

impl QuorumSession {
    /// Starts the tasks of a session. `None` for an object that the API server has not seen.
    fn start(context: &Context, quorum: Arc<RedisQuorum>, announcements: Announcements) -> Option<Arc<Self>> {
        let (uid, reference) = (quorum.uid()?, ObjectRef::from_obj(quorum.as_ref()));
        let stop = CancellationToken::new();
        let agreement = SharedAgreement::new(&quorum);
        let clocks = Arc::new(ClockGuard::new(0, effective::clock_rule(&quorum)));
        let alarm = Alarm::default();
        let shared = Shared {
            alarm: alarm.clone(),
            machine: context.machine(),
            clocks: clocks.clone(),
            agreement: agreement.clone(),
        };
        let links = LinkList::new(shared, reference.clone(), announcements.clone(), stop.clone());
        let session = Arc::new(Self {
            context: context.clone(),
            reference,
            uid,
            newest: watch::channel(quorum.clone()).0,
            auth: watch::channel(None).0,
            authorities: watch::channel(None).0,
            read_secrets: Arc::default(),
            links,
            clocks,
            agreement,
            credentials: Mutex::default(),
            tokens: Tokens::new(&quorum),
            timers: Timers::new(context.clock.clone()),
            placing: Mutex::default(),
            announcements,
            alarm: alarm.clone(),
            _end: stop.clone().drop_guard(),
        });
        let (users, reader) = (Arc::downgrade(&session), Arc::downgrade(&session));
        let secrets = async { tokio::join!(auth_reader::follow(reader), credentials::follow(users)) };
        tokio::spawn(alarm.watching(async move {
            let _ended_or_stopped = stop.run_until_cancelled(secrets).await;
        }));
        session.place();
        Some(session)
    }

    /// The quorum that this session is about.
    pub fn reference(&self) -> &ObjectRef<RedisQuorum> {
        &self.reference
    }

    /// Whether one of its tasks has panicked: it is of no use any more.
    pub(super) fn is_broken(&self) -> bool {
        self.alarm.is_raised() || self.links().iter().any(|link| link.is_broken())
    }

    /// UID of the quorum.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The newest known state of the quorum.
    pub fn quorum(&self) -> Arc<RedisQuorum> {
        self.newest.borrow().clone()
    }

    /// Each newer state of the quorum.
    pub fn watch(&self) -> watch::Receiver<Arc<RedisQuorum>> {
        self.newest.subscribe()
    }

    /// The links to all members at this moment, those that join or leave included.
    pub fn links(&self) -> Arc<[Arc<MemberLink>]> {
        self.links.list()
    }

    /// The link to the member with this name.
    pub fn link(&self, name: &str) -> Option<Arc<MemberLink>> {
        self.links().iter().find(|link| link.name().as_str() == name).cloned()
    }

    /// The clocks of the members.
    pub fn clocks(&self) -> &ClockGuard {
        &self.clocks
    }

    /// The claims of the operators that share masters with this quorum.
    pub const fn agreement(&self) -> &SharedAgreement {
        &self.agreement
    }

    /// The start times of waits.
    pub(crate) const fn timers(&self) -> &Timers {
        &self.timers
    }

    /// The engine with this quorum's settings.
    pub fn redlock(&self) -> Redlock<dyn Clock> {
        Redlock::new(self.context.clock.clone(), effective::settings(&self.quorum()))
    }

    /// Signs lock values; `None` until the auth Secret has been read.
    pub fn signer(&self) -> Option<ValueSigner> {
        self.auth.borrow().as_ref().map(Auth::signer)
    }

    /// The secrets of the quorum, once they have been read.
    pub fn auth(&self) -> Option<Auth> {
        self.auth.borrow().clone()
    }

    /// The longest time to live that can be used.
    ///
    /// A larger `maxTTL` counts only once the status shows it, because fences are as long as the status requires.
    pub fn max_ttl_in_force(&self) -> Duration {
        let quorum = self.quorum();
        let in_force = quorum.status.as_ref().and_then(|status| status.max_ttl_in_force);
        in_force.map_or(Duration::ZERO, |in_force| in_force.get().min(quorum.spec.max_ttl.get()))
    }

    /// How long fences wait under what is in force; `None` as long as the status does not say it.
    pub fn rejoin_delay(&self) -> Option<Duration> {
        let quorum = self.quorum();
        effective::Effective::published(&quorum).map(|_| effective::current(&quorum).rejoin_delay())
    }

    /// The highest token that this replica has seen.
    pub fn hint(&self) -> FencingToken {
        self.tokens.highest()
    }

    /// A token was seen.
    pub fn observe_token(&self, token: FencingToken) {
        if self.tokens.observe(token) {
            self.announce();
        }
    }

    /// No token above this one can be published yet.
    pub fn token_floor(&self) -> FencingToken {
        self.tokens.floor()
    }

    /// Makes sure that the floor in etcd is at least `token`, before that token is published.
    /// When every member is lost, the sequence goes on above the floor.
    pub async fn ensure_token_floor(&self, token: FencingToken) -> Result<(), FloorError> {
        self.observe_token(token);
        tokens::ensure(self, token).await
    }

    /// Raises the floor when the highest token comes near it; for the leader, in the background.
    pub(crate) async fn raise_floor_ahead(&self) -> Result<(), FloorError> {
        match self.tokens.low_water() {
            Some(ahead) => tokens::ensure(self, ahead).await,
            None => Ok(()),
        }
    }

    /// A state of the quorum: from the watch, or answered to a write. An older one than the newest known is ignored, so that
    /// an admission that this replica has seen revoked never comes back through a watch that lags.
    pub(crate) fn update(&self, quorum: Arc<RedisQuorum>) {
        self.update_if(quorum, is_newer);
    }

    /// Takes the state in the API server's own answer, after it refused ours as old.
    ///
    /// It is right even if its version is lower, because etcd can have been restored from a backup.
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
            self.clocks.set_rule(effective::clock_rule(&quorum));
            self.place();
            self.announce();
        }
    }

    /// The secrets were read, or made.
    pub(crate) fn set_auth(&self, auth: Auth) {
        self.auth.send_replace(Some(auth));
        self.place();
        self.announce();
    }

    /// The trusted authorities from now on, in PEM.
    pub(crate) fn set_authorities(&self, pem: &str) -> Result<(), TlsError> {
        let authorities = Authorities::from_pem(pem.as_bytes())?.judged_by(self.context.server_time.clone());
        let news = self.authorities.send_if_modified(|current| {
            let news = current.as_ref() != Some(&authorities);
            *current = Some(authorities);
            news
        });
        if news {
            self.place();
            self.announce();
        }
        Ok(())
    }

    /// The users of masters that others run were read: those found, and what is wrong with the others.
    fn set_credentials(&self, found: BTreeMap<String, Credentials>, missing: &BTreeMap<String, String>) {
        self.credentials.lock().extend(found);
        self.place();
        for link in self.links().iter().filter(|link| !link.answers()) {
            if let Some(trouble) = missing.get(link.name().as_str()) {
                link.note_missed(trouble);
            }
        }
    }

    /// Makes the links those of the members, and tells each where its member is and as whom to connect.
    pub(super) fn place(&self) {
        let _one_after_the_other = self.placing.lock();
        let quorum = self.quorum();
        let (auth, authorities) = (self.auth(), self.authorities.borrow().clone());
        let epoch = Lists::of(&quorum).epoch;
        let namespace = self.reference.namespace.clone().unwrap_or_default();
        self.agreement.follow(&quorum);
        self.timers.note_change(&quorum);
        self.links.follow(plan::recorded_members(&quorum));
        for link in self.links().iter() {
            if link.plan().is_external() {
                let name = link.name();
                let admitted = admitted_run_id(&quorum, name.as_str());
                self.agreement.lock().admitted(name, admitted.clone());
                // No vote is given while a change is joint, so the guard is that of its end.
                let guard = Guard { uid: self.uid.clone(), epoch: 2 * epoch };
                let current = self.credentials.lock().get(name.as_str()).cloned();
                link.place_external(current, admitted, epoch, guard);
                continue;
            }
            let pod = self.context.pods.named(&namespace, &link.plan().pod_name());
            if let Some(pod) = &pod {
                self.timers.note_container(link.name().as_str(), pod);
            }
            let record = record_named(quorum.status.as_ref(), link.name().as_str());
            if let Some(process) = record.may_be_open() {
                let is_there = pod.as_ref().and_then(|pod| pod.uid()).as_ref() == Some(&process.pod_uid);
                self.timers.note_pod(&process.pod_uid, is_there);
            }
            let users = users::voting_users(&quorum, link.name().as_str());
            let access = Access { auth: auth.as_ref(), authorities: authorities.as_ref(), namespace: &namespace };
            if !link.place(pod.as_deref(), access, epoch, &users) {
                self.read_secrets.notify_one();
            }
        }
    }

    pub(super) fn announce(&self) {
        // Without a listener there is nothing to tell.
        let _ = self.announcements.send(self.reference.clone());
    }

    /// Whether some member's certificate does not match the current authorities.
    pub(super) fn is_distrustful(&self) -> bool {
        let untrusted = |link: &Arc<MemberLink>| matches!(link.reading().failure, Some(MemberError::Untrusted(_)));
        self.links().iter().any(untrusted)
    }

    /// Whether any member accepts the secrets that are known.
    pub(super) fn is_authenticated(&self) -> bool {
        let links = self.links();
        let mut own = links.iter().filter(|link| !link.plan().is_external()).peekable();
        // Masters of others are logged in to with users of theirs, so they tell nothing.
        if own.peek().is_some() { own.any(|link| link.answers()) } else { links.iter().any(|link| link.answers()) }
    }
}

impl Drop for QuorumSession {
    fn drop(&mut self) {
        for link in self.links().iter() {
            let labels = MemberLabels::of(&self.reference, link.name().as_str());
            self.context.metrics.member_latency.remove(&labels);
        }
    }
}

/// Whether `new` is a later state than `old`. Versions of one object are numbers that rise.
fn is_newer(old: &RedisQuorum, new: &RedisQuorum) -> bool {
    let version = |quorum: &RedisQuorum| quorum.resource_version().and_then(|version| version.parse::<u64>().ok());
    match (version(old), version(new)) {
        (Some(old), Some(new)) => new > old,
        _ => old.resource_version() != new.resource_version(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |version: &str| {
            let mut quorum = RedisQuorum::new("main", crate::api::RedisQuorumSpec::default());
            quorum.metadata.resource_version = Some(version.to_owned());
            quorum
        };
        for (old, new, newer) in
            [("9", "10", true), ("10", "9", false), ("10", "10", false), ("a", "b", true), ("a", "a", false)]
        {
            assert_eq!(is_newer(&version(old), &version(new)), newer, "{old} {new}");
        }
    }
}
