//! The link of one replica to one member: a voting connection, and an admin connection that watches which process answers and
//! whether its users are open. It only looks; the leader's acts are in [`acts`], and masters that others run in [`external`].

mod acts;
mod busy;
mod external;
mod inspections;
mod retry;
mod target;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use acts::{ActError, Turn};
pub use external::Credentials;
pub use inspections::ScriptNews;
pub(super) use target::Access;

use retry::{RETRY_PERIOD, retry_pause};

use super::{Alarm, Announcements, ClockGuard, SharedAccord};
use crate::{
    api::RedisQuorum,
    fence::{ProcessWatch, Sight, clock::OwnClocks},
    quorum::model::plan::MemberPlan,
    redis_member::{AdminConnection, Endpoint, Fingerprint, Machine, Observation, RedisMember, Secret},
    redlock::{MemberError, MemberName, RunId},
    time::Monotonic,
};

/// Between two looks at a member.
const PROBE_PERIOD: Duration = Duration::from_millis(500);
/// For connecting, and for each operation on an admin connection.
const ADMIN_DEADLINE: Duration = Duration::from_secs(1);
/// Where a member is, and as whom to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    pod_uid: String,
    admin: Endpoint,
    /// The other password that its process may know, while passwords are rotated.
    other_password: Option<Secret>,
    users: Vec<String>,
}

/// What a link has seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The pod that `processes` are of. The target may have moved on a moment ago.
    pod_uid: Option<String>,
    processes: ProcessWatch,
    observation: Option<Observation>,
    fenced: Option<(RunId, Monotonic)>,
    raised: Option<(RunId, i64)>,
    /// The highest membership epoch that a user of a process carries, and users that were open on it though nobody asked about them.
    users: Option<(RunId, Option<i64>, Vec<String>)>,
    /// Where the last process of the pod before answered.
    former: Option<(RunId, Endpoint)>,
    /// Since when the record of a process has told of this quorum.
    record_since: Option<(RunId, i64)>,
    /// The certificate that a process served last.
    certificate: Option<(RunId, Fingerprint)>,
    /// Why the last connection could not be made.
    failure: Option<MemberError>,
    looks: inspections::Inspections,
}

/// What a link knows of its member at one moment.
#[derive(Clone, Debug)]
pub struct LinkView {
    /// The processes that answered.
    pub processes: ProcessWatch,
    /// The pod that they are of.
    pub pod_uid: Option<String>,
    /// Where the member is asked.
    pub address: Option<String>,
    /// The last sight, whether or not the process still answers.
    pub sight: Option<Sight>,
    /// What it said of itself.
    pub observation: Option<Observation>,
    /// When this replica learnt that the process of the last sight was fenced after an admission.
    pub fenced_since: Option<Monotonic>,
    /// The epoch that this replica raised on the process of the last sight.
    pub raised: Option<i64>,
    /// The highest membership epoch that a user of the process of the last sight carries, open or not.
    pub highest_epoch: Option<i64>,
    /// Since when its record has told of this quorum, on a master that others run.
    pub record_since: Option<i64>,
    /// The certificate that it served when it was connected to last.
    pub certificate: Option<Fingerprint>,
    /// Why it cannot be connected to, if it cannot.
    pub failure: Option<MemberError>,
}

impl LinkView {
    /// Whether the process in the pod with this UID lives and does not know the operator's password.
    #[must_use]
    pub fn is_refused_by(&self, pod_uid: Option<&str>) -> bool {
        self.failure == Some(MemberError::Refused) && pod_uid.is_some() && self.pod_uid.as_deref() == pod_uid
    }
}

/// What all links of a quorum share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) machine: Machine,
    pub(super) clocks: Arc<ClockGuard>,
    pub(super) accord: SharedAccord,
    pub(super) alarm: Alarm,
}

/// One member, as this replica is connected to it.
pub struct MemberLink {
    plan: MemberPlan,
    name: MemberName,
    quorum: ObjectRef<RedisQuorum>,
    machine: Machine,
    clocks: Arc<ClockGuard>,
    accord: SharedAccord,
    /// The process that the status admits.
    admitted: Mutex<Option<RunId>>,
    /// Of one membership epoch. Another epoch has another one, so that an electorate from before never votes as a user of after.
    voter: Mutex<Option<(i64, Arc<RedisMember>)>>,
    target: watch::Sender<Option<Target>>,
    seen: Mutex<Seen>,
    /// Probes and acts take turns, so that no look from before an act is taken for one after it.
    turn: tokio::sync::Mutex<()>,
    announcements: Announcements,
    /// Ends the watching.
    stop: CancellationToken,
}

