//! The link of one replica to one member: a voting connection, and an admin connection that watches which process answers and
//! whether its users are open. It only looks; the leader's acts are in [`admin`], and masters that others run in [`external`].

mod admin;
mod busy;
mod external_link;
mod retry;
mod state;
mod target;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Alarm, Announcements, ClockGuard, SharedAgreement};
use crate::api::RedisQuorum;
use crate::fence::Users;
use crate::fence::clock::OwnClocks;
use crate::quorum::model::plan::MemberPlan;
use crate::redis_member::{AdminConnection, Endpoint, Machine, Observation, RedisMember, Secret};
use crate::redlock::{MemberError, MemberName, RunId};
use crate::time::Monotonic;
use retry::{RETRY_PERIOD, retry_pause};
use state::LinkState;

pub use admin::{ActError, AdminSession};
pub use busy::ScriptNews;
pub use external_link::Credentials;
pub use state::LinkReading;
pub(super) use target::Access;

/// Between two looks at a member.
const PROBE_PERIOD: Duration = Duration::from_millis(500);
/// For connecting, and for each operation on an admin connection.
const ADMIN_DEADLINE: Duration = Duration::from_secs(1);
/// Where a member is, and as whom to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    pod_uid: String,
    admin: Endpoint,
    /// The other password that its process perhaps has, while passwords are rotated.
    other_password: Option<Secret>,
    users: Vec<String>,
}

/// The state that all links of a quorum share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) machine: Machine,
    pub(super) clocks: Arc<ClockGuard>,
    pub(super) agreement: SharedAgreement,
    pub(super) alarm: Alarm,
}

/// One member, as this replica is connected to it.
pub struct MemberLink {
    plan: MemberPlan,
    name: MemberName,
    quorum: ObjectRef<RedisQuorum>,
    machine: Machine,
    clocks: Arc<ClockGuard>,
    agreement: SharedAgreement,
    /// The process that the status admits.
    admitted: Mutex<Option<RunId>>,
    /// The voting connection of one membership epoch. Another epoch has another one, so that an electorate from before
    /// never votes as a user of after.
    voter: Mutex<Option<(i64, Arc<RedisMember>)>>,
    target: watch::Sender<Option<Target>>,
    state: Mutex<LinkState>,
    /// Probes and acts take turns, so that no look from before an act is taken for one after it.
    turn: tokio::sync::Mutex<()>,
    announcements: Announcements,
    /// Ends the watching.
    stop: CancellationToken,
}

