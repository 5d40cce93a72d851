//! The types and the reasons of conditions. `docs/reference/conditions.md` is printed from these comments: what a reason means, what the
//! operator does by itself, and what there is to do.

use std::fmt;

names! {
    /// Condition types of a DistributedLock.
    LockCondition {
        /// The operator serves the lock. Flux and Helm 4 read it, and Argo CD with a health check. `True` with the reason of Held while the lock is held, or waits for its
        /// turn, a holder or a person. `False` with the reason and message of Accepted, with `NoQuorum`, or with `NoCandidate` when an election
        /// has had no candidate for three ttl. `Unknown` with `Pending` at first.
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
    /// Condition types of a RedisQuorum.
    QuorumCondition {
        /// All members vote, with all settings in force. Flux and Helm 4 read it, and Argo CD with a health check. A reason that is not listed here is one of QuorumAgrees.
        Ready,
        /// A majority of the members can vote, so locks are granted. A reason that is not listed here is one of QuorumAgrees.
        QuorumAvailable,
        /// One member can be lost, and locks are still granted.
        FaultTolerant,
        /// The operator is changing something: a member starts, waits behind its fence, or is replaced. A reason that is not listed here is one of
        /// Ready.
        Progressing,
        /// The clocks of the members run within `spec.clockDrift`.
        ClockHealthy,
        /// No other operator uses these members with another member list or a larger maxTTL.
        QuorumAgrees,
        /// No key on the members lives longer than maxTTL.
        TTLWithinBound,
        /// All `spec.clients` have their Secrets, and the members admit them.
        ClientsReady,
        /// Every member speaks TLS and serves the newest certificate. Absent without TLS.
        TLSReady,
    }
}

names! {
    /// Reasons of the condition `Accepted`.
    AcceptedReason {
        /// Everything that the lock needs is there.
        Accepted,
        /// The RedisQuorum of the lock does not exist, or cannot be read.
        ///
        /// By itself: the operator serves the lock when the quorum exists.
        ///
        /// To do: create the quorum. Or create the lock again with another `quorumRef`, which cannot be changed.
        QuorumNotFound,
        /// The quorum's `allowedNamespaces` does not include the namespace of this lock, or no such quorum exists there.
        ///
        /// By itself: the operator serves the lock when the quorum allows it.
        ///
        /// To do: ask the owner of the quorum to allow it, for example by a label on the namespace.
        NamespaceNotAllowed,
        /// The quorum is starting, or has not adopted the larger `maxTTL` that this `ttl` needs.
        ///
        /// By itself: the operator serves the lock at the time that the message names.
        QuorumNotReady,
        /// `ttl`, or `ttl` with `lockDelay`, is longer than the quorum's `maxTTL`.
        ///
        /// To do: set a shorter `ttl` or `lockDelay`.
        TTLTooLong,
        /// `ttl` is less than ten times the quorum's `nodeTimeout`, so one slow member could cost the lock.
        ///
        /// To do: set a `ttl` of at least what the message says.
        TTLTooShort,
        /// Another lock uses the key with another number of `slots`, or the lock is an election and another election uses the key. The
        /// holder counts, or without a holder the oldest waiting lock. A lock that is refused for this blocks no other lock.
        ///
        /// By itself: the operator serves the lock when the other one no longer uses the key.
        ///
        /// To do: wait, or create the lock again with the same number or with another key.
        KeyShapeConflict,
        /// The namespace has as many older locks as the operator serves per namespace (chart value `limits.locksPerNamespace`). What is held
        /// stays held.
        ///
        /// By itself: the operator serves the lock when an older one is gone.
        ///
        /// To do: delete locks that are not needed, or ask the administrator of the operator for a higher limit.
        TooManyLocks,
        /// The claim names a Job, and the operator is not set up to start and suspend Jobs.
        ///
        /// To do: set the chart's value `jobs.enabled`.
        JobsNotServed,
        /// The election has a Lease that no policy guards, that another lock has, or that is the operator's own.
        ///
        /// To do: do what the message says.
        LeaseNotServed,
        /// The candidates of the election renew their Lease for more than half of `ttl`. The condition is true, and the lock is served.
        ///
        /// By itself: the policy refuses a renewal that would count beyond `validUntil`, and the leader tries again.
        ///
        /// To do: set one of the two numbers that the message names.
        LeaseTooLong,
        /// This version of the operator cannot read the object. Other objects are served.
        ///
        /// By itself: the operator does not grant the lock, and lets a hold run out.
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
        /// By itself: the lock is free at the time that the message names, or when the holder's container terminates.
        ///
        /// To do: wait. If you are sure that the holder has ended, annotate the lock with
        /// `redlock-operator.io/break-force=<your user name>: <why>`.
        Ending,
        /// Another lock has the key, or is before this one in the queue.
        ///
        /// By itself: the lock gets its turn.
        ///
        /// To do: wait, or set a higher `priority`.
        Queued,
        /// A lock client outside this operator has the key. Or another quorum has it, because the default was moved or its members did not answer.
        ///
        /// By itself: the operator tries again until the key is free.
        ///
        /// To do: wait. If the key has no time to live, its client must delete it.
        HeldByOther,
        /// No majority of the members answered in time.
        ///
        /// By itself: the operator tries again.
        ///
        /// To do: if it lasts, look at the RedisQuorum.
        NoQuorum,
        /// No pod can hold the lock, or the Job cannot be started. The message says why, for up to five pods.
        ///
        /// By itself: the operator grants the lock when a pod or the Job can hold it. An election without a candidate is not ready after
        /// three ttl, and gets one Warning Event.
        ///
        /// To do: correct what the message says of the pods, or of the Job.
        NoCandidate,
        /// The last holder did not release the lock.
        ///
        /// By itself: the lock is granted when that hold and its `lockDelay` have run out.
        LockDelay,
        /// `spec.suspend` is true.
        ///
        /// To do: set it to false.
        Suspended,
        /// The holder has released the lock, or the object was deleted.
        Released,
        /// The lock was held for `maxHold`. A claim is finished, an election elects again.
        ///
        /// To do: if the work goes on, create another claim.
        MaxHoldReached,
        /// The claim waited for `waitTimeout` and did not get the lock.
        ///
        /// To do: create another claim.
        WaitTimeout,
        /// The validity ran out before a majority renewed it, so the holder lost the lock while it worked.
        ///
        /// By itself: the operator grants the lock again when a majority of the members says that its key is gone.
        ///
        /// To do: look at the members that the message names, and at `redlock_renewal_lateness_seconds`. Make sure that the former holder has
        /// stopped.
        Expired,
        /// The holder's container has terminated, or its pod or node is gone.
        ///
        /// By itself: the lock is free at once if the kubelet has reported the end of the container, else when its validity has run out.
        HolderGone,
        /// The holder failed its check in `spec.liveness`, or did not renew its heartbeat.
        ///
        /// By itself: the operator no longer renews the lock, which is free when its validity has run out.
        ///
        /// To do: look at the holder.
        HolderUnhealthy,
        /// A person asked the holder to pass the lock on (annotation `step-down`), or its node was cordoned while another candidate was ready.
        SteppedDown,
        /// A person broke the lock. The message says who, when and why.
        ///
        /// To do: make sure that the former holder has stopped.
        Broken,
        /// The operator cannot read the object.
        ///
        /// By itself: the operator lets a hold run out, and does not grant the lock.
        ///
        /// To do: see the condition Accepted.
        Unreadable,
        /// The condition Accepted is not true.
        ///
        /// To do: see that condition.
        NotAccepted,
        /// The operator has not decided yet, or could not publish a grant and took it back.
        ///
        /// By itself: the operator tries again, and the lock blocks no other meanwhile.
        ///
        /// To do: wait. If the message names a webhook or a policy, correct that.
        Pending,
    }
}

names! {
    /// Reasons of all other conditions.
    CommonReason {
        /// All is as it should be.
        AsExpected,
        /// Some members do not vote.
        ///
        /// By itself: the condition Ready says when they vote again.
        ///
        /// To do: if it lasts, look at these members.
        MembersMissing,
        /// All members can vote.
        AllAdmitted,
        /// A majority of the members can vote, and locks are granted and held.
        ///
        /// By itself: the others vote again when the event that the message names has happened.
        MajorityAdmitted,
        /// Fewer members than a majority can vote, so no lock is granted.
        ///
        /// By itself: locks are granted when the members that the message names vote again.
        ///
        /// To do: if it lasts, look at these members and their pods.
        MajorityLost,
        /// The quorum has one member only.
        ///
        /// To do: set `spec.members: 3`.
        SingleMember,
        /// Members wait until every lock that they might have lost has expired.
        ///
        /// By itself: they vote from the time that the message names.
        MembersFenced,
        /// The operator creates or starts members.
        ///
        /// By itself: they are fenced when they have started, and vote after that.
        ///
        /// To do: if it lasts, look at their pods.
        MembersStarting,
        /// The operator replaces members, one by one.
        ///
        /// By itself: the update goes on when the member that was replaced last votes again.
        Updating,
        /// A person has paused the replacement of members.
        ///
        /// To do: remove the annotation `redlock-operator.io/rollout` to continue.
        RolloutPaused,
        /// The member list is changing. Clients outside the operator are refused until the locks of the list before have expired.
        ///
        /// By itself: the change goes on when the event that the message names has happened.
        ///
        /// To do: let clients read their Secrets again when it has ended.
        MembersChanging,
        /// Nothing is being changed.
        Settled,
        /// An earlier process of a member can still run, and vote, on a node that does not report.
        ///
        /// By itself: the member votes again when that node reports, or is known to be gone.
        ///
        /// To do: bring the node back. Or make sure that it is off, and set the annotation that the message names.
        PredecessorUnconfirmed,
        /// The clock of a member was stepped.
        ///
        /// By itself: the operator fences the member and ends its process. If all clocks moved at once, it fences none.
        ///
        /// To do: check the time service of the node.
        ClockJump,
        /// No member is external, so no other operator can use the members.
        NotShared,
        /// Before the first vote every external member has to show that no other operator disagrees.
        ///
        /// By itself: the quorum votes when the members that the message names have answered.
        ///
        /// To do: if it lasts, look at these members and their pods.
        Joining,
        /// Another operator uses these members with another member list.
        ///
        /// To do: set the same list in both.
        OtherMemberList,
        /// Another operator uses these members with another `maxTTL`.
        ///
        /// To do: set the same `maxTTL` in both.
        OtherMaxTTL,
        /// Clients have set keys that live longer than `maxTTL`. A member that restarts can forget them too early.
        ///
        /// By itself: the condition is true again when these keys are gone.
        ///
        /// To do: correct the clients. `redis-cli --scan` on a member lists its keys, and `PTTL` shows how long one lives.
        KeysBeyondMaxTTL,
        /// The operator cannot write the Secret of a client.
        ///
        /// To do: do what the message says: allow it in the namespace, or remove the Secret that is in the way.
        ClientSecretBlocked,
        /// A member served no client for too long: a script kept it busy, or clients used up its memory or its connections.
        ///
        /// By itself: the operator replaces the pod, one member at a time.
        ///
        /// To do: correct the client. If clients need many connections, give the members more memory (`spec.pod.resources`).
        ClientMisbehaves,
        /// The operator rotates passwords.
        ///
        /// By itself: the rotation goes on as the message says.
        RotatingPasswords,
        /// There is no certificate that the members could serve.
        ///
        /// By itself: members that run keep the certificate that they have.
        ///
        /// To do: do what the message says.
        CertificateInvalid,
        /// Some members do not serve the newest certificate yet.
        ///
        /// By itself: they serve it when the kubelet has brought the file, or when their pod has been replaced.
        ///
        /// To do: if it lasts, look at the members that the message names.
        CertificatePending,
        /// The Secret with the passwords was lost, and no replica of the operator has a copy.
        ///
        /// By itself: if the Secret is gone, the operator makes new passwords and restarts the members with them, one by one. If it is there and
        /// cannot be used, the operator changes nothing.
        ///
        /// To do: if the Secret is gone, wait, and then let clients read their Secrets again. If it is there, restore it from a backup, or delete it.
        AuthLost,
        /// The quorum is being deleted.
        ///
        /// By itself: it is gone when no member can answer with a forgotten lock. The message says what the operator waits for.
        Deleting,
        /// The operator cannot carry out the specification, or an object that does not belong to the quorum is in the way.
        ///
        /// To do: do what the message says.
        InvalidSpec,
        /// The namespace has as many older quorums as the operator serves per namespace (chart value `limits.quorumsPerNamespace`).
        ///
        /// By itself: the operator makes nothing for this one until an older one is gone.
        ///
        /// To do: use one of the others, delete one, or ask the administrator of the operator for a higher limit.
        TooManyQuorums,
        /// This version of the operator cannot read the object.
        ///
        /// By itself: its members stay as they are, and locks that are held on it run out.
        ///
        /// To do: change the field that the message names. After a rollback of the operator: upgrade it again.
        Unreadable,
        /// It cannot be known, for example because no member answers.
        ///
        /// By itself: the operator looks again.
        ///
        /// To do: see the other conditions.
        Unknown,
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
