//! The Kubernetes API: kinds, conditions, names, and the rules that the API server checks.
//!
//! The operator and the command use it, and so can other Rust programs. `kubectl explain` shows the field descriptions.
//! [`requests`] gives each call of the API server a deadline, and [`server_time`] follows the API server's clock.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod conditions;
mod distributed_lock;
mod duration;
pub mod jobs;
pub mod lenient;
mod redis_quorum;
pub mod requests;
mod schema;
pub mod server_time;
pub mod watches;

pub use distributed_lock::*;
pub use duration::{GoDuration, MilliTime, ParseDurationError};
pub use redis_quorum::*;

/// API group of all kinds.
pub const GROUP: &str = "redlock-operator.io";
/// API version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// Field manager of everything that the operator writes.
pub const FIELD_MANAGER: &str = "redlock-operator";

/// The operator marks the leader of an election with it, so that a Service can select the leader.
///
/// On: the pod that leads an election, unless `leaderLabel: false`.
///
/// Value: `true`. The name of the lock follows the prefix: `leader.redlock-operator.io/<lock name>`.
///
/// Set by: the operator.
pub const LEADER_LABEL_PREFIX: &str = "leader.redlock-operator.io/";
/// The RedisQuorum of an object.
///
/// On: all objects of a quorum.
///
/// Value: the name of the RedisQuorum.
///
/// Set by: the operator.
pub const QUORUM_LABEL: &str = "redlock-operator.io/quorum";
/// The RedisQuorum of an object.
///
/// On: objects of a quorum in other namespaces.
///
/// Value: the namespace of the RedisQuorum.
///
/// Set by: the operator.
pub const QUORUM_NAMESPACE_LABEL: &str = "redlock-operator.io/quorum-namespace";
/// The member of an object.
///
/// On: objects of one member.
///
/// Value: the member's name, for example `main-0`.
///
/// Set by: the operator.
pub const MEMBER_LABEL: &str = "redlock-operator.io/member";
/// The client of a Secret.
///
/// On: the Secret of a client.
///
/// Value: the client's name in `spec.clients`.
///
/// Set by: the operator.
pub const CLIENT_LABEL: &str = "redlock-operator.io/client";

/// It marks an election with a Lease, so that the chart's policy finds the locks that gate Leases.
///
/// On: DistributedLock with `spec.election.lease`.
///
/// Value: `true`. The chart's policy refuses to take it off.
///
/// Set by: the operator.
pub const LEASE_LABEL: &str = "redlock-operator.io/lease";

/// It marks the default quorum for `redlock` commands. The operator finds it by chart values, so move the annotation with them.
///
/// On: the RedisQuorum that the operator created as the default.
///
/// Value: `true`.
///
/// Set by: the operator.
pub const DEFAULT_QUORUM_ANNOTATION: &str = "redlock-operator.io/default-quorum";
/// It treats the process as dead, and no longer waits for it. Switch the machine off first.
///
/// On: RedisQuorum.
///
/// Value: the UID of the pod, or for an external member its `runID`. Several are separated by commas.
pub const PREDECESSOR_DEAD_ANNOTATION: &str = "redlock-operator.io/predecessor-dead";
/// It replaces no further member. Remove the annotation to continue.
///
/// On: RedisQuorum.
///
/// Value: `paused`.
pub const ROLLOUT_ANNOTATION: &str = "redlock-operator.io/rollout";
/// It gives members and clients new passwords. After `finish` the members refuse the old ones.
///
/// On: RedisQuorum.
///
/// Value: any text that was not there before; later `finish`.
pub const ROTATE_PASSWORDS_ANNOTATION: &str = "redlock-operator.io/rotate-passwords";
/// With `preference: Priority` it elects the ready pod with the highest value. A leader that is alive stays.
///
/// On: candidate pod.
///
/// Value: an integer; 0 without it.
pub const PRIORITY_ANNOTATION: &str = "redlock-operator.io/priority";

/// It stops renewing the hold, which expires within one `ttl`. Then another candidate leads, if there is one. It removes the annotation before
/// the next hold.
///
/// On: DistributedLock.
///
/// Value: any text, for example the reason.
pub const STEP_DOWN_ANNOTATION: &str = "redlock-operator.io/step-down";
/// It takes the lock from its holder: the hold expires within one `ttl`. The history and Events show the value.
///
/// On: DistributedLock.
///
/// Value: `<user>: <reason>`. The chart's admission policy refuses another user name than yours.
pub const BREAK_ANNOTATION: &str = "redlock-operator.io/break";
/// It deletes the key at once. The holder can still work, so this gives up exclusion.
///
/// On: DistributedLock.
///
/// Value: `<user>: <reason>`, as for `break`.
pub const BREAK_FORCE_ANNOTATION: &str = "redlock-operator.io/break-force";
/// It frees the lock at once, if the value is the token of the present hold. Otherwise the operator removes the annotation and publishes an Event,
/// and the hold continues.
///
/// On: DistributedLock.
///
/// Value: the fencing token of the hold that ends.
pub const RELEASE_ANNOTATION: &str = "redlock-operator.io/release";
/// It names the creator of a claim, who can release and delete it without the verb `update`. The command and the libraries set it.
///
/// On: DistributedLock.
///
/// Value: your user name.
pub const CREATED_BY_ANNOTATION: &str = "redlock-operator.io/created-by";

