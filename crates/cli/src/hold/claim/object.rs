//! Pure: builds the claim.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use super::super::arguments::{LockArgs, Wait};
use super::super::identity;
use super::pod::OwnPod;
use redlock_api::{Claim, DistributedLock, DistributedLockSpec, GoDuration, QuorumRef};

/// Time for an operator to answer with --try. A free lock is granted in this time.
pub(super) const TRY: Duration = Duration::from_secs(10);
/// How long a finished claim stays.
const TTL_AFTER_FINISHED: GoDuration = GoDuration::from_secs(600);
/// The API server refuses a shorter heartbeat.
const SHORTEST_HEARTBEAT: GoDuration = GoDuration::from_secs(1);
/// Maximum length of a claim's name.
///
/// An election's name must be valid as the value of a label, and claims have the same limit.
const LONGEST_NAME: usize = 63;
/// Random characters at the end of a name. With 41 bits no two claims of a key have the same name.
const SUFFIX: usize = 8;

/// The purpose of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// This process holds the lock, and sends heartbeats.
    Attended,
    /// Any process releases the lock by its token.
    Detached,
}

/// The holder that a claim names, and the pod with which Kubernetes deletes the claim.
pub(super) type Owner = (Claim, Option<OwnPod>);

/// Chooses the own pod if it can hold the lock, else a name.
pub(super) fn owner(args: &LockArgs, purpose: Purpose, namespace: &str, pod: Option<OwnPod>) -> Owner {
    let pod = pod.filter(|pod| pod.namespace == namespace && purpose == Purpose::Attended);
    let holder = match (&args.identity, &pod) {
        // A container of this pod. The lock is free immediately after its end.
        (None, Some(OwnPod { name, uid, .. })) => {
            let (pod_name, pod_uid) = (Some(name.clone()), Some(uid.clone()));
            Claim { pod_name, pod_uid, container: args.container.clone(), ..Claim::default() }
        }
        (Some(identity), _) => named(identity.clone()),
        (None, None) => named(identity::of_process()),
    };
    (holder, pod)
}

/// A holder by free text.
fn named(identity: String) -> Claim {
    Claim { identity: Some(identity), ..Claim::default() }
}

/// Builds the claim.
///
/// This chooses the name, so that a creation without a reply can be repeated or undone.
pub(super) fn claim(args: &LockArgs, namespace: &str, key: &str, owner: Owner, purpose: Purpose) -> DistributedLock {
    let (holder, pod) = owner;
    let heartbeat = GoDuration::from(args.ttl.get() / 2).max(SHORTEST_HEARTBEAT);
    let heartbeat = (purpose == Purpose::Attended).then_some(heartbeat);
    let spec = DistributedLockSpec {
        quorum_ref: args.quorum.as_deref().map(QuorumRef::from),
        key: Some(key.to_owned()),
        ttl: args.ttl,
        min_hold: args.min_hold,
        max_hold: args.max_hold,
        wait_timeout: match args.wait() {
            Wait::For(wait) => Some(wait.into()),
            // A killed process leaves a claim without a heartbeat, which would get the lock later.
            Wait::Never if purpose == Purpose::Detached => Some(TRY.into()),
            Wait::Never | Wait::Forever => None,
        },
        priority: args.priority.unwrap_or_default(),
        slots: args.slots.unwrap_or(1),
        claim: Some(Claim { heartbeat, ..holder }),
        ttl_after_finished: Some(TTL_AFTER_FINISHED),
        ..DistributedLockSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(format!("{}{}", name_prefix(key), random_suffix())),
        namespace: Some(namespace.to_owned()),
        owner_references: pod.map(|pod| vec![reference(pod)]),
        ..ObjectMeta::default()
    };
    DistributedLock { metadata, spec, status: None }
}

/// The owner reference to the pod, so that Kubernetes deletes the claim with the pod.
fn reference(pod: OwnPod) -> OwnerReference {
    let OwnPod { name, uid, .. } = pod;
    OwnerReference { api_version: "v1".to_owned(), kind: "Pod".to_owned(), name, uid, ..OwnerReference::default() }
}

