//! Fixed histories.
//!
//! Each was found by analysis, and random seeds would rarely reach it.

use redlock_api::{DEFAULT_QUORUM_ANNOTATION, JOB_LOCK_ANNOTATION};
use serde_json::{Value, json};

use crate::electors;
use crate::rng::Rng;
use crate::time::At;
use crate::users::SHOP;

use super::{Fault, Plan};

/// One history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    replicas: usize,
    /// Whether Jobs hold locks.
    jobs: bool,
    /// Whether there is a second quorum.
    second: bool,
    faults: fn() -> Vec<(u64, Fault)>,
}

impl Scenario {
    const fn new(name: &'static str, faults: fn() -> Vec<(u64, Fault)>) -> Self {
        Self { name, replicas: 2, jobs: false, second: false, faults }
    }
}

pub(crate) const SCENARIOS: [Scenario; 9] = [
    // Standby 0 renews a hold and loses the API server. The hold ends, the next one is granted, and members refuse
    // standby 0 for the former one. The API server forgets its history, so the standby lists the new hold and never
    // observes the end of the former one. Its refusals must not affect the new hold.
    Scenario { replicas: 3, ..Scenario::new("a standby that missed a change of holders", missed_change) },
    // Standby 0 does not reach the members for longer than a ttl, while the leader renews a lock that publishes only
    // transitions. After a healthy period the leader dies.
    Scenario::new("a standby that was cut from the members once", blip),
    // One hold, and no replica reaches the API server for longer than its ttl. No event wakes the renewing task then,
    // so it needs a timer for the next renewal.
    Scenario::new("a lone hold without an API server", outage),
    // Two claims with different numbers of slots wait for the quorum, and the watches of the leader are late. The keys of
    // the two numbers do not exclude each other on the members, so the leader must remember its first grant.
    Scenario::new("two numbers of slots and a late watch", late_watch),
    // A claim names a pod that was replaced by another one with the same name. The present pod must not get the lock.
    Scenario::new("a claim that names a former pod", former_pod),
    // The same for a Job. The claim must not start the present Job.
    Scenario { jobs: true, ..Scenario::new("a claim that names a former Job", former_job) },
    // The application of a holder stops to answer. Its lock has a short renewInterval, and the checks follow that.
    Scenario::new("a sick holder with a short renewInterval", short_interval),
    // A claim and an election name the second container of their pods. The first one is the default container.
    Scenario::new("locks that name a second container", second_container),
    // The default quorum moves to the second quorum and back, with claims on one key before, between and after. The members
    // of both quorums were admitted at about the same time, so one of the moves needs larger counters.
    Scenario { second: true, ..Scenario::new("a default that moves there and back", moved_default) },
];

/// The history that `SCENARIO` names.
pub(super) fn wanted() -> Option<Scenario> {
    let name = std::env::var("SCENARIO").ok()?;
    SCENARIOS.into_iter().find(|scenario| scenario.name == name)
}

const LOCKS: &str = "/apis/redlock-operator.io/v1alpha1/namespaces/shop/distributedlocks";

fn lock(name: &str, spec: &Value) -> Fault {
    let kind = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock"});
    let mut object = json!({"metadata": {"name": name}, "spec": spec});
    object["apiVersion"] = kind["apiVersion"].clone();
    object["kind"] = kind["kind"].clone();
    Fault::Create(LOCKS, object)
}

/// Three pods that can lead.
fn pods() -> Fault {
    let template = json!({"metadata": {"labels": {"app": "led"}}, "spec": {"containers": [{"name": "app"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "led"}}, "template": template});
    Fault::Create(
        "/apis/apps/v1/namespaces/shop/deployments",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "led"}, "spec": spec}),
    )
}

