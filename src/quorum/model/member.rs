//! The summary of a member at one moment: the input of updates, changes of the member list and rotations.

/// One member at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSummary {
    /// Its name.
    pub name: String,
    /// Whether it is an external member.
    pub external: bool,
    /// Its state in the record.
    pub standing: Standing,
    /// Whether its pod was made from another template than its StatefulSet has now.
    ///
    /// `None` if this is not known yet, because there is no pod, or the StatefulSet controller has not processed the newest template.
    pub outdated: Option<bool>,
    /// The secrets of its pod's first process.
    pub started_with: StartedWith,
    /// Whether a process of it answers.
    pub answers: bool,
    /// Whether that process accepts only commands of this leader.
    pub obeys: bool,
    /// Whether the record admits that process.
    pub admitted: bool,
    /// Whether it is admitted, open, and obeys this leader.
    ///
    /// For an external master the record alone decides.
    pub votes: bool,
    /// Whether the operator's user of the next epoch is open on it.
    pub ready_for_next: bool,
    /// Whether its process is known to accept exactly the required passwords.
    pub confirmed: bool,
    /// Whether no vote is possible under the previous epoch with it: see [`super::membership::is_closed`].
    pub closed: bool,
    /// Whether it leaves, does not answer, and was declared dead by an administrator.
    /// See [`super::membership::is_declared_dead`].
    pub dead: bool,
}

/// The state of a member in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It can vote.
    Admitted,
    /// It can vote but does not answer. Other replicas and clients perhaps reach it.
    Silent,
    /// It was closed for this update. The update of this member ends first.
    ClosedForUpdate,
    /// It cannot vote, so it has no lock to lose.
    #[default]
    Out,
    /// Its process started with secrets that were lost since, and refuses the new ones.
    /// The operator cannot close it, and does not count its votes.
    Lost,
}

/// The secrets with which the first process of a member's pod was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartedWith {
    /// The current secrets.
    These,
    /// Other secrets.
    Others,
    /// It has no pod, or its pod is being deleted.
    #[default]
    Nothing,
}

/// The names of the selected members.
pub(super) fn names(members: &[MemberSummary], is_meant: impl Fn(&MemberSummary) -> bool) -> Vec<String> {
    members.iter().filter(|member| is_meant(member)).map(|member| member.name.clone()).collect()
}
