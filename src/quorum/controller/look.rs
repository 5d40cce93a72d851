//! One look at one member: what this replica sees of it, and what the fence makes of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt};

use super::error::Error;
use super::locks::{self, HeldLock, HeldVotes};
use super::memory::Memory;
use crate::api::requests::request;
use crate::api::{FenceReason, MemberState, MemberStatus, MemoryStatus, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use crate::evidence::{ContainerEvidence, container_state};
use crate::fence::external::{ExternalView, decide_external, predecessor};
use crate::fence::predecessor::{Facts, judge};
use crate::fence::{Evidence, FenceStep, Process, Reach, Record, Verdict, View, decide};
use crate::quorum::model::effective;
use crate::quorum::model::facts::{self, Shown, Whereabouts};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::record::{member_named, record_named};
use crate::quorum::model::status::{has_forgotten, memory, unfit};
use crate::quorum::session::{LinkView, MemberLink, QuorumSession, Sessions};
use crate::redlock::RunId;
use crate::runtime::context::Context;
use crate::time::Monotonic;

/// What looks are taken with.
#[derive(Clone, Copy)]
pub(super) struct Sights<'a> {
    context: &'a Context,
    /// They know of nodes.
    sessions: &'a Sessions,
    pub(super) session: &'a QuorumSession,
    votes: &'a HeldVotes,
    pub(super) memory: &'a Memory,
    /// Of this leader.
    pub(super) epoch: i64,
}

/// All that is known of a member at one moment.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) now: Monotonic,
    pub(super) link: Arc<MemberLink>,
    /// The state of the quorum that this is about.
    pub(super) quorum: Arc<RedisQuorum>,
    pub(super) record: Record,
    pub(super) view: LinkView,
    pub(super) reach: Reach,
    /// The process that answers, and where it runs.
    pub(super) seen: Option<Process>,
    /// Whether the pod shows the container of `seen`.
    pub(super) shown: Shown,
    /// What is known of the process that `seen` has to wait for.
    pub(super) verdict: Verdict,
    epoch_raised: bool,
    clock_jumped: bool,
    /// The process serves no client, and it is this member's turn to be ended.
    stuck: bool,
}

impl<'a> Sights<'a> {
    pub(super) const fn new(
        context: &'a Context,
        sessions: &'a Sessions,
        session: &'a QuorumSession,
        votes: &'a HeldVotes,
        memory: &'a Memory,
        epoch: i64,
    ) -> Self {
        Self { context, sessions, session, votes, memory, epoch }
    }

    /// The locks that are held on the quorum.
    pub(super) fn held_locks(&self, quorum: &RedisQuorum) -> Vec<HeldLock> {
        locks::held(self.context, self.votes, quorum)
    }

    /// The links to all members of a plan, the operator's own first.
    pub(super) fn links_of(&self, plan: &Plan) -> Vec<Arc<MemberLink>> {
        plan.all_members().filter_map(|member| self.session.link(&member.name)).collect()
    }

    /// A look by the newest known state of the quorum.
    pub(super) async fn look_now(&self, link: &Arc<MemberLink>) -> Result<Look, Error> {
        self.look(link, self.session.quorum()).await
    }

    /// What this replica sees of a member.
    ///
    /// The look also has what is known of the process that votes, or voted last, by this state of the quorum.
    pub(super) async fn look(&self, link: &Arc<MemberLink>, quorum: Arc<RedisQuorum>) -> Result<Look, Error> {
        let (now, view, name) = (self.context.clock.monotonic(), link.view(), link.name().as_str());
        let record = record_named(quorum.status.as_ref(), name);
        let (reach, seen, shown, verdict) = match link.plan().is_external() {
            true => self.at_external(&record, &view, now),
            false => self.at_pod(link, &quorum, &record, &view, now).await?,
        };
        let clocks = self.session.clocks();
        Ok(Look {
            epoch_raised: view.raised == Some(self.epoch),
            clock_jumped: view.sight.as_ref().is_some_and(|seen| clocks.step_of(&seen.run_id).is_some()),
            stuck: link.is_stuck() && self.may_be_restarted(&quorum, name, now),
            link: link.clone(),
            now,
            quorum,
            record,
            view,
            reach,
            seen,
            shown,
            verdict,
        })
    }

