//! Rotation of passwords: the next step, or the cause of a wait. Pure.
//!
//! At every moment every member accepts the passwords that the operator uses. Until the user sets `finish`, it also
//! accepts those that clients perhaps still use. A new password disturbs no connection. The removal of the old one closes
//! the connections that were made with it. So it is removed on one member at a time, while all other members can vote.

use super::auth::Rotation;
use super::member::{MemberSummary, names};
use super::progress::{Doing, Until};
use crate::api::PasswordStage;

/// The text of the annotation that ends a rotation.
pub const FINISH: &str = "finish";

/// The input of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The text of the annotation.
    pub wanted: Option<&'a str>,
    /// The rotation in progress.
    pub rotation: Option<&'a Rotation>,
    /// The last executed request.
    pub rotated: Option<&'a str>,
    /// Whether a member that starts now reads the passwords of this stage.
    pub files_written: bool,
    /// Whether the other replicas had enough time to read the passwords of this stage.
    pub read_by_replicas: bool,
    /// The members.
    pub members: &'a [MemberSummary],
}

/// The one next step.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// There is no rotation, or it must wait.
    Nothing,
    /// Begin the rotation for this request.
    Begin(String),
    /// Set the passwords of this stage on this member.
    ///
    /// With `cut`, close the connections that were made with other passwords.
    Confirm {
        /// The member.
        name: String,
        /// Whether to close connections.
        cut: bool,
    },
    /// Begin the next stage, because every member is confirmed.
    Advance,
    /// Wait for these members.
    Wait(Vec<String>),
    /// The rotation waits for the user.
    AwaitFinish,
}

/// Decides the next step.
pub fn decide(input: &Input<'_>) -> RotationStep {
    let Some(rotation) = input.rotation else { return idle(input) };
    if !input.files_written {
        return RotationStep::Nothing;
    }
    let (open, removing) = (unconfirmed(input), rotation.stage == PasswordStage::Removing);
    let is_back = |member: &MemberSummary| member.admitted && member.obeys;
    // Another member that is away. Its connections cannot be cut now.
    let away = names(input.members, |member| !is_back(member) && open != Some(member));
    match open {
        Some(member) if !removing || away.is_empty() => {
            RotationStep::Confirm { name: member.name.clone(), cut: removing }
        }
        _ if !away.is_empty() => RotationStep::Wait(away),
        _ if rotation.stage == PasswordStage::Switched && input.wanted != Some(FINISH) => RotationStep::AwaitFinish,
        _ if !input.read_by_replicas => RotationStep::Nothing,
        _ => RotationStep::Advance,
    }
}

/// The next step without a rotation in progress.
///
/// A process can have started with an older file, so passwords are always confirmed after the first rotation.
fn idle(input: &Input<'_>) -> RotationStep {
    let is_new = |wanted: &&str| ![FINISH, ""].contains(wanted) && input.rotated != Some(*wanted);
    if let Some(wanted) = input.wanted.filter(is_new) {
        return RotationStep::Begin(wanted.to_owned());
    }
    match unconfirmed(input).filter(|_| input.rotated.is_some() && input.files_written) {
        Some(member) => RotationStep::Confirm { name: member.name.clone(), cut: false },
        None => RotationStep::Nothing,
    }
}

/// The first member that obeys this leader, and perhaps has other passwords.
fn unconfirmed<'a>(input: &Input<'a>) -> Option<&'a MemberSummary> {
    input.members.iter().find(|member| !member.confirmed && member.obeys)
}

