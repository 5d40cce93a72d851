//! Pure: what the operator is doing with a quorum, and what it waits for.

/// The activity that is under way.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Doing {
    /// paused by the annotation redlock-operator.io/rollout: {outdated} of {all} members run the old pod template. Remove the annotation to
    /// continue
    RolloutPaused { outdated: usize, all: usize },
    /// {outdated} of {all} members run the old pod template, {next} is next, when {until}
    RolloutWaits { outdated: usize, all: usize, next: String, until: Until },
    /// the pod of {member} is replaced
    Replacing { member: String },
    /// the pod of {member} is not replaced, because the API server refuses its deletion: {refusal}. The operator tries again automatically
    NotReplaced { member: String, refusal: String },
    /// new passwords: {confirmed} of {all} members accept them beside the old ones
    Adding { confirmed: usize, all: usize },
    /// new passwords: every member accepts both, and the Secrets of clients have the new ones
    Switched,
    /// new passwords: {confirmed} of {all} members accept them alone
    Removing { confirmed: usize, all: usize },
    /// {stage}. The operator continues when {until}
    RotationWaits { stage: Box<Doing>, until: Until },
    /// {stage}. When your clients have read them, annotate this object with redlock-operator.io/rotate-passwords=finish, to remove the old
    /// ones
    AwaitsFinish { stage: Box<Doing> },
    /// the members' passwords were lost, so the operator restarts the members one by one, and each waits as after any
    /// restart. {with_these} of {all} run with the new ones{rollout}
    Restarting { with_these: usize, all: usize, rollout: String },
    /// from {from} to {to} members: {step}
    Resizing { from: usize, to: usize, step: String },
    /// the members change to {members}: {step}
    Exchanging { members: String, step: String },
    /// it begins when {until}
    BeginsWhen { until: Until },
    /// it ends when {until}
    EndsWhen { until: Until },
    /// {members} can still run with users of the former list, and the operator does not reach them. The change continues when each answers
    /// or is known to be dead. See status.members
    Unclosed { members: String },
    /// it begins
    Begins,
    /// users of the former list are being closed on {members}
    Closing { members: String },
    /// locks of the former list expire, and then lock clients outside the operator are admitted again
    Expiring,
    /// it ends
    Ends,
}

/// The event that has to happen first.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Until {
    /// {members} can vote again
    MembersVote { members: String },
    /// {members} can vote
    NewMembersVote { members: String },
    /// every member holds the keys of the held locks {locks}
    LocksComplete { locks: String },
    /// the StatefulSets of {members} are up to date
    TemplatesObserved { members: String },
    /// the change of the member list has ended
    ChangeEnds,
    /// the update of the pods has ended
    UpdateEnds,
    /// every member has the passwords of the rotation that is under way
    RotationEnds,
    /// RedisQuorum {quorums} does not use the former masters, or more than half of the old list and of the new list stays. Replace the other
    /// masters by a later edit
    MastersKept { quorums: String },
}

impl Until {
    /// The event for these names. `None` if there are none.
    pub(super) fn of(names: &[String], event: impl FnOnce(String) -> Self) -> Option<Self> {
        (!names.is_empty()).then(|| event(listed(names)))
    }
}

/// Names of locks and members for users, up to a fixed number.
pub fn listed(names: &[String]) -> String {
    listed_up_to(5, names)
}

/// Names for users, and the number of those beyond `most`.
pub fn listed_up_to(most: usize, names: &[String]) -> String {
    let named = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
