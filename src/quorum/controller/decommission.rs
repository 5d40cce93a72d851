//! The deletion of a quorum: its members are closed, and it goes when they can promise nothing any more. Nothing is made meanwhile,
//! and no member has to answer for it to end.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use super::{Error, RESYNC, Task, publish, request};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::problems::Problem;
use crate::{
    api::{
        MilliTime, PREDECESSOR_DEAD_ANNOTATION, QUORUM_FINALIZER, RedisQuorum,
        conditions::{CommonReason, QuorumCondition, find_condition, set_condition},
    },
    fence::{
        FenceStep, Process, Reach, Reason, Verdict,
        decommission::{EndStep, EndView, decide_end},
    },
    quorum::{
        model::{
            effective, facts,
            membership::users_since,
            plan::{self, Plan},
            record::{Stamps, record_named},
        },
        session::{MemberLink, auth_of},
    },
    redlock::MemberName,
    time::Monotonic,
};

/// So many held locks are named.
const NAMED: usize = 10;

/// How one member stands on its way to its end.
pub(super) enum Standing {
    Ended,
    /// Waits, at the latest until then, for what the text says.
    Waits(Option<Monotonic>, String),
}

impl Task<'_> {
    /// Carries the deletion as far as it goes; how long nothing has to be done unless something happens.
    pub(super) async fn end(&self) -> Result<Duration, Error> {
        let quorum = self.session.quorum();
        if !quorum.finalizers().iter().any(|finalizer| finalizer == QUORUM_FINALIZER) {
            return Ok(RESYNC);
        }
        let plan = plan_of_what_is(&quorum);
        let (mut wake, mut waits) = (RESYNC, Vec::new());
        for link in self.session.links().iter() {
            match self.end_member(plan.as_ref(), link, true).await? {
                Standing::Ended => {}
                Standing::Waits(until, what) => {
                    wake = wake.min(until.map_or(RESYNC, |until| until.since(self.now())));
                    waits.push(what);
                }
            }
        }
        if waits.is_empty() {
            if let Some(plan) = &plan {
                self.delete_client_copies(plan).await?;
            }
            self.release_finalizer().await?;
            return Ok(RESYNC);
        }
        self.say_what_is_awaited(&waits).await?;
        Ok(wake)
    }

    /// `deleted`: the quorum goes, and no fence of it will wait for what was promised.
    pub(super) async fn end_member(
        &self,
        plan: Option<&Plan>,
        link: &MemberLink,
        deleted: bool,
    ) -> Result<Standing, Error> {
        let name = link.name();
        let quorum = self.session.quorum();
        // Without a floor no member was ever admitted, and nothing was promised.
        let lingers = deleted && quorum.status.as_ref().is_some_and(|status| status.token_floor.is_some());
        if link.plan().is_external() {
            return Ok(match self.end_external(link, lingers).await? {
                EndStep::Wait { until } => Standing::Waits(Some(until), format!("the locks on {name} run out")),
                EndStep::Close => Standing::Waits(Some(self.now()), format!("{name} votes no more, its locks run out")),
                EndStep::Unconfirmed { .. } | EndStep::Ended => Standing::Ended,
            });
        }
        let record = record_named(quorum.status.as_ref(), name.as_str());
        let view = link.view();
        let pod = self.leader.context.pods.named(&quorum.namespace().unwrap_or_default(), &link.plan().pod_name());
        let reach = view.processes.reach(pod.as_ref().is_some_and(|pod| facts::runs(pod)), self.now());
        let threat = record.may_be_open();
        let verdict = self.verdict(&quorum, threat, pod.as_deref()).await?;
        let closed_since = threat.and_then(|process| self.closed_since(process.run_id.as_str()));
        let is_harmless = threat.is_none() || matches!(verdict, Verdict::Dead(_));
        let of_process = threat.map(|process| process.run_id.as_str());
        let harmless_since = (lingers && is_harmless).then(|| self.session.harmless_since(name.as_str(), of_process));
        let rejoin_delay = effective::current(&quorum).rejoin_delay();
        let step = decide_end(&EndView {
            now: self.now(),
            record: &record,
            reach: &reach,
            verdict: &verdict,
            rejoin_delay,
            closed_since,
            harmless_since,
        });
        if matches!(step, EndStep::Close | EndStep::Unconfirmed { .. }) {
            self.session.note_threat(name.as_str());
        }
        Ok(match step {
            EndStep::Ended => Standing::Ended,
            EndStep::Wait { until } if is_harmless => {
                Standing::Waits(Some(until), format!("{name} votes no more, its locks run out"))
            }
            EndStep::Wait { until } => Standing::Waits(Some(until), format!("{name} is closed, its locks run out")),
            EndStep::Unconfirmed { node, until } => {
                let pod_uid = pod.as_ref().and_then(|pod| pod.uid());
                if let Some(plan) = plan
                    && self.nobody_can_close(plan, view.is_refused_by(pod_uid.as_deref())).await?
                {
                    // Then its end is what there is to wait for.
                    self.remove::<StatefulSet>(plan, name.as_str()).await?;
                }
                Standing::Waits(until, unconfirmed(name, threat, node.as_deref()))
            }
            EndStep::Close => match (plan, &reach) {
                (Some(plan), Reach::Seen(_)) => self.close_for_good(plan, link, rejoin_delay).await,
                _ => Standing::Waits(None, format!("{name} is to be closed")),
            },
        })
    }

    /// Whether the member's secrets are lost: it refuses those that are known, or there are none.
    async fn nobody_can_close(&self, plan: &Plan, is_refused: bool) -> Result<bool, Error> {
        if self.session.auth().is_some() {
            return Ok(is_refused);
        }
        let secrets: Api<Secret> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let found = request(secrets.get_opt(&plan.auth_name())).await?;
        Ok(found.is_none_or(|secret| auth_of(&secret, &plan.uid).is_none()))
    }

    /// A failure is waited out: the member is tried again, or proves dead.
    async fn close_for_good(&self, plan: &Plan, link: &MemberLink, rejoin_delay: Duration) -> Standing {
        let name = link.name();
        match self.close(plan, link, rejoin_delay).await {
            Ok(until) => Standing::Waits(Some(until), format!("{name} is closed, its locks run out")),
            Err(error) => {
                tracing::info!(member = %name, error = &error as &dyn std::error::Error, "member not closed yet");
                Standing::Waits(Some(self.now() + Duration::from_secs(1)), format!("{name} is to be closed"))
            }
        }
    }

    async fn close(&self, plan: &Plan, link: &MemberLink, rejoin_delay: Duration) -> Result<Monotonic, Error> {
        let name = link.name().as_str();
        let (Some(auth), Some(sight)) = (self.session.auth(), link.view().sight) else { return Err(Error::Gone) };
        let epoch = self.leader.term.epoch;
        let mut turn = link.turn(&sight.run_id).await?;
        self.leader.raise_epoch(&mut turn).await?;
        let quorum = self.session.quorum();
        let record = record_named(quorum.status.as_ref(), name);
        let until = self.now() + rejoin_delay;
        let step = FenceStep::WriteFenced { reason: Reason::Leaving, rejoin_at: Some(until), close: true };
        let seen = record.process.clone().filter(|process| process.run_id == sight.run_id);
        let next = record.after(step, seen.as_ref(), &Verdict::None);
        let left = i64::try_from(rejoin_delay.as_millis()).unwrap_or(i64::MAX);
        let rejoin_at = MilliTime::from_millis(self.leader.context.api_now().0.saturating_add(left));
        publish::replace(self, &quorum, |status| {
            if let Some(member) = status.members.iter_mut().find(|member| member.name == name) {
                crate::quorum::model::record::publish(member, &next, Stamps { rejoin_at, ..Stamps::default() });
            }
        })
        .await?;
        let since = users_since(quorum.status.as_ref(), name, &plan.lists);
        turn.close(epoch, &plan.closing_rules(&auth, name, since)).await?;
        let now = self.now();
        self.leader.memory(self.session.uid(), |memory| memory.closed.insert(sight.run_id.to_string(), now));
        Ok(now + rejoin_delay)
    }

    fn closed_since(&self, run_id: &str) -> Option<Monotonic> {
        self.leader.memory(self.session.uid(), |memory| memory.closed.get(run_id).copied())
    }

    async fn say_what_is_awaited(&self, waits: &[String]) -> Result<(), Error> {
        let quorum = self.session.quorum();
        let (generation, now) = (quorum.metadata.generation, self.api_time());
        let held = lost_locks(&self.held_locks(&quorum));
        let told = held.as_ref().map(QuorumEvent::to_string);
        let waits = waits.iter().chain(&told).map(String::as_str).collect::<Vec<_>>().join("; ");
        let problem = Problem::Deleting { waits };
        let message = problem.to_string();
        let conditions = quorum.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let begins = find_condition(conditions, QuorumCondition::Ready)
            .is_none_or(|ready| ready.reason != CommonReason::Deleting.to_string());
        publish::replace(self, &quorum, |status| {
            for type_ in [QuorumCondition::Ready, QuorumCondition::QuorumAvailable] {
                let reason = problem.reason();
                set_condition(&mut status.conditions, type_, false, reason, message.as_str(), generation, now);
            }
        })
        .await?;
        if let Some(held) = held.filter(|_| begins) {
            self.tell(held).await;
        }
        Ok(())
    }
}

