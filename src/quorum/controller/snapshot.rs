//! The snapshot of one member: the state at this replica, and the input of the fence.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt};

use super::cluster::Cluster;
use super::error::Result;
use super::locks::{self, HeldLock, HeldVotes};
use super::memory::Memory;
use super::restart_turn::{Away, are_back_except};
use crate::api::requests::request;
use crate::api::{FenceReason, MemberState, MemoryStatus, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use crate::evidence::{ContainerEvidence, container_state};
use crate::fence::external_master::{decide_external, predecessor};
use crate::fence::predecessor::{Facts, judge};
use crate::fence::{Evidence, FenceInput, FenceStep, Process, Reach, Record, Verdict, decide};
use crate::quorum::model::effective;
use crate::quorum::model::facts::{self, ContainerReport, Whereabouts};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::record::record_named;
use crate::quorum::model::status::{has_forgotten, memory, unfit};
use crate::quorum::session::{LinkState, MemberLink, QuorumSession, Sessions};
use crate::redlock::RunId;
use crate::runtime::context::Context;
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
    /// The locks that are held on the quorum.
    pub(super) fn held_locks(&self, quorum: &RedisQuorum) -> Vec<HeldLock> {
        locks::held(self.context, self.votes, quorum)
    }

    /// The links to all members of a plan, the operator's own first.
    pub(super) fn links_of(&self, plan: &Plan) -> Vec<Arc<MemberLink>> {
        plan.all_members().filter_map(|member| self.session.link(&member.name)).collect()
    }

    /// Observes a member.
    ///
    /// The snapshot also has the verdict on the process that votes, or voted last, in this state of the quorum.
    pub(super) async fn observe(&self, link: &Arc<MemberLink>, quorum: Arc<RedisQuorum>) -> Result<MemberSnapshot> {
        let (now, state, name) = (self.context.clock.monotonic(), link.state(), link.name().as_str());
        let record = record_named(&quorum, name);
        let (reach, process, container_report, verdict) = match link.plan().is_external() {
            true => self.at_external(&record, &state, now),
            false => self.at_pod(link, &quorum, &record, &state, now).await?,
        };
        let clocks = self.session.clocks();
        // The times of all members that are away are recorded at each observation, whether or not one of them is stuck.
        let others_are_back = self.are_others_back(&quorum, link, now);
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
            container_report,
            verdict,
        })
    }

    /// The place of an external master. It has no pod or node, so only the connection matters.
    fn at_external(
        &self,
        record: &Record,
        state: &LinkState,
        now: Monotonic,
    ) -> (Reach, Option<Process>, ContainerReport, Verdict) {
        let reach = state.processes.reach(true, now);
        let process = match &reach {
            Reach::Answering(answering) => Some(Process {
                run_id: answering.run_id.clone(),
                pod_uid: String::new(),
                container_id: None,
                node_name: None,
                node: None,
            }),
            _ => None,
        };
        let verdict = predecessor(record, process.as_ref().map(|process| &process.run_id));
        (reach, process, ContainerReport::Running, verdict)
    }

    async fn at_pod(
        &self,
        link: &MemberLink,
        quorum: &RedisQuorum,
        record: &Record,
        state: &LinkState,
        now: Monotonic,
    ) -> Result<(Reach, Option<Process>, ContainerReport, Verdict)> {
        let pod = self.pod_of(link, quorum);
        // The link still follows an earlier pod, so its process is not in this one.
        let elsewhere = pod.as_ref().is_some_and(|pod| state.pod_uid.is_some() && state.pod_uid != pod.uid());
        let runs = pod.as_ref().is_some_and(|pod| facts::runs(pod));
        let reach = match state.processes.reach(runs, now) {
            Reach::Answering(_) | Reach::Lost { .. } if elsewhere && !runs => Reach::NotRunning,
            Reach::Answering(_) | Reach::Lost { .. } if elsewhere => Reach::Connecting { since: now },
            reach => reach,
        };
        let (process, container_report) = match &reach {
            Reach::Answering(answering) => {
                let (process, container_report) =
                    self.whereabouts(link, state, &answering.run_id, pod.as_deref(), record);
                (Some(process), container_report)
            }
            _ => (None, ContainerReport::NotYet),
        };
        let threat = record.threat_to(process.as_ref().map(|process| &process.run_id));
        let verdict = self.verdict(quorum, threat, pod.as_deref()).await?;
        Ok((reach, process, container_report, verdict))
    }

    pub(super) fn pod_of(&self, link: &MemberLink, quorum: &RedisQuorum) -> Option<Arc<Pod>> {
        self.context.pods.named(&quorum.namespace().unwrap_or_default(), &link.plan().pod_name())
    }

    /// The place where the answering process runs.
    fn whereabouts(
        &self,
        link: &MemberLink,
        state: &LinkState,
        run_id: &RunId,
        pod: Option<&Pod>,
        record: &Record,
    ) -> (Process, ContainerReport) {
        let pod_uid = state.pod_uid.as_deref().unwrap_or_default();
        let gone = self.context.pods.departed(pod_uid);
        let asked = state.observation().map(|answer| answer.clock.sent);
        let timers = self.session.timers();
        let container = asked.and_then(|asked| timers.container_of(link.name().as_str(), pod_uid, run_id, asked));
        let container = container.as_deref();
        facts::process(
            &Whereabouts { run_id, pod_uid, pods: [pod, gone.as_deref()], container, record },
            &self.sessions.nodes(),
        )
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
        let gone_since = current.is_none().then(|| self.session.timers().gone_since(&process.pod_uid));
        let departed = self.context.pods.departed(&process.pod_uid);
        let mut pods = [current, departed.as_deref()].into_iter().flatten();
        let has_ended = |id: &String| pods.any(|pod| container_state(pod, id) == ContainerEvidence::Dead);
        let terminated = process.container_id.as_ref().is_some_and(has_ended);
        let node = process.node_name.as_deref().map(|name| self.sessions.nodes().facts(name)).unwrap_or_default();
        // Several nodes can share the recorded IDs now.
        let identity = process.node.clone().map(|node| self.sessions.nodes().with_unique_ids(node));
        let declared_dead = quorum.annotations().get(PREDECESSOR_DEAD_ANNOTATION).map(String::as_str);
        let verdict = judge(
            Some(&Process { node: identity, ..process.clone() }),
            &Facts { now: self.context.clock.monotonic(), terminated, gone_since, node: &node, declared_dead },
        );
        match (&verdict, &process.node_name) {
            (Verdict::Dead(Evidence::NodeReady), Some(name)) if !self.is_still_ready(name).await? => {
                Ok(Verdict::Unconfirmed { node: Some(name.clone()), until: None })
            }
            _ => Ok(verdict),
        }
    }

    /// Reads the API server, because a stalled watch would show a node as Ready without end.
    async fn is_still_ready(&self, node: &str) -> Result<bool> {
        let api: Api<Node> = Api::all(self.context.client.clone());
        let live = request(api.get_opt(node)).await?;
        let transition = live.as_ref().and_then(facts::ready_transition);
        Ok(transition.is_some() && transition.as_deref() == self.sessions.nodes().transition(node))
    }

    /// Whether the other members allow a restart of this one, which serves no client.
    ///
    /// Members are restarted one at a time. Otherwise a client could make the quorum lose all locks at once.
    fn are_others_back(&self, quorum: &RedisQuorum, link: &MemberLink, now: Monotonic) -> bool {
        let away = quorum.members().iter().filter(|member| member.state != MemberState::Admitted);
        let away = away.map(|member| Away {
            name: &member.name,
            answers: member.reason != Some(FenceReason::Busy)
                && self.session.link(&member.name).is_some_and(|link| link.answers()),
        });
        let (name, delay) = (link.name().as_str(), effective::rejoin_delay_of(quorum));
        are_back_except(name, &mut self.memory.away.lock(), &away.collect::<Vec<_>>(), now, (link.is_full(), delay))
    }
}

impl MemberSnapshot {
    pub(super) fn name(&self) -> &str {
        self.link.name().as_str()
    }

    /// The same snapshot, with another state of the quorum.
    pub(super) fn by(&self, quorum: Arc<RedisQuorum>) -> Self {
        Self { record: record_named(&quorum, self.name()), quorum, ..self.clone() }
    }

    /// The decision, with the settings of this state of the quorum.
    pub(super) fn step(&self) -> FenceStep {
        let external = self.link.plan().is_external();
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
            forgot: memories.is_some_and(|(recorded, now)| has_forgotten(recorded, &now)),
            unfit: external && unfit(members, self.name(), observation).is_some(),
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
        self.state.observation().map(|observation| memory(observation, self.state.record_since()))
    }
}
