//! The members one by one: what the fence decides, carried out until there is nothing left to do but wait.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt};

use super::{Error, RESYNC, Task, publish::Publisher, request};
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::{MilliTime, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum},
    evidence::{ContainerEvidence, container_state},
    fence::{
        Evidence, FenceStep, Process, Reach, Reason, Record, Verdict, View, decide,
        predecessor::{Facts, judge},
    },
    quorum::{
        model::{
            auth::Auth,
            effective,
            facts::{self, Whereabouts},
            membership::users_since,
            plan::{MemberPlan, Plan},
            record::{Stamps, publish, record_named},
        },
        session::{LinkView, MemberLink},
    },
    redis_member::acl::UserRule,
    redlock::RunId,
    time::Monotonic,
};

/// Steps in one reconciliation: raise the epoch, record the process, its predecessor's death, the admission. More are a quarrel,
/// and go on later.
pub(super) const STEPS: usize = 8;

/// A member that failed is looked at again after this, or when its link has news.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// One member in one reconciliation.
pub(super) struct Member<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) plan: &'a Plan,
    pub(super) auth: &'a Auth,
    pub(super) publisher: &'a Publisher<'a>,
    pub(super) member: &'a MemberPlan,
    pub(super) link: &'a Arc<MemberLink>,
}

/// All that is known of a member at one moment.
pub(super) struct Look {
    pub(super) now: Monotonic,
    pub(super) view: LinkView,
    pub(super) reach: Reach,
    pub(super) seen: Option<Process>,
    /// The pod shows the very container running that `seen` is in, as far as is known.
    pub(super) is_shown: bool,
    /// What is known of the process that `seen` has to wait for.
    pub(super) verdict: Verdict,
}

