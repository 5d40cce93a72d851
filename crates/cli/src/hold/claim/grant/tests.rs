//! Waits of a claim, and its holder.

use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_api::test_util::lock;
use serde_json::{Value, json};

use super::super::super::arguments::tests::parsed;
use super::super::super::progress::tests::recorded;
use super::*;
use crate::cluster::fake::{failure, is_watch, list};
use crate::cluster::objects::fake::condition;

/// A claimant without a pod and a deadline, which has sent no request.
fn claimant(args: &LockArgs, cluster: Cluster, wanted: DistributedLock) -> Claimant<'_> {
    Claimant {
        args,
        purpose: Purpose::Attended,
        own_pod: None,
        locks: Api::namespaced(cluster.client.clone(), "shop"),
        client: cluster.client,
        wanted,
        can_exist: false,
        deadline: None,
    }
}

/// The reasons that a claim with this status reports until a wait ends, and its end.
async fn reported(status: Value) -> (Vec<(String, bool)>, NotHeld) {
    let claim = lock(json!({"claim": {"identity": "me"}}), status);
    let object = serde_json::to_value(&claim).unwrap();
    let cluster = Cluster::answering(move |request| match is_watch(request) {
        true => failure(500, "InternalError"),
        false => list(std::slice::from_ref(&object)),
    });
    let args = parsed(&["--lock", "shop/reindex"]);
    let deadline = Some(SystemClock.boottime() + 2 * QUIET);
    let claimant = Claimant { can_exist: true, deadline, ..claimant(&args, cluster, claim) };
    let (mut progress, mut reasons) = recorded(&args.lock);
    let mut watched = Watched::new(&claimant.locks, "l");
    let end = claimant.until_held(&mut watched, &mut progress).await.unwrap_err();
    (std::iter::from_fn(|| reasons.try_recv().ok()).collect(), end)
}

/// An agent answers 503 then, so that `run --agent` does not report another holder.
#[tokio::test(start_paused = true)]
async fn only_another_holder_is_a_certain_reason() {
    let held = |reason: &str| json!({"conditions": [condition("Held", "False", reason, reason)]});
    for (status, why, is_certain) in [
        (json!({}), SILENT_OPERATOR, false),
        (held("NoQuorum"), "NoQuorum", false),
        (held("HeldByOther"), "HeldByOther", true),
    ] {
        let (reasons, end) = reported(status).await;
        assert_eq!(reasons, [(why.to_owned(), is_certain)]);
        assert_eq!(matches!(end, NotHeld::NotAcquired(_)), is_certain, "{end:?}");
        assert_eq!(matches!(end, NotHeld::NotAnswered(_)), !is_certain, "{end:?}");
    }
}

#[tokio::test]
async fn only_a_pod_of_this_cluster_holds_the_claim() {
    let args = parsed(&["--lock", "shop/reindex"]);
    for (extra, is_held_by_pod) in
        [(json!({"authentication.kubernetes.io/pod-uid": ["u-1"]}), true), (json!({}), false)]
    {
        let review = json!({"metadata": {}, "status": {"userInfo": {"username": "ci", "extra": extra}}});
        let cluster = Cluster::answering(move |_| (201, review.clone()));
        let own = OwnPod { namespace: "shop".to_owned(), name: "job-x".to_owned(), uid: "u-1".to_owned() };
        let wanted = wanted(&args, Purpose::Attended, Some(own.clone())).unwrap();
        let mut claimant = Claimant { own_pod: Some(own), ..claimant(&args, cluster, wanted) };
        claimant.name_creator(&mut recorded(&args.lock).0).await.unwrap();
        let claim = claimant.wanted.spec.claim.clone().unwrap();
        assert_eq!((claim.pod_uid.is_some(), claim.identity.is_none()), (is_held_by_pod, is_held_by_pod));
        assert_eq!(claimant.wanted.metadata.owner_references.is_some(), is_held_by_pod);
        assert_eq!(claimant.wanted.annotations().get(CREATED_BY_ANNOTATION).unwrap(), "ci");
    }
}

#[test]
fn the_wait_begins_before_the_first_request() {
    let now = Boottime::new(Duration::from_secs(100));
    assert_eq!(deadline(Wait::Never, now), Some(now + TRY));
    let wait = Duration::from_secs(5);
    assert_eq!(deadline(Wait::For(wait), now), Some(now + wait + WAIT_MARGIN));
    assert_eq!(deadline(Wait::Forever, now), None);
}

#[tokio::test]
async fn the_error_for_a_missing_role_names_it_once() {
    let args = parsed(&["--lock", "shop/reindex"]);
    let wanted = wanted(&args, Purpose::Attended, None).unwrap();
    let message =
        "distributedlocks.redlock-operator.io is forbidden: User \"ci\" cannot create resource \"distributedlocks\"";
    let status = json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403});
    let cluster = Cluster::answering(move |_| (403, status.clone()));
    let mut claimant = claimant(&args, cluster, wanted);
    let refused = claimant.create(&mut recorded(&args.lock).0).await;
    let Err(NotHeld::Failed(error)) = refused else { panic!("{refused:?}") };
    let next = "next: Bind the ClusterRole redlock-operator-holder to this account.";
    assert_eq!(format!("{error:#}"), format!("the claim in namespace shop was not created: {message}\n{next}"));
    assert!(!claimant.can_exist, "there is no claim to delete");
}

/// The API server also answers 409 if a ResourceQuota changed at the same moment. Then there is no claim.
#[tokio::test(start_paused = true)]
async fn a_creation_is_repeated_after_a_conflict_without_a_claim() {
    let args = parsed(&["--lock", "shop/reindex"]);
    let wanted = wanted(&args, Purpose::Attended, None).unwrap();
    let (creations, created) = (AtomicUsize::new(0), serde_json::to_value(&wanted).unwrap());
    let cluster = Cluster::answering(move |request| match request.method().as_str() {
        "GET" => failure(404, "NotFound"),
        _ if creations.fetch_add(1, Ordering::SeqCst) == 0 => failure(409, "Conflict"),
        _ => (201, created.clone()),
    });
    let mut claimant = claimant(&args, cluster, wanted);
    let created = claimant.create(&mut recorded(&args.lock).0).await.unwrap();
    assert_eq!(created.name_any(), claimant.wanted.name_any());
}
