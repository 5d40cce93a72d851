//! Checks the times of a lock's fields: the end of a hold, the next grant, the wait of a claim.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redlock_api::conditions::LockCondition;
use redlock_api::{BREAK_FORCE_ANNOTATION, DistributedLock, GoDuration, MilliTime, RELEASE_ANNOTATION, Validity};
use serde_json::{Value, json};

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Change, Entry, Kind};

use super::quorum_of;
use super::reach::{Granted, Place};

/// The time within which due changes happen, if the leader has been healthy for [`WELL`].
pub(super) const PROMPT: u64 = 2_000_000;
/// Maximum difference of the operator's clock and true time.
///
/// `creationTimestamp` has whole seconds.
pub(super) const CLOCKS: u64 = 1_500_000;
/// A leader that has been healthy for this time has caught up.
pub(super) const WELL: u64 = 8_000_000;

/// The oracle's history of times.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The last generation of each lock and its time, by UID.
    edited: BTreeMap<String, (i64, At)>,
    /// Since when each lock waits for its turn, at the latest. The wait of a claim begins with its first status.
    waits: BTreeMap<String, At>,
    /// Since when each lock waits, at the earliest. The wait of a claim begins with its creation.
    waits_from: BTreeMap<String, At>,
    /// The time in which the key of a quorum cannot be granted.
    delayed: BTreeMap<(Place, String), Delay>,
    granted: BTreeMap<String, Granted>,
}

/// The time in which the key of an ended hold cannot be granted.
#[derive(Debug)]
struct Delay {
    until: At,
    /// When a hold without keys began to end.
    ///
    /// Its delay follows the API server's clock. The keys of other holds have the delay in their time to live.
    lost: Option<At>,
    why: String,
}

impl Times {
    /// When the specification of a lock was last written.
    pub(super) fn edited(&self, uid: &str) -> Option<At> {
        self.edited.get(uid).map(|(_, at)| *at)
    }

    pub(super) fn granted(&self, nonce: &str) -> Option<&Granted> {
        self.granted.get(nonce)
    }
}

pub(super) fn length(of: GoDuration) -> u64 {
    u64::try_from(of.get().as_micros()).unwrap_or(u64::MAX)
}

fn is(status: &Value, kind: &str, value: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|found| found["type"] == kind && found["status"] == value)
}

fn reason(status: &Value, kind: &str) -> String {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|found| found["type"] == kind);
    found.and_then(|found| found["reason"].as_str()).unwrap_or_default().to_owned()
}

impl World {
    /// Converts a time in a status to the latest true time that it can mean.
    pub(super) fn time(&self, uid: &str, of: &Value) -> Option<At> {
        let time: MilliTime = serde_json::from_value(of.clone()).ok()?;
        Some(At(u64::try_from(self.latest(uid, &time)).unwrap_or(0)))
    }

    /// Converts a time in a status to the earliest true time that it can mean.
    fn early_time(&self, uid: &str, of: &Value) -> Option<At> {
        let time: MilliTime = serde_json::from_value(of.clone()).ok()?;
        Some(At(u64::try_from(self.earliest(uid, &time)).unwrap_or(0)))
    }

