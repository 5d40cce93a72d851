//! The types and the reasons of conditions. `docs/reference/conditions.md` is printed from these comments: what a reason means, what the
//! operator does automatically, and what there is to do.

use std::fmt;

/// Reason of the condition `Ready` after three ttl behind a key that never expires.
pub const KEY_NEVER_EXPIRES: &str = "KeyNeverExpires";

names! {
    /// Condition types of a DistributedLock.
    LockCondition {
        /// The operator serves the lock. Flux, Helm 4, and Argo CD with a health check read this condition. `True`, with the reason of Held, while
        /// the lock is held, or waits for its turn, for a candidate, or for a change by a user. `False` with the reason and message of Accepted, with `NoQuorum`, or with `NoCandidate` or
        /// `KeyNeverExpires` after three ttl. `False` with `HolderUnhealthy` while one holder after the other fails its check. `Unknown` with `Pending` at first, and while the operator cannot write the lock.
        Ready,
        /// The operator can carry out the specification.
        Accepted,
        /// The lock has a holder.
        Held,
        /// The claim has ended and never queues again. Its reason and message are those of Held at the end.
        Finished,
    }
}

names! {
    /// Reasons of the condition `Accepted`.
    AcceptedReason {
        /// Everything that the lock needs is there.
        Accepted,
        /// The RedisQuorum of the lock does not exist, or cannot be read.
        ///
        /// Automatic: the operator serves the lock when the quorum exists.
        ///
        /// To do: create the quorum. Or create the lock again with another `quorumRef`, which cannot be changed.
        QuorumNotFound,
        /// The quorum's `allowedNamespaces` does not include the namespace of this lock, or no such quorum exists there.
        ///
        /// Automatic: the operator serves the lock when the quorum allows it.
        ///
        /// To do: ask the owner of the quorum to allow it, for example by a label on the namespace.
        NamespaceNotAllowed,
        /// The quorum is starting, or has not adopted the larger `maxTTL` that this `ttl` needs.
        ///
        /// Automatic: the operator serves the lock at the time that the message names.
        QuorumNotReady,
        /// `ttl`, or `ttl` with `lockDelay`, is longer than the quorum's `maxTTL`.
        ///
        /// To do: set a shorter `ttl` or `lockDelay`.
        TTLTooLong,
        /// `ttl` is less than ten times the quorum's `nodeTimeout`, so one slow member could cost the lock.
        ///
        /// To do: set a `ttl` of at least the time in the message.
        TTLTooShort,
        /// Another lock uses the key with another number of `slots`, or the lock is an election and another election uses the key. The
        /// lock that is held takes precedence, or else the oldest waiting lock. A lock with this reason does not block other locks.
        ///
        /// Automatic: the operator serves the lock when the other one no longer uses the key.
        ///
        /// To do: wait, or create the lock again with the same number or with another key.
        KeyShapeConflict,
        /// The namespace has as many older locks as the operator serves per namespace (chart value `limits.locksPerNamespace`). Held
        /// locks stay held.
        ///
        /// Automatic: the operator serves the lock when an older one is gone.
        ///
        /// To do: delete locks that are not needed, or ask the administrator of the operator for a higher limit.
        TooManyLocks,
        /// The claim names a Job, and the operator is not set up to start and suspend Jobs.
        ///
        /// To do: set the chart's value `jobs.enabled`.
        JobsNotServed,
        /// The election has a Lease that no policy guards, that another lock has, or that is the operator's own.
        ///
        /// To do: follow the message.
        LeaseNotServed,
        /// The candidates of the election renew their Lease for more than half of `ttl`. The condition is true, and the lock is served.
        ///
        /// Automatic: the policy refuses a renewal that would count beyond `validUntil`, and the leader tries again.
        ///
        /// To do: set one of the two numbers that the message names.
        LeaseTooLong,
        /// The API server refuses the operator's change of the leader label. The condition is true, and the lock is served.
        ///
        /// Automatic: the operator tries again every few seconds.
        ///
        /// To do: change the admission policy or webhook that the message names.
        LabelRefused,
        /// The API server refuses the operator's change of the lock's metadata. That is the label by which the policy on Leases finds the
        /// lock, or the annotation `release` with the token of another hold. The condition is true, and the lock is served.
        ///
        /// Automatic: the operator tries again every few seconds.
        ///
        /// To do: change the admission policy or webhook that the message names.
        MetadataRefused,
        /// The API server refuses the operator's write to the Lease of the election. The condition is true, and the lock is served.
        ///
        /// Automatic: the operator tries again every few seconds.
        ///
        /// To do: change the admission policy, webhook or quota that the message names.
        LeaseRefused,
        /// The claim holds the lock for its Job, and the API server refuses to start the Job. The condition is true.
        ///
        /// Automatic: the operator tries again every few seconds.
        ///
        /// To do: correct what the message names, or delete the claim.
        JobNotStarted,
        /// The hold of a Job ends, and the API server refuses to suspend the Job. The condition is true.
        ///
        /// Automatic: the operator tries again every few seconds, and the hold ends after the grace period of the pods and one ttl.
        ///
        /// To do: suspend or delete the Job, because it continues without the lock.
        JobNotSuspended,
        /// This version of the operator cannot read the object. Other objects are served.
        ///
        /// Automatic: the operator does not grant the lock, and lets a hold expire.
        ///
        /// To do: change the field that the message names, or delete the object. After a rollback of the operator: upgrade it again.
        Unreadable,
    }
}

