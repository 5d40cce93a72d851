//! The memory of a lock in the watched cache. A replica that starts reads all locks, and keeps them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, future};

use hyper::http::{Request, Response};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Api, Client};
use redlock_operator::api::DistributedLock;
use redlock_operator::runtime::cache::{Cache, Guarded};
use redlock_operator::time::{Clock, SystemClock};
use serde_json::{Value, json};

/// The allocator of the operator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many locks the child reads.
const NUMBER: &str = "REDLOCK_TEST_LOCKS";
/// Maximum number of bytes for a lock, at rest and while all locks are read.
///
/// The measured number is 4,911. The reserve is less than a fifth of it.
const BOUND: u64 = 5_800;

/// A held claim, with the full status after some transitions.
fn lock(number: usize) -> Value {
    let time = "2026-01-01T00:00:00.000Z";
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let managed = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "redlock-operator.io/v1alpha1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:status": {"f:holder": {"f:identity": {}, "f:nonce": {}},
            "f:conditions": {"k:{\"type\":\"Held\"}": {"f:reason": {}, "f:status": {}, "f:message": {}}}}}})
    };
    json!({
        "metadata": {"name": format!("lock-{number:05}"), "namespace": "shop", "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "resourceVersion": "1000", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["redlock-operator.io/lock"], "managedFields": [managed("kubectl"), managed("redlock-operator")]},
        "spec": {"key": format!("orders/{number:05}"), "ttl": "30s", "validity": "Transitions",
            "claim": {"identity": format!("worker-{number:05}")}},
        "status": {"observedGeneration": 1, "transitions": 1, "fencingToken": 1_795_284_168_032_u64, "acquiredAt": time,
            "validUntil": time, "key": format!("shop/orders/{number:05}"),
            "holder": {"identity": format!("worker-{number:05}"), "nonce": "0123456789abcdef0123", "key": format!("shop/orders/{number:05}"),
                "rejoinDelay": "31s", "quorum": {"namespace": "redlock-system", "name": "main", "uid": "00000000-0000-4000-8000-000000000000"}},
            "conditions": [condition("Accepted", "Accepted"), condition("Held", "Held"), condition("Ready", "Held")]}
    })
}

/// Answers lists page by page, and watches never.
async fn answer(request: Request<Body>, number: usize) -> Result<Response<Body>, std::io::Error> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let of =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    if of("watch").is_some() {
        return future::pending().await;
    }
    let limit = of("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let from: usize = of("continue").and_then(|from| from.parse().ok()).unwrap_or(0);
    let end = from.saturating_add(limit).min(number);
    let mut metadata = json!({"resourceVersion": "1000"});
    if end < number {
        metadata["continue"] = json!(end.to_string());
    }
    let items: Vec<_> = (from..end).map(lock).collect();
    let list = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "metadata": metadata, "items": items});
    Ok(Response::new(Body::from(serde_json::to_vec(&list).unwrap())))
}

/// The memory of this process in kilobytes: the current value and the maximum.
fn resident() -> [u64; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let of =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    ["VmRSS:", "VmHWM:"].map(|name| of(name).unwrap())
}

/// Whether this process has huge pages, on a machine that gives them only on request.
fn huge_pages() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let huge = maps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")?.split_whitespace().next());
    !enabled.contains("[always]") && huge.is_some_and(|size| size != "0")
}

/// The other test runs this one in a process of its own, with a number of locks.
#[tokio::test]
async fn child() {
    let Some(number) = env::var(NUMBER).ok().and_then(|number| number.parse().ok()) else { return };
    let service = tower::service_fn(move |request| answer(request, number));
    let api = Api::<Guarded<DistributedLock>>::all(Client::new(service, "default"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (cache, follow) = Cache::of_existing(vec![(None, api)], &clock, watcher::Config::default(), |_| true);
    let following = tokio::spawn(follow);
    tokio::time::timeout(Duration::from_secs(120), cache.ready()).await.unwrap();
    assert_eq!((cache.all().len(), cache.unreadable().len()), (number, 0));
    assert!(!huge_pages(), "the process has huge pages");
    let [now, most] = resident();
    println!("\nresident {now} {most}");
    following.abort();
}

fn with(number: usize) -> [u64; 2] {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--exact", "child", "--nocapture"]).env(NUMBER, number.to_string()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("resident "));
    let mut sizes = line.unwrap_or_else(|| panic!("{text}")).split(' ').map(|size| size.parse().unwrap());
    [sizes.next().unwrap(), sizes.next().unwrap()]
}

#[test]
fn a_lock_costs_a_few_kilobytes_in_the_cache() {
    let ([few, few_peak], [many, many_peak]) = (with(1_000), with(10_000));
    let slope = |few: u64, many: u64| many.saturating_sub(few) * 1024 / 9_000;
    let (rest, peak) = (slope(few, many), slope(few_peak, many_peak));
    println!(
        "1,000 locks: {few} KiB, {few_peak} at most; 10,000: {many} KiB, {many_peak} at most; a lock: {rest} and {peak} bytes"
    );
    assert!(rest <= BOUND, "{rest} bytes for each lock at rest");
    assert!(peak <= BOUND, "{peak} bytes for each lock while all are read");
}
