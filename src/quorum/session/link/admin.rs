//! Acts of the leader on a member. Each uses a fresh connection, and applies only to the process of the decision.

use tokio::sync::MutexGuard;

use super::external_link::read_record;
use super::{MemberLink, Target};
use crate::redis_member::acl::UserRule;
use crate::redis_member::{ActError, AdminConnection, Fingerprint, Observation, Secret, raise_counter};
use crate::redlock::{FencingToken, MemberError, RunId};

/// A fresh connection to one process, while no probe runs.
pub struct AdminSession<'a> {
    link: &'a MemberLink,
    admin: AdminConnection,
    target: Target,
    _turn: MutexGuard<'a, ()>,
}

impl MemberLink {
    /// Connects to the member, and checks that this process answers.
    pub async fn admin_session(&self, run_id: &RunId) -> Result<AdminSession<'_>, ActError> {
        let target = self.target.borrow().clone().ok_or(ActError::NoAddress)?;
        let turn = self.turn.lock().await;
        let admin = self.connect_admin(&target).await?;
        if admin.run_id() != run_id {
            return Err(ActError::OtherProcess);
        }
        Ok(AdminSession { link: self, admin, target, _turn: turn })
    }

    /// Reads the token counter of the process.
    ///
    /// One connection reads the process, the counter and the process again.
    pub async fn counter(&self, run_id: &RunId) -> Result<FencingToken, ActError> {
        Ok(self.admin_session(run_id).await?.observe().await?.counter.unwrap_or_default())
    }

    /// Makes the process load its certificate from these files, unless it serves the `newest` one.
    ///
    /// Returns whether it serves the newest one now. For about a minute the file in its pod can be old, or only one file of the pair can be
    /// new.
    pub async fn reload_certificate(&self, newest: Fingerprint, file: &str, key: &str) -> Result<bool, ActError> {
        let Some(run_id) = self.state().processes.last().map(|last| last.run_id.clone()) else { return Ok(false) };
        let mut session = self.admin_session(&run_id).await?;
        if session.admin.certificate() == Some(newest) {
            return Ok(true);
        }
        session.admin.reload_certificate(file, key).await?;
        drop(session);
        Ok(self.admin_session(&run_id).await?.admin.certificate() == Some(newest))
    }

    /// Raises the token counter of the process, if it is lower. Returns whether the process confirmed it.
    pub async fn raise_counter(&self, run_id: &RunId, to: FencingToken) -> bool {
        let raised = async { self.admin_session(run_id).await?.restore_counter(to).await }.await;
        match &raised {
            Ok(()) => tracing::info!(member = %self.name, counter = %to, "raised the token counter"),
            Err(error) => tracing::debug!(member = %self.name, %error, "token counter not raised yet"),
        }
        raised.is_ok()
    }
}

const STILL_OPEN: &str = "users are still open";

/// An error with this text, unless the member shows the result of an act.
fn confirmed(is_confirmed: bool, failure: &str) -> Result<(), ActError> {
    if is_confirmed { Ok(()) } else { Err(MemberError::Other(failure.to_owned()).into()) }
}

impl AdminSession<'_> {
    /// Observes the process, and stores the observation in the link as well.
    pub async fn observe(&mut self) -> Result<Observation, ActError> {
        let users = self.link.state.lock().relevant_users(&self.target.users, self.admin.run_id());
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        let observation = self.admin.observe(&users).await?;
        // Another pod has perhaps got the member's name since the connection was opened.
        match self.link.note_observation(&self.target.pod_uid, observation.clone()) {
            true => Ok(observation),
            false => Err(ActError::OtherProcess),
        }
    }

    /// Observes all users of the process, including those that this quorum did not make.
    ///
    /// A client was perhaps removed a moment ago, or a user edited the status. From now on open users are part of every
    /// probe.
    pub async fn observe_all(&mut self) -> Result<Observation, ActError> {
        let users = self.admin.users().await?;
        let found = (self.admin.run_id().clone(), users.highest_epoch(), users.open);
        self.link.state.lock().users = Some(found);
        self.observe().await
    }

    /// Sets the passwords of the operator's user, and those of `users` that are open.
    ///
    /// The other users get theirs when they are opened.
    pub async fn set_passwords(
        &mut self,
        epoch: i64,
        operator: &[Secret],
        users: &[UserRule],
        cut: bool,
    ) -> Result<(), ActError> {
        let open = self.observe().await?.open_users;
        let users: Vec<_> = users.iter().filter(|user| open.iter().any(|open| open == user.name())).cloned().collect();
        self.admin.set_passwords(epoch, operator, &users, cut).await
    }

    /// Makes `epoch` the only one that opens and closes users of this process.
    pub async fn raise_epoch(&mut self, epoch: i64) -> Result<(), ActError> {
        self.admin.raise_epoch(epoch).await?;
        // This observation follows the raise, so no step of an earlier leader can change the users after it.
        self.observe_all().await?;
        self.link.state.lock().raised = Some((self.admin.run_id().clone(), epoch));
        Ok(())
    }

    /// Closes these users and all others of the process, and confirms it.
    ///
    /// The wait of the process starts now.
    pub async fn close(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        let open = self.observe_all().await?.open_users;
        self.admin.close_all(epoch, users, &open).await?;
        confirmed(self.observe().await?.open_users.is_empty(), STILL_OPEN)?;
        self.link.note_fenced(self.admin.run_id());
        Ok(())
    }

    /// Closes users that no longer exist, and confirms it. The process still votes.
    pub async fn close_some(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        self.admin.close(epoch, users).await?;
        let names: Vec<&str> = users.iter().map(UserRule::name).collect();
        confirmed(self.admin.observe(&names).await?.open_users.is_empty(), STILL_OPEN)
    }

    /// Raises the counter of a process to this token, if it is lower. The process votes now, or soon.
    ///
    /// On an external master it uses the user of the locking path.
    pub async fn restore_counter(&mut self, token: FencingToken) -> Result<(), ActError> {
        if self.link.plan.is_external() {
            return Ok(raise_counter(&mut self.admin, token).await.map(drop)?);
        }
        confirmed(self.admin.restore_counter(token).await? >= token, "the counter is still lower")
    }

    /// Makes sure that on the process no vote counts under an earlier membership epoch than this.
    ///
    /// The process still votes. Its `users` are closed. On an external master, the epoch is written into the quorum's record instead, so that
    /// the master refuses votes under earlier epochs.
    pub async fn end_epochs_before(
        &mut self,
        record_epoch: i64,
        epoch: i64,
        users: &[UserRule],
    ) -> Result<(), ActError> {
        if !self.link.plan.is_external() {
            return self.close_some(epoch, users).await;
        }
        read_record(self.link, &mut self.admin).await;
        let recorded = self.link.shared.agreement.lock().epoch_at(&self.link.name, self.admin.run_id());
        confirmed(recorded.is_some_and(|recorded| recorded >= record_epoch), "its record does not have this yet")
    }

    /// Restores the counter and opens the users, in this order, on this connection.
    pub async fn open(&mut self, epoch: i64, users: &[UserRule], counter: FencingToken) -> Result<(), ActError> {
        self.admin.restore_counter(counter).await?;
        self.open_more(epoch, users).await
    }

    /// Opens users of an admitted process, because a client was added.
    pub async fn open_more(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        self.admin.open(epoch, users).await?;
        self.observe().await.map(drop)
    }
}
