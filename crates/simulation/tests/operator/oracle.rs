//! The invariants of the simulation.
//!
//! The oracle can read all states and the true time.

use std::collections::{BTreeMap, BTreeSet};

use redlock_api::{BREAK_FORCE_ANNOTATION, DistributedLock, DistributedLockStatus, LockHolder, RELEASE_ANNOTATION};
use serde::Serialize;

use crate::cluster::ClusterSide;
use crate::replica;
use crate::time::At;
use crate::users::SHOP;
use crate::world::World;
use beats::Beats;
use belief::Belief;
use choices::Choices;
use dates::Dates;
use fences::Fences;
use fields::Limits;
use jobs::Jobs;
pub(crate) use jobs::has_finished;
use reach::Reach;
use redlock_simulation::kube::api::{Change, Entry, Kind, millis};
use redlock_simulation::kube::cluster::Running;
use times::Times;

mod beats;
mod belief;
mod choices;
mod dates;
mod ends;
mod fences;
mod fields;
mod jobs;
mod labels;
mod members;
mod reach;
mod times;

/// The realm of quorums that share masters.
const MASTERS: &str = "the masters";

/// A contender's report of its own belief.
#[derive(Clone, Debug)]
pub(crate) enum ContenderReport {
    /// It believes that it holds this key with this value, for these microseconds of its own clock.
    Holds {
        key: String,
        value: String,
        left: u64,
    },
    GivesUp {
        value: String,
    },
}

/// Counters of the run.
///
/// A run without a grant proves nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) outside: u64,
    pub(crate) terms: u64,
    pub(crate) admissions: u64,
    /// Number of further admissions of a process.
    pub(crate) readmissions: u64,
    /// Number of times that two lists of members came into force.
    pub(crate) changes: u64,
    pub(crate) released: u64,
    /// Number of Jobs that the operator has started, and suspended.
    pub(crate) jobs_started: u64,
    pub(crate) jobs_stopped: u64,
    /// Number of pods created under a hold.
    pub(crate) job_pods: u64,
    /// Number of holds of Jobs that ended immediately.
    pub(crate) jobs_released: u64,
    pub(crate) faults: u64,
    /// Number of ticks in which a Lease candidate led.
    pub(crate) led: u64,
}

#[derive(Default)]
pub(crate) struct Oracle {
    /// Beliefs by the value on the members: the nonce, or the contender's value.
    beliefs: BTreeMap<String, Belief>,
    /// The highest token of each key, and the holders that had a token.
    tokens: BTreeMap<String, (i64, BTreeSet<String>)>,
    /// Whether a member's clock was stepped.
    pub(crate) stepped: bool,
    pub(crate) leader: String,
    leads_since: At,
    /// The admitted processes, and the UID of the quorum that admitted each.
    admitted: BTreeMap<String, String>,
    fences: Fences,
    /// Whether the current writes are those of users.
    pub(crate) by_hand: bool,
    /// Leader labels that users have added, by the pod's UID.
    planted: BTreeSet<String>,
    /// Quorums whose finalizers users have removed.
    ///
    /// They protect no hold.
    pub(crate) forced: BTreeSet<(String, String)>,
    reported: BTreeSet<String>,
    /// Locks whose validity users have edited.
    doctored: BTreeSet<String>,
    /// The voters of each quorum: the current list and the previous one.
    lists: BTreeMap<(String, String), [Vec<String>; 2]>,
    jobs: Jobs,
    reach: Reach,
    times: Times,
    choices: Choices,
    dates: Dates,
    beats: Beats,
    limits: Limits,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
}

impl Oracle {
    /// The previous voter list of this quorum.
    ///
    /// `now` is the current one.
    fn former_list(&mut self, quorum: &(String, String), now: &[String]) -> Vec<String> {
        let [current, former] = self.lists.entry(quorum.clone()).or_insert_with(|| [now.to_vec(), Vec::new()]);
        if current != now {
            *former = std::mem::replace(current, now.to_vec());
        }
        former.clone()
    }

