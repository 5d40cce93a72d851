use serde_json::json;

use super::*;
use crate::api::test_util::parsed;

fn claim(name: &str, key: &str) -> DistributedLock {
    parsed(json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1},
        "spec": {"key": key, "claim": {"identity": name}}, "status": {"transitions": 0}}))
}

/// A claim of the pod `p`.
fn bound() -> DistributedLock {
    let mut bound = claim("bound", "k");
    bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
    bound
}

fn applied(lock: &DistributedLock) -> Change<DistributedLock> {
    Change::Applied(Arc::new(lock.clone()))
}

/// Applies a change while the watch has the last write of this replica.
fn changed(index: &Index, change: &Change<DistributedLock>) -> Vec<LockRef> {
    index.lock_changed(change, false, |_| matches!(change, Change::Applied(_)).then(|| change.object().clone()))
}

/// An index of these locks.
fn index_of(locks: &[&DistributedLock]) -> Index {
    let index = Index::default();
    locks.iter().for_each(|lock| drop(changed(&index, &applied(lock))));
    index
}

#[test]
fn a_release_concerns_the_waiters_and_a_renewal_does_not() {
    let (waiter, here) = (claim("b", "k"), |lock: &DistributedLock| LockRef::from_obj(lock));
    let mut holder = claim("a", "k");
    holder.status.as_mut().unwrap().holder =
        Some(crate::api::LockHolder { nonce: Some("n".into()), ..Default::default() });
    let index = index_of(&[&holder, &claim("c", "other")]);
    assert_eq!(changed(&index, &applied(&waiter)), vec![here(&holder), here(&waiter)]);
    holder.status.as_mut().unwrap().votes = Some("3/3".into());
    assert!(changed(&index, &applied(&holder)).is_empty());
    let since = crate::api::MilliTime::from_millis(0).unwrap();
    let ending = crate::api::Ending { since, reason: "Broken".into(), until: None, message: None };
    holder.status.as_mut().unwrap().ending = Some(ending);
    assert_eq!(changed(&index, &applied(&holder)), vec![here(&holder), here(&waiter)]);
    holder.status.as_mut().unwrap().holder = None;
    assert_eq!(changed(&index, &applied(&holder)), vec![here(&holder), here(&waiter)]);
    assert_eq!(changed(&index, &Change::Deleted(Arc::new(holder))), vec![here(&waiter)]);
}

#[test]
fn a_grant_is_in_the_index_before_the_watch_delivers_it() {
    let index = Index::default();
    let (waiting, mut held) = (claim("a", "k"), claim("a", "k"));
    held.status.as_mut().unwrap().holder = Some(Default::default());
    let (here, held) = (LockRef::from_obj(&waiting), Arc::new(held));
    let holders = || index.read(|keys| keys.holders("k"));
    changed(&index, &applied(&waiting));
    assert!(holders().is_empty());
    index.refresh(&here, |_| Some(held.clone()));
    assert_eq!(holders(), std::slice::from_ref(&here));
    index.lock_changed(&applied(&waiting), false, |_| Some(held.clone()));
    assert_eq!(holders(), std::slice::from_ref(&here));
    index.refresh(&here, |_| None);
    assert!(holders().is_empty());
}

#[test]
fn a_pod_concerns_the_locks_that_are_bound_to_it_only() {
    let bound = bound();
    let mut election = claim("election", "e");
    election.spec.claim = None;
    election.spec.election = Some(Default::default());
    let index = index_of(&[&bound, &claim("free", "k2"), &election]);
    let concerned = |namespace: &str, name: &str| {
        index.pod_changed(&parsed(json!({"metadata": {"namespace": namespace, "name": name}})))
    };
    assert_eq!(concerned("ns", "p"), vec![LockRef::from_obj(&bound), LockRef::from_obj(&election)]);
    assert_eq!(concerned("ns", "q"), vec![LockRef::from_obj(&election)], "any pod can be a candidate");
    assert!(concerned("elsewhere", "p").is_empty());
}

#[test]
fn a_waiting_lock_concerns_only_the_first_few_of_thousands() {
    let index = Index::default();
    let locks: Vec<_> = (0..10_000).map(|number| applied(&claim(&format!("claim-{number}"), "k"))).collect();
    let most = locks.iter().map(|lock| changed(&index, lock).len()).max();
    assert_eq!(most, Some(11), "the locks with a position in their status, and the next one");
    let again: usize = locks.iter().map(|lock| changed(&index, lock).len()).sum();
    assert_eq!(again, 0, "an unchanged lock concerns no lock, so a new term fills the index first");
}

#[test]
fn a_quorum_concerns_the_locks_that_name_it_or_are_held_on_it() {
    let quorum = |name: &str| Some(("ns".to_owned(), name.to_owned()));
    let mut named = claim("named", "k");
    named.spec.quorum_ref = Some(crate::api::QuorumRef { name: "q".into(), namespace: None });
    let mut held = claim("held", "k");
    let quorum_of_hold = json!({"namespace": "ns", "name": "old", "uid": "u"});
    held.status = parsed(json!({"transitions": 1, "holder": {"identity": "a", "quorum": quorum_of_hold}}));
    let index = index_of(&[&named, &held, &claim("default", "k")]);
    assert_eq!(index.of_quorum(&quorum("q")), [LockRef::from_obj(&named)]);
    assert_eq!(index.of_quorum(&quorum("old")), [LockRef::from_obj(&held)]);
    assert_eq!(index.of_quorum(&None).len(), 2, "two locks name no quorum");
    assert_eq!(index.in_namespace("ns").len(), 3);
    changed(&index, &Change::Deleted(Arc::new(held)));
    assert!(index.of_quorum(&quorum("old")).is_empty());
}

