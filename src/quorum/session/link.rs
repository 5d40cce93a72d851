//! The link of one replica to one member: a voting connection, and an admin connection that watches which process answers and
//! whether its users are open. It only observes. The leader's changes are in [`admin`], and external masters in [`external_link`].

mod admin;
mod busy;
mod external_link;
mod probes;
mod state;
mod target;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;

use super::{Announcements, ClockGuard};
use crate::api::RedisQuorum;
use crate::fence::Users;
use crate::quorum::model::agreement::Agreement;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::plan::MemberPlan;
use crate::quorum::model::unanswered::Unanswered;
use crate::redis_member::{Endpoint, Guard, Machine, Observation, RedisMember};
use crate::redlock::{MemberError, MemberName, RunId};
use crate::time::Monotonic;

pub use admin::AdminSession;
pub use state::LinkState;

/// The pause between two checks of a member.
const PROBE_PERIOD: Duration = Duration::from_millis(500);
/// Timeout of a connection attempt, and of each operation on an admin connection.
const ADMIN_DEADLINE: Duration = Duration::from_secs(1);

/// The address of a member, and the user for its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    pod_uid: String,
    admin: Endpoint,
    /// The same with the other password, which its process possibly accepts during a rotation.
    other_admin: Option<Endpoint>,
    users: Vec<String>,
}

/// The state that all links of a quorum share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) machine: Machine,
    pub(super) clocks: Arc<ClockGuard>,
    /// The records of the operators that share masters with the quorum. The links read them, and the votes depend on them.
    pub(super) agreement: Arc<Mutex<Agreement>>,
    pub(super) quorum: ObjectRef<RedisQuorum>,
    pub(super) announcements: Announcements,
    /// Events about the quorum, which its session publishes.
    pub(super) events: broadcast::Sender<QuorumEvent>,
}

impl Shared {
    /// Announces that the quorum must be reconciled. Without a receiver the announcement is dropped.
    pub(super) fn announce(&self) {
        let _ = self.announcements.send(self.quorum.clone());
    }
}

/// A voting connection, with its membership epoch and its guard on an external master.
type Voter = ((i64, Option<Guard>), Arc<RedisMember>);

/// The connections of this replica to one member.
pub struct MemberLink {
    /// The plan of the member.
    pub plan: MemberPlan,
    /// The member's name.
    pub name: MemberName,
    shared: Shared,
    /// The process that the status admits.
    admitted: Mutex<Option<RunId>>,
    /// The voting connection of one membership epoch.
    ///
    /// Another epoch has another one, so that an earlier electorate never votes with a later user.
    voter: Mutex<Option<Voter>>,
    target: watch::Sender<Option<Target>>,
    state: Mutex<LinkState>,
    /// Probes and changes exclude each other, so that no observation mixes the states of both.
    turn: tokio::sync::Mutex<()>,
    /// Watches the member. It ends with the link, or by a panic.
    pub(super) task: OnceLock<AbortHandle>,
}

impl MemberLink {
    pub(super) fn start(shared: Shared, plan: MemberPlan) -> Arc<Self> {
        let link = Arc::new(Self {
            name: MemberName::from(plan.name.as_str()),
            plan,
            shared,
            admitted: Mutex::default(),
            voter: Mutex::default(),
            target: watch::channel(None).0,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            task: OnceLock::new(),
        });
        // The task needs the link, so it is set afterwards, and only here.
        link.task.get_or_init(|| tokio::spawn(link.clone().watch()).abort_handle());
        link
    }

    /// Ends the probes and votes of a removed member, or of a session that ends.
    ///
    /// For a caller that still has this link, the member never answers again.
    pub(super) fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        self.voter.lock().take();
    }

    /// Whether its task, or that of its voting connection, has ended. A link in the list has no other end than a panic.
    pub(super) fn is_broken(&self) -> bool {
        let voter = self.voter.lock();
        self.task.get().is_some_and(AbortHandle::is_finished)
            || voter.as_ref().is_some_and(|(_, voter)| voter.has_ended())
    }

    /// The current state.
    pub fn state(&self) -> LinkState {
        self.state.lock().clone()
    }

    /// The address of the member.
    pub fn address(&self) -> Option<String> {
        self.target.borrow().as_ref().map(|target| target.admin.address.clone())
    }

    /// Whether the member has served no client for the maximum time, so that the operator must end it.
    pub fn is_stuck(&self) -> bool {
        self.state.lock().service.is_stuck(self.now())
    }

    /// Whether the connections or the memory of the member are used up. It still serves its connections.
    pub fn is_full(&self) -> bool {
        self.state.lock().service.is_full()
    }

    /// Whether a process answers.
    pub fn answers(&self) -> bool {
        self.state.lock().processes.answers()
    }

    fn now(&self) -> Monotonic {
        self.shared.machine.clock.monotonic()
    }

    /// Records that a leader fenced this process after its admission, so that its wait starts again.
    pub(super) fn note_fenced(&self, run_id: &RunId) {
        self.state.lock().fenced = Some((run_id.clone(), self.now()));
    }

    /// How long to wait until the next probe.
    fn pause(&self) -> Duration {
        self.state.lock().service.pause()
    }

    /// Records why an external master got no request. No pod shows its state.
    pub(super) fn note_missed(&self, trouble: &str) {
        if self.shared.agreement.lock().missed(&self.name, trouble) {
            self.shared.announce();
        }
    }

    /// Records a failed request to an external master.
    fn note_unanswered(&self, error: &MemberError) {
        if let Some(master) = &self.plan.external {
            self.note_missed(&Unanswered::of(master, error).to_string());
        }
    }

    /// Whether the process can vote. An external master has no user to open, so the status alone decides.
    fn users(&self, observation: &Observation) -> Users {
        let open = match self.plan.is_external() {
            true => self.admitted.lock().as_ref() == Some(&observation.run_id),
            false => !observation.open_users.is_empty(),
        };
        if open { Users::Open } else { Users::Closed }
    }
}

#[cfg(test)]
mod tests;
