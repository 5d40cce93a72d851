//! What the operator counts, in the OpenMetrics text format on `/metrics`.
//!
//! Labels are bounded: outcomes, reasons, and members of quorums. No label carries the name of a lock or of a holder.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::cache::{Cache, Kind};
use crate::api::conditions::{HeldReason, LockCondition, find_condition, is_true};
use crate::api::{DistributedLock, MemberState, RedisQuorum};
use crate::time::UnixMillis;

/// One label, with a word from a short list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Word {
    label: &'static str,
    word: &'static str,
}

impl EncodeLabelSet for Word {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> Result<(), std::fmt::Error> {
        (self.label, self.word).encode(encoder.encode_label())
    }
}

/// A member of a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MemberLabels {
    quorum_namespace: String,
    quorum: String,
    member: String,
}

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// A member of a quorum in a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    quorum_namespace: String,
    quorum: String,
    member: String,
    state: String,
}

impl MemberLabels {
    /// Of a member of this quorum.
    pub fn of(quorum: &ObjectRef<RedisQuorum>, member: &str) -> Self {
        let quorum_namespace = quorum.namespace.clone().unwrap_or_default();
        Self { quorum_namespace, quorum: quorum.name.clone(), member: member.to_owned() }
    }
}

/// A histogram for each member.
pub type Latencies = Family<MemberLabels, Histogram, fn() -> Histogram>;

/// A counter for each word of one label.
#[derive(Clone, Debug)]
pub struct Counts {
    label: &'static str,
    family: Family<Word, Counter>,
}

impl Counts {
    fn by(label: &'static str, registry: &mut Registry, texts: (&str, &str)) -> Self {
        Self { label, family: add(registry, texts, Family::default()) }
    }

    /// There from the beginning, so that an alert on the first has something to rise from.
    fn begin(&self, word: &'static str) {
        drop(self.family.get_or_create(&Word { label: self.label, word }));
    }
}

/// All metrics of one replica.
#[derive(Debug)]
pub struct Metrics {
    /// Attempts to acquire a lock, by outcome.
    pub acquisitions: Counts,
    /// From the first request of an attempt to its decision.
    pub acquire_duration: Histogram,
    /// Renewals by outcome.
    pub renewals: Counts,
    /// How long after it was due a renewal began.
    pub renewal_lateness: Histogram,
    /// How late a status was published again.
    /// It counts from the moment when a quarter of the ttl was left of what it had published.
    pub publication_lateness: Histogram,
    /// Holds that ended, by reason; `Expired` are losses.
    pub ended: Counts,
    /// From the writing of a command to a member to its answer. Members of quorums that are gone are taken out.
    pub member_latency: Latencies,
    /// Writes to the API server, by outcome.
    pub api_writes: Counts,
    /// Reconciles that failed and are tried again, by controller.
    pub reconcile_errors: Counts,
    /// Panics that were caught, by what was being done.
    pub panics: Counts,
    seen: Seen,
    registry: Mutex<Registry>,
}

/// What is read off the caches when the metrics are asked for.
#[derive(Debug)]
struct Seen {
    leader: Gauge,
    refuses_to_lead: Gauge,
    held: Gauge,
    waiting: Family<Word, Gauge>,
    without_leader: Gauge,
    unreadable: Family<KindLabels, Gauge>,
    watch_errors: Family<KindLabels, Counter>,
    member_votes: Family<MemberLabels, Gauge>,
    member_state: Family<StateLabels, Gauge>,
    fence_remaining: Family<MemberLabels, Gauge>,
}

/// How holds end.
const ENDS: [HeldReason; 8] = [
    HeldReason::Released,
    HeldReason::HolderGone,
    HeldReason::HolderUnhealthy,
    HeldReason::MaxHoldReached,
    HeldReason::SteppedDown,
    HeldReason::Broken,
    HeldReason::Suspended,
    HeldReason::Expired,
];

fn seconds(bounds: &[f64]) -> Histogram {
    Histogram::new(bounds.iter().copied())
}

