use super::Redlock;
use super::round::Round;
use crate::redlock::{
    Command, Electorate, KeyState, LockKey, LockValue, MemberError, MemberFailure, MemberName, Released, Reply,
};
use crate::time::Clock;

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
        let mut round = Round::send(electors.iter().enumerate(), self.settings.node_timeout, |_| vec![command.clone()]);
        while let Some((index, answer)) = round.next().await {
            replies[index] = answer.and_then(|answers| {
                let admitted = electors[index].admitted.as_ref() == Some(&answers.run_id);
                match answers.replies.into_iter().next() {
                    Some(Reply::Failed(error)) => Err(error),
                    Some(reply) => Ok((reply, admitted)),
                    None => Err(MemberError::Other("no answer".to_owned())),
                }
            });
        }
        electors.iter().map(|elector| elector.member.name().clone()).zip(replies).collect()
    }
}
