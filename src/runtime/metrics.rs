//! The metrics of the operator, in the OpenMetrics text format on `/metrics`.
//!
//! Labels are bounded: outcomes, reasons, and members of quorums. No label has the name of a holder. A label has the name of a lock only if
//! the chart enables that.

mod process;
mod snapshot;
mod text;

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::cache::{Cache, Kind};
use crate::api::conditions::HeldReason;
use crate::api::{DistributedLock, RedisQuorum};

pub use self::text::{classic, wants_open_metrics};

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

// One alias for each kind of label, because the reference prints these names.
type Label = Labels;
type KindLabels = Labels;
type LockLabels = Labels;
type QuorumLabels = Labels;
type MemberLabels = Labels;
type StateLabels = Labels;

/// The labels of a quorum.
fn quorum_labels(quorum: &ObjectRef<RedisQuorum>) -> Labels {
    let namespace = quorum.namespace.clone().unwrap_or_default();
    vec![("quorum_namespace", namespace), ("quorum", quorum.name.clone())]
}

/// The labels of a member.
pub fn member_labels(quorum: &ObjectRef<RedisQuorum>, member: &str) -> Labels {
    let mut labels = quorum_labels(quorum);
    labels.push(("member", member.to_owned()));
    labels
}

/// A histogram for each member.
pub type Latencies = Family<MemberLabels, Histogram, fn() -> Histogram>;

/// A counter for each value of one label.
#[derive(Clone, Debug)]
pub struct Counts {
    label: &'static str,
    family: Family<Label, Counter>,
}

impl Counts {
    /// Creates the counter with zero, so that an alert can detect the first event.
    fn begin(&self, value: &'static str) {
        drop(self.family.get_or_create(&vec![(self.label, value.to_owned())]));
    }
}

/// Declares the metrics of a struct with type, name and description.
macro_rules! metrics {
    (@made) => { Default::default() };
    (@made $made:expr) => { $made };
    ($(#[$about:meta])* pub struct $name:ident;
     $($(#[$doc:meta])* $vis:vis $field:ident: $type:ty = $add:ident($metric:literal, $help:literal $(, $made:expr)?);)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name {
            $(#[doc = $help] $(#[$doc])* $vis $field: $type,)*
            registry: Mutex<Registry>,
        }

        impl $name {
            fn registered(r: &mut Registry) -> Self {
                Self {
                    $($field: $add(r, ($metric, $help), metrics!(@made $($made)?)),)*
                    registry: Mutex::default(),
                }
            }
        }
    };
}

metrics! {
    /// All metrics of one replica.
    pub struct Metrics;

    pub acquisitions: Counts = counts("acquisitions", "Attempts to acquire a lock, by outcome", "outcome");
    pub acquire_duration: Histogram =
        add_seconds("acquire_duration", "Time from the first request of an attempt to its decision", seconds(&SHORT));
    claim_wait: Histogram = add_seconds("claim_wait", "Time from the creation of a claim to its first hold", seconds(&LONG));
    hand_over: Histogram = add_seconds("hand_over", "Time without a leader between two holds of an election", seconds(&LONG));
    pub renewals: Counts =
        counts("renewals", "Renewals of held locks, by outcome; incomplete means that a member did not confirm", "outcome");
    pub renewal_lateness: Histogram =
        add_seconds("renewal_lateness", "Time from the moment at which a renewal was due to its start", seconds(&SHORT));
    pub ended: Counts = counts("holds_ended", "Holds that ended, by reason; Expired means that the lock was lost", "reason");
    /// Members of quorums that are gone are taken out.
    pub member_latency: Latencies =
        add_seconds("member_latency", "Time from a command to its answer, by member", Latencies::new_with_constructor(|| seconds(&SHORT)));
    pub api_writes: Counts = counts("api_writes", "Writes of locks to the API server, by outcome", "outcome");
    pub reconcile_errors: Counts = counts("reconcile_errors", "Failed reconciliations, by controller", "controller");
    pub panics: Counts = counts("panics", "Panics that the operator caught, by task", "task");
    leader: Gauge = add("leader", "1 if this replica leads");
    refuses_to_lead: Gauge =
        add("leadership_refused", "1 if this replica would have to lead, but the Lease has no epoch left for another term");
    held: Gauge = add("locks_held", "Locks that are held");
    waiting: Family<Label, Gauge> = add("locks_waiting", "Locks that wait for a holder, by reason");
    without_leader: Gauge = add("elections_without_leader", "Elections that are not suspended, and have no leader in any cluster");
    unreadable: Family<KindLabels, Gauge> =
        add("unreadable_objects", "Objects that this version of the operator cannot read and therefore ignores, by kind");
    watch_errors: Family<KindLabels, Counter> =
        add("watch_errors", "Lists and watches that failed or were interrupted and began again, by kind");
    member_votes: Family<MemberLabels, Gauge> = add("member_votes", "1 if the member can vote, else 0");
    member_state: Family<StateLabels, Gauge> = add("member_state", "1 for the state that a member is in");
    fence_remaining: Family<MemberLabels, Gauge> =
        add_seconds("member_fence_remaining", "Time until a fenced member can vote again");
    votes_available: Family<QuorumLabels, Gauge> = add("votes_available", "Members that can vote, by quorum; 0 while the quorum grants no lock");
    votes_needed: Family<QuorumLabels, Gauge> = add("votes_needed", "Votes that a lock needs, by quorum");
    oldest_waiter: Family<QuorumLabels, Gauge> =
        add_seconds("oldest_waiter", "Time for which the lock that waits longest has waited, by quorum; 0 if none waits");
    certificate_expiry: Family<QuorumLabels, Gauge> =
        add_seconds("certificate_expiry_timestamp", "When the certificate of the members expires, in Unix time. The leader reports it");
    lock_held: Family<LockLabels, Gauge> =
        add("lock_held", "1 if the lock is held, else 0. With the chart's value monitoring.lockMetrics only");
}

/// The reasons for the end of a hold.
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

const ACQUISITIONS: [&str; 4] = ["granted", "held_by_other", "no_quorum", "too_slow"];
const RENEWALS: [&str; 5] = ["renewed", "incomplete", "refused", "no_quorum", "too_late"];
const API_WRITES: [&str; 5] = ["written", "conflict", "gone", "refused", "unknown"];

/// Bounds for times from less than a millisecond to seconds.
const SHORT: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// Bounds for times from milliseconds to an hour.
const LONG: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3_600.0];

fn seconds(bounds: &[f64]) -> Histogram {
    Histogram::new(bounds.iter().copied())
}

fn counts(registry: &mut Registry, texts: (&str, &str), label: &'static str) -> Counts {
    Counts { label, family: add(registry, texts, Family::default()) }
}

/// Registers a metric, and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, (name, help): (&str, &str), metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn add_seconds<M: Metric + Clone>(registry: &mut Registry, (name, help): (&str, &str), metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// Observes the time between two times in milliseconds.
fn observe(histogram: &Histogram, from: i64, to: i64) {
    histogram.observe(Duration::from_millis(u64::try_from(to - from).unwrap_or(0)).as_secs_f64());
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Process));
        let r = registry.sub_registry_with_prefix("redlock");
        let build: Family<Labels, Gauge> =
            add(r, ("build_info", "The version of the operator, as a label of the value 1"), Family::default());
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        let mut metrics = Self::registered(r);
        metrics.registry = Mutex::new(registry);
        ["lock", "quorum", "renewal", "session"].into_iter().for_each(|task| metrics.panics.begin(task));
        ENDS.iter().for_each(|reason| metrics.ended.begin(reason.as_str()));
        ["lock", "quorum"].into_iter().for_each(|controller| metrics.reconcile_errors.begin(controller));
        ACQUISITIONS.into_iter().for_each(|outcome| metrics.acquisitions.begin(outcome));
        RENEWALS.into_iter().for_each(|outcome| metrics.renewals.begin(outcome));
        API_WRITES.into_iter().for_each(|outcome| metrics.api_writes.begin(outcome));
        metrics
    }
}

