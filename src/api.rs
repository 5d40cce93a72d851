//! The API: kinds, names, and what the API server refuses. Field descriptions here are what `kubectl explain` shows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod conditions;
mod distributed_lock;
mod duration;
mod redis_quorum;
mod schema;

pub use distributed_lock::*;
pub use duration::{GoDuration, MilliTime, ParseDurationError};
pub use redis_quorum::*;

/// API group of all kinds.
pub const GROUP: &str = "redlock-operator.io";
/// API version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// Field manager of everything that the operator writes.
pub const FIELD_MANAGER: &str = "redlock-operator";

/// Prefix of the label on the pod that leads an election; the name of the lock follows.
pub const LEADER_LABEL_PREFIX: &str = "leader.redlock-operator.io/";
/// Label on all objects of a quorum: the RedisQuorum's name.
pub const QUORUM_LABEL: &str = "redlock-operator.io/quorum";
/// Label on objects of a quorum that live in another namespace: the RedisQuorum's namespace.
pub const QUORUM_NAMESPACE_LABEL: &str = "redlock-operator.io/quorum-namespace";
/// Label on objects of one member: the member's name, e.g. `main-0`.
pub const MEMBER_LABEL: &str = "redlock-operator.io/member";
/// Label on a client's Secret: the name in `spec.clients`.
pub const CLIENT_LABEL: &str = "redlock-operator.io/client";

/// Annotation `"true"` on the RedisQuorum that was created as the default. It is for people to see; the operator is told by a setting.
pub const DEFAULT_QUORUM_ANNOTATION: &str = "redlock-operator.io/default-quorum";
/// Annotation by which a person declares the pod with this UID dead, on a RedisQuorum.
pub const PREDECESSOR_DEAD_ANNOTATION: &str = "redlock-operator.io/predecessor-dead";
/// Annotation by which a person gives a RedisQuorum to another installation of the operator: `<namespace>/<Lease name>`.
pub const INSTALLATION_ANNOTATION: &str = "redlock-operator.io/installation";
/// Annotation by which a person stops the replacement of outdated members, on a RedisQuorum: `paused`.
pub const ROLLOUT_ANNOTATION: &str = "redlock-operator.io/rollout";
/// Annotation by which a person asks for new passwords, on a RedisQuorum: any text that was not there before, and then `finish`.
pub const ROTATE_PASSWORDS_ANNOTATION: &str = "redlock-operator.io/rotate-passwords";
/// Annotation on a namespace that accepts client Secrets of the quorum `<namespace>/<name>`.
pub const ACCEPT_CLIENTS_ANNOTATION: &str = "redlock-operator.io/accept-clients-of";
/// Annotation on a candidate pod for `preference: Priority`: an integer, higher first.
pub const PRIORITY_ANNOTATION: &str = "redlock-operator.io/priority";

/// On a DistributedLock: the holder is to pass the lock on. The operator takes it off when that is done.
pub const STEP_DOWN_ANNOTATION: &str = "redlock-operator.io/step-down";
/// On a DistributedLock: an administrator takes the lock away from its holder, and says why. It is sealed and runs out.
pub const BREAK_ANNOTATION: &str = "redlock-operator.io/break";
/// On a DistributedLock: an administrator takes the lock away at once, and gives exclusion up for as long as the holder may
/// still work.
pub const BREAK_FORCE_ANNOTATION: &str = "redlock-operator.io/break-force";
/// On a DistributedLock, beside one of the two before: the user name of whoever breaks it. An admission policy of the chart compares it with
/// the request.
pub const BREAK_BY_ANNOTATION: &str = "redlock-operator.io/break-by";
/// On a DistributedLock: the holder gives the lock back. Its value is the fencing token of the hold, so that a late word cannot end
/// a later one. The operator takes it off when that is done.
pub const RELEASE_ANNOTATION: &str = "redlock-operator.io/release";

/// Finalizer of a DistributedLock: its key is released or has expired.
pub const LOCK_FINALIZER: &str = "redlock-operator.io/release";
/// Finalizer of a RedisQuorum: none of its members can answer any more.
pub const QUORUM_FINALIZER: &str = "redlock-operator.io/members";

/// The label that the leader of this election carries, with the value `"true"`.
#[must_use]
pub fn leader_label(lock: &str) -> String {
    format!("{LEADER_LABEL_PREFIX}{lock}")
}

/// All CustomResourceDefinitions, as they are installed: optional fields may be left out but not be null.
#[must_use]
#[expect(clippy::expect_used, reason = "a CRD is JSON and stays one; every test of the API runs this")]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let tidy = |crd| {
        let mut value = serde_json::to_value(crd).expect("a CRD can be written as JSON");
        schema::tidy(&mut value);
        serde_json::from_value(value).expect("a tidied CRD is a CRD")
    };
    [DistributedLock::crd(), RedisQuorum::crd()].into_iter().map(tidy).collect()
}

#[cfg(test)]
pub(crate) mod properties;
#[cfg(test)]
pub(crate) mod tests;
