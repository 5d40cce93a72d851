//! Decides about the secrets of a quorum whose Secret can be lost: which secrets count, when the operator makes new
//! ones, and which members still run with lost ones. Pure.
//!
//! Secrets are made if there are no members. If there are members, their secrets are kept, and a replica restores an edited or
//! deleted Secret from its memory. New secrets are made only if the Secret is gone and no replica has written a copy back.
//!
//! The operator then cannot log in to the members, so it can neither vote nor close them. They are replaced one at a time
//! ([`super::rollout`]), and each successor waits like after any other restart. A hold of a client outside therefore
//! stays safe.

use std::time::Duration;

use super::auth::Auth;
use super::member::{MemberSummary, StartedWith};
use super::progress::Doing;
use super::rollout::Progress;
use crate::time::Monotonic;

/// How long the leader waits for a replica that writes its copy back.
///
/// The time begins when the status requests the copy. The replica needs one reading of the Secret.
pub const COPY_WITHIN: Duration = Duration::from_secs(10);

/// The content of the auth Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no Secret.
    Nothing,
    /// Another owner has it, or its content is not from the operator.
    Useless,
    /// The secrets in it.
    Secrets(Auth),
}

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The content of the Secret in the API server.
    pub found: &'a Found,
    /// The secrets in this replica's memory.
    pub in_use: Option<&'a Auth>,
    /// Whether members with secrets possibly run.
    pub has_members: bool,
    /// Since when the Secret has been missing for this leader, with a record of it in the status.
    pub missing_since: Option<Monotonic>,
    /// Now.
    pub now: Monotonic,
}

/// The one next step.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretsStep {
    /// Use the stored secrets.
    Use(Auth),
    /// Write these secrets from memory over the stored ones.
    WriteBack(Auth),
    /// Make the quorum's first secrets.
    MakeFirst,
    /// Publish the loss. Until this time another replica can write its copy back.
    AwaitCopy(Monotonic),
    /// Make secrets that replace the lost ones.
    Recreate,
    /// An administrator must check the existing Secret.
    ///
    /// Its content is possibly an accident, and possibly worth more than new secrets.
    AwaitPerson,
}

/// Decides the next step.
pub fn decide(input: &Input<'_>) -> SecretsStep {
    match (input.found, input.in_use) {
        (Found::Secrets(stored), None) => SecretsStep::Use(stored.clone()),
        // Another leader has advanced a rotation, or has made new secrets.
        (Found::Secrets(stored), Some(in_use)) if stored == in_use || stored.supersedes(in_use) => {
            SecretsStep::Use(stored.clone())
        }
        // The members run with the known secrets, or are being restarted with them.
        (_, Some(in_use)) => SecretsStep::WriteBack(in_use.clone()),
        (Found::Useless, None) => SecretsStep::AwaitPerson,
        (Found::Nothing, None) if !input.has_members => SecretsStep::MakeFirst,
        (Found::Nothing, None) => {
            let until = input.missing_since.unwrap_or(input.now) + COPY_WITHIN;
            if input.now < until { SecretsStep::AwaitCopy(until) } else { SecretsStep::Recreate }
        }
    }
}

