use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_api::test_util::parsed;
use serde_json::{Value, json};

use super::super::leadership::{Answer, Refusal};
use super::super::tests::http_state;
use super::*;
use crate::cluster::fake::failure;
use crate::cluster::objects::fake::condition;
use redlock_engine::time::{Clock as _, ClockOffset, UnixMicros};

/// An agent that follows an election, with a registered instance.
async fn following() -> (Follower, Cluster) {
    following_at(Cluster::answering(|_| failure(500, "InternalError"))).await
}

async fn following_at(cluster: Cluster) -> (Follower, Cluster) {
    let agent = http_state().agent;
    let at = now();
    let wall = UnixMicros(SystemClock.wall().0 * 1_000);
    cluster.server_time().set_offset(ClockOffset::of_reading(wall, Duration::ZERO, at, at));
    let election = Election { namespace: "shop".into(), name: "elected".into(), pod_uid: "u-1".into() };
    let skew = Duration::from_secs(1);
    let mut follower = Follower::new(agent.clone(), election, ClusterArgs::default(), None, skew);
    follower.begun = None;
    agent.ask(|state, now| state.register("a".into(), false, now)).await.unwrap().unwrap();
    (follower, cluster)
}

/// An election with this specification and status.
fn object(ttl: &str, status: Value) -> Value {
    let spec = json!({"ttl": ttl, "election": {"selector": {"matchLabels": {"app": "elected"}}}});
    json!({"metadata": {"name": "elected", "namespace": "shop"}, "spec": spec, "status": status})
}

/// The answer to the instance after the agent has read this election.
async fn observed((follower, cluster): &mut (Follower, Cluster), lock: Value) -> Answer {
    follower.observe(&parsed(lock), cluster).await;
    follower.agent.ask(|state, now| state.answer("shop/elected", Some("a"), now)).await.unwrap()
}

async fn answer(ttl: &str, status: Value) -> Answer {
    observed(&mut following().await, object(ttl, status)).await
}

fn not_held(reason: &str) -> Value {
    json!({"conditions": [condition("Held", "False", reason, "")]})
}

fn elected(pod_uid: &str) -> Value {
    let until = jiff::Timestamp::from_millisecond(SystemClock.wall().0 + 5_000).unwrap();
    json!({"holder": {"identity": "pod-a", "podUID": pod_uid, "nonce": "n1", "key": "shop/elected"},
        "fencingToken": 7, "validUntil": format!("{until:.3}")})
}

/// Without the members the end of a short hold is not exact enough to lead until its renewal.
#[tokio::test]
async fn a_pod_leads_only_with_a_ttl_that_outlasts_the_skew() {
    assert!(matches!(answer("8s", elected("u-1")).await, Answer::Leads { token: 7, .. }));
    let Answer::Unknown { why } = answer("5s", elected("u-1")).await else { panic!("unknown") };
    assert!(why.contains("a ttl of 8s or more") && why.contains("--members-secret"), "{why}");
    let other = answer("5s", elected("u-2")).await;
    assert!(matches!(other, Answer::No(Refusal::HeldByOther { .. })), "{other:?}");
}

/// Otherwise each pod would lead until the validity of its grant has passed, and then release the lock.
#[tokio::test]
async fn a_pod_leads_only_if_its_renewals_are_published() {
    let lock = |pod_uid: &str| {
        let mut lock = object("8s", elected(pod_uid));
        lock["spec"]["validity"] = json!("Transitions");
        lock
    };
    let mut world = following().await;
    let Answer::Unknown { why } = observed(&mut world, lock("u-1")).await else { panic!("unknown") };
    assert!(why.contains("Set validity: Published") && why.contains("--members-secret"), "{why}");
    assert!(world.0.followed.is_none(), "a release would hand the lock over without an end");
    let other = observed(&mut world, lock("u-2")).await;
    assert!(matches!(other, Answer::No(Refusal::HeldByOther { .. })), "{other:?}");
    world.0.members = Some(Members::Directory("/etc/redlock".into()));
    assert!(world.0.refuse_unclear_end().is_ok(), "the members give the end");
}

/// `run --agent` ends with another exit code then.
#[tokio::test]
async fn a_silent_operator_is_no_other_holder() {
    assert!(matches!(answer("8s", json!({})).await, Answer::Unknown { .. }));
    let other = answer("8s", not_held("HeldByOther")).await;
    assert!(matches!(other, Answer::No(Refusal::NotHeld { .. })), "{other:?}");
}

/// `run --agent` ignores an unknown state until the validity has passed.
#[tokio::test]
async fn the_end_of_the_own_hold_is_certain() {
    let mut world = following().await;
    assert!(matches!(observed(&mut world, object("8s", elected("u-1"))).await, Answer::Leads { .. }));
    for _ in 0..2 {
        let ended = observed(&mut world, object("8s", not_held("Broken"))).await;
        assert!(matches!(ended, Answer::No(Refusal::NotHeld { .. })), "{ended:?}");
    }
    let mut world = following().await;
    observed(&mut world, object("8s", elected("u-2"))).await;
    let ended = observed(&mut world, object("8s", not_held("Broken"))).await;
    assert!(matches!(ended, Answer::Unknown { .. }), "the hold was another pod's: {ended:?}");
}