/// The operator takes this lock for the Job, and starts the Job when it has it. With an empty value, only a claim with `claim.jobName` starts the Job.
/// Needs the chart's value `jobs.enabled`.
///
/// On: a Job that is created with `suspend: true`; of a CronJob, its `jobTemplate`.
///
/// Value: the key, or nothing. The operator replaces `{job}` in it with the name of the Job.
pub const JOB_LOCK_ANNOTATION: &str = "redlock-operator.io/lock";
/// The `ttl` of the Job's claim.
///
/// On: a Job with the annotation `lock`.
///
/// Value: a duration; `10s` without it.
pub const JOB_TTL_ANNOTATION: &str = "redlock-operator.io/ttl";
/// The `waitTimeout` of the Job's claim.
///
/// On: a Job with the annotation `lock`.
///
/// Value: a duration; no limit without it.
pub const JOB_WAIT_TIMEOUT_ANNOTATION: &str = "redlock-operator.io/wait-timeout";
/// The action for a Job that did not get its lock within `wait-timeout`. Without it the Job stays suspended.
///
/// On: a Job with the annotation `lock`.
///
/// Value: `Delete` or `Suspend`.
pub const JOB_ON_WAIT_TIMEOUT_ANNOTATION: &str = "redlock-operator.io/on-wait-timeout";
/// The `minHold` of the Job's claim.
///
/// On: a Job with the annotation `lock`.
///
/// Value: a duration.
pub const JOB_MIN_HOLD_ANNOTATION: &str = "redlock-operator.io/min-hold";
/// The `maxHold` of the Job's claim.
///
/// On: a Job with the annotation `lock`.
///
/// Value: a duration.
pub const JOB_MAX_HOLD_ANNOTATION: &str = "redlock-operator.io/max-hold";
/// The quorum of the Job's claim.
///
/// On: a Job with the annotation `lock`.
///
/// Value: `<name>` of a RedisQuorum in the namespace of the Job, or `<namespace>/<name>`; the default quorum without it.
pub const JOB_QUORUM_ANNOTATION: &str = "redlock-operator.io/quorum";
/// The fencing token that a Job runs with. The downward API makes an environment variable of it.
///
/// On: the pod template of a Job that a claim names, and so the pods of the Job.
///
/// Value: the token.
///
/// Set by: the operator.
pub const JOB_TOKEN_ANNOTATION: &str = "redlock-operator.io/token";
/// The operator suspended the Job, because the hold with this token ends.
///
/// On: a Job that a claim names.
///
/// Value: the token.
///
/// Set by: the operator.
pub const JOB_STOPPING_ANNOTATION: &str = "redlock-operator.io/stopping";

/// The fencing token of the hold that a Lease belongs to. Absent while no pod of this cluster holds the lock.
///
/// On: the Lease that `spec.election.lease` names.
///
/// Value: the token.
///
/// Set by: the operator.
pub const LEASE_TOKEN_ANNOTATION: &str = "redlock-operator.io/lease-token";
/// Only the pod that holds this lock can create, change or delete the object. Needs the chart's value `fencedWrites.resources`.
///
/// On: an object of a resource that the chart's value names.
///
/// Value: the name of a DistributedLock in the namespace of the object.
pub const FENCED_BY_ANNOTATION: &str = "redlock-operator.io/fenced-by";

/// Finalizer of a DistributedLock: its key is released or has expired.
pub const LOCK_FINALIZER: &str = "redlock-operator.io/release";
/// Finalizer of a RedisQuorum: none of its members can answer any more.
pub const QUORUM_FINALIZER: &str = "redlock-operator.io/members";

/// The label that the leader of this election carries, with the value `"true"`.
#[must_use]
pub fn leader_label(lock: &str) -> String {
    format!("{LEADER_LABEL_PREFIX}{lock}")
}

/// All CustomResourceDefinitions, as they are installed.
///
/// Optional fields can be absent, but not null.
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

#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
#[cfg(test)]
mod tests;
