//! Members without a pod: why their StatefulSets make none. If a quota, an admission policy, a PriorityClass or a service account
//! prevents the pod, only Events name the cause.

use std::time::Duration;

use super::error::RESYNC;
use super::memory::Podless;
use super::observe::Observer;
use crate::time::Monotonic;

/// The time in which a StatefulSet normally makes its pod. No Events are read before it ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two requests.
const PERIOD: Duration = Duration::from_secs(30);

/// Reads the Events of each own member without a pod, and returns when to read them again.
pub(super) async fn ask(observer: &Observer<'_>) -> Monotonic {
    let (cluster, memory, observed) = (observer.cluster, &observer.memory.podless, observer.observe());
    let now = cluster.now();
    let names: Vec<&str> = observed
        .own()
        .iter()
        .map(|member| member.name.as_str())
        .filter(|name| observed.pod(name).is_none() && observed.link(name).is_some())
        .collect();
    let mut refusals = memory.lock().clone();
    refusals.retain(|name, _| names.contains(&name.as_str()));
    for name in names {
        let entry = refusals.entry(name.to_owned()).or_insert(Podless { due: now + PATIENCE, why: None });
        if entry.due <= now {
            entry.why = cluster.pod_not_created(&observer.plan.namespace, name).await.or_else(|| entry.why.take());
            entry.due = now + PERIOD;
        }
    }
    let due = refusals.values().map(|podless| podless.due).min();
    *memory.lock() = refusals;
    due.unwrap_or_else(|| cluster.after(RESYNC))
}