    /// Neither pod nor node tells of it.
    fn at_external(
        &self,
        record: &Record,
        view: &LinkView,
        now: Monotonic,
    ) -> (Reach, Option<Process>, Shown, Verdict) {
        let reach = view.processes.reach(true, now);
        let seen = match &reach {
            Reach::Seen(sight) => Some(Process {
                run_id: sight.run_id.clone(),
                pod_uid: String::new(),
                container_id: None,
                node_name: None,
                node: None,
            }),
            _ => None,
        };
        let verdict = predecessor(record, seen.as_ref().map(|seen| &seen.run_id));
        (reach, seen, Shown::Running, verdict)
    }

    async fn at_pod(
        &self,
        link: &MemberLink,
        quorum: &RedisQuorum,
        record: &Record,
        view: &LinkView,
        now: Monotonic,
    ) -> Result<(Reach, Option<Process>, Shown, Verdict), Error> {
        let pod = self.pod_of(link, quorum);
        // The link has not followed to a new pod yet: the process that it saw is not in this one.
        let elsewhere = pod.as_ref().is_some_and(|pod| view.pod_uid.is_some() && view.pod_uid != pod.uid());
        let runs = pod.as_ref().is_some_and(|pod| facts::runs(pod));
        let reach = match view.processes.reach(runs, now) {
            Reach::Seen(_) | Reach::Lost { .. } if elsewhere && !runs => Reach::NotRunning,
            Reach::Seen(_) | Reach::Lost { .. } if elsewhere => Reach::Connecting { since: now },
            reach => reach,
        };
        let (seen, shown) = match &reach {
            Reach::Seen(sight) => {
                let (process, shown) = self.whereabouts(link, view, &sight.run_id, pod.as_deref(), record);
                (Some(process), shown)
            }
            _ => (None, Shown::NotYet),
        };
        let threat = record.threat_to(seen.as_ref().map(|seen| &seen.run_id));
        let verdict = self.verdict(quorum, threat, pod.as_deref()).await?;
        Ok((reach, seen, shown, verdict))
    }

    pub(super) fn pod_of(&self, link: &MemberLink, quorum: &RedisQuorum) -> Option<Arc<Pod>> {
        self.context.pods.named(&quorum.namespace().unwrap_or_default(), &link.plan().pod_name())
    }

    /// Where the process runs that answers.
    fn whereabouts(
        &self,
        link: &MemberLink,
        view: &LinkView,
        run_id: &RunId,
        pod: Option<&Pod>,
        record: &Record,
    ) -> (Process, Shown) {
        let pod_uid = view.pod_uid.as_deref().unwrap_or_default();
        let gone = self.context.pods.departed(pod_uid);
        let asked = view.observation.as_ref().map(|answer| answer.clock.sent);
        let timers = self.session.timers();
        let container = asked.and_then(|asked| timers.container_of(link.name().as_str(), pod_uid, run_id, asked));
        let container = container.as_deref();
        facts::process(
            &Whereabouts { run_id, pod_uid, pods: [pod, gone.as_deref()], container, record },
            |name| self.sessions.node_identity(name),
            |machine| self.sessions.is_shared(machine),
        )
    }

    /// Is the process that could vote before dead? (Rule 4.)
    pub(super) async fn verdict(
        &self,
        quorum: &RedisQuorum,
        threat: Option<&Process>,
        current: Option<&Pod>,
    ) -> Result<Verdict, Error> {
        let Some(process) = threat else { return Ok(Verdict::None) };
        let current = current.filter(|pod| pod.uid().as_deref() == Some(&process.pod_uid));
        let gone_since = current.is_none().then(|| self.session.timers().gone_since(&process.pod_uid));
        let departed = self.context.pods.departed(&process.pod_uid);
        let mut pods = [current, departed.as_deref()].into_iter().flatten();
        let has_ended = |id: &String| pods.any(|pod| container_state(pod, id) == ContainerEvidence::Dead);
        let terminated = process.container_id.as_ref().is_some_and(has_ended);
        let node = process.node_name.as_deref().map(|name| self.sessions.node(name)).unwrap_or_default();
        // What was recorded may be known to be shared by now.
        let is_shared = |machine: &_| self.sessions.is_shared(machine);
        let identity = process.node.clone().map(|node| facts::told_apart(node, is_shared));
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

    /// A watch that stands still shows a node Ready for ever, so the API server is asked.
    async fn is_still_ready(&self, node: &str) -> Result<bool, Error> {
        let api: Api<Node> = Api::all(self.context.client.clone());
        let live = request(api.get_opt(node)).await?;
        let transition = live.as_ref().and_then(facts::ready_transition);
        Ok(transition.is_some() && transition == self.sessions.node_transition(node))
    }

    /// Whether this member may be restarted for a script that keeps it busy.
    ///
    /// Members are restarted one at a time. Otherwise a client could have all locks of the quorum forgotten at once.
    fn may_be_restarted(&self, quorum: &RedisQuorum, name: &str, now: Monotonic) -> bool {
        let is_away = |member: &MemberStatus| {
            let answers = self.session.link(&member.name).is_some_and(|link| link.is_seen());
            member.reason == Some(FenceReason::Busy) || (member.state != MemberState::Admitted && !answers)
        };
        let members = quorum.status.iter().flat_map(|status| &status.members);
        let others = members.filter(|member| member.name != name && is_away(member));
        let others: Vec<&str> = others.map(|member| member.name.as_str()).collect();
        are_all_back(&mut self.memory.away.lock(), &others, now, effective::rejoin_delay_of(quorum))
    }
}

impl Look {
    pub(super) fn name(&self) -> &str {
        self.link.name().as_str()
    }