impl Task<'_> {
    /// Carries every member as far as it goes; until when nothing has to be done unless something happens.
    pub(super) async fn settle_members(
        &self,
        plan: &Plan,
        auth: &Auth,
        publisher: &Publisher<'_>,
    ) -> Result<Monotonic, Error> {
        let mut wake = self.now() + RESYNC;
        for (member, link) in self.linked(plan) {
            let member = Member { task: self, plan, auth, publisher, member, link: &link };
            match member.settle().await {
                Ok(until) => wake = wake.min(until.unwrap_or(wake)),
                // One member that fails must not keep the others waiting.
                Err(Error::Member(error)) => {
                    tracing::info!(member = %member.member.name, %error, "fence not carried out");
                    wake = wake.min(self.now() + AFTER_FAILURE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(wake.min(self.settle_external(plan, publisher).await?))
    }

    /// The members that vote or shall vote, with their links.
    pub(super) fn linked<'p>(&self, plan: &'p Plan) -> Vec<(&'p MemberPlan, Arc<MemberLink>)> {
        plan.members.iter().filter_map(|member| Some((member, self.session.link(&member.name)?))).collect()
    }

    /// What this replica sees of a member, and what it knows of the process that votes or voted last under `record`.
    pub(super) async fn look(&self, link: &MemberLink, quorum: &RedisQuorum, record: &Record) -> Result<Look, Error> {
        let now = self.now();
        let view = link.view();
        let namespace = quorum.namespace().unwrap_or_default();
        let pod = self.leader.context.pods.named(&namespace, &link.plan().pod_name());
        // The link has not followed to a new pod yet: whom it saw is nobody here.
        let elsewhere = pod.as_ref().is_some_and(|pod| view.pod_uid.is_some() && view.pod_uid != pod.uid());
        let runs = pod.as_ref().is_some_and(|pod| facts::runs(pod));
        let reach = match view.processes.reach(runs, now) {
            Reach::Seen(_) | Reach::Lost { .. } if elsewhere && !runs => Reach::NotRunning,
            Reach::Seen(_) | Reach::Lost { .. } if elsewhere => Reach::Connecting { since: now },
            reach => reach,
        };
        let seen = match &reach {
            Reach::Seen(sight) => Some(self.whereabouts(link, &view, &sight.run_id, pod.as_deref(), record)),
            _ => None,
        };
        let shown = pod.as_deref().and_then(facts::running_container);
        let is_shown = shown.is_some() && seen.as_ref().and_then(|seen| seen.container_id.as_deref()) == shown;
        let threat = record.threat_to(seen.as_ref().map(|seen| &seen.run_id));
        let verdict = self.verdict(quorum, threat, pod.as_deref()).await?;
        Ok(Look { now, view, reach, seen, is_shown, verdict })
    }

    /// Where the process runs that answers.
    fn whereabouts(
        &self,
        link: &MemberLink,
        view: &LinkView,
        run_id: &RunId,
        pod: Option<&Pod>,
        record: &Record,
    ) -> Process {
        let pod_uid = view.pod_uid.as_deref().unwrap_or_default();
        let gone = self.leader.context.pods.departed(pod_uid);
        let asked = view.observation.as_ref().map(|answer| answer.clock.sent);
        let container = asked.and_then(|asked| self.session.container_of(link.name().as_str(), pod_uid, run_id, asked));
        let container = container.as_deref();
        let sessions = &self.leader.sessions;
        facts::process(
            &Whereabouts { run_id, pod_uid, pods: [pod, gone.as_deref()], container, record },
            |name| sessions.node_identity(name),
            |machine| sessions.is_shared(machine),
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
        let (now, sessions) = (self.now(), &self.leader.sessions);
        let current = current.filter(|pod| pod.uid().as_deref() == Some(&process.pod_uid));
        let gone_since = current.is_none().then(|| self.session.gone_since(&process.pod_uid));
        let departed = self.leader.context.pods.departed(&process.pod_uid);
        let mut pods = [current, departed.as_deref()].into_iter().flatten();
        let terminated = process
            .container_id
            .as_ref()
            .is_some_and(|id| pods.any(|pod| container_state(pod, id) == ContainerEvidence::Dead));
        let node = process.node_name.as_deref().map(|name| sessions.node(name)).unwrap_or_default();
        // What was recorded may be known to be shared by now.
        let identity = process.node.clone().map(|node| facts::told_apart(node, |machine| sessions.is_shared(machine)));
        let verdict = judge(
            Some(&Process { node: identity, ..process.clone() }),
            &Facts {
                now,
                terminated,
                gone_since,
                node: &node,
                declared_dead: quorum.annotations().get(PREDECESSOR_DEAD_ANNOTATION).map(String::as_str),
            },
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
        let api: Api<Node> = Api::all(self.leader.context.client.clone());
        let live = request(api.get_opt(node)).await?;
        let transition = live.as_ref().and_then(facts::ready_transition);
        Ok(transition.is_some() && transition == self.leader.sessions.node_transition(node))
    }
}

impl Member<'_> {
    /// Steps until there is nothing left to do but wait; until when, at the latest.
    async fn settle(&self) -> Result<Option<Monotonic>, Error> {
        for _ in 0..STEPS {
            let quorum = self.task.session.quorum();
            let record = self.record(&quorum);
            let look = self.task.look(self.link, &quorum, &record).await?;
            match self.step(&quorum, &record, &look) {
                FenceStep::Nothing => return Ok(None),
                FenceStep::Wait { until } => return Ok(until),
                FenceStep::RestartProcess => {
                    self.restart_process(&record, &look).await?;
                    return Ok(None);
                }
                step => self.carry_out(step, &quorum, &record, &look).await?,
            }
        }
        Ok(Some(self.task.now() + AFTER_FAILURE))
    }

    pub(super) fn record(&self, quorum: &RedisQuorum) -> Record {
        record_named(quorum.status.as_ref(), &self.member.name)
    }

    /// The decision, with the settings of this very state of the quorum.
    pub(super) fn step(&self, quorum: &RedisQuorum, record: &Record, look: &Look) -> FenceStep {
        let seen = look.view.sight.as_ref();
        decide(&View {
            now: look.now,
            record,
            reach: &look.reach,
            predecessor: &look.verdict,
            rejoin_delay: effective::rejoin_delay_of(quorum),
            fenced_since: look.view.fenced_since,
            epoch_raised: look.view.raised == Some(self.task.leader.term.epoch),
            clock_jumped: seen.is_some_and(|seen| self.task.session.clocks().step_of(&seen.run_id).is_some()),
            stuck: self.link.is_stuck() && self.may_be_restarted(quorum, look.now),
            seen: look.seen.as_ref(),
        })
    }

    async fn carry_out(
        &self,
        step: FenceStep,
        quorum: &RedisQuorum,
        record: &Record,
        look: &Look,
    ) -> Result<(), Error> {
        match step {
            FenceStep::Nothing | FenceStep::Wait { .. } => Ok(()),
            FenceStep::RaiseEpoch => self.raise_epoch(look).await,
            FenceStep::WriteFenced { reason, rejoin_at, close } => {
                // A busy process obeys nobody.
                let close = close && reason != Reason::Busy;
                if close && record.admitted && !self.is_still(step, look).await? {
                    return Ok(());
                }
                self.write(step, quorum, record, look).await?;
                self.close_former(record);
                self.say_fenced(reason, rejoin_at, look).await;
                if close { self.close(look).await } else { Ok(()) }
            }
            FenceStep::Admit => self.admit(look).await,
            FenceStep::WritePending | FenceStep::WriteStarting => {
                self.write(step, quorum, record, look).await?;
                self.close_former(record);
                Ok(())
            }
            _ => self.write(step, quorum, record, look).await,
        }
    }

    async fn raise_epoch(&self, look: &Look) -> Result<(), Error> {
        let Some(seen) = &look.seen else { return Ok(()) };
        self.task.leader.raise_epoch(&mut self.link.turn(&seen.run_id).await?).await
    }

    /// Looks again before an admitted process is fenced: what was seen may be from before its opening.
    async fn is_still(&self, step: FenceStep, look: &Look) -> Result<bool, Error> {
        let Some(seen) = &look.seen else { return Ok(false) };
        self.link.turn(&seen.run_id).await?.observe().await?;
        let quorum = self.task.read().await?;
        let record = self.record(&quorum);
        let again = self.task.look(self.link, &quorum, &record).await?;
        let fences = |step| matches!(step, FenceStep::WriteFenced { close: true, .. });
        Ok(fences(step) && fences(self.step(&quorum, &record, &again)))
    }

    /// Only after the record says Fenced; the count starts when it is confirmed.
    pub(super) async fn close(&self, look: &Look) -> Result<(), Error> {
        let Some(seen) = &look.seen else { return Ok(()) };
        let rules = self.closing_rules();
        Ok(self.link.turn(&seen.run_id).await?.close(self.task.leader.term.epoch, &rules).await?)
    }

    /// The process before may still answer where its pod was: two live processes behind one name, and neither may vote. This
    /// confirms nothing for its successor, which goes on waiting for its death.
    fn close_former(&self, record: &Record) {
        if let Some(before) = record.may_be_open() {
            self.link.close_former(&before.run_id, self.task.leader.term.epoch, self.closing_rules());
        }
    }

    fn closing_rules(&self) -> Vec<UserRule> {
        let quorum = self.task.session.quorum();
        let since = users_since(quorum.status.as_ref(), &self.member.name, &self.plan.lists);
        self.plan.closing_rules(self.auth, &self.member.name, since)
    }

    /// Writes the record that a step leads to.
    pub(super) async fn write(
        &self,
        step: FenceStep,
        quorum: &RedisQuorum,
        record: &Record,
        look: &Look,
    ) -> Result<(), Error> {
        let next = record.after(step, look.seen.as_ref(), &look.verdict);
        let joins = self.plan.lists.learns(&self.member.name);
        let stamps = Stamps { rejoin_at: self.rejoin_at(step, quorum, look), joins, ..Stamps::default() };
        self.publisher
            .write_on(quorum, |status| {
                if let Some(member) = status.members.iter_mut().find(|member| member.name == self.member.name) {
                    publish(member, &next, stamps);
                }
                self.publisher.refresh(status);
            })
            .await?;
        tracing::info!(
            quorum = %self.task.session.reference(),
            member = %self.member.name,
            state = ?next.state,
            reason = ?next.reason,
            run_id = next.run_id.as_ref().map(tracing::field::display),
            "member"
        );
        Ok(())
    }

    /// In the wall clock's words, for people. A step that does not speak of it leaves it as it is.
    fn rejoin_at(&self, step: FenceStep, quorum: &RedisQuorum, look: &Look) -> Option<MilliTime> {
        match step {
            FenceStep::WriteFenced { rejoin_at, .. } => self.task.wall_time(rejoin_at?, look.now),
            // The count begins with this record.
            FenceStep::WritePredecessorDead => {
                self.task.wall_time(look.now + effective::rejoin_delay_of(quorum), look.now)
            }
            _ => None,
        }
    }

    pub(super) async fn say_fenced(&self, reason: Reason, rejoin_at: Option<Monotonic>, look: &Look) {
        let (member, by) = (self.member.name.clone(), || self.step_text(look));
        let until = rejoin_at.and_then(|at| self.task.wall_time(at, look.now));
        let until = until.map_or_else(|| "it is safe".to_owned(), |until| until.to_string());
        let event = match reason {
            Reason::FirstStart => QuorumEvent::Started { member, until },
            Reason::Restarted => QuorumEvent::Restarted { member, until },
            Reason::PredecessorUnconfirmed => QuorumEvent::PredecessorUnconfirmed { member },
            Reason::ClockJump => QuorumEvent::ClockStepped { member, by: by() },
            Reason::Busy => QuorumEvent::Busy { member },
            Reason::Leaving => QuorumEvent::Leaves { member },
            Reason::Updating => QuorumEvent::Updating { member },
        };
        self.task.tell(event).await;
    }
}