/// Registers a metric, and gives it back.
fn add<M: Metric + Clone>(registry: &mut Registry, (name, help): (&str, &str), metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn add_seconds<M: Metric + Clone>(registry: &mut Registry, (name, help): (&str, &str), metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("redlock");
        let r = &mut registry;
        let metrics = Self {
            acquisitions: Counts::by("outcome", r, ("acquisitions", "Attempts to acquire a lock, by outcome")),
            acquire_duration: add_seconds(
                r,
                ("acquire_duration", "Time from the first request of an attempt to its decision"),
                seconds(&[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0]),
            ),
            renewals: Counts::by(
                "outcome",
                r,
                ("renewals", "Renewals of held locks, by outcome; incomplete means that members lacked the key"),
            ),
            renewal_lateness: add_seconds(
                r,
                ("renewal_lateness", "Time from the moment at which a renewal was due to its start"),
                seconds(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]),
            ),
            publication_lateness: add_seconds(
                r,
                ("publication_lateness", "Time for which a published validity had less than a quarter of the ttl left"),
                seconds(&[0.01, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]),
            ),
            ended: Counts::by(
                "reason",
                r,
                ("holds_ended", "Holds that ended, by reason; Expired means that the lock was lost"),
            ),
            member_latency: add_seconds(
                r,
                ("member_latency", "Time from a command to its answer, by member"),
                Latencies::new_with_constructor(|| {
                    seconds(&[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5])
                }),
            ),
            api_writes: Counts::by("outcome", r, ("api_writes", "Writes of locks to the API server, by outcome")),
            reconcile_errors: Counts::by(
                "controller",
                r,
                ("reconcile_errors", "Failed reconciliations, by controller"),
            ),
            panics: Counts::by("task", r, ("panics", "Panics that the operator caught, by task")),
            seen: Seen::new(r),
            registry: Mutex::new(registry),
        };
        ["lock", "quorum", "renewal", "session"].into_iter().for_each(|task| metrics.panics.begin(task));
        ENDS.iter().for_each(|reason| metrics.ended.begin(reason.as_str()));
        ["lock", "quorum"].into_iter().for_each(|controller| metrics.reconcile_errors.begin(controller));
        metrics
    }
}

impl Metrics {
    /// Whether this replica would have to lead, and there is no epoch left for a term.
    pub fn refuses_to_lead(&self, refuses: bool) {
        self.seen.refuses_to_lead.set(i64::from(refuses));
    }

    /// Counts one.
    pub fn count(&self, counts: &Counts, word: &'static str) {
        counts.family.get_or_create(&Word { label: counts.label, word }).inc();
    }

    /// Notes what a cache could not read, and how often its watch was interrupted.
    pub(super) fn look_at_watch<K: Kind>(&self, kind: &'static str, cache: &Cache<K>) {
        let unreadable = i64::try_from(cache.unreadable().len()).unwrap_or(i64::MAX);
        self.seen.unreadable.get_or_create(&KindLabels { kind }).set(unreadable);
        let interruptions = cache.interruptions();
        self.seen.watch_errors.get_or_create(&KindLabels { kind }).inner().store(interruptions, Ordering::Relaxed);
    }

    /// Notes what locks and quorums are like at `now`, and whether this replica leads.
    pub(super) fn look_at_objects(
        &self,
        locks: &[Arc<DistributedLock>],
        quorums: &[Arc<RedisQuorum>],
        now: UnixMillis,
        leads: bool,
    ) {
        self.seen.leader.set(i64::from(leads));
        self.seen.look_at_locks(locks);
        self.seen.look_at_quorums(quorums, now.0);
    }

    /// All metrics as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock();
        if encode(&mut text, &registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }
}

impl Seen {
    fn new(r: &mut Registry) -> Self {
        let refused = "1 if this replica would have to lead, but the Lease has no epoch left for another term";
        let unreadable = "Objects that this version of the operator cannot read and therefore ignores, by kind";
        let errors = "Lists and watches that failed or were interrupted and began again, by kind";
        let remaining = "Time until a fenced member may vote again";
        Self {
            leader: add(r, ("leader", "1 if this replica leads"), Gauge::default()),
            refuses_to_lead: add(r, ("leadership_refused", refused), Gauge::default()),
            held: add(r, ("locks_held", "Locks whose status names a holder"), Gauge::default()),
            waiting: add(r, ("locks_waiting", "Locks that wait for a holder, by reason"), Family::default()),
            without_leader: add(r, ("elections_without_leader", "Elections that have no leader"), Gauge::default()),
            unreadable: add(r, ("unreadable_objects", unreadable), Family::default()),
            watch_errors: add(r, ("watch_errors", errors), Family::default()),
            member_votes: add(r, ("member_votes", "1 if the member can vote, else 0"), Family::default()),
            member_state: add(r, ("member_state", "1 for the state that a member is in"), Family::default()),
            fence_remaining: add_seconds(r, ("member_fence_remaining", remaining), Family::default()),
        }
    }

    fn look_at_locks(&self, locks: &[Arc<DistributedLock>]) {
        self.waiting.clear();
        let (mut held, mut without_leader) = (0, 0);
        for (lock, status) in locks.iter().filter_map(|lock| Some((lock, lock.status.as_ref()?))) {
            if status.holder.is_some() {
                held += 1;
                continue;
            }
            if is_true(&status.conditions, LockCondition::Finished) {
                continue;
            }
            without_leader += i64::from(lock.spec.election.is_some());
            let reason = find_condition(&status.conditions, LockCondition::Held).map(|held| held.reason.as_str());
            // Only reasons that this operator writes become labels.
            if let Some(known) = HeldReason::ALL.iter().find(|known| Some(known.as_str()) == reason) {
                self.waiting.get_or_create(&Word { label: "reason", word: known.as_str() }).inc();
            }
        }
        self.held.set(held);
        self.without_leader.set(without_leader);
    }