impl MemberLink {
    pub(super) fn start(
        Shared { machine, clocks, accord, alarm }: Shared,
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
            accord,
            admitted: Mutex::default(),
            voter: Mutex::default(),
            target: watch::channel(None).0,
            seen: Mutex::default(),
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

    /// The member is no more: it is watched no longer. Whoever still has this link has a member that never answers again.
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
    #[must_use]
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// The member.
    #[must_use]
    pub fn plan(&self) -> &MemberPlan {
        &self.plan
    }

    /// What is known now.
    #[must_use]
    pub fn view(&self) -> LinkView {
        let target = self.target.borrow().clone();
        let seen = self.seen().clone();
        let sight = seen.processes.last().cloned();
        let of_sight = |run_id: &RunId| sight.as_ref().is_some_and(|sight| sight.run_id == *run_id);
        LinkView {
            fenced_since: seen.fenced.filter(|(run_id, _)| of_sight(run_id)).map(|(_, since)| since),
            raised: seen.raised.filter(|(run_id, _)| of_sight(run_id)).map(|(_, epoch)| epoch),
            highest_epoch: seen.users.filter(|(run_id, ..)| of_sight(run_id)).and_then(|(_, highest, _)| highest),
            record_since: seen.record_since.filter(|(run_id, _)| of_sight(run_id)).map(|(_, since)| since),
            certificate: seen.certificate.filter(|(run_id, _)| of_sight(run_id)).map(|(_, certificate)| certificate),
            failure: seen.failure,
            processes: seen.processes,
            pod_uid: seen.pod_uid,
            address: target.map(|target| target.admin.address),
            observation: seen.observation.filter(|observation| of_sight(&observation.run_id)),
            sight,
        }
    }

    /// Whether a process answers.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.seen().processes.answers()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    /// Some leader fenced this process after it had been admitted: its count starts again.
    pub(super) fn note_fenced(&self, run_id: &RunId) {
        self.seen().fenced = Some((run_id.clone(), self.machine.clock.monotonic()));
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
        let mut seen = self.seen();
        if last != Some(target) {
            // With another password, or of another process.
            seen.failure = None;
        }
        if last.is_some_and(|last| last.pod_uid == target.pod_uid) {
            return;
        }
        let former = seen.processes.last().map(|sight| sight.run_id.clone());
        seen.former = former.zip(last.map(|last| last.admin.clone()));
        seen.processes.moved(self.machine.clock.monotonic());
        seen.pod_uid = Some(target.pod_uid.clone());
    }

    /// Watches the member at one target, one connection after the other; each learns anew which process it is.
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
                    self.end_script_at(target).await;
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
        let news = error == MemberError::Refused && self.seen().failure.as_ref() != Some(&error);
        self.seen().failure = Some(error);
        if news {
            self.announce();
        }
    }

    fn note_connected(&self, admin: &AdminConnection) {
        let mut seen = self.seen();
        seen.failure = None;
        seen.certificate = admin.certificate().map(|certificate| (admin.run_id().clone(), certificate));
    }

    /// Probes until the connection ends. The end of a connection alone says nothing: a leader cuts the others' connections. If
    /// the process is gone, connecting fails in the next moment.
    async fn probe(&self, mut admin: AdminConnection, target: &Target) {
        loop {
            {
                let _turn = self.turn.lock().await;
                let users = self.asked_about(&target.users, admin.run_id());
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                match admin.observe(&users).await {
                    Ok(observation) => {
                        self.note_free();
                        let load = observation.load;
                        self.saw(observation);
                        if self.plan.is_external() {
                            self.look_at_record(&mut admin).await;
                        } else {
                            self.look_for_senders(&mut admin).await;
                            self.relieve(&mut admin, load).await;
                            self.sample_ttls(&mut admin).await;
                        }
                    }
                    Err(MemberError::Busy) if !self.plan.is_external() => self.end_scripts(&mut admin).await,
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

    fn saw(&self, observation: Observation) {
        let users = self.users(&observation);
        let own = OwnClocks::read(&*self.machine.clock);
        let stepped = self.clocks.saw(&self.name, &observation.run_id, users, observation.clock, own);
        let news = {
            let mut seen = self.seen();
            let before = seen.processes.last().filter(|_| seen.processes.answers()).cloned();
            let known = seen.observation.as_ref().is_some_and(|known| looks_the_same(known, &observation));
            seen.processes.saw(&observation.run_id, users, self.machine.clock.monotonic());
            seen.observation = Some(observation);
            before.as_ref() != seen.processes.last() || !known || stepped
        };
        if news {
            self.announce();
        }
    }

    fn lost(&self) {
        self.clocks.lost(&self.name);
        let news = {
            let mut seen = self.seen();
            let answered = seen.processes.answers();
            seen.processes.lost(self.machine.clock.monotonic());
            answered
        };
        if news {
            self.announce();
        }
    }

    fn announce(&self) {
        // Nobody listening is fine.
        let _ = self.announcements.send(self.quorum.clone());
    }
}

/// Whether nothing that a decision rests on has changed.
fn looks_the_same(one: &Observation, other: &Observation) -> bool {
    (&one.open_users, one.is_master, &one.maxmemory_policy)
        == (&other.open_users, other.is_master, &other.maxmemory_policy)
}

#[cfg(test)]
mod tests;