    /// Checks the times in a write of a lock.
    pub(super) fn judge_times(&mut self, entry: &Entry, lock: &DistributedLock) {
        let (uid, now) = (entry.object.uid().to_owned(), self.now);
        let nothing = Value::Null;
        let (before, after) = (entry.before.as_ref().map_or(&nothing, |before| &before.value), &entry.object.value);
        let generation = after["metadata"]["generation"].as_i64().unwrap_or_default();
        if self.oracle.times.edited.get(&uid).is_none_or(|(known, _)| *known != generation) {
            self.oracle.times.edited.insert(uid.clone(), (generation, now));
        }
        self.judge_finish(entry, lock);
        self.judge_publication(entry, lock);
        let holds = |object: &Value| object["status"]["holder"].is_object();
        // The wait begins again at the end of a suspension that the status has. Nothing records one between two leaders.
        let recorded = [before, after].iter().any(|object| reason(&object["status"], "Held") == "Suspended");
        let begins = entry.change == Change::Added || holds(before) || holds(after) || recorded;
        if begins {
            self.oracle.times.waits_from.insert(uid.clone(), now);
        }
        let suspended = lock.spec.suspend || before["spec"]["suspend"] == json!(true);
        if begins || suspended || !before["status"]["conditions"].is_array() {
            self.oracle.times.waits.insert(uid, now);
        }
        let nonce = |object: &Value| object["status"]["holder"]["nonce"].as_str().map(str::to_owned);
        if let Some(nonce) = nonce(after).filter(|_| entry.change != Change::Deleted) {
            let ttl = length(lock.spec.ttl);
            let new = !self.oracle.times.granted.contains_key(&nonce);
            let by = self.leading();
            let granted = Granted { at: now, by, ttl, is_published: lock.lease().is_some() };
            let granted = self.oracle.times.granted.entry(nonce).or_insert(granted);
            granted.ttl = granted.ttl.min(ttl);
            if new && !self.oracle.by_hand {
                self.judge_delay(entry, lock);
                self.judge_turn(entry, lock);
                self.judge_heartbeat(entry, lock);
                self.judge_choice(entry, lock);
                self.judge_named(entry, lock);
                self.judge_grant(entry, lock);
            }
        }
        if nonce(before).is_some() && nonce(before) != nonce(after) && !self.oracle.by_hand {
            self.remember_delay(entry, lock);
        }
    }

    /// Checks that a claim without a hold finishes only because of its `waitTimeout`, and not earlier.
    fn judge_finish(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(before) = entry.before.as_ref().map(|before| &before.value["status"]) else { return };
        let after = &entry.object.value["status"];
        if self.oracle.by_hand || !is(after, "Finished", "True") || is(before, "Finished", "True") {
            return;
        }
        let (name, reason, now) = (entry.object.name(), reason(after, "Finished"), self.now);
        let Some(waits) = self.oracle.times.waits_from.get(entry.object.uid()).copied() else { return };
        let held = before["holder"].is_object() || after["transitions"].as_i64().unwrap_or_default() > 0;
        if reason != "WaitTimeout" {
            if !held {
                self.oracle.violated(format!("{name} never held and has finished ({reason}) at {now}"));
            }
            return;
        }
        let waited = now.0 - waits.0 + self.set_forward_since(waits);
        let timeout = lock.spec.wait_timeout.map_or(u64::MAX, length);
        let edited = self.oracle.times.edited.get(entry.object.uid()).is_some_and(|(_, at)| *at + PROMPT > now);
        if waited.saturating_add(CLOCKS) < timeout && !edited {
            let what = format!("{name} has finished (WaitTimeout) at {now} after it waited {waited} us of {timeout}");
            self.oracle.violated(what);
        }
    }

    /// Records until when the key of an ended hold stays free.
    ///
    /// Unless the holder released it, or is dead, that is `lockDelay` after its last validity.
    fn remember_delay(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(before) = entry.before.as_ref().map(|before| before.value["status"].clone()) else { return };
        let (holder, after) = (&before["holder"], &entry.object.value["status"]);
        let Some(delay) = lock.spec.lock_delay.filter(|_| !holder["jobUID"].is_string()) else { return };
        let lost = after["history"][0]["reason"] == "Expired";
        let word = entry.object.annotation(RELEASE_ANNOTATION).is_some()
            || entry.object.annotation(BREAK_FORCE_ANNOTATION).is_some();
        let container = holder["containerID"].as_str();
        let dead = container.is_some_and(|id| !self.cluster.cluster.truth().is_running(id));
        if word || dead || !(lost || before["ending"].is_object()) {
            return;
        }
        let Some(until) = self.early_time(entry.object.uid(), &before["validUntil"]) else { return };
        if self.oracle.doctored.contains(&before["validUntil"].to_string()) {
            return;
        }
        // The delay was decided when the end began.
        let began = self.early_time(entry.object.uid(), &before["ending"]["since"]);
        let edited = self.oracle.times.edited.get(entry.object.uid()).map(|(_generation, at)| *at);
        if began.zip(edited).is_some_and(|(began, edited)| edited > began) {
            return;
        }
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let place = (text(&holder["quorum"]["namespace"]), text(&holder["quorum"]["name"]));
        let quorum = self.api.server.get(Kind::RedisQuorum, &place.0, &place.1);
        let most = quorum.and_then(|quorum| serde_json::from_value(quorum.value["spec"]["maxTTL"].clone()).ok());
        // The operator does not serve a delay above the quorum's limit.
        let most = most.map_or(self.plan.max_ttl * 1_000, length).saturating_sub(length(lock.spec.ttl));
        let until = until + length(delay).min(most);
        let why = format!("{} ended at {} with a lockDelay of {delay}", entry.object.name(), self.now);
        let lost = lost.then_some(began.unwrap_or(self.now));
        self.oracle.times.delayed.insert((place, text(&holder["key"])), Delay { until, lost, why });
    }

