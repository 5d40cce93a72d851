//! Checks promises of single fields: the key in Redis, the limit of a ttl, and `validity: Transitions`.

use std::collections::BTreeMap;

use redlock_api::{DistributedLock, GoDuration, Validity};
use serde_json::Value;

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Change, Entry, Kind};

use super::quorum_of;
use super::times::{PROMPT, length};

/// The largest maxTTL that each quorum ever had, by UID.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<String, u64>);

impl World {
    pub(super) fn record_limit(&mut self, entry: &Entry) {
        let max_ttl = serde_json::from_value::<GoDuration>(entry.object.value["spec"]["maxTTL"].clone());
        let most = self.oracle.limits.0.entry(entry.object.uid().to_owned()).or_default();
        *most = (*most).max(max_ttl.map_or(0, length));
    }

    /// Checks the key and the ttl of a grant.
    pub(super) fn judge_grant(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(holder) = lock.status.as_ref().and_then(|status| status.holder.as_ref()) else { return };
        let (namespace, name) = quorum_of(holder);
        let Some(quorum) = self.api.server.get(Kind::RedisQuorum, &namespace, &name) else { return };
        let is_it = holder.quorum.as_ref().is_none_or(|named| named.uid == quorum.uid());
        let is_settled = self.oracle.times.edited(entry.object.uid()).is_some_and(|at| at + PROMPT < self.now);
        if !is_it || !is_settled {
            return;
        }
        let (lock_name, now) = (entry.object.name(), self.now);
        let prefixed = quorum.value["spec"]["keys"] != "Verbatim";
        let prefix = if prefixed { format!("{}/", entry.object.namespace()) } else { String::new() };
        let wanted = format!("{prefix}{}", lock.key());
        let key = holder.key.as_deref().unwrap_or_default();
        if key.split('#').next() != Some(wanted.as_str()) {
            self.oracle.violated(format!("{lock_name} was granted at {now} with the key {key}, not {wanted}"));
        }
        let most = self.oracle.limits.0.get(quorum.uid()).copied().unwrap_or(u64::MAX);
        if length(lock.spec.ttl) > most {
            let ttl = lock.spec.ttl;
            self.oracle.violated(format!("{lock_name} was granted at {now} with ttl {ttl}, and maxTTL is {most} us"));
        }
    }

    /// Checks that a lock with `validity: Transitions` publishes no renewal.
    ///
    /// A validity of more than one ttl is corrected.
    pub(super) fn judge_publication(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(before) = entry.before.as_ref().map(|before| &before.value["status"]) else { return };
        let after = &entry.object.value["status"];
        let is_settled = self.oracle.times.edited(entry.object.uid()).is_some_and(|at| at + 2 * PROMPT < self.now);
        let goes_on = before["holder"]["nonce"].is_string()
            && before["holder"]["nonce"] == after["holder"]["nonce"]
            && [before, after].iter().all(|status| status["ending"].is_null() && status["stopping"].is_null());
        let is_renewal = goes_on && before["validUntil"] != after["validUntil"];
        // The operator reads the API server's clock again within this time after a step.
        let [least, most] = self.api.steps_between(At(self.now.0.saturating_sub(PROMPT)), self.now);
        let passes = entry.change != Change::Modified || self.oracle.by_hand || lock.lease().is_some() || least != most;
        if passes || !is_settled || !is_renewal || lock.spec.validity != Validity::Transitions {
            return;
        }
        let ahead = |until: &Value| {
            let until = until.as_str().and_then(redlock_simulation::kube::api::millis).unwrap_or_default();
            until - self.api.stamp(self.now) > i64::try_from(lock.spec.ttl.get().as_millis()).unwrap_or(i64::MAX)
        };
        if !ahead(&before["validUntil"]) && !self.oracle.doctored.contains(&before["validUntil"].to_string()) {
            self.oracle.violated(format!("{} published a renewal at {}", entry.object.name(), self.now));
        }
    }

    /// Clients of quorums without a Secret.
    pub(crate) fn clients_without_secret(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for quorum in self.api.server.objects(Kind::RedisQuorum).filter(|quorum| !quorum.is_deleting()) {
            for client in quorum.value["spec"]["clients"].as_array().into_iter().flatten() {
                let name = format!("{}-client-{}", quorum.name(), client["name"].as_str().unwrap_or_default());
                let namespace = client["namespace"].as_str().unwrap_or(quorum.namespace());
                if self.api.server.get(Kind::Secret, namespace, &name).is_none() {
                    wrong.push(format!("there is no Secret {name} for a client"));
                }
            }
        }
        wrong
    }
}