    fn look_at_quorums(&self, quorums: &[Arc<RedisQuorum>], now: i64) {
        self.member_votes.clear();
        self.member_state.clear();
        self.fence_remaining.clear();
        for quorum in quorums {
            let reference = ObjectRef::from_obj(&**quorum);
            for member in quorum.status.iter().flat_map(|status| &status.members) {
                let left = member.rejoin_at.map_or(0, |at| at.as_millis().saturating_sub(now).max(0));
                let labels = MemberLabels::of(&reference, &member.name);
                self.member_votes.get_or_create(&labels).set(i64::from(member.state == MemberState::Admitted));
                self.fence_remaining.get_or_create(&labels).set(left.saturating_add(999) / 1_000);
                let MemberLabels { quorum_namespace, quorum, member: name } = labels;
                let state = format!("{:?}", member.state);
                self.member_state.get_or_create(&StateLabels { quorum_namespace, quorum, member: name, state }).set(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_counted_comes_out_with_its_outcome() {
        let metrics = Metrics::default();
        metrics.count(&metrics.acquisitions, "granted");
        metrics.acquire_duration.observe(0.003);
        let mut text = String::new();
        encode(&mut text, &metrics.registry.lock()).unwrap();
        assert!(text.contains("redlock_acquisitions_total{outcome=\"granted\"} 1"), "{text}");
        assert!(
            text.contains("redlock_holds_ended_total{reason=\"Expired\"} 0"),
            "the first loss is an increase: {text}"
        );
        assert!(text.contains("redlock_acquire_duration_seconds_bucket{le=\"0.005\"} 1"), "{text}");
    }

    #[test]
    fn metrics_that_the_documentation_names_exist() {
        // A family without members is left out of the text, so the names are looked up where they are registered.
        let (code, page) = (include_str!("metrics.rs"), include_str!("../../docs/monitoring.md"));
        let words = page.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let named: Vec<_> = words.filter_map(|word| word.strip_prefix("redlock_")).collect();
        assert!(named.len() > 10, "{named:?}");
        for name in named {
            let registered = name.trim_end_matches("_total").trim_end_matches("_seconds");
            assert!(code.contains(&format!("(\"{registered}\", ")), "docs/monitoring.md names redlock_{name}");
        }
    }

    #[test]
    fn locks_and_members_are_counted_as_they_are_now() {
        let lock = |status: serde_json::Value| -> Arc<DistributedLock> {
            let lock: DistributedLock = serde_json::from_value(json!({
                "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "secret-project"},
                "spec": {}, "status": status
            }))
            .unwrap();
            Arc::new(lock)
        };
        let queued = json!({"transitions": 0, "conditions": [{"type": "Held", "status": "False", "reason": "Queued",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let metrics = Metrics::default();
        let finished = json!({"transitions": 1, "conditions": [{"type": "Held", "status": "False", "reason": "Released",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}, {"type": "Finished", "status": "True", "reason": "Released",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let held = json!({"transitions": 1, "holder": {"identity": "me"}});
        metrics.seen.look_at_locks(&[lock(held), lock(queued), lock(finished)]);
        let quorum: RedisQuorum = serde_json::from_value(json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
            "metadata": {"name": "main", "namespace": "locks"}, "spec": {},
            "status": {"members": [{"name": "main-0", "state": "Fenced", "rejoinAt": "1970-01-01T00:00:31.500Z"}]}
        }))
        .unwrap();
        metrics.seen.look_at_quorums(&[Arc::new(quorum)], 1_000);
        let mut text = String::new();
        encode(&mut text, &metrics.registry.lock()).unwrap();
        assert!(text.contains("redlock_locks_held 1"), "{text}");
        assert!(text.contains("redlock_locks_waiting{reason=\"Queued\"} 1"), "{text}");
        assert!(!text.contains("reason=\"Released\"} 1"), "a finished claim does not wait: {text}");
        assert!(
            text.contains("redlock_member_votes{quorum_namespace=\"locks\",quorum=\"main\",member=\"main-0\"} 0"),
            "{text}"
        );
        assert!(text.contains("member=\"main-0\",state=\"Fenced\"} 1"), "{text}");
        assert!(
            text.contains(
                "redlock_member_fence_remaining_seconds{quorum_namespace=\"locks\",quorum=\"main\",member=\"main-0\"} 31"
            ),
            "{text}"
        );
        assert!(!text.contains("secret-project"), "no label names a lock");
    }
}
