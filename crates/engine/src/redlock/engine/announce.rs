//! Publishes hints for clients that wait for a key.

use std::future::poll_fn;
use std::sync::Arc;

use super::Redlock;
use crate::redlock::round_answers::RoundAnswers;
use crate::redlock::{Command, Electorate, LockKey, Reply};
use crate::time::Clock;

impl<C: Clock + ?Sized> Redlock<C> {
    /// Publishes a number to clients that wait for the key.
    ///
    /// It is in the queues of all members before this returns, behind all earlier requests. The call needs no runtime, because a guard can be
    /// dropped on any thread.
    ///
    /// The future returns the number of connections that listen at the first member that answers. It returns `None` if no member reports
    /// that number.
    pub fn announce(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        number: i64,
    ) -> impl Future<Output = Option<u64>> + Send + use<C> {
        let electors = electorate.electors();
        let command: Arc<[Command]> = [Command::Announce { key: key.clone(), number }].into();
        let answers = RoundAnswers::of(electors.len(), 1);
        for (index, elector) in electors.iter().enumerate() {
            elector.member.submit(&command, answers.slot(index));
        }
        electors.iter().for_each(|elector| elector.member.flush());
        async move {
            while let Some((_, answer)) = poll_fn(|cx| answers.poll_next(cx)).await {
                if let Ok(Some(Reply::Announced(listeners))) = answer.map(|answers| answers.replies.into_first()) {
                    return Some(listeners);
                }
            }
            None
        }
    }
}
