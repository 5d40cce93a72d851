use futures::FutureExt;
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};

use super::*;
use crate::lock::replica::hold_table;
use crate::runtime::cache::Cache;
use crate::runtime::fake_api::{self, failure};
use crate::time::Boottime;

const NONCE: &str = "0123456789abcdef0123";

fn lock(uid: &str, nonce: &str) -> Value {
    json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "app", "namespace": "ns", "uid": uid},
        "spec": {"claim": {"identity": "a"}},
        "status": {"transitions": 1, "holder": {"identity": "a", "nonce": nonce}}})
}

/// Whether an API server with this answer names the cached hold.
async fn named(answer: (u16, Value)) -> bool {
    let client = fake_api::client(move |_request| answer.clone());
    let cached: DistributedLock = serde_json::from_value(lock("u", NONCE)).unwrap();
    is_named(&client, &cached, NONCE.parse().unwrap()).await
}

#[tokio::test]
async fn an_orphan_beside_a_hold_needs_a_read_from_the_api_server() {
    assert!(named((200, lock("u", NONCE))).await);
    assert!(!named((200, lock("u", "ffffffffffffffffffff"))).await, "another grant was published since");
    assert!(!named((200, lock("another", NONCE))).await, "another object has its name");
    assert!(!named(failure(404, "NotFound", "")).await);
    assert!(!named(failure(503, "ServiceUnavailable", "")).await, "an error proves nothing");
}

fn hold(uid: &str, quorum: &str) -> Hold {
    let mut hold = hold_table::tests::hold(0, 0, 0);
    (hold.terms.uid, hold.terms.lock) = (uid.to_owned(), ObjectRef::new(uid).within("ns"));
    (hold.terms.quorum.uid, hold.terms.nonce) = (quorum.to_owned(), NONCE.parse().unwrap());
    hold
}

/// The UIDs of the locks in each batch.
fn in_batches(due: &[(&str, &str)], is_checked: impl Fn(&Hold) -> bool) -> Vec<Vec<String>> {
    let due = due.iter().map(|(uid, quorum)| hold(uid, quorum)).collect();
    let uids = |batch: Vec<Hold>| batch.into_iter().map(|hold| hold.terms.uid).collect::<Vec<_>>();
    batches(due, is_checked).into_iter().map(uids).collect()
}

#[test]
fn holds_on_a_recreated_quorum_are_renewed_apart() {
    let due = [("a", "former"), ("b", "present"), ("c", "former"), ("d", "present")];
    assert_eq!(in_batches(&due, |_hold| false), [["a", "c"], ["b", "d"]]);
}

#[test]
fn a_hold_whose_holder_is_checked_is_renewed_alone() {
    let due = [("a", "q"), ("b", "q"), ("c", "q")];
    assert_eq!(in_batches(&due, |hold| hold.terms.uid == "b"), [vec!["a", "c"], vec!["b"]]);
}

/// A replica that does not lead, with these locks in its cache.
fn standby(locks: Vec<DistributedLock>) -> Renewal {
    let mut context = fake_api::context(|_request| (404, json!({})));
    context.locks = Cache::filled(locks);
    let (sessions, _follow) = Sessions::start(context.clone());
    let leadership = watch::channel(None).1;
    Renewal { context, sessions, holds: Arc::default(), leadership, queue: FairQueue::new(SLOTS) }
}

#[tokio::test]
async fn only_the_leader_renews_a_grant_without_its_status_write() {
    let mut free = lock("app", NONCE);
    free["status"] = json!({"transitions": 0});
    let renewal = standby(vec![serde_json::from_value(free).unwrap()]);
    let grant = hold("app", "q");
    assert!(renewal.renewable(&grant).is_none());
    let mut named = lock("app", NONCE);
    named["metadata"]["resourceVersion"] = json!("7");
    let is_renewed = |written: &Value| {
        let written = Some(Arc::new(serde_json::from_value(written.clone()).unwrap()));
        renewal.renewable(&Hold { written, ..grant.clone() }).is_some()
    };
    assert!(is_renewed(&named), "the watch has not reported the status yet");
    named["metadata"]["annotations"] = json!({"redlock-operator.io/break": "ann: dead"});
    assert!(!is_renewed(&named), "the written object decides");
}

#[tokio::test]
async fn a_batch_that_waits_for_slow_members_has_no_slot() {
    let (slow, fast) = (RenewalLimit::new(Duration::ZERO), RenewalLimit::new(Duration::ZERO));
    let queue = FairQueue::new(4);
    let turn = |limit, batch| take_turn(Some(limit), batch, &queue, "ns", Class::Change);
    let _under_way = turn(&slow, MOST_IN_BATCH).await;
    let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(turn(&slow, MOST_IN_BATCH))).collect();
    assert!(waiting.iter_mut().all(|batch| batch.now_or_never().is_none()));
    assert!(turn(&fast, MOST_IN_BATCH).now_or_never().is_some());
}

#[tokio::test]
async fn a_published_hold_without_its_lock_is_forgotten() {
    let renewal = standby(Vec::new());
    for (uid, published) in [("deleted", true), ("granted", false)] {
        renewal.holds.adopt(hold(uid, "q"), published);
    }
    let due = renewal.holds.take_due(Boottime::new(Duration::from_secs(9)));
    renewal.renew_in_turn(due).await;
    let is_kept = |uid| renewal.holds.get(uid, &NONCE.parse().unwrap()).is_some();
    assert!(!is_kept("deleted"));
    assert!(is_kept("granted"), "the watch did not deliver the lock yet");
}
