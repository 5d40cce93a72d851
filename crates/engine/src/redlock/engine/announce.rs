use super::Redlock;
use crate::redlock::slot::Collected;
use crate::redlock::{Command, Electorate, LockKey, Reply};
use crate::time::Clock;
use std::future::poll_fn;
use std::sync::Arc;

impl<C: Clock + ?Sized> Redlock<C> {
    /// Tells those who listen for the key a number. It is enqueued on all members before this returns, behind all that was enqueued
    /// before. It needs no runtime, since a guard can be dropped on any thread.
    ///
    /// The future gives how many connections listen at the member that answers first; `None` if no member answers that.
    pub fn announce(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        number: i64,
    ) -> impl Future<Output = Option<u64>> + Send + use<C> {
        let electors = electorate.electors();
        let command: Arc<[Command]> = [Command::Announce { key: key.clone(), number }].into();
        let answers = Collected::of(electors.len(), 1);
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
