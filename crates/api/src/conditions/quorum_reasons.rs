//! The condition types of a RedisQuorum, and the reasons of all conditions but Accepted and Held. `docs/reference/conditions.md` is printed from
//! these comments.

use std::fmt;

names! {
    /// Condition types of a RedisQuorum.
    QuorumCondition {
        /// All members vote, with all settings in force. Flux, Helm 4, and Argo CD with a health check read this condition. A reason that is not listed here is one of QuorumAgrees.
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
        /// No other operator uses these members with another member list or another maxTTL.
        QuorumAgrees,
        /// Every key on the members has a time to live, and the average is at most maxTTL.
        TTLWithinBound,
        /// All `spec.clients` have their Secrets, and the members admit them.
        ClientsReady,
        /// Every member speaks TLS and serves the newest certificate. Absent without TLS.
        TLSReady,
    }
}

names! {
    /// Reasons of all other conditions.
    CommonReason {
        /// The operator found no problem.
        AsExpected,
        /// Some members do not vote.
        ///
        /// Automatic: the condition Ready has the time when they vote again.
        ///
        /// To do: if it lasts, look at these members.
        MembersMissing,
        /// All members can vote.
        AllAdmitted,
        /// A majority of the members can vote, and locks are granted and held.
        ///
        /// Automatic: the others vote again when the event that the message names has happened.
        MajorityAdmitted,
        /// Fewer members than a majority can vote, so no lock is granted.
        ///
        /// Automatic: locks are granted when the members that the message names vote again.
        ///
        /// To do: if it lasts, look at these members and their pods.
        MajorityLost,
        /// The quorum has one member only.
        ///
        /// To do: set `spec.members: 3`.
        SingleMember,
        /// Members wait until every lock that they might have lost has expired.
        ///
        /// Automatic: they vote from the time that the message names.
        MembersFenced,
        /// The operator creates or starts members.
        ///
        /// Automatic: they are fenced when they have started, and vote after that.
        ///
        /// To do: if it lasts, look at their pods.
        MembersStarting,
        /// The operator replaces members, one by one.
        ///
        /// Automatic: the operator continues the update when the member that was replaced last votes again.
        Updating,
        /// An administrator has paused the replacement of members.
        ///
        /// To do: remove the annotation `redlock-operator.io/rollout` to continue.
        RolloutPaused,
        /// The member list is changing. Members refuse clients outside the operator until the locks of the former list have expired.
        ///
        /// Automatic: the operator continues the change after the event that the message names.
        ///
        /// To do: let clients read their Secrets again when it has ended.
        MembersChanging,
        /// Nothing is being changed.
        Settled,
        /// An earlier process of a member can still run, and vote, on a node that does not report.
        ///
        /// Automatic: the member votes again when that node reports, or is known to be gone.
        ///
        /// To do: bring the node back. Or make sure that it is off, and set the annotation that the message names.
        PredecessorUnconfirmed,
        /// The clock of a member was stepped.
        ///
        /// Automatic: the operator fences the member and ends its process. If all clocks moved at once, it fences none.
        ///
        /// To do: check the time service of the node.
        ClockJump,
        /// No member is external, so no other operator can use the members.
        NotShared,
        /// Before the first vote every external member must confirm that no other operator disagrees.
        /// A quorum of which more than half are the operator's own members votes without that.
        ///
        /// Automatic: the quorum votes when the members that the message names have answered.
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
        /// Automatic: the condition is true again when these keys are gone.
        ///
        /// To do: correct the clients. `redis-cli --scan` on a member lists its keys, and `PTTL` shows how long one lives.
        KeysBeyondMaxTTL,
        /// The operator cannot write the Secret of a client.
        ///
        /// To do: follow the message. Allow the copy in the namespace, or remove the Secret with its name.
        ClientSecretBlocked,
        /// A member served no client for too long: a script kept it busy, or clients used up its memory or its connections.
        ///
        /// Automatic: the operator replaces the pod, one member at a time.
        ///
        /// To do: correct the client. If clients need many connections, give the members more memory (`spec.pod.resources`).
        ClientMisbehaves,
        /// The operator rotates passwords.
        ///
        /// Automatic: the operator continues the rotation after the event that the message names.
        RotatingPasswords,
        /// There is no certificate that the members could serve.
        ///
        /// Automatic: members that run keep the certificate that they have.
        ///
        /// To do: follow the message.
        CertificateInvalid,
        /// Some members do not serve the newest certificate yet.
        ///
        /// Automatic: they serve it when the kubelet has brought the file, or when their pod has been replaced.
        ///
        /// To do: if it lasts, look at the members that the message names.
        CertificatePending,
        /// The Secret with the passwords was lost, and no replica of the operator has a copy.
        ///
        /// Automatic: if the Secret is gone, the operator makes new passwords and restarts the members with them, one by one. If it is there and
        /// cannot be used, the operator changes nothing.
        ///
        /// To do: if the Secret is gone, wait, and then let clients read their Secrets again. If it is there, restore it from a backup, or delete it.
        AuthLost,
        /// The quorum is being deleted.
        ///
        /// Automatic: the deletion ends when no member can vote and all locks on the members have expired. The message has the event for which the operator waits.
        Deleting,
        /// The operator cannot carry out the specification, or an object that does not belong to the quorum is in the way.
        ///
        /// To do: follow the message.
        InvalidSpec,
        /// The namespace has as many older quorums as the operator serves per namespace (chart value `limits.quorumsPerNamespace`).
        ///
        /// Automatic: the operator makes nothing for this one until an older one is gone.
        ///
        /// To do: use or delete another one, or ask the administrator of the operator for a higher limit.
        TooManyQuorums,
        /// This version of the operator cannot read the object.
        ///
        /// Automatic: its members stay as they are, and the locks held on it expire.
        ///
        /// To do: change the field that the message names. After a rollback of the operator: upgrade it again.
        Unreadable,
        /// It cannot be known, for example because no member answers.
        ///
        /// Automatic: the operator checks again.
        ///
        /// To do: read the other conditions.
        Unknown,
    }
}
