//! What the leader does to a member, each on a fresh connection to the process that was decided about and to no other.

use tokio::sync::MutexGuard;

use super::{ADMIN_DEADLINE, MemberLink};
use crate::redis_member::acl::UserRule;
use crate::redis_member::{AdminConnection, Closing, EpochChange, Observation, Opening};
use crate::redlock::{FencingToken, MemberError, RunId};

/// Why an act did not happen. Whatever the reason, the next decision starts from what is seen then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The member has no address.
    #[error("the member has no address")]
    NoAddress,
    /// Another process answers: nothing was done to it.
    #[error("another process answers")]
    OtherProcess,
    /// Another leader has raised its epoch: this one leads no more.
    #[error("another operator leads")]
    Deposed,
    /// The process must not vote as it is.
    #[error("the process must not vote: {0}")]
    Unfit(&'static str),
    /// The member failed.
    #[error(transparent)]
    Member(#[from] MemberError),
}

/// A fresh connection to one process, while no probe is under way.
pub struct Turn<'a> {
    link: &'a MemberLink,
    admin: AdminConnection,
    users: Vec<String>,
    _turn: MutexGuard<'a, ()>,
}

impl MemberLink {
    /// Connects to the member and makes sure that it is this process.
    pub async fn turn(&self, run_id: &RunId) -> Result<Turn<'_>, ActError> {
        let place = self.place.borrow().clone().ok_or(ActError::NoAddress)?;
        let turn = self.turn.lock().await;
        let admin = AdminConnection::connect(&place.admin, self.clock.clone(), ADMIN_DEADLINE).await?;
        if admin.run_id() != run_id {
            return Err(ActError::OtherProcess);
        }
        Ok(Turn { link: self, admin, users: place.users, _turn: turn })
    }

    /// The counter of tokens of the process, and the process itself before and after the read: they are one connection's.
    pub async fn counter(&self, run_id: &RunId) -> Result<FencingToken, ActError> {
        Ok(self.turn(run_id).await?.observe().await?.counter.unwrap_or_default())
    }
}

impl Turn<'_> {
    /// What the process says of itself now; noted by the link as well.
    pub async fn observe(&mut self) -> Result<Observation, ActError> {
        let users: Vec<&str> = self.users.iter().map(String::as_str).collect();
        let observation = self.admin.observe(&users).await?;
        self.link.saw(observation.clone());
        Ok(observation)
    }

    /// Makes `epoch` the only one that opens and closes users of this process.
    pub async fn raise_epoch(&mut self, epoch: i64) -> Result<(), ActError> {
        match self.admin.raise_epoch(epoch).await? {
            EpochChange::AlreadyHigher(_) => return Err(ActError::Deposed),
            EpochChange::Raised => {}
        }
        // Seen after the raise: nothing that an earlier leader began can change it any more.
        self.observe().await?;
        self.link.seen().raised = Some((self.admin.run_id().clone(), epoch));
        Ok(())
    }

    /// Closes the users, confirms it, and starts the count of the process from now.
    pub async fn close(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        match self.admin.close(epoch, users).await? {
            Closing::EpochMoved => return Err(ActError::Deposed),
            Closing::Closed => {}
        }
        let observation = self.observe().await?;
        if !observation.open_users.is_empty() {
            return Err(ActError::Member(MemberError::Other("users are still open".to_owned())));
        }
        self.link.note_fenced(self.admin.run_id());
        Ok(())
    }

    /// Closes users of clients that are no more, on a process that goes on voting.
    pub async fn close_some(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        match self.admin.close(epoch, users).await? {
            Closing::EpochMoved => Err(ActError::Deposed),
            Closing::Closed => Ok(()),
        }
    }

    /// Restores the counter and opens the users, in this order, on this connection.
    pub async fn open(&mut self, epoch: i64, users: &[UserRule], counter: FencingToken) -> Result<(), ActError> {
        self.admin.restore_counter(counter).await?;
        self.open_more(epoch, users).await
    }

    /// Opens users of a process that is admitted: a client was added.
    pub async fn open_more(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        match self.admin.open(epoch, users).await? {
            Opening::EpochMoved => return Err(ActError::Deposed),
            Opening::Opened => {}
        }
        self.observe().await.map(drop)
    }
}