/// The message of the status while members run with lost secrets. `None` if no member does.
///
/// `was_recorded`: the status has recorded the loss. A member that was deleted and is not back yet still counts as one with
/// lost secrets.
pub fn loss(auth: &Auth, was_recorded: bool, members: &[MemberSummary], rollout: Option<&Progress>) -> Option<String> {
    let back = |member: &&MemberSummary| member.started_with == StartedWith::These && member.answers;
    let others = members.iter().any(|member| member.started_with == StartedWith::Others);
    let (with_these, all) = (members.iter().filter(back).count(), members.len());
    let awaited = auth.id().is_some() && was_recorded && with_these < all;
    (others || awaited).then(|| {
        let rollout = rollout.map(|progress| format!("; {}", progress.message)).unwrap_or_default();
        Doing::Restarting { with_these, all, rollout }.to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::monotonic as at;
    use crate::time::UnixMillis;

    fn step(found: &Found, in_use: Option<&Auth>, has_members: bool, missing: Option<u64>, now: u64) -> SecretsStep {
        decide(&Input { found, in_use, has_members, missing_since: missing.map(at), now: at(now) })
    }

    #[test]
    fn no_secrets_are_created_while_any_exist() {
        let (a, b) = (Auth::random(), Auth::random());
        for now in [0, 1_000_000] {
            let step = |found: &Found, in_use| step(found, in_use, true, Some(0), now);
            assert_eq!(step(&Found::Secrets(a.clone()), Some(&a)), SecretsStep::Use(a.clone()));
            assert_eq!(step(&Found::Secrets(a.clone()), None), SecretsStep::Use(a.clone()));
            assert_eq!(step(&Found::Secrets(b.clone()), Some(&a)), SecretsStep::WriteBack(a.clone()), "edited");
            assert_eq!(step(&Found::Useless, Some(&a)), SecretsStep::WriteBack(a.clone()), "edited");
            assert_eq!(step(&Found::Useless, None), SecretsStep::AwaitPerson, "edited, and not gone");
            assert_eq!(step(&Found::Nothing, Some(&a)), SecretsStep::WriteBack(a.clone()));
            let further = a.begin("t");
            assert_eq!(step(&Found::Secrets(further.clone()), Some(&a)), SecretsStep::Use(further.clone()));
            assert_eq!(step(&Found::Secrets(a.clone()), Some(&further)), SecretsStep::WriteBack(further.clone()));
        }
    }

    #[test]
    fn lost_secrets_are_replaced_if_no_replica_has_a_copy() {
        assert_eq!(step(&Found::Nothing, None, false, None, 5), SecretsStep::MakeFirst);
        assert_eq!(step(&Found::Nothing, None, true, None, 5), SecretsStep::AwaitCopy(at(15)));
        assert_eq!(step(&Found::Nothing, None, true, Some(5), 14), SecretsStep::AwaitCopy(at(15)));
        assert_eq!(step(&Found::Nothing, None, true, Some(5), 15), SecretsStep::Recreate);
    }

    #[test]
    fn lost_secrets_do_not_supersede_their_replacement() {
        let (lost, replacement) = (Auth::random(), Auth::replacement(UnixMillis(7)));
        // A user restored them, or they come from a replica that was cut off.
        let decided = |found: &Auth, in_use: &Auth| step(&Found::Secrets(found.clone()), Some(in_use), true, None, 5);
        assert_eq!(decided(&lost, &replacement), SecretsStep::WriteBack(replacement.clone()));
        assert_eq!(decided(&replacement, &lost), SecretsStep::Use(replacement));
    }

    #[test]
    fn the_loss_is_reported_until_all_members_have_new_passwords() {
        let member = |started_with, answers| MemberSummary { started_with, answers, ..MemberSummary::default() };
        let (new, old) = (member(StartedWith::These, true), member(StartedWith::Others, false));
        let (gone, starting) = (member(StartedWith::Nothing, false), member(StartedWith::These, false));
        let all = |members: [&MemberSummary; 3]| members.map(Clone::clone);
        let (first, replacement) = (Auth::random(), Auth::replacement(UnixMillis(7)));
        let rollout = Progress { paused: false, message: "q-1 is next".into() };
        let text = loss(&replacement, true, &all([&new, &old, &old]), Some(&rollout)).unwrap();
        assert!(text.ends_with("1 of 3 run with the new ones; q-1 is next"), "{text}");
        for last in [&old, &gone, &starting] {
            let text = loss(&replacement, true, &all([&new, &new, last]), None).unwrap();
            assert!(text.ends_with("2 of 3 run with the new ones"), "{text}");
        }
        assert_eq!(loss(&replacement, true, &all([&new; 3]), None), None);
        assert_eq!(loss(&replacement, true, &[], None), None, "all members are external");
        // Much later a member restarts, or the Secret was restored in time.
        assert_eq!(loss(&replacement, false, &all([&new, &new, &starting]), None), None);
        assert_eq!(loss(&first, true, &all([&new, &starting, &gone]), None), None);
        assert!(loss(&first, false, &all([&new, &old, &new]), None).is_some(), "restored too late");
    }
}