/// The election whose Lease candidates use, and its pods.
///
/// The lock exists after the pods or before them. Some users delete it and create it again.
pub(super) fn electors(rng: &mut Rng) -> Vec<(At, Fault)> {
    let election = || lock(electors::ELECTION, &electors::election());
    let (early, late) = if rng.percent(50) { (pods(), election()) } else { (election(), pods()) };
    let mut plan = vec![(At(2_000_000), early), (At(9_000_000), late)];
    if rng.percent(25) {
        plan.push((At(30_000_000), Fault::DeleteLock(electors::ELECTION)));
        // The object is gone when its hold has ended.
        plan.extend((31..60).step_by(4).map(|second| (At(second * 1_000_000), election())));
    }
    plan
}

/// A claim that publishes only transitions.
fn claim() -> Fault {
    lock("c", &claim_of("c"))
}

fn claim_of(identity: &str) -> Value {
    json!({"key": "x/c", "ttl": "10s", "validity": "Transitions", "quorumRef": {"name": "q", "namespace": SHOP},
        "claim": {"identity": identity}})
}

fn missed_change() -> Vec<(u64, Fault)> {
    let election = json!({"key": "x/e", "ttl": "10s", "validity": "Transitions", "quorumRef": {"name": "q", "namespace": SHOP},
        "election": {"selector": {"matchLabels": {"app": "led"}}}});
    let at = |standby, fault| Fault::AtStandby(standby, Box::new(fault));
    vec![
        (2_000, pods()),
        (9_000, lock("e", &election)),
        (20_000, at(0, Fault::CutApi { process: 0, length: 16_000_000 })),
        (22_000, Fault::Annotate(("distributedlocks", "e"), "redlock-operator.io/break-force", Some("now"))),
        (34_000, Fault::Compact),
        // The other standby renews, and cannot lead.
        (41_900, at(1, Fault::CutApi { process: 0, length: 20_000_000 })),
        (42_000, Fault::AtLeader(Box::new(Fault::Kill { process: 0, away: 20_000_000 }))),
    ]
}

fn blip() -> Vec<(u64, Fault)> {
    vec![
        (9_000, claim()),
        (20_000, Fault::AtStandby(0, Box::new(Fault::CutAll { process: 0, length: 14_000_000 }))),
        (50_000, Fault::AtLeader(Box::new(Fault::Kill { process: 0, away: 20_000_000 }))),
    ]
}

fn outage() -> Vec<(u64, Fault)> {
    let cut = || Box::new(Fault::CutApi { process: 0, length: 35_000_000 });
    vec![(9_000, claim()), (20_000, Fault::AtStandby(0, cut())), (20_100, Fault::AtLeader(cut()))]
}

fn late_watch() -> Vec<(u64, Fault)> {
    let mut wide = claim_of("wide");
    wide["slots"] = json!(2);
    let lag = Fault::Lag { process: 0, by: 3_000_000, length: 30_000_000 };
    vec![(2_000, claim()), (2_500, lock("wide", &wide)), (4_000, Fault::AtLeader(Box::new(lag)))]
}

fn former_pod() -> Vec<(u64, Fault)> {
    let meta = json!({"name": "worker", "labels": {"app": "led"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "app"}]}});
    let mut former = claim_of("");
    former["claim"] = json!({"podName": "worker", "podUID": "00000000-0000-0000-0000-000000000001"});
    vec![(2_000, Fault::Create("/api/v1/namespaces/shop/pods", pod)), (9_000, lock("former", &former))]
}

fn former_job() -> Vec<(u64, Fault)> {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "work"}]}});
    let meta = json!({"name": "work", "annotations": {JOB_LOCK_ANNOTATION: ""}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
        "spec": {"suspend": true, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}});
    let mut former = claim_of("");
    former["claim"] = json!({"jobName": "work", "jobUID": "00000000-0000-0000-0000-000000000001"});
    vec![(2_000, Fault::Create("/apis/batch/v1/namespaces/shop/jobs", job)), (9_000, lock("former", &former))]
}