    /// The same look, by another state of the quorum.
    pub(super) fn by(&self, quorum: Arc<RedisQuorum>) -> Self {
        Self { record: record_named(quorum.status.as_ref(), self.name()), quorum, ..self.clone() }
    }

    /// The decision, with the settings of this very state of the quorum.
    pub(super) fn step(&self) -> FenceStep {
        let rejoin_delay = effective::rejoin_delay_of(&self.quorum);
        if !self.link.plan().is_external() {
            return decide(&View {
                now: self.now,
                record: &self.record,
                reach: &self.reach,
                predecessor: &self.verdict,
                rejoin_delay,
                fenced_since: self.view.fenced_since,
                epoch_raised: self.epoch_raised,
                clock_jumped: self.clock_jumped,
                stuck: self.stuck,
                untold: self.shown == Shown::Never,
                seen: self.seen.as_ref(),
            });
        }
        let (status, observation) = (self.quorum.status.as_ref(), self.view.observation.as_ref());
        decide_external(&ExternalView {
            now: self.now,
            record: &self.record,
            reach: &self.reach,
            rejoin_delay,
            fenced_since: self.view.fenced_since,
            clock_jumped: self.clock_jumped,
            forgot: self.known_memory().zip(self.memory()).is_some_and(|(known, now)| has_forgotten(known, &now)),
            unfit: unfit(status, self.name(), observation).is_some(),
        })
    }

    /// What shows that the process of an external member remembers, as it is recorded.
    pub(super) fn known_memory(&self) -> Option<&MemoryStatus> {
        member_named(self.quorum.status.as_ref(), self.name())?.memory.as_ref()
    }

    /// The same of the process that answers.
    pub(super) fn memory(&self) -> Option<MemoryStatus> {
        self.seen.as_ref()?;
        self.view.observation.as_ref().map(|seen| memory(seen, self.view.record_since))
    }
}

/// Whether of the other members none is away that was sent away or vanished within the rejoin delay. One that has been away for longer
/// may never come back. `since`: since when each has been away, as far as this leader knows.
fn are_all_back(since: &mut BTreeMap<String, Monotonic>, away: &[&str], now: Monotonic, delay: Duration) -> bool {
    since.retain(|name, _| away.contains(&name.as_str()));
    let mut all = true;
    for name in away {
        let gone = *since.entry((*name).to_owned()).or_insert(now);
        all &= now.since(gone) >= delay;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_at_a_time_is_restarted() {
        const DELAY: Duration = Duration::from_secs(30);
        let at = |seconds| Monotonic::default() + Duration::from_secs(seconds);
        let mut since = BTreeMap::new();
        assert!(are_all_back(&mut since, &[], at(0), DELAY));
        assert!(!are_all_back(&mut since, &["m0"], at(10), DELAY), "it was sent away a moment ago");
        assert!(!are_all_back(&mut since, &["m0"], at(39), DELAY));
        assert!(are_all_back(&mut since, &["m0"], at(40), DELAY), "it may never come back");
        assert!(!are_all_back(&mut since, &["m0", "m1"], at(41), DELAY));
        assert!(are_all_back(&mut since, &[], at(42), DELAY), "all answer");
        assert!(!are_all_back(&mut since, &["m0"], at(43), DELAY), "another time");
    }
}
