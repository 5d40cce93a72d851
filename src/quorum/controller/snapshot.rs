//! The snapshot of one member: the state at this replica, and the input of the fence.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt};

use super::cluster::Cluster;
use super::error::Result;
use super::locks::{HeldLock, HeldVotes};
use super::memory::Memory;
use super::restart_turn::{Away, are_back_except};
use crate::api::requests::request;
use crate::api::{FenceReason, MemberState, MemoryStatus, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use crate::evidence::{ContainerEvidence, container_state};
use crate::fence::external_master::{decide_external, predecessor};
use crate::fence::predecessor::{Facts, judge};
use crate::fence::{Evidence, FenceInput, FenceStep, Process, Reach, Record, Verdict, decide};
use crate::quorum::model::facts::{self, ContainerReport, Whereabouts};
use crate::quorum::model::{effective, lookup, record, status};
use crate::quorum::session::{ActError, AdminSession, LinkState, MemberLink, QuorumSession, Sessions};
use crate::redlock::RunId;
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::runtime::leader::Term;
use crate::time::Monotonic;

/// The sources of the leader's data about one quorum in its term.
///
/// These are caches, sessions, the API server and the leader's memory.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) context: &'a Context,
    /// All sessions, which share the histories of nodes.
    pub(super) sessions: &'a Sessions,
    pub(super) session: &'a QuorumSession,
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) votes: &'a HeldVotes,
    pub(super) memory: &'a Memory,
    /// The term, whose epoch opens and closes users.
    pub(super) term: &'a Term,
}

/// The state of a member at one moment.
#[derive(Clone)]
pub(super) struct MemberSnapshot {
    pub(super) now: Monotonic,
    pub(super) link: Arc<MemberLink>,
    /// The state of the quorum for this snapshot.
    pub(super) quorum: Arc<RedisQuorum>,
    pub(super) record: Record,
    pub(super) state: LinkState,
    pub(super) reach: Reach,
    /// The answering process, and the place where it runs.
    pub(super) process: Option<Process>,
    /// Whether the pod shows the container of `process`.
    pub(super) container_report: ContainerReport,
    /// The verdict on the process whose death `process` must await.
    pub(super) verdict: Verdict,
    epoch_raised: bool,
    clock_jumped: bool,
    /// The process serves no client, and it is this member's turn to be ended.
    must_restart: bool,
}