fn short_interval() -> Vec<(u64, Fault)> {
    let meta = json!({"name": "worker", "labels": {"app": "alone"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "app"}]}});
    let mut claim = claim_of("");
    claim["claim"] = json!({"podName": "worker"});
    claim["renewInterval"] = json!("1s");
    claim["liveness"] = json!({"tcpSocket": {"port": 8080}, "failureThreshold": 6});
    let sick = Fault::Sick { number: 0, length: 28_000_000 };
    vec![(2_000, Fault::Create("/api/v1/namespaces/shop/pods", pod)), (9_000, lock("watched", &claim)), (30_000, sick)]
}

fn second_container() -> Vec<(u64, Fault)> {
    let containers = json!([{"name": "app"}, {"name": "mesh"}]);
    let annotations = json!({"kubectl.kubernetes.io/default-container": "app"});
    let meta = json!({"name": "worker", "labels": {"app": "pair"}, "annotations": annotations});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}});
    let mut claim = claim_of("");
    claim["claim"] = json!({"podName": "worker", "container": "mesh"});
    let mut election = claim_of("");
    election["key"] = json!("x/e");
    election["election"] = json!({"selector": {"matchLabels": {"app": "pair"}}, "container": "mesh"});
    election.as_object_mut().map(|spec| spec.remove("claim"));
    vec![
        (2_000, Fault::Create("/api/v1/namespaces/shop/pods", pod)),
        (9_000, lock("claim", &claim)),
        (9_000, lock("election", &election)),
    ]
}

/// Names another default quorum, and restarts both replicas, which read it when they start.
fn move_default(at: u64, from: &'static str, to: &'static str) -> [(u64, Fault); 4] {
    let mark = |quorum, value| Fault::Annotate(("redisquorums", quorum), DEFAULT_QUORUM_ANNOTATION, value);
    [
        (at, mark(from, None)),
        (at, mark(to, Some("true"))),
        (at + 100, Fault::AtStandby(0, Box::new(Fault::Kill { process: 0, away: 500_000 }))),
        (at + 3_000, Fault::AtLeader(Box::new(Fault::Terminate { process: 0 }))),
    ]
}

/// The members vote from about 26 s on. Another default comes into force 15 s after the restart of the leader, when nothing
/// is held on the earlier one.
fn moved_default() -> Vec<(u64, Fault)> {
    let claim = |name| {
        let mut spec = claim_of(name);
        spec.as_object_mut().map(|spec| spec.remove("quorumRef"));
        lock(name, &spec)
    };
    let mut plan = vec![(9_000, claim("first")), (36_000, claim("second"))];
    plan.extend(move_default(30_000, "q", "r"));
    plan.extend([
        (54_000, Fault::DeleteLock("second")),
        (55_000, Fault::DeleteLock("first")),
        (59_000, claim("third")),
    ]);
    plan.extend(move_default(63_000, "r", "q"));
    plan.extend([(70_000, Fault::DeleteLock("third")), (87_000, claim("fourth"))]);
    plan
}

impl Fault {
    /// The same fault at this process.
    pub(crate) fn at(&self, number: usize) -> Self {
        let mut fault = self.clone();
        if let Self::Kill { process, .. }
        | Self::Terminate { process }
        | Self::CutApi { process, .. }
        | Self::CutAll { process, .. }
        | Self::Lag { process, .. } = &mut fault
        {
            *process = number;
        }
        fault
    }
}

impl Plan {
    /// Replaces the plan by three members with correct clocks and the faults of the scenario.
    pub(super) fn follow(&mut self, scenario: Scenario) {
        self.replicas = vec![super::Clocks::default(); scenario.replicas];
        self.contenders.truncate(1);
        self.servers.fill(super::Clocks::default());
        (self.members, self.max_ttl, self.keys, self.claims) = (3, 10_000, 1, 0);
        (self.theme, self.long, self.core, self.second, self.annex, self.jobs) =
            (None, false, false, scenario.second, false, scenario.jobs);
        self.faults = (scenario.faults)().into_iter().map(|(at, fault)| (At(at * 1_000), fault)).collect();
        let last = self.faults.iter().map(|(at, _)| at.0).max().unwrap_or_default();
        self.calm = At(70_000_000.max(last + 10_000_000));
        self.take_time();
    }
}
