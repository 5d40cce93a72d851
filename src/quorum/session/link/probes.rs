//! Probes of a member, on one admin connection after the other.

use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use tokio::time::sleep;

use super::{ADMIN_DEADLINE, MemberLink, Target, busy, external_link};
use crate::fence::clock::OwnClocks;
use crate::redis_member::{AdminConnection, Observation};
use crate::redlock::{MemberError, Unfit};
use redlock_engine::voting::is_full;

/// The first pause between two attempts to connect.
const RETRY_PERIOD: Duration = Duration::from_millis(200);
/// The maximum of that pause, which grows with successive failures.
///
/// A new process must be observed soon, because its fence starts with the observation. An external master possibly never answers.
const LONGEST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY_OF_EXTERNAL: Duration = Duration::from_secs(5);

impl MemberLink {
    /// Watches the member at each of its targets.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut targets = self.target.subscribe();
        loop {
            let target = targets.borrow_and_update().clone();
            match &target {
                Some(target) => self.note_target(target),
                None => self.lost(),
            }
            let watch = OptionFuture::from(target.as_ref().map(|target| self.watch_target(target)));
            tokio::select! {
                Some(()) = watch => {}
                changed = targets.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Takes a new target, which has another password or another process.
    ///
    /// Another pod is another target, and observations of the former pod prove nothing about it.
    fn note_target(&self, target: &Target) {
        let mut state = self.state.lock();
        state.failure = None;
        if state.pod_uid.as_ref() != Some(&target.pod_uid) {
            state.processes.moved(self.now());
            state.pod_uid = Some(target.pod_uid.clone());
        }
    }

    /// Watches the member at one target, with one connection after the other.
    ///
    /// Each connection reads the `run_id` again.
    async fn watch_target(&self, target: &Target) {
        let mut failures = 0;
        loop {
            match self.probe(target).await {
                Ok(()) => failures = 0,
                Err(MemberError::Busy) if !self.plan.is_external() => {
                    let (admin, machine) = (&target.admin, self.shared.machine.clone());
                    let outcome = AdminConnection::kill_busy_script(admin, machine, ADMIN_DEADLINE).await;
                    busy::note_script(self, &outcome);
                    sleep(self.pause()).await;
                }
                // The process is alive, and members of this kind load only little data.
                Err(error @ (MemberError::Busy | MemberError::Loading)) => {
                    self.note_unanswered(&error);
                    sleep(RETRY_PERIOD).await;
                }
                Err(error) => {
                    tracing::trace!(member = %self.name, %error, "admin connection");
                    self.note_unanswered(&error);
                    if is_full(&error) && !self.plan.is_external() {
                        busy::note_full(self, true);
                    }
                    self.note_failure(error);
                    self.lost();
                    sleep(retry_pause(failures, self.plan.is_external())).await;
                    failures += 1;
                }
            }
        }
    }

    pub(super) async fn connect_admin(&self, target: &Target) -> Result<AdminConnection, MemberError> {
        let connect = |admin| AdminConnection::connect(admin, self.shared.machine.clone(), ADMIN_DEADLINE);
        let admin = match (connect(&target.admin).await, &target.other_admin) {
            (Err(MemberError::Refused), Some(other)) => connect(other).await?,
            (connected, _) => connected?,
        };
        let mut state = self.state.lock();
        state.failure = None;
        state.certificate = admin.certificate().map(|certificate| (admin.run_id().clone(), certificate));
        drop(state);
        Ok(admin)
    }

    fn note_failure(&self, error: MemberError) {
        let is_refused = error == MemberError::Refused;
        let before = self.state.lock().failure.replace(error);
        if is_refused && before != Some(MemberError::Refused) {
            self.shared.announce();
        }
    }

    /// Connects, and probes until the connection ends.
    ///
    /// The end of a connection alone proves nothing, because a leader cuts the connections of other replicas. If the process is gone, the
    /// next attempt to connect fails.
    ///
    /// # Errors
    /// If there is no connection, if the member refused a probe, or if it answered none.
    async fn probe(&self, target: &Target) -> Result<(), MemberError> {
        let mut admin = self.connect_admin(target).await?;
        let (mut has_rights, mut was_observed) = (false, false);
        loop {
            let turn = self.turn.lock().await;
            let users = self.state.lock().relevant_users(&target.users, admin.run_id());
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            match admin.observe(&users).await {
                Ok(observation) => {
                    was_observed = true;
                    let is_full = observation.is_full;
                    self.note_observation(&target.pod_uid, observation);
                    if !self.plan.is_external() {
                        busy::note_full(self, is_full);
                    } else if has_rights || external_link::check_rights(self, &mut admin).await {
                        has_rights = true;
                        external_link::read_record(self, &mut admin).await;
                    }
                }
                Err(MemberError::Busy) if !self.plan.is_external() => {
                    busy::note_script(self, &admin.script_kill().await)
                }
                Err(error @ (MemberError::Busy | MemberError::Loading)) => self.note_unanswered(&error),
                Err(MemberError::Unreachable(_) | MemberError::TimedOut) if was_observed => return Ok(()),
                Err(error) => return Err(error),
            }
            drop(turn);
            tokio::select! {
                () = admin.disconnected() => return Ok(()),
                () = sleep(self.pause()) => {}
            }
        }
    }

    /// Takes an observation of this pod. Returns false if the link has another pod by now.
    pub(super) fn note_observation(&self, pod_uid: &str, observation: Observation) -> bool {
        let users = self.users(&observation);
        let own = OwnClocks::read(&*self.shared.machine.clock);
        let stepped = self.shared.clocks.observe(&self.name, &observation.run_id, users, observation.clock, own);
        let mut state = self.state.lock();
        if state.pod_uid.as_deref() != Some(pod_uid) {
            return false;
        }
        let before = state.answering().cloned();
        let changed = state.observation.as_ref().map(inputs) != Some(inputs(&observation));
        state.processes.observe(&observation.run_id, users, self.now());
        state.observation = Some(observation);
        if changed || stepped || before.as_ref() != state.processes.last() {
            self.shared.announce();
        }
        true
    }

    fn lost(&self) {
        self.shared.clocks.lost(&self.name);
        let mut state = self.state.lock();
        let answered = state.processes.answers();
        state.processes.lost(self.now());
        if answered {
            self.shared.announce();
        }
    }
}

/// The inputs of decisions in an observation. The average is rounded, because the exact one changes at each probe.
fn inputs(observed: &Observation) -> (&[String], Option<&Unfit>, &str, bool, Option<u32>) {
    let average = observed.keys.average_ttl.as_secs().checked_ilog2();
    (&observed.open_users, observed.unfit.as_ref(), &observed.replication_id, observed.keys.endless > 0, average)
}

/// The pause before the next attempt to connect, after this number of earlier failures.
fn retry_pause(failures: u32, is_external: bool) -> Duration {
    let longest = if is_external { LONGEST_RETRY_OF_EXTERNAL } else { LONGEST_RETRY };
    RETRY_PERIOD.saturating_mul(1 << failures.min(8)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_never_answers_is_retried_less_and_less() {
        let pauses = |is_external| (0..40).map(|at| retry_pause(at, is_external).as_millis()).collect::<Vec<_>>();
        assert_eq!(pauses(false)[..4], [200, 400, 800, 1_000]);
        assert_eq!(pauses(true)[..6], [200, 400, 800, 1_600, 3_200, 5_000]);
        assert_eq!(pauses(true).last(), Some(&5_000));
    }
}