#[test]
fn the_index_gives_the_oldest_locks_of_a_namespace() {
    let locks = ["a", "b", "c"].map(|name| claim(name, name));
    let index = index_of(&locks.each_ref());
    assert_eq!([&locks[0], &locks[1], &locks[2]].map(|lock| index.has_older(lock, 2, |_| true)), [false, false, true]);
    let first = LockRef::from_obj(&locks[0]);
    assert!(!index.has_older(&locks[2], 2, |older| *older != first), "the watch omitted a deletion");
    assert!(!index.has_older(&locks[2], 3, |_| true) && !index.has_older(&locks[2], usize::MAX, |_| true));
    changed(&index, &Change::Deleted(Arc::new(locks[0].clone())));
    assert!(!index.has_older(&locks[2], 2, |_| true));
    assert_eq!(index.last_of("ns", 2), Some(LockRef::from_obj(&locks[2])), "the limit now admits it");
    assert_eq!(index.last_of("ns", 3), None);
}

#[test]
fn a_heartbeat_of_a_node_concerns_no_lock() {
    let index = index_of(&[&bound()]);
    let node = |ready: &str| {
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        Change::Applied(Arc::new(parsed(json!({"metadata": {"name": "n"}, "status": status}))))
    };
    index.node_changed(&node("True"));
    assert!(index.node_changed(&node("True")).is_empty());
    assert_eq!(index.node_changed(&node("Unknown")).len(), 1);
}

#[test]
fn a_namespace_concerns_its_locks_by_labels_and_deletion() {
    let index = index_of(&[&claim("a", "k")]);
    let concerned = |labels: serde_json::Value, deleted: Option<&str>, message: &str| {
        let namespace = json!({"metadata": {"name": "ns", "labels": labels, "deletionTimestamp": deleted},
            "status": {"conditions": [{"type": "NamespaceContentRemaining", "status": "True", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        index.namespace_changed(&Change::Applied(Arc::new(parsed(namespace)))).len()
    };
    let deleted = Some("2026-01-01T00:00:00Z");
    assert_eq!(concerned(json!({}), None, ""), 1, "the namespace is new");
    assert_eq!((concerned(json!({}), None, ""), concerned(json!({"a": "b"}), None, "")), (0, 1));
    assert_eq!(concerned(json!({"a": "b"}), deleted, "9,999 are left"), 1);
    assert_eq!(concerned(json!({"a": "b"}), deleted, "9,998 are left"), 0, "a new count concerns no lock");
}

#[test]
fn a_job_and_its_pods_concern_the_claims_that_name_it() {
    let mut of_job = claim("of-job", "k");
    of_job.spec.claim = Some(crate::api::Claim { job_name: Some("j".into()), ..Default::default() });
    let index = index_of(&[&of_job, &claim("free", "k2")]);
    let pod = |job: &str| {
        let labels = json!({"batch.kubernetes.io/job-name": job});
        parsed(json!({"metadata": {"namespace": "ns", "name": "j-x", "labels": labels}}))
    };
    let job = |name: &str| parsed(json!({"metadata": {"namespace": "ns", "name": name}}));
    let here = vec![LockRef::from_obj(&of_job)];
    assert_eq!((index.pod_changed(&pod("j")), index.job_changed(&job("j"))), (here.clone(), here));
    assert!(index.pod_changed(&pod("other")).is_empty() && index.job_changed(&job("other")).is_empty());
}

/// Environment variable: the number of locks that a child process indexes.
const NUMBER: &str = "REDLOCK_TEST_INDEXED";
/// Maximum bytes of a lock while it waits, and then while it is held.
const BOUND: u64 = 3_800;

/// Resident kilobytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Indexes locks that wait on separate keys and are held afterwards. Prints the memory at both times.
#[test]
fn child() {
    let Some(number) = std::env::var(NUMBER).ok().and_then(|number| number.parse::<usize>().ok()) else { return };
    let index = Index::default();
    let lock = |number: usize, holder: serde_json::Value| {
        let mut lock = claim(&format!("claim-{number:05}"), &format!("orders/{number:05}"));
        lock.metadata.resource_version = Some("1000".to_owned());
        lock.status = parsed(json!({"transitions": 1, "holder": holder}));
        lock
    };
    (0..number).for_each(|number| drop(changed(&index, &applied(&lock(number, json!(null))))));
    let waiting = resident();
    let quorum = json!({"namespace": "redlock-system", "name": "main", "uid": "00000000-0000-4000-8000-000000000000"});
    let holder = json!({"identity": "worker", "nonce": "0123456789abcdef0123", "quorum": quorum});
    (0..number).for_each(|number| drop(changed(&index, &applied(&lock(number, holder.clone())))));
    println!("\nresident {waiting} {}", resident());
    assert_eq!(index.all().len(), number);
}

fn resident_with(number: usize) -> [u64; 2] {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lock::leader::index::tests::child", "--nocapture"]).env(NUMBER, number.to_string());
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("resident ")).unwrap_or_else(|| panic!("{text}"));
    let (waiting, held) = line.split_once(' ').unwrap();
    [waiting, held].map(|size| size.parse().unwrap())
}

#[test]
fn a_lock_costs_the_leader_a_few_kilobytes_beside_the_cache() {
    let (few, many) = (resident_with(1_000), resident_with(10_000));
    let [waiting, held] = [0, 1].map(|at| many[at].saturating_sub(few[at]) * 1024 / 9_000);
    println!("a lock that waits: {waiting} bytes, and held: {held}");
    assert!(waiting <= BOUND && held <= BOUND, "{waiting} and {held} bytes for each lock");
}