    fn judge_delay(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(holder) = lock.status.as_ref().and_then(|status| status.holder.as_ref()) else { return };
        let (place, key) = (quorum_of(holder), holder.key.clone().unwrap_or_default());
        if self.oracle.stepped || self.plan.is_drastic() {
            return;
        }
        let Some(Delay { until, lost, why }) = self.oracle.times.delayed.remove(&(place, key)) else { return };
        let step = lost.map_or(0, |since| self.set_forward_since(since));
        if self.now + CLOCKS + step < until {
            let what = format!("{} was granted at {}, before {until}: {why}", entry.object.name(), self.now);
            self.oracle.violated(what);
        }
    }

    /// Checks that the oldest lock of the highest priority comes first.
    fn judge_turn(&mut self, entry: &Entry, lock: &DistributedLock) {
        if !self.is_free(lock) || !self.leader_is_well(None, WELL) {
            return;
        }
        // The quorum of both locks serves one of them. So it serves another lock with times that are not longer.
        let is_served = |other: &DistributedLock, lock: &DistributedLock| {
            let accepted = other.condition(LockCondition::Accepted);
            let passes =
                |accepted: &Condition| ["QuorumNotReady", "QuorumNotFound"].contains(&accepted.reason.as_str());
            let is_shorter = other.spec.ttl <= lock.spec.ttl && other.spec.lock_delay <= lock.spec.lock_delay;
            accepted.is_some_and(|accepted| accepted.status == "True" || is_shorter && passes(accepted))
        };
        let created = |value: &Value| value["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        let own = (lock.spec.priority, created(&entry.object.value));
        let settled = |uid: &str| {
            let old = |at: Option<At>| at.is_some_and(|at| at + 2 * PROMPT <= self.now);
            let times = &self.oracle.times;
            old(times.edited.get(uid).map(|(_, at)| *at)) && old(times.waits.get(uid).copied())
        };
        let passed = self.api.server.objects(Kind::DistributedLock).find(|object| {
            let status = &object.value["status"];
            let waits = object.uid() != entry.object.uid()
                && object.namespace() == entry.object.namespace()
                && !object.is_deleting()
                && !status["holder"].is_object()
                && !is(status, "Finished", "True")
                && settled(object.uid());
            let Some(other) = waits.then(|| serde_json::from_value::<DistributedLock>(object.value.clone()).ok())
            else {
                return false;
            };
            other.is_some_and(|other| {
                let same = other.spec.key == lock.spec.key && other.spec.quorum_ref == lock.spec.quorum_ref;
                let ahead =
                    other.spec.priority > own.0 || other.spec.priority == own.0 && created(&object.value) < own.1;
                self.is_free(&other) && same && ahead && !other.spec.suspend && is_served(&other, lock)
            })
        });
        if let Some(passed) = passed.map(|passed| passed.name().to_owned()) {
            let what = format!("{} was granted at {} ahead of {passed}", entry.object.name(), self.now);
            self.oracle.violated(what);
        }
    }

    /// Checks that due changes have happened.
    pub(crate) fn check_locks(&mut self) {
        let objects: Vec<_> = self.api.server.objects(Kind::DistributedLock).cloned().collect();
        for object in objects {
            let Ok(lock) = serde_json::from_value::<DistributedLock>(object.value.clone()) else { continue };
            let status = &object.value["status"];
            let (uid, name, now) = (object.uid(), object.name(), self.now);
            let Some((_, edited)) = self.oracle.times.edited.get(uid).copied() else { continue };
            let late = if status["holder"].is_object() {
                self.late_end(&lock, status, (uid, edited))
            } else {
                self.late_finish(&lock, status, (uid, edited))
            };
            if let Some(what) = late.filter(|_| !self.oracle.stepped) {
                self.oracle.violated_once(format!("{name}: {what}, at {now}"), &format!("late {uid} {what}"));
            }
        }
    }

    /// The overdue change of a held lock.
    fn late_end(&self, lock: &DistributedLock, status: &Value, (uid, edited): (&str, At)) -> Option<&'static str> {
        let holder = lock.status.as_ref()?.holder.as_ref()?;
        let place = quorum_of(holder);
        let idle = !status["ending"].is_object() && !status["stopping"].is_object();
        if !idle || lock.metadata.deletion_timestamp.is_some() || !self.leader_is_well(Some(&place), WELL) {
            return None;
        }
        let acquired = self.time(uid, &status["acquiredAt"])?;
        // Limits that begin with acquiredAt end later by a step of the API server's clock.
        let step = self.set_back_since(acquired);
        let minimum = acquired + lock.spec.min_hold.map_or(0, length) + step;
        let over = |due: At, slack: u64| due.max(edited).max(minimum) + slack < self.now;
        if lock.spec.max_hold.is_some_and(|most| over(acquired + length(most) + step, PROMPT + CLOCKS)) {
            return Some("maxHold is over, and its hold has not begun to end");
        }
        let late = self.late_step_down(lock, status, acquired.max(edited));
        let late = late.or_else(|| self.late_for_sick(lock, status, acquired.max(edited).max(minimum)));
        if late.is_some() {
            return late;
        }
        let ttl = length(lock.spec.ttl);
        let interval = lock.spec.renew_interval.map_or(ttl / 3, length);
        let beats = lock.spec.claim.as_ref().is_some_and(|claim| claim.heartbeat.is_some());
        if beats {
            let beat = self.oracle.beats.last(lock.metadata.namespace.as_deref()?, lock.metadata.name.as_deref()?);
            // A leader measures from the time at which it has begun to follow.
            let last = beat.max(acquired).max(self.oracle.leads_since + CLOCKS);
            return over(last + ttl + interval, PROMPT + 1_000_000)
                .then_some("no heartbeat came, and its hold has not begun to end");
        }
        let published = lock.spec.validity == Validity::Published && lock.spec.liveness.is_none();
        let until = self.time(uid, &status["validUntil"]).filter(|_| published)?;
        let led = self.leader_is_well(Some(&place), WELL + ttl);
        // After a step back the published time is still ahead of the clock, by at most one ttl.
        let until = until + self.set_back_since(At(until.0.saturating_sub(2 * ttl))).min(ttl);
        (led && edited + WELL < self.now && until + CLOCKS < self.now)
            .then_some("it is held, and the validity that is published has run out")
    }

