//! Deletes and inspects keys on all members, admitted or not.

use std::sync::Arc;

use super::Redlock;
use super::round::Round;
use crate::redlock::{
    AnswerSlot, Command, Electorate, KeyState, LockKey, LockValue, MemberError, MemberFailure, MemberName, Progress,
    Released, Reply, Tally, Vote,
};
use crate::time::Clock;

/// Enqueues a release at every member.
///
/// Members execute it after all earlier requests.
pub(super) fn release_everywhere(electorate: &Electorate, key: &LockKey, value: &LockValue) {
    let release: Arc<[Command]> = [Command::Release { key: key.clone(), value: value.clone() }].into();
    for elector in electorate.electors() {
        elector.member.submit(&release, AnswerSlot::detached());
    }
    electorate.electors().iter().for_each(|elector| elector.member.flush());
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// Deletes the key where it holds the value, on all members, admitted or not.
    ///
    /// It waits at most one node timeout, and slower members delete the key later. The call is idempotent: releasing a
    /// missing key is no error.
    pub async fn release(&self, electorate: &Electorate, key: &LockKey, value: &LockValue) -> Released {
        let command = Command::Release { key: key.clone(), value: value.clone() };
        let mut released = Released::default();
        for (name, answer) in self.ask_all(electorate, command).await {
            match answer.map(|(reply, _)| reply) {
                Ok(Reply::Done(deleted)) => released.deleted += usize::from(deleted),
                Ok(_) => released.failures.push((name, MemberError::unexpected().into())),
                Err(error) => released.failures.push((name, error.into())),
            }
        }
        released
    }

    /// Deletes the key like [`Self::release`], and returns early.
    ///
    /// It returns when a majority of every list has confirmed, because another holder can then acquire the lock. Otherwise it returns when all
    /// members have answered, or after one node timeout. The other members execute the release later, even if this future is dropped.
    pub async fn release_soon(&self, electorate: &Electorate, key: &LockKey, value: &LockValue) -> Released {
        let command = Command::Release { key: key.clone(), value: value.clone() };
        let electors = electorate.electors();
        let asked = electors.iter().enumerate();
        let mut round = Round::send(electorate, asked, self.settings.node_timeout, [command]);
        let mut released = Released::default();
        let mut confirmed = Tally::new(electorate);
        while let Some((index, answer)) = round.next().await {
            let name = || electors[index].member.name().clone();
            match answer.map(|answers| (answers.replies.into_first(), answers.run_id)) {
                Ok((Some(Reply::Done(deleted)), run_id)) => {
                    released.deleted += usize::from(deleted);
                    confirmed.on_vote(index, Vote::Yes(&run_id));
                }
                Ok((Some(Reply::Failed(error)), _)) | Err(error) => released.failures.push((name(), error.into())),
                Ok(_) => released.failures.push((name(), MemberError::unexpected().into())),
            }
            if confirmed.progress() == Progress::Won {
                break;
            }
        }
        released
    }

    /// Enqueues the release at all members before it returns, and does not wait for answers.
    pub fn submit_release(&self, electorate: &Electorate, key: &LockKey, value: &LockValue) {
        release_everywhere(electorate, key, value);
    }

    /// Reads the key on every member.
    ///
    /// An answer of a process that is not admitted is a failure.
    pub async fn inspect(
        &self,
        electorate: &Electorate,
        key: &LockKey,
    ) -> Vec<(MemberName, Result<KeyState, MemberFailure>)> {
        let answers = self.ask_all(electorate, Command::Inspect { key: key.clone() }).await;
        let state = |answer| match answer {
            Ok((_, false)) => Err(MemberFailure::NotAdmitted),
            Ok((Reply::State(state), true)) => Ok(state),
            Ok(_) => Err(MemberError::unexpected().into()),
            Err(error) => Err(MemberFailure::Member(error)),
        };
        answers.into_iter().map(|(name, answer)| (name, state(answer))).collect()
    }

    /// Sends a command to all members.
    ///
    /// Each reply has a flag that is true if the admitted process sent it.
    async fn ask_all(
        &self,
        electorate: &Electorate,
        command: Command,
    ) -> Vec<(MemberName, Result<(Reply, bool), MemberError>)> {
        let electors = electorate.electors();
        let mut replies: Vec<_> = electors.iter().map(|_| Err(MemberError::TimedOut)).collect();
        let asked = electors.iter().enumerate();
        let mut round = Round::send(electorate, asked, self.settings.node_timeout, [command]);
        while let Some((index, answer)) = round.next().await {
            replies[index] = answer.and_then(|answers| {
                let admitted = electors[index].admitted.as_ref() == Some(&answers.run_id);
                match answers.replies.into_first() {
                    Some(Reply::Failed(error)) => Err(error),
                    Some(reply) => Ok((reply, admitted)),
                    None => Err(MemberError::Other("no answer".to_owned())),
                }
            });
        }
        electors.iter().map(|elector| elector.member.name().clone()).zip(replies).collect()
    }
}
