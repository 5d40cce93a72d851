//! The summary of a member at one moment: the input of updates, changes of the member list and rotations.

/// One member at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSummary {
    /// Its name.
    pub name: String,
    /// An external member.
    pub external: bool,
    /// Its state in the record.
    pub standing: Standing,
    /// Its pod was made from another template than its StatefulSet has now. `None`: not known yet, because there is no pod,
    /// or the StatefulSet controller has not processed the newest template.
    pub outdated: Option<bool>,
    /// Which secrets its pod was started with.
    pub started_with: StartedWith,
    /// A process of it answers.
    pub answers: bool,
    /// That process takes orders of this leader, and of no other.
    pub obeys: bool,
    /// That process is the one that the record admits.
    pub admitted: bool,
    /// It is admitted, open, and obeys this leader. The operator does not open or close an external master: there the record alone decides.
    pub votes: bool,
    /// The operator's user of the next epoch is open on it.
    pub ready_for_next: bool,
    /// Its process is known to accept the passwords that it should and no others.
    pub confirmed: bool,
    /// No vote is possible under the epoch before with it: see [`super::membership::is_closed`].
    pub closed: bool,
    /// It leaves, does not answer, and an administrator declared it dead.
    /// See [`super::membership::is_declared_dead`].
    pub dead: bool,
}

/// The state of a member in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It can vote.
    Admitted,
    /// It can vote and does not answer. Other replicas and clients perhaps reach it.
    Silent,
    /// It was closed for this update, which is finished first.
    ClosedForUpdate,
    /// It cannot vote, so there is nothing to lose.
    #[default]
    Out,
    /// Its process was started with secrets that were lost since, and refuses those that took their place.
    /// The operator cannot close it, and does not count its votes.
    Lost,
}

/// Which secrets the first process of a member's pod was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartedWith {
    /// The current secrets.
    These,
    /// Other secrets.
    Others,
    /// It has no pod, or one that ends.
    #[default]
    Nothing,
}

/// The names of the members that are meant.
pub(super) fn names(members: &[MemberSummary], is_meant: impl Fn(&MemberSummary) -> bool) -> Vec<String> {
    members.iter().filter(|member| is_meant(member)).map(|member| member.name.clone()).collect()
}