impl MemberLink {
    pub(super) fn start(
        Shared { machine, clocks, agreement, alarm }: Shared,
        plan: MemberPlan,
        quorum: ObjectRef<RedisQuorum>,
        announcements: Announcements,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            name: MemberName::from(plan.name.as_str()),
            plan,
            quorum,
            machine,
            clocks,
            agreement,
            admitted: Mutex::default(),
            voter: Mutex::default(),
            target: watch::channel(None).0,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            announcements,
            stop: stop.clone(),
        });
        let watching = link.clone().watch();
        tokio::spawn(alarm.watching(async move {
            let _ended_or_stopped = stop.run_until_cancelled(watching).await;
        }));
        link
    }

    /// The member is no more: it is watched no longer. A caller that still has this link has a member that never answers again.
    pub(super) fn end(&self) {
        self.stop.cancel();
        self.voter.lock().take();
    }

    /// Whether the task of its voting connection has panicked.
    pub(super) fn is_broken(&self) -> bool {
        let voter = self.voter.lock();
        voter.as_ref().is_some_and(|(_, voter)| voter.has_ended())
    }

    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// The member's name.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// The member.
    pub fn plan(&self) -> &MemberPlan {
        &self.plan
    }

    /// The current reading.
    pub fn reading(&self) -> LinkReading {
        let address = self.target.borrow().as_ref().map(|target| target.admin.address.clone());
        self.state().clone().reading(address)
    }

    /// Whether the member has served no client for so long that only its end helps.
    pub fn is_stuck(&self) -> bool {
        self.state().service.is_stuck(self.now())
    }

    /// News of a script, once.
    pub fn take_script_news(&self) -> Option<ScriptNews> {
        self.state().service.take_script_news(self.now())
    }

    /// Whether a process answers.
    pub fn answers(&self) -> bool {
        self.state().processes.answers()
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock()
    }

    fn now(&self) -> Monotonic {
        self.machine.clock.monotonic()
    }

    /// Some leader fenced this process after it had been admitted: its count starts again.
    pub(super) fn note_fenced(&self, run_id: &RunId) {
        self.state().fenced = Some((run_id.clone(), self.now()));
    }

    /// Watches the member wherever it is.
    async fn watch(self: Arc<Self>) {
        let mut places = self.target.subscribe();
        let mut last: Option<Target> = None;
        loop {
            let target = places.borrow_and_update().clone();
            if let Some(target) = &target {
                self.note_target(last.as_ref(), target);
                last = Some(target.clone());
            }
            let stay = async {
                match &target {
                    Some(target) => self.stay(target).await,
                    None => {
                        self.lost();
                        std::future::pending().await
                    }
                }
            };
            tokio::select! {
                () = stay => {}
                changed = places.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Another pod is another target: what was seen there says nothing of who answers here.
    fn note_target(&self, last: Option<&Target>, target: &Target) {
        let mut state = self.state();
        if last != Some(target) {
            // With another password, or of another process.
            state.failure = None;
        }
        if last.is_some_and(|last| last.pod_uid == target.pod_uid) {
            return;
        }
        state.processes.moved(self.now());
        state.pod_uid = Some(target.pod_uid.clone());
    }

    /// Watches the member at one target, with one connection after the other.
    ///
    /// Each connection learns again which process it is.
    async fn stay(&self, target: &Target) {
        let mut failures = 0;
        loop {
            match self.connect_admin(target).await {
                Ok(admin) => {
                    failures = 0;
                    self.note_connected(&admin);
                    self.probe(admin, target).await;
                }
                Err(MemberError::Busy) if !self.plan.is_external() => {
                    busy::end_script_at(self, target).await;
                    sleep(self.pause()).await;
                }
                // Alive, and no member of this kind has much to load.
                Err(MemberError::Busy | MemberError::Loading) => sleep(RETRY_PERIOD).await,
                Err(error) => {
                    tracing::trace!(member = %self.name, %error, "admin connection");
                    self.note_missed(&error.to_string());
                    self.note_failure(error);
                    self.lost();
                    sleep(retry_pause(failures, self.plan.is_external())).await;
                    failures += 1;
                }
            }
        }
    }

    async fn connect_admin(&self, target: &Target) -> Result<AdminConnection, MemberError> {
        let connect = |endpoint| AdminConnection::connect(endpoint, self.machine.clone(), ADMIN_DEADLINE);
        match (connect(&target.admin).await, &target.other_password) {
            (Err(MemberError::Refused), Some(password)) => {
                let admin = Endpoint { password: password.clone(), ..target.admin.clone() };
                AdminConnection::connect(&admin, self.machine.clone(), ADMIN_DEADLINE).await
            }
            (connected, _) => connected,
        }
    }

    fn note_failure(&self, error: MemberError) {
        let news = error == MemberError::Refused && self.state().failure.as_ref() != Some(&error);
        self.state().failure = Some(error);
        if news {
            self.announce();
        }
    }

    fn note_connected(&self, admin: &AdminConnection) {
        let mut state = self.state();
        state.failure = None;
        state.certificate = admin.certificate().map(|certificate| (admin.run_id().clone(), certificate));
    }

    /// Probes until the connection ends. The end of a connection alone says nothing: a leader cuts the others' connections. If
    /// the process is gone, connecting fails in the next moment.
    async fn probe(&self, mut admin: AdminConnection, target: &Target) {
        loop {
            {
                let _turn = self.turn.lock().await;
                let users = self.state().asked_about(&target.users, admin.run_id());
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                match admin.observe(&users).await {
                    Ok(observation) => {
                        let is_full = observation.load.is_full();
                        self.note_observation(observation);
                        if self.plan.is_external() {
                            external_link::read_record(self, &mut admin).await;
                        } else {
                            busy::note_full(self, is_full);
                        }
                    }
                    Err(MemberError::Busy) if !self.plan.is_external() => busy::end_script(self, &mut admin).await,
                    Err(MemberError::Busy | MemberError::Loading) => {}
                    Err(_) => return,
                }
            }
            tokio::select! {
                () = admin.disconnected() => return,
                () = sleep(self.pause()) => {}
            }
        }
    }

    fn note_observation(&self, observation: Observation) {
        let users = self.users(&observation);
        let own = OwnClocks::read(&*self.machine.clock);
        let stepped = self.clocks.observe(&self.name, &observation.run_id, users, observation.clock, own);
        let news = {
            let mut state = self.state();
            let before = state.processes.last().filter(|_| state.processes.answers()).cloned();
            let same = state.observation.as_ref().is_some_and(|before| is_unchanged(before, &observation));
            state.processes.observe(&observation.run_id, users, self.now());
            state.observation = Some(observation);
            before.as_ref() != state.processes.last() || !same || stepped
        };
        if news {
            self.announce();
        }
    }

    fn lost(&self) {
        self.clocks.lost(&self.name);
        let news = {
            let mut state = self.state();
            let answered = state.processes.answers();
            state.processes.lost(self.now());
            answered
        };
        if news {
            self.announce();
        }
    }

    /// How long to wait until the next look.
    fn pause(&self) -> Duration {
        self.state().service.pause()
    }

    /// Why the member was not asked; for masters that others run, whose state no pod tells.
    pub(super) fn note_missed(&self, trouble: &str) {
        if self.agreement.lock().missed(&self.name, trouble) {
            self.announce();
        }
    }

    /// Whether votes of the process can count. An external master has no user to open, so the status alone decides.
    fn users(&self, observation: &Observation) -> Users {
        let open = if self.plan.is_external() {
            self.admitted.lock().as_ref() == Some(&observation.run_id)
        } else {
            !observation.open_users.is_empty()
        };
        if open { Users::Open } else { Users::Closed }
    }

    fn announce(&self) {
        // Without a listener there is nothing to tell.
        let _ = self.announcements.send(self.quorum.clone());
    }
}

/// Whether nothing that a decision rests on has changed.
fn is_unchanged(one: &Observation, other: &Observation) -> bool {
    let keys = |observed: &Observation| {
        // Exact averages would be news at each probe.
        (observed.endless_keys() > 0, observed.keyspace.average_ttl.as_secs().checked_ilog2())
    };
    (&one.open_users, one.is_master, &one.maxmemory_policy, keys(one))
        == (&other.open_users, other.is_master, &other.maxmemory_policy, keys(other))
}

#[cfg(test)]
mod tests;
