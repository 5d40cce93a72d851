//! Records the heartbeats of claims, and checks what follows from them.

use std::collections::BTreeMap;

use redlock_api::DistributedLock;

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::Entry;

use super::times::{CLOCKS, PROMPT, length};

/// Maximum time between two heartbeats of a program that runs.
const RENEWED: u64 = 1_000_000;

/// The heartbeats of one claim.
#[derive(Clone, Copy, Debug, Default)]
struct Series {
    last: At,
    /// Since when no heartbeat was late.
    since: At,
}

/// The heartbeats of all claims, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Beats(BTreeMap<(String, String), Series>);

impl Beats {
    /// The time of the last heartbeat.
    pub(super) fn last(&self, namespace: &str, name: &str) -> At {
        self.0.get(&(namespace.to_owned(), name.to_owned())).map(|series| series.last).unwrap_or_default()
    }
}

impl World {
    pub(super) fn observe_beat(&mut self, entry: &Entry) {
        let name = (entry.object.namespace().to_owned(), entry.object.name().to_owned());
        let now = self.now;
        let series = self.oracle.beats.0.entry(name).or_insert(Series { last: now, since: now });
        if series.last + RENEWED < now {
            series.since = now;
        }
        series.last = now;
    }

    /// Whether the keys of a claim have ended with its last heartbeat.
    pub(super) fn is_silent(&self, entry: &Entry, ttl: u64) -> bool {
        let last = self.oracle.beats.last(entry.object.namespace(), entry.object.name());
        entry.object.value["spec"]["claim"]["heartbeat"].is_string() && last + ttl <= self.now
    }

    /// Whether a claim needs no heartbeat, or has renewed it long enough for the leader to observe it.
    ///
    /// A leader that finds no heartbeat tries again after the interval of the heartbeat.
    pub(crate) fn has_its_heartbeat(&self, lock: &DistributedLock) -> bool {
        let Some(heartbeat) = lock.spec.claim.as_ref().and_then(|claim| claim.heartbeat) else { return true };
        let name =
            (lock.metadata.namespace.clone().unwrap_or_default(), lock.metadata.name.clone().unwrap_or_default());
        let known = length(heartbeat) + 2 * PROMPT;
        let is_renewed = |series: &Series| series.since + known <= self.now && self.now <= series.last + RENEWED;
        // After a step forward of the API server's clock, each earlier heartbeat is too old.
        let is_set = self.set_forward_since(At(self.now.0.saturating_sub(known))) > 0;
        !is_set && self.oracle.beats.0.get(&name).is_some_and(is_renewed)
    }

    /// Checks that a claim with a stopped heartbeat is not granted.
    pub(super) fn judge_heartbeat(&mut self, entry: &Entry, lock: &DistributedLock) {
        if lock.spec.claim.as_ref().is_none_or(|claim| claim.heartbeat.is_none()) {
            return;
        }
        let created = &entry.object.value["metadata"]["creationTimestamp"];
        let created = self.time(entry.object.uid(), created).unwrap_or(self.now);
        let last = self.oracle.beats.last(entry.object.namespace(), entry.object.name()).max(created);
        // The leader compares times of the API server's clock.
        let step = self.set_back_since(last);
        if !self.oracle.stepped && last + length(lock.spec.ttl) + step + 2 * CLOCKS < self.now {
            let what =
                format!("{} was granted at {}, and its last heartbeat was at {last}", entry.object.name(), self.now);
            self.oracle.violated(what);
        }
    }

    /// Whether a claim is one whose only condition is its key.
    pub(super) fn is_free(&self, lock: &DistributedLock) -> bool {
        let has_identity = lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some());
        lock.spec.slots == 1 && lock.spec.liveness.is_none() && has_identity && self.has_its_heartbeat(lock)
    }
}