    /// Reports a violation once, even if the check repeats.
    pub(crate) fn violated_once(&mut self, what: String, of: &str) {
        if self.reported.insert(of.to_owned()) {
            self.violated(what);
        }
    }

    fn violated(&mut self, what: String) {
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    /// Records that a process believes in a key until a time.
    ///
    /// No other process can believe in the key at the same time.
    fn believes(&mut self, id: &str, belief: Belief, cluster: &ClusterSide) {
        if let Some(known) = self.beliefs.get_mut(id) {
            known.owners.clone_from(&belief.owners);
        }
        // A hold that ended before its write, as in a release, is not a belief. The hold of a Job is one, because pods
        // of the Job can still appear.
        let may_live = belief.job.is_some() || belief.lives(cluster);
        if !may_live || (belief.until <= belief.from && !self.beliefs.contains_key(id)) {
            return;
        }
        // Outside clients cannot detect a stepped clock of a member, or a quorum that users delete by force.
        let unprotected = self.stepped || self.forced.contains(&belief.quorum);
        let excepted = |held: &Belief| unprotected && (held.outside || belief.outside);
        let other = self.beliefs.iter().find(|(other, held)| {
            let overlaps = other.as_str() != id
                && held.contends(&belief)
                && held.end() > belief.from
                && belief.until > belief.from;
            overlaps && !excepted(held) && held.lives(cluster)
        });
        if let Some((_, other)) = other {
            let (key, from) = (&belief.key, belief.from);
            let what = format!(
                "two holders of {key}: {} from {from} until {}, while {} believes from {} until {}",
                belief.who,
                belief.until,
                other.who,
                other.from,
                other.end()
            );
            self.violated(what);
        }
        match self.beliefs.get_mut(id) {
            Some(known) => known.until = known.until.max(belief.until),
            None => drop(self.beliefs.insert(id.to_owned(), belief)),
        }
    }

    /// Ends a belief.
    fn ends(&mut self, id: &str, now: At) {
        if let Some(belief) = self.beliefs.get_mut(id) {
            belief.until = belief.until.min(now);
            belief.agent_until = belief.agent_until.map(|until| until.min(now));
            belief.agent = false;
        }
    }

    fn token(&mut self, key: &str, nonce: &str, token: i64, now: At) {
        let (highest, holders) = self.tokens.entry(key.to_owned()).or_insert((i64::MIN, BTreeSet::new()));
        // The status of an ending hold can be written after the next grant.
        if !holders.insert(nonce.to_owned()) {
            return;
        }
        if token <= *highest {
            let what = format!("token {token} of {key} at {now} is not above {highest}");
            return self.violated(what);
        }
        *highest = token;
    }
}

fn quorum_of(holder: &LockHolder) -> (String, String) {
    let named = holder.quorum.as_ref().map(|quorum| (quorum.namespace.clone(), quorum.name.clone()));
    named.unwrap_or_else(|| (SHOP.to_owned(), "q".to_owned()))
}

impl World {
    /// Handles a contender's report.
    pub(crate) fn handle_report(&mut self, at: At, process: usize, report: ContenderReport) {
        let name = self.processes[process].name.clone();
        self.trace.add(at, format_args!("{name} {report:?}"));
        match report {
            ContenderReport::Holds { key, value, left } => {
                self.oracle.counts.outside += 1;
                // A fast clock ends the belief earlier.
                let left = (left as i64 - left as i64 * self.processes[process].drift / 1_000_000) as u64;
                let belief = Belief::outside(&value, key, at, at + left);
                self.oracle.believes(&value, belief, &self.cluster);
            }
            ContenderReport::GivesUp { value } => self.oracle.ends(&value, at),
        }
    }

