//! The state of the holder that a status names by the caches, and the verdict on its hold.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::{DistributedLock, JOB_TOKEN_ANNOTATION};
use crate::lock::model::candidate::{self, Candidate};
use crate::lock::model::end::{Doubt, End};
use crate::lock::model::hold::HeldFor;
use crate::lock::model::instance::{self, Instance, PodEvidence};
use crate::lock::model::job::{self, JobEvidence, JobPods};
use crate::lock::model::nodes;
use crate::lock::model::verdict::{
    Evidence, Liveness, Verdict, all_of, belongs_to, is_deleting, is_ending, is_watched_owner, judge, must_be_healthy,
    was_held_before,
};
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::time::UnixMillis;

/// Judges the hold in `lock.status` from the caches.
///
/// `unhealthy` is a failure of the holder's liveness check or heartbeat.
pub fn verdict(context: &Context, lock: &DistributedLock, unhealthy: Option<&End>) -> Verdict {
    let held_for = HeldFor::of(lock, context.api_clock(), context.clock.boottime());
    let namespace = context.namespaces.cluster_named(&lock.namespace().unwrap_or_default());
    let evidence = Evidence {
        liveness: liveness(context, lock),
        namespace_ends: namespace.is_some_and(|namespace| is_ending(&namespace)),
        cordoned_node: cordoned_node(context, lock),
        api_now: context.api_now(),
        held_for,
    };
    match (judge(lock, &evidence), unhealthy) {
        (Verdict::Keep, Some(end)) if must_be_healthy(lock, held_for) => Verdict::LetExpire(end.clone()),
        (verdict, _) => verdict,
    }
}

/// The leader's node, if it was cordoned after the grant and another candidate is ready elsewhere.
fn cordoned_node(context: &Context, lock: &DistributedLock) -> Option<String> {
    let holder = lock.spec.election.as_ref().and(lock.holder())?;
    let node = context.nodes.cluster_named(holder.node_name.as_deref()?)?;
    // This comes before the search of all candidates, which each verdict on this node would repeat.
    if !nodes::cordoned_at(&node).is_some_and(|at| was_held_before(lock, at)) {
        return None;
    }
    has_another_candidate(context, lock).then(|| node.name_any())
}

/// Whether another candidate of the election could be elected now, on a node that is not cordoned.
pub fn has_another_candidate(context: &Context, lock: &DistributedLock) -> bool {
    let Some((election, holder)) = lock.spec.election.as_ref().zip(lock.holder()) else { return false };
    let pods = context.pods.under(&keys::namespace(&lock.namespace().unwrap_or_default()));
    let Ok((candidates, _)) = candidate::of_election(election, &pods, &context.nodes.all()) else { return false };
    let now = context.api_now().0;
    let waits = |pod: &Candidate| candidate::back_off(lock, pod).is_some_and(|(_times, at)| now < at.as_millis());
    let is_able = |other: &Candidate| !other.on_cordoned_node && !waits(other);
    candidates.iter().any(|other| is_able(other) && other.holder.pod_uid != holder.pod_uid)
}

fn liveness(context: &Context, lock: &DistributedLock) -> Liveness {
    let Some(holder) = lock.holder() else { return Liveness::Unbound };
    let namespace = lock.namespace().unwrap_or_default();
    // Without the cache of Jobs nothing is known about the Job.
    if let (Some(jobs), Some(name), Some(uid)) = (&context.jobs, &holder.job_name, &holder.job_uid) {
        let token = lock.fencing_token().unwrap_or_default();
        let job = jobs.named(&namespace, name).filter(|job| job.uid().as_deref() == Some(uid));
        return Liveness::Job(JobEvidence::of(job.as_deref(), job_pods(context, &namespace, uid, token), token));
    }
    let now = context.api_now();
    of_pod(context, lock, |id, evidence| Liveness::Bound(instance::judge_holder(lock, id, evidence, now)))
        .unwrap_or_else(|| owner_liveness(context, lock, &namespace))
}