impl Sources<'_> {
    /// All locks with a hold on the quorum.
    pub(super) fn held_locks(&self, quorum: &RedisQuorum) -> Vec<HeldLock> {
        let (uid, locks) = (quorum.metadata.uid.as_deref(), &self.context.locks);
        let recorded = uid.into_iter().flat_map(|uid| locks.under(&keys::held_on(Some(uid))));
        let held = recorded.chain(locks.under(&keys::held_on(None))).filter(|lock| lookup::holds_on(lock, quorum));
        held.map(|lock| (lock.clone(), (self.votes)(&lock))).collect()
    }

    /// Observes a member.
    ///
    /// The snapshot also has the verdict on the process that votes, or voted last, in this state of the quorum.
    pub(super) async fn observe(&self, link: &Arc<MemberLink>, quorum: Arc<RedisQuorum>) -> Result<MemberSnapshot> {
        let (now, state, external) = (self.context.clock.monotonic(), link.state(), link.plan.is_external());
        let record = record::record_named(&quorum, link.name.as_str());
        let pod = self.pod_of(link, &quorum);
        // The link still follows an earlier pod, so its process is not in this one.
        let elsewhere = pod.as_ref().is_some_and(|pod| state.pod_uid.is_some() && state.pod_uid != pod.uid());
        // Only the connection shows whether an external master runs.
        let runs = external || pod.as_ref().is_some_and(|pod| facts::runs(pod));
        let reach = match state.processes.reach(runs, now) {
            Reach::Answering(_) | Reach::Lost { .. } if elsewhere && !runs => Reach::NotRunning,
            Reach::Answering(_) | Reach::Lost { .. } if elsewhere => Reach::Connecting { since: now },
            reach => reach,
        };
        let place = |run_id: &RunId| {
            let pod_uid = state.pod_uid.as_deref().unwrap_or_default();
            let gone = self.context.pods.departed(pod_uid);
            let asked = state.observation().map(|answer| answer.clock.sent);
            let timers = &self.session.timers;
            let container = asked.and_then(|asked| timers.container_of(link.name.as_str(), pod_uid, run_id, asked));
            let (pods, container) = ([pod.as_deref(), gone.as_deref()], container.as_deref());
            facts::process(&Whereabouts { run_id, pod_uid, pods, container, record: &record }, &self.sessions.nodes())
        };
        let (process, container_report) = match &reach {
            Reach::Answering(answering) => Some(place(&answering.run_id)).unzip(),
            _ => (None, None),
        };
        let run_id = process.as_ref().map(|process| &process.run_id);
        let verdict = match external {
            true => predecessor(&record, run_id),
            false => self.verdict(&quorum, record.threat_to(run_id), pod.as_deref()).await?,
        };
        let clocks = self.session.clocks();
        // The times of all members that are away are recorded at each observation, whether or not one of them is stuck.
        let others_are_back = self.are_other_members_back(&quorum, link, now);
        Ok(MemberSnapshot {
            epoch_raised: state.raised() == Some(self.term.epoch),
            clock_jumped: state.processes.last().is_some_and(|last| clocks.step_of(&last.run_id).is_some()),
            must_restart: others_are_back && link.is_stuck(),
            link: link.clone(),
            now,
            quorum,
            record,
            state,
            reach,
            process,
            container_report: container_report.unwrap_or(ContainerReport::NotYet),
            verdict,
        })
    }

    /// The pod with the member's name. An external member has none.
    pub(super) fn pod_of(&self, link: &MemberLink, quorum: &RedisQuorum) -> Option<Arc<Pod>> {
        let namespace = quorum.namespace().filter(|_| !link.plan.is_external())?;
        self.context.pods.named(&namespace, &link.plan.pod_name())
    }

    /// Whether the process that was able to vote before is dead (rule 4).
    pub(super) async fn verdict(
        &self,
        quorum: &RedisQuorum,
        threat: Option<&Process>,
        current: Option<&Pod>,
    ) -> Result<Verdict> {
        let Some(process) = threat else { return Ok(Verdict::None) };
        let current = current.filter(|pod| pod.uid().as_deref() == Some(&process.pod_uid));
        let gone_since = current.is_none().then(|| self.session.timers.gone_since(&process.pod_uid));
        let departed = self.context.pods.departed(&process.pod_uid);
        let mut pods = [current, departed.as_deref()].into_iter().flatten();
        let has_ended = |id: &String| pods.any(|pod| container_state(pod, id) == ContainerEvidence::Dead);
        let terminated = process.container_id.as_ref().is_some_and(has_ended);
        let node = process.node_name.as_deref().map(|name| self.sessions.nodes().facts(name)).unwrap_or_default();
        // Several nodes can share the recorded IDs now.
        let identity = process.node.clone().map(|node| self.sessions.nodes().with_unique_ids(node));
        let declared_dead = quorum.annotations().get(PREDECESSOR_DEAD_ANNOTATION).map(String::as_str);
        let facts = Facts { now: self.context.clock.monotonic(), terminated, gone_since, node: &node, declared_dead };
        let verdict = judge(&Process { node: identity, ..process.clone() }, &facts);
        match (&verdict, &process.node_name) {
            (Verdict::Dead(Evidence::NodeReady), Some(name)) if !self.is_still_ready(name).await? => {
                Ok(Verdict::Unconfirmed { until: None })
            }
            _ => Ok(verdict),
        }
    }

    /// Reads the API server, because a stalled watch would show a node as Ready without end.
    async fn is_still_ready(&self, node: &str) -> Result<bool> {
        let live = request(Api::<Node>::all(self.context.client.clone()).get_opt(node)).await?;
        let transition = live.as_ref().and_then(facts::ready_transition);
        Ok(transition.is_some() && transition.as_deref() == self.sessions.nodes().transition(node))
    }

    /// Whether the other members allow a restart of this one, which serves no client.
    ///
    /// Members are restarted one at a time. Otherwise a client could make the quorum lose all locks at once.
    fn are_other_members_back(&self, quorum: &RedisQuorum, link: &MemberLink, now: Monotonic) -> bool {
        let away = quorum.members().iter().filter(|member| member.state != MemberState::Admitted);
        let away = away.map(|member| Away {
            name: &member.name,
            answers: member.reason != Some(FenceReason::Busy)
                && self.session.link(&member.name).is_some_and(|link| link.answers()),
        });
        let (name, delay) = (link.name.as_str(), effective::rejoin_delay_of(quorum));
        are_back_except(name, &mut self.memory.away.lock(), &away.collect::<Vec<_>>(), now, (link.is_full(), delay))
    }
}

impl MemberSnapshot {
    pub(super) fn name(&self) -> &str {
        self.link.name.as_str()
    }

    /// Connects to the answering process.
    pub(super) async fn admin_session(&self) -> Result<AdminSession<'_>, ActError> {
        self.link.admin_session(&self.process.as_ref().ok_or(ActError::OtherProcess)?.run_id).await
    }

    /// The same snapshot, with another state of the quorum.
    pub(super) fn by(&self, quorum: Arc<RedisQuorum>) -> Self {
        Self { record: record::record_named(&quorum, self.name()), quorum, ..self.clone() }
    }

    /// The decision, with the settings of this state of the quorum.
    pub(super) fn step(&self) -> FenceStep {
        let external = self.link.plan.is_external();
        let (members, observation) = (self.quorum.members(), self.state.observation());
        let memories = self.recorded_memory().zip(self.memory()).filter(|_| external);
        let input = FenceInput {
            now: self.now,
            record: &self.record,
            reach: &self.reach,
            predecessor: &self.verdict,
            rejoin_delay: effective::rejoin_delay_of(&self.quorum),
            fenced_since: self.state.fenced_since(),
            epoch_raised: self.epoch_raised,
            clock_jumped: self.clock_jumped,
            must_restart: self.must_restart,
            unreported: self.container_report == ContainerReport::Never,
            process: self.process.as_ref(),
            forgot: memories.is_some_and(|(recorded, now)| status::has_lost_data(recorded, &now)),
            unfit: external && status::unfit(members, self.name(), observation).is_some(),
        };
        if external { decide_external(&input) } else { decide(&input) }
    }

    /// The recorded evidence that an external master has kept its data.
    pub(super) fn recorded_memory(&self) -> Option<&MemoryStatus> {
        self.quorum.member(self.name())?.memory.as_ref()
    }

    /// The current evidence, from the answering process.
    pub(super) fn memory(&self) -> Option<MemoryStatus> {
        self.process.as_ref()?;
        self.state.observation().map(|observation| status::memory(observation, self.state.record_since()))
    }
}