names! {
    /// Reasons of the condition `Held`.
    HeldReason {
        /// The lock is held, and the operator renews it. The holder has it at least until `status.validUntil`.
        Held,
        /// The lock is held, and the hold ends: the operator stops its Job (`status.stopping`), or no longer renews the hold (`status.ending`).
        ///
        /// Automatic: the lock is free at the time that the message names, or when the holder's container terminates.
        ///
        /// To do: wait. If you are sure that the holder has ended, annotate the lock with
        /// `redlock-operator.io/break-force=<your user name>: <why>`.
        Ending,
        /// Another lock has the key, or is before this one in the queue.
        ///
        /// Automatic: the lock gets its turn.
        ///
        /// To do: wait, or set a higher `priority`.
        Queued,
        /// A lock client outside this operator has the key. Or another quorum has it, because the default was moved or its members did not answer.
        ///
        /// Automatic: the operator tries again until the key is free. After three ttl behind a key without a time to live, the lock is not
        /// ready, and gets one Warning Event.
        ///
        /// To do: wait. If the key never expires and its client has ended, delete it with the command that the message names.
        HeldByOther,
        /// No majority of the members answered in time.
        ///
        /// Automatic: the operator tries again.
        ///
        /// To do: if it lasts, look at the RedisQuorum.
        NoQuorum,
        /// No pod can hold the lock, or the Job cannot be started. The message has the cause for up to five pods.
        ///
        /// Automatic: the operator grants the lock when a pod or the Job can hold it. A lock without a candidate is not ready after three
        /// ttl, and gets one Warning Event.
        ///
        /// To do: correct the pods or the Job as the message describes.
        NoCandidate,
        /// The last holder did not release the lock.
        ///
        /// Automatic: the lock is granted when that hold and its `lockDelay` have expired.
        LockDelay,
        /// `spec.suspend` is true.
        ///
        /// To do: set it to false.
        Suspended,
        /// The holder has released the lock, or the object was deleted.
        Released,
        /// The lock was held for `maxHold`. A claim is finished, an election elects again.
        ///
        /// To do: if more work is left, create another claim.
        MaxHoldReached,
        /// The claim waited for `waitTimeout` and did not get the lock.
        ///
        /// To do: create another claim.
        WaitTimeout,
        /// The validity expired before a majority renewed it, so the holder lost the lock while it worked.
        ///
        /// Automatic: the operator grants the lock again when a majority of the members no longer has its key.
        ///
        /// To do: look at the members that the message names, and at `redlock_renewal_lateness_seconds`. Make sure that the former holder has
        /// stopped.
        Expired,
        /// The holder's container has terminated, or its pod or node is gone.
        ///
        /// Automatic: the lock is free at once if the kubelet has reported the end of the container, else when its validity has expired.
        HolderGone,
        /// The holder failed its check in `spec.liveness`, or did not renew its heartbeat.
        ///
        /// Automatic: the operator no longer renews the lock, which is free when its validity has expired.
        ///
        /// To do: look at the holder.
        HolderUnhealthy,
        /// A user requested that the holder pass the lock on (annotation `step-down`), or its node was cordoned while another candidate was ready.
        SteppedDown,
        /// A user broke the lock. The message has the user and the reason.
        ///
        /// To do: make sure that the former holder has stopped.
        Broken,
        /// The operator cannot read the object.
        ///
        /// Automatic: the operator lets a hold expire, and does not grant the lock.
        ///
        /// To do: see the condition Accepted.
        Unreadable,
        /// The condition Accepted is not true.
        ///
        /// To do: see that condition.
        NotAccepted,
        /// The operator has not decided yet, or could not publish a grant and took it back.
        ///
        /// Automatic: the operator tries again. Until then the lock blocks no other lock.
        ///
        /// To do: wait. If the message names a webhook or a policy, correct that.
        Pending,
    }
}

names! {
    /// Status of a condition.
    Status {
        /// It is so.
        True,
        /// It is not so.
        False,
        /// It is not known.
        Unknown,
    }
}
