//! Rolling updates carried out: what [`rollout`] decides, one step in each reconciliation.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{Error, Task, delete, members::Member, publish::Publisher};
use crate::{
    api::{ROLLOUT_ANNOTATION, RedisQuorum},
    fence::{FenceStep, Reason, State},
    quorum::{
        model::{
            auth::Auth,
            lists::Lists,
            plan::{MemberPlan, Plan},
            record::record_named,
            rollout::{self, MemberView, Obstacle, Progress, RolloutStep, Standing, View},
        },
        session::ActError,
    },
};

/// The label by which a StatefulSet marks its pods with the revision of their template.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Locks are looked at this often while an update waits for them: their renewals wake nobody here.
const LOCKS_PERIOD: Duration = Duration::from_secs(1);

impl Task<'_> {
    /// Takes one step of an update, if there is one; when to look again unless something happens.
    pub(super) async fn roll(
        &self,
        plan: &Plan,
        auth: &Auth,
        publisher: &Publisher<'_>,
    ) -> Result<Option<Duration>, Error> {
        let step = self.rollout_step(plan, &self.session.quorum());
        let name = match &step {
            RolloutStep::Wait { until: Obstacle::Locks(_), .. } => return Ok(Some(LOCKS_PERIOD)),
            RolloutStep::CloseAndReplace(name) | RolloutStep::Replace(name) => name,
            _ => return Ok(None),
        };
        // Asked of the API server: a leader that was frozen must not act on what was true before.
        let quorum = self.read().await?;
        let (found, link) = (plan.member(name), self.session.link(name));
        let is_still = Lists::of(&quorum) == plan.lists && self.rollout_step(plan, &quorum) == step;
        let (Some(member), Some(link), true) = (found, link, is_still) else {
            return Ok(Some(LOCKS_PERIOD));
        };
        if matches!(step, RolloutStep::CloseAndReplace(_)) {
            let member = Member { task: self, plan, auth, publisher, member, link: &link };
            match member.close_for_update(&quorum).await {
                Ok(true) => {}
                Ok(false) => return Ok(Some(LOCKS_PERIOD)),
                // It is recorded as closed, so it is replaced next, and its successor waits for its death.
                Err(Error::Member(error)) => {
                    tracing::info!(member = %name, %error, "not closed before its update");
                    return Ok(Some(LOCKS_PERIOD));
                }
                Err(error) => return Err(error),
            }
        }
        self.delete_pod(plan, member).await?;
        Ok(None)
    }

    /// How far an update is, in words.
    pub(super) fn progress(&self, plan: &Plan) -> Option<Progress> {
        rollout::progress(&self.rollout_step(plan, &self.session.quorum()), plan.members.len())
    }

    pub(super) fn rollout_step(&self, plan: &Plan, quorum: &RedisQuorum) -> RolloutStep {
        let members: Vec<_> = plan.all_members().map(|member| self.member_view(plan, member, quorum)).collect();
        let incomplete_locks = self.incomplete_locks(plan, quorum);
        let paused = quorum.annotations().get(ROLLOUT_ANNOTATION).is_some_and(|value| value == "paused");
        // What has only begun to learn waits for the update, and what is joint the update waits for.
        let changing = plan.lists.is_joint();
        rollout::decide(&View { members: &members, paused, changing, incomplete_locks: &incomplete_locks })
    }

    fn member_view(&self, plan: &Plan, member: &MemberPlan, quorum: &RedisQuorum) -> MemberView {
        let record = record_named(quorum.status.as_ref(), &member.name);
        let standing = match record.state {
            State::Admitted => Standing::Admitted,
            State::Unreachable if record.admitted => Standing::Silent,
            State::Fenced if record.reason == Some(Reason::Updating) => Standing::ClosedForUpdate,
            _ => Standing::Out,
        };
        if member.is_external() {
            // Nobody here replaces it, and it has to vote while another one is replaced.
            return MemberView { name: member.name.clone(), outdated: Some(false), standing };
        }
        let auth = self.session.auth();
        let lost = record.admitted && auth.is_some_and(|auth| self.is_lost(plan, &auth, member));
        let set = self.leader.owned.stateful_sets.named(&plan.namespace, &member.name);
        let pod = self.leader.context.pods.named(&plan.namespace, &member.pod_name());
        // An edit by somebody, or an older template than the one just written: it says nothing of what the pod shall be.
        let set = set.filter(|set| self.is_settled(set.as_ref()));
        let outdated = set.zip(pod).and_then(|(set, pod)| is_outdated(&set, &pod));
        // Not while it ends: it is waited for then.
        let standing = if lost && outdated == Some(true) { Standing::Lost } else { standing };
        MemberView { name: member.name.clone(), outdated, standing }
    }

    async fn delete_pod(&self, plan: &Plan, member: &MemberPlan) -> Result<(), Error> {
        let name = member.pod_name();
        let Some(pod) = self.leader.context.pods.named(&plan.namespace, &name) else { return Ok(()) };
        if delete(&self.leader.context.client, pod.as_ref()).await? {
            tracing::info!(quorum = %self.session.reference(), pod = %name, "deleted, for the newer template");
        }
        Ok(())
    }
}

impl Member<'_> {
    /// Closes an admitted member whose pod is about to go, in the fence's order: the record first. False if the fence has
    /// something else to do with it.
    async fn close_for_update(&self, quorum: &RedisQuorum) -> Result<bool, Error> {
        let record = self.record(quorum);
        let look = self.task.look(self.link, quorum, &record).await?;
        if self.step(quorum, &record, &look) != FenceStep::Nothing {
            return Ok(false);
        }
        if look.seen.is_none() {
            return Err(ActError::OtherProcess.into());
        }
        // No time brings it back: its successor gets one.
        let step = FenceStep::WriteFenced { reason: Reason::Updating, rejoin_at: None, close: true };
        self.write(step, quorum, &record, &look).await?;
        self.say_fenced(Reason::Updating, None, &look).await;
        self.close(&look).await?;
        Ok(true)
    }
}

/// Whether a pod was made from an older template than its StatefulSet has now; `None` if that cannot be told yet.
fn is_outdated(set: &StatefulSet, pod: &Pod) -> Option<bool> {
    let status = set.status.as_ref()?;
    let current = status.observed_generation.is_some() && status.observed_generation == set.metadata.generation;
    let newest = status.update_revision.as_ref().filter(|_| current && pod.metadata.deletion_timestamp.is_none())?;
    Some(pod.labels().get(REVISION_LABEL)? != newest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_outdated_when_its_revision_is_not_the_newest() {
        let set = |observed: i64| -> StatefulSet {
            let status = json!({"observedGeneration": observed, "updateRevision": "q-0-b", "replicas": 1});
            serde_json::from_value(json!({"metadata": {"generation": 2}, "status": status})).unwrap()
        };
        let pod = |revision: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"labels": {REVISION_LABEL: revision}}})).unwrap()
        };
        assert_eq!(is_outdated(&set(2), &pod("q-0-a")), Some(true));
        assert_eq!(is_outdated(&set(2), &pod("q-0-b")), Some(false));
        // The StatefulSet controller has not looked at the newest template.
        assert_eq!(is_outdated(&set(1), &pod("q-0-a")), None);
        assert_eq!(is_outdated(&set(2), &Pod::default()), None);
        let mut ending = pod("q-0-a");
        ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(is_outdated(&set(2), &ending), None);
    }
}