/// Judges the holder's container by the caches. `None` if the holder is no pod.
fn of_pod<T>(
    context: &Context,
    lock: &DistributedLock,
    judge: impl FnOnce(Option<&str>, PodEvidence<'_>) -> T,
) -> Option<T> {
    let holder = lock.holder()?;
    let (pod_name, pod_uid) = (holder.pod_name.as_ref()?, holder.pod_uid.as_ref()?);
    let pod = context.pods.named(&lock.namespace().unwrap_or_default(), pod_name);
    let pod = pod.filter(|pod| pod.uid().as_ref() == Some(pod_uid));
    let departed = context.pods.departed(pod_uid);
    let node_is_lost = is_lost(context, holder.node_name.as_deref());
    let evidence = PodEvidence { pod: pod.as_deref(), departed: departed.as_deref(), node_is_lost };
    Some(judge(holder.container_id.as_deref(), evidence))
}

/// The earliest time at which the pod of the holder can have run another container than the ended one.
pub fn successor_since(context: &Context, lock: &DistributedLock) -> UnixMillis {
    of_pod(context, lock, instance::successor_since).unwrap_or(UnixMillis(i64::MIN))
}

fn is_lost(context: &Context, node: Option<&str>) -> bool {
    node.is_some_and(|node| context.node_watch.is_lost(node))
}

/// The state of the pods of a deleted claim's owner, such as a Job.
///
/// Kubernetes deletes the claims of a deleted Job together with its pods, and the pods can work through their grace period. The claim is
/// therefore held until each cached pod has ended. Then it runs out, because there can be other pods.
fn owner_liveness(context: &Context, lock: &DistributedLock, namespace: &str) -> Liveness {
    let owners: Vec<_> = lock.owner_references().iter().filter(|owner| is_watched_owner(owner)).collect();
    if owners.is_empty() || !is_deleting(lock) {
        return Liveness::Unbound;
    }
    let is_owned =
        |pod: &Pod| pod.namespace().as_deref() == Some(namespace) && owners.iter().any(|owner| belongs_to(pod, owner));
    let uids: Vec<_> = owners.iter().map(|owner| owner.uid.as_str()).collect();
    let pods = pods_of(context, &uids, is_owned).into_iter().map(|(_, instance)| instance).collect();
    let complete = owners.iter().all(|owner| owner.kind == "Pod");
    Liveness::Owned(all_of(pods, complete))
}

/// The state of the pods of a Job, for the hold with this token.
pub fn job_pods(context: &Context, namespace: &str, uid: &str, token: i64) -> JobPods {
    let is_of_it = |pod: &Pod| {
        pod.namespace().as_deref() == Some(namespace)
            && pod.labels().get(keys::JOB_UID_LABEL).is_some_and(|of| of == uid)
    };
    let mut pods = pods_of(context, &[uid], is_of_it);
    for (_, instance) in &mut pods {
        if *instance == Instance::Doubt(Doubt::NextContainer) {
            // The next container of the pod works under the same hold.
            *instance = Instance::Running;
        }
    }
    let deleting =
        pods.iter().any(|(pod, instance)| *instance == Instance::Running && pod.metadata.deletion_timestamp.is_some());
    // The token of the hold under which the pod was created.
    let made_with = |pod: &Pod| pod.annotations().get(JOB_TOKEN_ANNOTATION)?.parse().ok();
    JobPods { deleting, ..job::pods(pods.iter().map(|(pod, instance)| (made_with(pod), *instance)), token) }
}

/// The pods that these UIDs own, present and deleted, and the state of each.
fn pods_of(context: &Context, owners: &[&str], is_owned: impl Fn(&Pod) -> bool) -> Vec<(Arc<Pod>, Instance)> {
    let (now, node) = (context.api_now(), |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    let present = owners.iter().flat_map(|owner| context.pods.under(&keys::owner(owner)));
    let present = present.filter(|pod| is_owned(pod)).map(|pod| {
        let node_is_lost = is_lost(context, node(&pod).as_deref());
        let instance =
            instance::judge_pod(PodEvidence { pod: Some(&pod), node_is_lost, ..PodEvidence::default() }, now);
        (pod, instance)
    });
    let departed = owners.iter().flat_map(|owner| context.pods.departed_under(&keys::owner(owner)));
    let departed = departed.filter(|pod| is_owned(pod)).map(|pod| {
        let instance = instance::judge_pod(PodEvidence { departed: Some(&pod), ..PodEvidence::default() }, now);
        (pod, instance)
    });
    present.chain(departed).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;
    use crate::runtime::fake_api;

    #[tokio::test]
    async fn a_replica_without_jobs_takes_no_job_for_deleted() {
        let context = fake_api::context(|_request| (404, json!({})));
        assert!(context.jobs.is_none());
        let spec = json!({"key": "k", "claim": {"jobName": "j", "jobUID": "j-1"}});
        let holder = json!({"identity": "j", "jobName": "j", "jobUID": "j-1"});
        let lock = lock(spec, json!({"holder": holder, "fencingToken": 7}));
        assert_eq!(verdict(&context, &lock, None), Verdict::Keep);
    }
}
