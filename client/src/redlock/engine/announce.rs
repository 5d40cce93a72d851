use super::Redlock;
use super::round::Round;
use crate::redlock::{Command, Electorate, LockKey, Reply};
use crate::time::Clock;

impl<C: Clock + ?Sized> Redlock<C> {
    /// Tells those who listen for the key a number. It is enqueued on all members before this returns, behind all that was enqueued
    /// before.
    ///
    /// The future gives how many connections listen at the member that answers first; `None` if no member says.
    pub fn announce(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        number: i64,
    ) -> impl Future<Output = Option<u64>> + Send + use<C> {
        let command = Command::Announce { key: key.clone(), number };
        let asked = electorate.electors().iter().enumerate();
        let mut round = Round::send(electorate, asked, self.settings.node_timeout, [command]);
        async move {
            while let Some((_, answer)) = round.next().await {
                if let Ok(Some(Reply::Announced(listeners))) = answer.map(|answers| answers.replies.into_first()) {
                    return Some(listeners);
                }
            }
            None
        }
    }
}