/// A key as the beginning of an object's name.
fn name_prefix(key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = key.chars().take(LONGEST_NAME - SUFFIX - 1).map(plain).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "lock-".to_owned() } else { format!("{text}-") }
}

fn random_suffix() -> String {
    const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    (0..SUFFIX).map(|_| char::from(CHARACTERS[rand::random_range(0..CHARACTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::arguments::tests::parsed;

    fn args(more: &[&str]) -> LockArgs {
        parsed(&[&["--lock", "shop/Jobs/re.index"], more].concat())
    }

    fn own(namespace: &str) -> OwnPod {
        OwnPod { namespace: namespace.into(), name: "job-x".into(), uid: "u-1".into() }
    }

    #[test]
    fn a_claim_of_a_pod_names_the_pod_as_holder_and_owner() {
        let args = args(&["--container", "main"]);
        let owner = owner(&args, Purpose::Attended, "shop", Some(own("shop")));
        let lock = claim(&args, "shop", "Jobs/re.index", owner, Purpose::Attended);
        let claim = lock.spec.claim.unwrap();
        assert_eq!((claim.pod_name.as_deref(), claim.pod_uid.as_deref()), (Some("job-x"), Some("u-1")));
        assert_eq!((claim.container.as_deref(), claim.identity), (Some("main"), None));
        assert_eq!(claim.heartbeat, Some(GoDuration::from_secs(5)));
        let name = lock.metadata.name.unwrap();
        assert!(name.starts_with("jobs-re-index-") && name.len() == "jobs-re-index-".len() + SUFFIX, "{name}");
        assert_eq!(lock.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(lock.metadata.owner_references.unwrap()[0].uid, "u-1");
        assert!(lock.spec.ttl_after_finished.is_some());
    }

    #[test]
    fn elsewhere_and_with_a_name_the_holder_is_free_text() {
        let plain = args(&[]);
        for (purpose, namespace) in [(Purpose::Attended, "other"), (Purpose::Detached, "shop")] {
            let (holder, pod) = owner(&plain, purpose, "shop", Some(own(namespace)));
            assert_eq!((holder.identity.is_some(), holder.pod_name, pod), (true, None, None), "{purpose:?}");
        }
        let named = args(&["--identity", "me", "--quorum", "redis/q", "--wait", "5s"]);
        let owner = owner(&named, Purpose::Attended, "shop", Some(own("shop")));
        let lock = claim(&named, "shop", "k", owner, Purpose::Attended);
        assert_eq!(lock.spec.claim.unwrap().identity.as_deref(), Some("me"));
        assert_eq!(lock.metadata.owner_references.unwrap().len(), 1);
        assert_eq!(lock.spec.quorum_ref.unwrap().namespace.as_deref(), Some("redis"));
        assert_eq!(lock.spec.wait_timeout, Some(GoDuration::from_secs(5)));
    }

    #[test]
    fn a_detached_hold_shows_no_heartbeat() {
        let owner = || (named("me".into()), None);
        let claimed = |more: &[&str], purpose| claim(&args(more), "shop", "k", owner(), purpose).spec.claim.unwrap();
        assert_eq!(claimed(&[], Purpose::Detached).heartbeat, None);
        assert_eq!(claimed(&["--ttl", "1s"], Purpose::Attended).heartbeat, Some(SHORTEST_HEARTBEAT));
    }

    /// Otherwise the claim of a killed `acquire --try` gets the lock later, for --max-hold.
    #[test]
    fn a_claim_without_a_heartbeat_waits_for_a_short_time_only() {
        let owner = || (named("me".into()), None);
        let limit = |purpose| claim(&args(&["--try"]), "shop", "k", owner(), purpose).spec.wait_timeout;
        assert_eq!((limit(Purpose::Detached), limit(Purpose::Attended)), (Some(TRY.into()), None));
    }

    #[test]
    fn any_key_begins_a_name() {
        assert_eq!(name_prefix("///"), "lock-");
        assert_eq!(name_prefix(&"a".repeat(200)).len() + SUFFIX, LONGEST_NAME);
        assert_ne!(random_suffix(), random_suffix());
    }
}