/// What a person should know who deletes a quorum while locks are held; `None` if none are.
fn lost_locks(held: &[String]) -> Option<QuorumEvent> {
    let named = held.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = held.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!held.is_empty()).then(|| QuorumEvent::DeletedWithLocks { locks: format!("{named}{rest}") })
}

fn unconfirmed(name: &MemberName, threat: Option<&Process>, node: Option<&str>) -> String {
    let node = node.unwrap_or("unknown");
    let uid = threat.map(|process| process.pod_uid.as_str()).unwrap_or_default();
    format!(
        "a process of {name} (pod UID {uid}) cannot be closed and may run on node {node}: it counts as ended once that node has \
         been Ready for 2 minutes without the pod, is tainted out-of-service or was deleted by the cloud provider, or when you \
         annotate this object with {PREDECESSOR_DEAD_ANNOTATION}={uid}"
    )
}

/// The members that were made, whatever the specification has become since.
fn plan_of_what_is(quorum: &RedisQuorum) -> Option<Plan> {
    plan::validate(quorum).ok().or_else(|| {
        let mut quorum = quorum.clone();
        quorum.spec.clients.clear();
        (quorum.spec.tls, quorum.spec.expose) = Default::default();
        quorum.spec.external.clear();
        // An odd number, and none of them missing: whom there is to close is read off the status.
        let own = quorum.status.as_ref()?.members.iter().filter(|member| member.external.is_none()).count();
        quorum.spec.members = i32::try_from(own | 1).ok()?;
        plan::validate(&quorum).ok()
    })
}