    /// Observes the write of an object.
    pub(crate) fn observe(&mut self, entry: &Entry) {
        self.record_dates(entry);
        self.observe_cluster(entry);
        self.observe_users(entry);
        self.observe_lease(entry);
        match entry.kind {
            Kind::DistributedLock => self.observe_lock(entry),
            Kind::RedisQuorum => self.observe_quorum(entry),
            Kind::Pod => {
                self.observe_labels(entry);
                self.judge_pod(entry);
            }
            Kind::Job => self.observe_job(entry),
            Kind::Node => self.observe_node(entry),
            Kind::Lease => {
                let holder = entry.object.value["spec"]["holderIdentity"].as_str().unwrap_or_default();
                if entry.object.namespace() == replica::NAMESPACE && holder != self.oracle.leader {
                    holder.clone_into(&mut self.oracle.leader);
                    self.oracle.leads_since = self.now;
                    self.oracle.counts.terms += u64::from(!holder.is_empty());
                    self.note(format_args!("{} leads", if holder.is_empty() { "nobody" } else { holder }));
                }
                self.observe_beat(entry);
            }
            _ => {}
        }
    }

    fn observe_lock(&mut self, entry: &Entry) {
        let lock: DistributedLock = match serde_json::from_value(entry.object.value.clone()) {
            Ok(lock) => lock,
            Err(error) => return self.oracle.violated(format!("an unreadable lock was stored: {error}")),
        };
        let name = entry.object.name().to_owned();
        let status = lock.status.clone().unwrap_or_default();
        let held = status.conditions.iter().find(|condition| condition.type_ == "Held");
        let reason = held.map(|held| held.reason.clone()).unwrap_or_default();
        let holder = status.holder.as_ref().and_then(|holder| holder.nonce.clone());
        let valid = status.valid_until.as_ref().map(|until| self.earliest(entry.object.uid(), until));
        let until = At(valid.unwrap_or(0).max(0) as u64);
        // The operator does not promise a validity that a user edited into the status.
        let before =
            entry.before.as_ref().map(|before| before.value["status"]["validUntil"].clone()).unwrap_or_default();
        let published = &entry.object.value["status"]["validUntil"];
        if self.oracle.by_hand && before != *published {
            self.oracle.doctored.insert(published.to_string());
        }
        self.note(format_args!(
            "lock {name} {:?} {reason} holder {holder:?} token {:?} until {until} ending {:?}",
            entry.change,
            status.fencing_token,
            status.ending.as_ref().map(|ending| &ending.reason),
        ));
        self.judge_labels(entry);
        self.judge_end(entry, &lock);
        self.judge_times(entry, &lock);
        self.judge_job_hold(entry, &status);
        self.judge_lock(entry, &lock, &status, until);
    }