/// The versions of a restored API server begin earlier.
#[tokio::test]
async fn an_election_with_an_earlier_version_is_followed() {
    let mut world = following().await;
    let mut last = None;
    for (version, status) in [("100", not_held("HeldByOther")), ("50", elected("u-1"))] {
        let mut lock = object("8s", status);
        lock["metadata"]["resourceVersion"] = json!(version);
        last = Some(observed(&mut world, lock).await);
    }
    assert!(matches!(last, Some(Answer::Leads { token: 7, .. })), "{last:?}");
}

/// The operator elects the next pod at once, and its agent usually has the same options.
#[tokio::test]
async fn an_own_hold_with_a_short_ttl_is_reported_once_and_kept() {
    let mut world = following().await;
    for _ in 0..2 {
        let unclear = observed(&mut world, object("5s", elected("u-1"))).await;
        let Answer::Unknown { why } = unclear else { panic!("{unclear:?}") };
        assert_eq!(world.0.failure.as_ref(), Some(&why), "a renewal repeats no line");
        assert!(world.0.followed.is_none(), "a release would hand the lock over without an end");
    }
    observed(&mut world, object("8s", elected("u-1"))).await;
    assert_eq!(world.0.failure, None, "a later failure is reported again");
}

/// An API server that refuses this number of releases. The counter is the number of all requests to release.
fn refusing(refusals: usize) -> (Cluster, Arc<AtomicUsize>) {
    let releases = Arc::new(AtomicUsize::new(0));
    let (lock, counted) = (object("8s", elected("u-1")), Arc::clone(&releases));
    let cluster = Cluster::answering(move |request| match request.method().as_str() {
        "PATCH" if counted.fetch_add(1, Ordering::SeqCst) < refusals => failure(403, "Forbidden"),
        _ => (200, lock.clone()),
    });
    (cluster, releases)
}

/// No answer has promised the hold, like after the deadline of the last answer.
#[tokio::test]
async fn a_hold_whose_ttl_becomes_too_short_is_kept() {
    let (cluster, releases) = refusing(0);
    let (mut follower, cluster) = following_at(cluster).await;
    for (ttl, released) in [("8s", 0), ("5s", 0), ("8s", 1)] {
        follower.observe(&parsed(object(ttl, elected("u-1"))), &cluster).await;
        follower.release(&cluster).await;
        assert_eq!(releases.load(Ordering::SeqCst), released, "with a ttl of {ttl} after a change");
    }
}

/// The application has registered again, so it cannot use the token. A role that was corrected meanwhile admits the next attempt.
#[tokio::test]
async fn a_refused_release_is_repeated() {
    let (cluster, releases) = refusing(1);
    let (mut follower, cluster) = following_at(cluster).await;
    follower.observe(&parsed(object("8s", elected("u-1"))), &cluster).await;
    follower.agent.ask(|state, now| state.register("b".into(), false, now)).await.unwrap().unwrap();
    for _ in 0..2 {
        follower.release(&cluster).await;
        assert_eq!(releases.load(Ordering::SeqCst), 1, "the next attempt comes after a pause");
    }
    let again = follower.followed.as_mut().unwrap().release_again.replace(now());
    assert!(again.is_some(), "the refusal was reported");
    follower.release(&cluster).await;
    assert_eq!(releases.load(Ordering::SeqCst), 2);
    assert!(follower.followed.as_ref().unwrap().is_lost);
}

#[tokio::test]
async fn a_denied_watch_names_the_missing_role() {
    let (mut follower, cluster) = following().await;
    let denied = parsed(json!({"message": "no right", "reason": "Forbidden", "code": 403}));
    follower.handle(Err(watcher::Error::WatchError(denied)), &cluster).await;
    let line = "failed to watch dlock shop/elected: no right\nnext: Bind the ClusterRole redlock-operator-holder to this account.";
    assert_eq!(follower.failure.as_deref(), Some(line));
}

#[tokio::test]
async fn an_own_hold_that_no_member_shows_is_reported() {
    let (mut follower, cluster) = following().await;
    follower.observe(&parsed(object("8s", elected("u-1"))), &cluster).await;
    follower.followed.as_mut().unwrap().unread_since = Some(now().saturating_sub(Duration::from_secs(3)));
    follower.apply(HoldState::Unknown);
    assert_eq!(follower.failure, None);
    follower.followed.as_mut().unwrap().unread_since = Some(now().saturating_sub(Duration::from_secs(5)));
    follower.apply(HoldState::Unknown);
    assert!(follower.failure.as_ref().unwrap().contains("has not reported its time"), "{:?}", follower.failure);
    // The end of the hold is certain.
    (follower.failure, follower.followed.as_mut().unwrap().is_lost) = (None, true);
    follower.apply(HoldState::Unknown);
    assert_eq!(follower.failure, None);
}
