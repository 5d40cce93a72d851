//! Checks that no hold ends early: before minHold, or although nothing prevented its renewal.

use redlock_api::{BREAK_FORCE_ANNOTATION, DistributedLock};
use serde_json::Value;

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Change, Entry, Kind};

use super::quorum_of;
use super::reach::Granted;

/// Maximum error of a replica's reading of the API server's clock, in microseconds.
const CLOCKS: i64 = 1_500_000;
/// The last validity in a status can be shorter by this time than that of the keys on the members.
const FINAL_VALIDITY: i64 = 700_000;

impl World {
    /// Checks whether a write of a lock ends a hold too early.
    pub(super) fn judge_end(&mut self, entry: &Entry, lock: &DistributedLock) {
        if entry.change != Change::Modified || self.oracle.by_hand || self.oracle.stepped {
            return;
        }
        let Some(before) = entry.before.as_ref().map(|before| &before.value["status"]) else { return };
        let after = &entry.object.value["status"];
        let holds = |status: &Value| status["holder"]["nonce"].is_string() && !status["ending"].is_object();
        if !holds(before) || holds(after) && before["holder"]["nonce"] == after["holder"]["nonce"] {
            return;
        }
        let reason = after["ending"]["reason"].as_str().or_else(|| after["history"][0]["reason"].as_str());
        let reason = reason.unwrap_or_default().to_owned();
        let name = entry.object.name();
        if reason == "Expired" && self.plan.is_gentle() {
            self.oracle
                .violated(format!("{name} was lost at {}, and nothing kept the replicas from renewing it", self.now));
        }
        let nonce = before["holder"]["nonce"].as_str().unwrap_or_default();
        let holder = serde_json::from_value(before["holder"].clone()).ok();
        let place = holder.map(|holder| quorum_of(&holder));
        let valid_until = serde_json::from_value(before["validUntil"].clone()).ok();
        let valid_until = valid_until.map(|until| self.earliest(entry.object.uid(), &until));
        // A request that outlives its caller can publish a grant after its validity. It was never usable.
        let was_usable = |granted: &Granted| valid_until.is_none_or(|until| until > granted.at.0 as i64);
        let granted = self.oracle.times.granted(nonce).cloned().filter(was_usable);
        let unwell = self.is_unwell(lock, &before["holder"]);
        // No replica renews for a holder that fails its check.
        let is_lost =
            |(granted, _): &(Granted, _)| reason == "Expired" && !unwell && !self.is_silent(entry, granted.ttl);
        if let Some((granted, place)) = granted.zip(place.clone()).filter(is_lost) {
            let votes = |field: &str| before[field].as_u64().and_then(|votes| usize::try_from(votes).ok());
            let (yes, of) = (votes("votesGranted").unwrap_or_default(), votes("memberCount").unwrap_or_default());
            self.judge_loss(name, &place, &granted, of / 2 + 1 + (of - yes));
        }
        if reason == "HolderUnhealthy"
            && self.leader_is_well(place.as_ref(), 3_000_000)
            && !unwell
            && lock.spec.claim.as_ref().is_none_or(|claim| claim.heartbeat.is_none())
            && !self.was_lease_idle(name)
        {
            self.oracle.violated(format!("{name} ended at {} for a holder that is well", self.now));
        }
        self.check_final_validity(entry, before);
        let Some(minimum) = lock.spec.min_hold.filter(|_| lock.spec.claim.is_some()) else { return };
        let namespace = self.api.server.get(Kind::Namespace, "", entry.object.namespace());
        let ends = namespace.is_none_or(|namespace| namespace.is_deleting());
        let forced = entry.object.annotation(BREAK_FORCE_ANNOTATION).is_some();
        let acquired = serde_json::from_value(before["acquiredAt"].clone()).ok();
        let Some(acquired) = acquired.filter(|_| reason != "Expired" && !ends && !forced) else { return };
        let acquired = self.earliest(entry.object.uid(), &acquired);
        // minHold ends earlier by a step of the API server's clock.
        let step = i64::try_from(self.set_forward_since(At(acquired.max(0) as u64))).unwrap_or(i64::MAX / 2);
        let held = self.now.0 as i64 - acquired + step;
        if held + CLOCKS < i64::try_from(minimum.get().as_micros()).unwrap_or(i64::MAX) {
            let what = format!("{name} ended ({reason}) after {held} us, and its minHold is {minimum}");
            self.oracle.violated(what);
        }
    }

    /// Checks the published validity of a hold that begins to end.
    ///
    /// It must not be less than the validity that holders get from the members. This applies if the leader granted the
    /// hold itself, and reached the members all the time. Other replicas also renew, and a disconnected leader cannot
    /// detect their renewals.
    fn check_final_validity(&mut self, entry: &Entry, before: &Value) {
        let after = &entry.object.value["status"];
        let nonce = before["holder"]["nonce"].as_str().unwrap_or_default();
        let until = serde_json::from_value(after["validUntil"].clone()).ok();
        let Some(until) = until.filter(|_| after["ending"].is_object() && after["ending"]["reason"] != "Expired")
        else {
            return;
        };
        let acquired = serde_json::from_value(before["acquiredAt"].clone()).ok();
        let its_own = acquired.is_some_and(|acquired| {
            self.oracle.leads_since.0 as i64 + CLOCKS < self.earliest(entry.object.uid(), &acquired)
        });
        if !its_own || !self.plan.keeps_members_in_reach() {
            return;
        }
        let agent = self.oracle.beliefs.get(nonce).and_then(|belief| belief.agent_until);
        let left = self.latest(entry.object.uid(), &until) - self.now.0 as i64;
        if left < -FINAL_VALIDITY && agent.is_some_and(|agent| agent > self.now + FINAL_VALIDITY as u64) {
            let what =
                format!("{} begins to end at {} and says that its validity is over", entry.object.name(), self.now);
            self.oracle.violated(what);
        }
    }
}