/// Describes the progress of a rotation, and the cause of its wait, for users.
pub fn progress(rotation: &Rotation, members: &[MemberSummary], step: &RotationStep) -> String {
    let confirmed = members.iter().filter(|member| member.confirmed).count();
    let all = members.len();
    let stage = Box::new(match rotation.stage {
        PasswordStage::Adding => Doing::Adding { confirmed, all },
        PasswordStage::Switched => Doing::Switched,
        PasswordStage::Removing => Doing::Removing { confirmed, all },
    });
    let doing = match step {
        RotationStep::Wait(names) => {
            Doing::RotationWaits { stage, until: Until::NewMembersVote { members: names.join(", ") } }
        }
        RotationStep::AwaitFinish => Doing::AwaitsFinish { stage },
        _ => *stage,
    };
    doing.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::model::auth::Auth;

    fn members(states: [(bool, bool, bool); 3]) -> Vec<MemberSummary> {
        let member = |(index, (admitted, obeys, confirmed))| MemberSummary {
            name: format!("q-{index}"),
            admitted,
            obeys,
            confirmed,
            ..MemberSummary::default()
        };
        states.into_iter().enumerate().map(member).collect()
    }

    const OLD: (bool, bool, bool) = (true, true, false);
    const NEW: (bool, bool, bool) = (true, true, true);
    const FENCED: (bool, bool, bool) = (false, true, true);
    const AWAY: (bool, bool, bool) = (true, false, false);

    fn at(stage: u8) -> Auth {
        (1..stage).fold(Auth::random().begin("t"), |auth, _| auth.advance())
    }

    fn step(stage: u8, wanted: &str, states: [(bool, bool, bool); 3]) -> RotationStep {
        let (auth, members) = (at(stage), members(states));
        decide(&Input {
            wanted: Some(wanted),
            rotation: auth.rotation(),
            rotated: auth.rotated(),
            files_written: true,
            read_by_replicas: true,
            members: &members,
        })
    }

    fn confirm(name: &str, cut: bool) -> RotationStep {
        RotationStep::Confirm { name: name.into(), cut }
    }

    #[test]
    fn a_new_text_begins_and_the_same_again_does_nothing() {
        let idle = |wanted, rotated, members: &[MemberSummary]| {
            decide(&Input { wanted, rotation: None, rotated, files_written: true, read_by_replicas: true, members })
        };
        let (new, old) = (members([NEW; 3]), members([NEW, OLD, AWAY]));
        assert_eq!(idle(Some("a"), None, &new), RotationStep::Begin("a".into()));
        assert_eq!(idle(Some("b"), Some("a"), &new), RotationStep::Begin("b".into()));
        for (wanted, rotated) in [(None, None), (Some("a"), Some("a")), (Some(FINISH), None), (Some(""), Some("a"))] {
            assert_eq!(idle(wanted, rotated, &new), RotationStep::Nothing);
        }
        assert_eq!(idle(Some("a"), Some("a"), &old), confirm("q-1", false), "started with an older file");
        assert_eq!(idle(None, None, &old), RotationStep::Nothing, "there is no older file");
    }

    #[test]
    fn a_new_password_is_used_after_every_member_accepts_it() {
        assert_eq!(step(1, "t", [OLD, OLD, OLD]), confirm("q-0", false));
        assert_eq!(step(1, "t", [NEW, NEW, OLD]), confirm("q-2", false));
        assert_eq!(step(1, "t", [NEW, AWAY, OLD]), confirm("q-2", false), "a new password disturbs no connection");
        assert_eq!(step(1, "t", [NEW, AWAY, NEW]), RotationStep::Wait(vec!["q-1".into()]));
        assert_eq!(step(1, "t", [NEW, NEW, FENCED]), RotationStep::Wait(vec!["q-2".into()]));
        assert_eq!(step(1, "t", [NEW, NEW, NEW]), RotationStep::Advance);
    }

    #[test]
    fn old_passwords_stay_until_the_annotation_is_finish() {
        assert_eq!(step(2, "t", [NEW, NEW, NEW]), RotationStep::AwaitFinish);
        assert_eq!(step(2, "another", [NEW, NEW, NEW]), RotationStep::AwaitFinish);
        assert_eq!(step(2, FINISH, [NEW, OLD, NEW]), confirm("q-1", false), "a process that started during that time");
        assert_eq!(step(2, FINISH, [NEW, AWAY, NEW]), RotationStep::Wait(vec!["q-1".into()]));
        assert_eq!(step(2, FINISH, [NEW, NEW, NEW]), RotationStep::Advance);
    }

    #[test]
    fn connections_are_cut_on_one_member_at_a_time() {
        assert_eq!(step(3, FINISH, [OLD, OLD, OLD]), confirm("q-0", true));
        assert_eq!(step(3, "t", [NEW, OLD, OLD]), confirm("q-1", true), "a begun stage continues");
        assert_eq!(step(3, FINISH, [FENCED, OLD, OLD]), RotationStep::Wait(vec!["q-0".into()]));
        assert_eq!(step(3, FINISH, [AWAY, OLD, OLD]), RotationStep::Wait(vec!["q-0".into()]));
        assert_eq!(step(3, FINISH, [NEW, NEW, NEW]), RotationStep::Advance);
    }

    #[test]
    fn a_stage_waits_for_its_files_and_for_other_replicas() {
        let (auth, members) = (at(1), members([NEW; 3]));
        let input = |files_written, read_by_replicas| Input {
            wanted: Some("t"),
            rotation: auth.rotation(),
            rotated: None,
            files_written,
            read_by_replicas,
            members: &members,
        };
        assert_eq!(decide(&input(false, true)), RotationStep::Nothing);
        assert_eq!(decide(&input(true, false)), RotationStep::Nothing);
        assert_eq!(decide(&input(true, true)), RotationStep::Advance);
    }

    #[test]
    fn the_progress_of_a_rotation_names_the_next_step() {
        let auth = at(2);
        let text = progress(auth.rotation().unwrap(), &members([NEW; 3]), &RotationStep::AwaitFinish);
        assert!(text.ends_with("redlock-operator.io/rotate-passwords=finish, to remove the old ones"), "{text}");
        let auth = at(1);
        let wait = RotationStep::Wait(vec!["q-2".into()]);
        let text = progress(auth.rotation().unwrap(), &members([NEW, NEW, AWAY]), &wait);
        assert_eq!(
            text,
            "new passwords: 2 of 3 members accept them beside the old ones. The operator continues when q-2 can vote"
        );
    }
}
