//! The reasons why members have no pod. If a quota, an admission policy, a PriorityClass or a service account
//! prevents the pod, only Events name the cause.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::RESYNC;
use super::memory::Podless;
use super::observe::Observer;
use crate::quorum::model::member::MemberSummary;
use crate::time::Monotonic;

/// The time in which a StatefulSet normally makes its pod. No Events are read before it ends.
const POD_DELAY: Duration = Duration::from_secs(10);
/// The pause between two requests.
const PERIOD: Duration = Duration::from_secs(30);

/// Reads the Events of each own member without a pod, and returns when to read them again.
pub(super) async fn read_events(observer: &Observer<'_>) -> Monotonic {
    let (cluster, memory, observed) = (observer.sources.cluster, &observer.sources.memory.podless, observer.observe());
    let (now, before) = (cluster.now(), memory.lock().clone());
    let mut podless = BTreeMap::new();
    let lacks_pod = |name: &str| observed.pod(name).is_none() && observed.link(name).is_some();
    for MemberSummary { name, .. } in observed.own().iter().filter(|member| lacks_pod(&member.name)) {
        let mut member = before.get(name).cloned().unwrap_or(Podless { due: now + POD_DELAY, why: None });
        if member.due <= now {
            member.why = cluster.pod_not_created(&observer.plan.namespace, name).await.or(member.why);
            member.due = now + PERIOD;
        }
        podless.insert(name.clone(), member);
    }
    let due = podless.values().map(|member| member.due).min();
    *memory.lock() = podless;
    due.unwrap_or_else(|| cluster.after(RESYNC))
}