impl Metrics {
    /// Records whether this replica cannot lead because no epoch is left for a term.
    pub fn refuses_to_lead(&self, refuses: bool) {
        self.refuses_to_lead.set(i64::from(refuses));
    }

    /// Increments the counter of this label value.
    pub fn count(&self, counts: &Counts, value: &'static str) {
        counts.family.get_or_create(&vec![(counts.label, value.to_owned())]).inc();
    }

    /// Records the unreadable objects of a cache, and the interruptions of its watch.
    pub(super) fn record_watch<K: Kind>(&self, kind: &'static str, cache: &Cache<K>) {
        let unreadable = i64::try_from(cache.unreadable().len()).unwrap_or(i64::MAX);
        let labels = vec![("kind", kind.to_owned())];
        self.unreadable.get_or_create(&labels).set(unreadable);
        self.watch_errors.get_or_create(&labels).inner().store(cache.interruptions(), Ordering::Relaxed);
    }

    /// Records how long a granted lock waited.
    pub fn granted(&self, lock: &DistributedLock) {
        let Some(status) = &lock.status else { return };
        let Some(acquired) = status.acquired_at.map(|at| at.as_millis()) else { return };
        match (&lock.spec.election, status.history.first(), &lock.metadata.creation_timestamp) {
            (Some(_), Some(before), _) => observe(&self.hand_over, before.to.as_millis(), acquired),
            (None, None, Some(created)) => observe(&self.claim_wait, created.0.as_millisecond(), acquired),
            _ => {}
        }
    }

    /// All metrics as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry.lock()).is_err() {
            tracing::error!("metrics could not be written");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_exported_with_their_outcome() {
        let metrics = Metrics::default();
        metrics.count(&metrics.acquisitions, "granted");
        metrics.acquire_duration.observe(0.003);
        let text = metrics.text();
        assert!(text.contains("redlock_acquisitions_total{outcome=\"granted\"} 1"), "{text}");
        assert!(
            text.contains("redlock_holds_ended_total{reason=\"Expired\"} 0"),
            "the first loss is an increase: {text}"
        );
        assert!(text.contains("redlock_acquire_duration_seconds_bucket{le=\"0.005\"} 1"), "{text}");
        assert!(
            text.contains("redlock_renewals_total{outcome=\"too_late\"} 0"),
            "every series is there from the start: {text}"
        );
        assert!(text.contains(concat!("redlock_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1")), "{text}");
    }

    #[test]
    fn metrics_that_the_documentation_names_exist() {
        // The text does not contain a family without members, so the test searches the source code for the names.
        let code = include_str!("metrics.rs");
        let page = include_str!("../../docs/monitoring.md");
        let words = page.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let named: Vec<_> = words.filter_map(|word| word.strip_prefix("redlock_")).collect();
        assert!(named.len() > 10, "{named:?}");
        for name in named {
            let registered = name.trim_end_matches("_total").trim_end_matches("_seconds");
            assert!(code.contains(&format!("(\"{registered}\", ")), "docs/monitoring.md names redlock_{name}");
        }
    }
}