    /// The overdue change of a waiting lock.
    fn late_finish(&self, lock: &DistributedLock, status: &Value, (uid, edited): (&str, At)) -> Option<&'static str> {
        if is(status, "Finished", "True") {
            return self.late_deletion(lock, status, (uid, edited));
        }
        // A user that edits the status can remove the conditions.
        status["conditions"].as_array()?;
        let is_well = self.leader_is_well(None, WELL);
        if lock.spec.suspend && lock.metadata.deletion_timestamp.is_none() && reason(status, "Held") != "Suspended" {
            let late = edited.max(*self.oracle.times.waits.get(uid)?) + PROMPT < self.now && is_well;
            return late.then_some("its status does not record its suspension");
        }
        let timeout = length(lock.spec.wait_timeout?);
        let waits = self.oracle.times.waits.get(uid).copied()?;
        let is_exempt = lock.spec.suspend || lock.metadata.deletion_timestamp.is_some();
        let over = (waits + timeout + self.set_back_since(waits)).max(edited) + PROMPT + CLOCKS < self.now;
        (over && !is_exempt && is_well).then_some("waitTimeout has passed, and the claim is not finished")
    }

    /// Checks that a finished claim is deleted after `ttlAfterFinished`.
    fn late_deletion(&self, lock: &DistributedLock, status: &Value, (uid, edited): (&str, At)) -> Option<&'static str> {
        let after = length(lock.spec.ttl_after_finished?);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let finished = conditions.find(|found| found["type"] == "Finished")?;
        let at = self.time(uid, &finished["lastTransitionTime"])?;
        let over = (at + after + self.set_back_since(at)).max(edited) + PROMPT + CLOCKS < self.now;
        (over && self.leader_is_well(None, WELL) && lock.metadata.deletion_timestamp.is_none())
            .then_some("ttlAfterFinished is over, and it is still there")
    }
}
