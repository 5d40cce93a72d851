use super::Redlock;
use super::round::Round;
use crate::redlock::{
    Command, Electorate, KeyState, LockKey, LockValue, MemberError, MemberFailure, MemberName, Progress, Released,
    Reply, Slot, Tally, Vote,
};
use crate::time::Clock;
use std::sync::Arc;

/// Members execute it after all that was enqueued before, those that did not answer among them.
pub(super) fn release_everywhere(electorate: &Electorate, key: &LockKey, value: &LockValue) {
    let release: Arc<[Command]> = [Command::Release { key: key.clone(), value: value.clone() }].into();
    for elector in electorate.electors() {
        elector.member.submit(&release, Slot::of_nobody());
    }
    electorate.electors().iter().for_each(|elector| elector.member.flush());
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// Deletes the key where it holds the value, on all members, admitted or not. Waits for them no longer than one
    /// node timeout; those that are slower do it later. Idempotent: releasing what is gone is no error.
    pub async fn release(&self, electorate: &Electorate, key: &LockKey, value: &LockValue) -> Released {
        let command = Command::Release { key: key.clone(), value: value.clone() };
        let mut released = Released::default();
        for (name, answer) in self.ask_all(electorate, command).await {
            match answer.map(|(reply, _)| reply) {
                Ok(Reply::Done(deleted)) => released.deleted += usize::from(deleted),
                Ok(_) => released.failures.push((name, MemberError::Other("unexpected answer".to_owned()).into())),
                Err(error) => released.failures.push((name, error.into())),
            }
        }
        released
    }

    /// The same, for those who need not know who was late: it waits until a majority of every list has confirmed, so that another
    /// holder can be granted, or until all have answered, or one node timeout. The rest goes on, in order behind what was sent before,
    /// also when this is dropped.
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
                Ok(_) => released.failures.push((name(), MemberError::Other("unexpected answer".to_owned()).into())),
            }
            if confirmed.progress() == Progress::Won {
                break;
            }
        }
        released
    }

    /// Enqueues the release on all members before it returns, and waits for nobody.
    pub fn release_unheard(&self, electorate: &Electorate, key: &LockKey, value: &LockValue) {
        release_everywhere(electorate, key, value);
    }

    /// What every member has on the key. An answer of a process that is not admitted is a failure.
    pub async fn inspect(
        &self,
        electorate: &Electorate,
        key: &LockKey,
    ) -> Vec<(MemberName, Result<KeyState, MemberFailure>)> {
        let answers = self.ask_all(electorate, Command::Inspect { key: key.clone() }).await;
        let state = |answer| match answer {
            Ok((_, false)) => Err(MemberFailure::NotAdmitted),
            Ok((Reply::State(state), true)) => Ok(state),
            Ok(_) => Err(MemberError::Other("unexpected answer".to_owned()).into()),
            Err(error) => Err(MemberFailure::Member(error)),
        };
        answers.into_iter().map(|(name, answer)| (name, state(answer))).collect()
    }

    /// The reply of every member, in the order of the electorate, and whether it came from the admitted process.
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