    fn judge_lock(&mut self, entry: &Entry, lock: &DistributedLock, status: &DistributedLockStatus, until: At) {
        let now = self.now;
        let Some(holder) = status.holder.as_ref() else { return };
        let Some(nonce) = holder.nonce.clone().filter(|_| entry.change != Change::Deleted) else { return };
        let key = holder.key.clone().unwrap_or_else(|| format!("{}/{}", entry.object.namespace(), lock.key()));
        let quorum = quorum_of(holder);
        if let Some(token) = status.fencing_token {
            let quorum = holder.quorum.as_ref().map(|quorum| quorum.uid.clone()).unwrap_or_default();
            let quorum = if self.plan.shares_masters() { MASTERS.to_owned() } else { quorum };
            self.oracle.token(&format!("{key} of {quorum}"), &nonce, token, now);
            if lock.spec.quorum_ref.is_none() {
                // The default quorum can move between two holds of the key.
                let key = format!("{} of the default quorum", self.floating_key(entry, &key));
                self.oracle.token(&key, &nonce, token, now);
            }
        }
        // The holder released the lock, or a user gave up exclusion.
        let token = status.fencing_token.map(|token| token.to_string());
        let released = token.is_some() && entry.object.annotation(RELEASE_ANNOTATION) == token.as_deref();
        let owners: Vec<_> = entry.object.value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let watched = owners.iter().all(|owner| owner["kind"] == "Pod" || owner["kind"] == "Job");
        let free = lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some());
        let namespace = self.api.server.get(Kind::Namespace, "", entry.object.namespace());
        let namespace_ends = namespace.is_none_or(|namespace| namespace.is_deleting());
        let deleted = entry.object.is_deleting();
        let report = deleted && free && owners.is_empty() && !namespace_ends;
        if report || released || entry.object.annotation(BREAK_FORCE_ANNOTATION).is_some() {
            return self.oracle.ends(&nonce, now);
        }
        match self.oracle.beliefs.contains_key(&nonce) {
            true => self.oracle.counts.renewals += 1,
            false => self.oracle.counts.grants += 1,
        }
        let uids = owners.iter().filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect();
        // deletionTimestamp has whole seconds.
        let deleted = entry.object.value["metadata"]["deletionTimestamp"].as_str().and_then(millis);
        let deleted = deleted.map(|at| self.on_cluster_clock(entry.object.uid(), at) + 999);
        let owners = (free && watched && !owners.is_empty()).then_some((uids, deleted));
        let who = format!("{} ({nonce})", entry.object.name());
        let was = entry.before.as_ref().and_then(|before| before.value["status"]["holder"]["nonce"].as_str());
        let is_grant = was != Some(&nonce);
        let container = if is_grant { self.holding_container(holder) } else { holder.container_id.clone() };
        if self.oracle.doctored.contains(&entry.object.value["status"]["validUntil"].to_string()) {
            return;
        }
        if until > now || self.oracle.beliefs.contains_key(&nonce) {
            // Its slots are separate keys on every quorum.
            let floating = lock.spec.quorum_ref.is_none().then(|| self.floating_key(entry, &key));
            let job = holder.job_uid.clone().zip(status.fencing_token);
            // The pods of a Job read the status, and send no request to a member.
            let agent = job.is_none();
            let mut belief =
                Belief { floating, container, owners, job, agent, ..Belief::inside(&who, key, quorum, now, until) };
            if self.plan.shares_masters() {
                belief.realm = (SHOP.to_owned(), MASTERS.to_owned());
            }
            self.oracle.believes(&nonce, belief, &self.cluster);
        }
    }

    /// The container that takes a grant for its own.
    ///
    /// The operator can grant a lock before it observes that the elected container has ended. Then the next one of the pod
    /// reads the new token.
    fn holding_container(&self, holder: &LockHolder) -> Option<String> {
        let elected = holder.container_id.as_ref()?;
        let truth = self.cluster.cluster.truth();
        let of_pod = |running: &&Running| Some(&running.pod_uid) == holder.pod_uid.as_ref() && running.name == "app";
        let next = truth.running().find(|running| of_pod(running) && !truth.is_running(elected));
        Some(next.map_or(elected, |running| &running.container).clone())
    }

    /// The key by which locks without a quorum contend.
    ///
    /// It consists of namespace and key, or only of the key if the quorum does not prefix it.
    fn floating_key(&self, entry: &Entry, key: &str) -> String {
        let verbatim =
            self.api.server.objects(Kind::RedisQuorum).any(|found| found.value["spec"]["keys"] == "Verbatim");
        let namespace = format!("{}/", entry.object.namespace());
        if verbatim { key.strip_prefix(&namespace).unwrap_or(key).to_owned() } else { key.to_owned() }
    }

    fn observe_quorum(&mut self, entry: &Entry) {
        let members = entry.object.value["status"]["members"].as_array().cloned().unwrap_or_default();
        let mut line = String::new();
        for member in &members {
            let text = |field: &str| member[field].as_str().unwrap_or_default().to_owned();
            line.push_str(&format!(" {}={}", text("name"), text("state")));
            if text("state") == "Admitted" {
                let uid = entry.object.uid().to_owned();
                let new = self.oracle.admitted.insert(text("runID"), uid).is_none();
                self.oracle.counts.admissions += u64::from(new);
            }
        }
        if entry.change == Change::Deleted && self.oracle.by_hand {
            self.oracle.forced.insert((entry.object.namespace().to_owned(), entry.object.name().to_owned()));
        }
        self.record_admissions(entry);
        self.record_limit(entry);
        self.note(format_args!("quorum {} {:?}{line}", entry.object.name(), entry.change));
    }
}

#[cfg(test)]
mod tests;
