//! Probes of a member, on one admin connection after the other.

use std::sync::Arc;

use tokio::time::sleep;

use super::retry::{RETRY_PERIOD, retry_pause};
use super::{ADMIN_DEADLINE, MemberLink, Target, busy, external_link};
use crate::fence::clock::OwnClocks;
use crate::redis_member::{AdminConnection, Endpoint, Observation};
use crate::redlock::MemberError;
use redlock_engine::voting::is_full;

impl MemberLink {
    /// Watches the member at each of its targets.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut places = self.target.subscribe();
        let mut last: Option<Target> = None;
        loop {
            let target = places.borrow_and_update().clone();
            if let Some(target) = &target {
                self.note_target(last.as_ref(), target);
                last = Some(target.clone());
            }
            let stay = async {
                match &target {
                    Some(target) => self.stay(target).await,
                    None => {
                        self.lost();
                        std::future::pending().await
                    }
                }
            };
            tokio::select! {
                () = stay => {}
                changed = places.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Takes a new target.
    ///
    /// Another pod is another target, and observations of the former pod prove nothing about it.
    fn note_target(&self, last: Option<&Target>, target: &Target) {
        let mut state = self.state.lock();
        if last != Some(target) {
            // The new target has another password or another process.
            state.failure = None;
        }
        if last.is_some_and(|last| last.pod_uid == target.pod_uid) {
            return;
        }
        state.processes.moved(self.now());
        state.pod_uid = Some(target.pod_uid.clone());
    }

    /// Watches the member at one target, with one connection after the other.
    ///
    /// Each connection reads the `run_id` again.
    async fn stay(&self, target: &Target) {
        let mut failures = 0;
        loop {
            let probed = match self.connect_admin(target).await {
                Ok(admin) => {
                    self.note_connected(&admin);
                    self.probe(admin, target).await
                }
                Err(error) => Err(error),
            };
            match probed {
                Ok(()) => failures = 0,
                Err(MemberError::Busy) if !self.plan.is_external() => {
                    busy::end_script_at(self, target).await;
                    sleep(self.pause()).await;
                }
                // The process is alive, and members of this kind load only little data.
                Err(error @ (MemberError::Busy | MemberError::Loading)) => {
                    self.note_missed(&self.unanswered(&error));
                    sleep(RETRY_PERIOD).await;
                }
                Err(error) => {
                    tracing::trace!(member = %self.name, %error, "admin connection");
                    self.note_missed(&self.unanswered(&error));
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
        let connect = |endpoint| AdminConnection::connect(endpoint, self.shared.machine.clone(), ADMIN_DEADLINE);
        match (connect(&target.admin).await, &target.other_password) {
            (Err(MemberError::Refused), Some(password)) => {
                let admin = Endpoint { password: password.clone(), ..target.admin.clone() };
                AdminConnection::connect(&admin, self.shared.machine.clone(), ADMIN_DEADLINE).await
            }
            (connected, _) => connected,
        }
    }

    fn note_failure(&self, error: MemberError) {
        let news = error == MemberError::Refused && self.state.lock().failure.as_ref() != Some(&error);
        self.state.lock().failure = Some(error);
        if news {
            self.shared.announce();
        }
    }

    pub(super) fn note_connected(&self, admin: &AdminConnection) {
        let mut state = self.state.lock();
        state.failure = None;
        state.certificate = admin.certificate().map(|certificate| (admin.run_id().clone(), certificate));
    }

    /// Probes until the connection ends.
    ///
    /// The end of a connection alone proves nothing, because a leader cuts the connections of other replicas. If the process is gone, the
    /// next attempt to connect fails.
    ///
    /// # Errors
    /// If the member refused a probe, or if it answered none.
    async fn probe(&self, mut admin: AdminConnection, target: &Target) -> Result<(), MemberError> {
        let (mut has_rights, mut was_observed) = (false, false);
        loop {
            {
                let _turn = self.turn.lock().await;
                let users = self.state.lock().asked_about(&target.users, admin.run_id());
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                match admin.observe(&users).await {
                    Ok(observation) => {
                        let is_full = observation.load.is_full();
                        was_observed = true;
                        self.note_observation(&target.pod_uid, observation);
                        if self.plan.is_external() {
                            has_rights = has_rights || external_link::check_rights(self, &mut admin).await;
                            if has_rights {
                                external_link::read_record(self, &mut admin).await;
                            }
                        } else {
                            busy::note_full(self, is_full);
                        }
                    }
                    Err(MemberError::Busy) if !self.plan.is_external() => busy::end_script(self, &mut admin).await,
                    Err(error @ (MemberError::Busy | MemberError::Loading)) => {
                        self.note_missed(&self.unanswered(&error))
                    }
                    Err(MemberError::Unreachable(_) | MemberError::TimedOut) if was_observed => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
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
        let news = {
            let mut state = self.state.lock();
            if state.pod_uid.as_deref() != Some(pod_uid) {
                return false;
            }
            let before = state.processes.last().filter(|_| state.processes.answers()).cloned();
            let same = state.observation.as_ref().is_some_and(|before| is_unchanged(before, &observation));
            state.processes.observe(&observation.run_id, users, self.now());
            state.observation = Some(observation);
            before.as_ref() != state.processes.last() || !same || stepped
        };
        if news {
            self.shared.announce();
        }
        true
    }

    pub(super) fn lost(&self) {
        self.shared.clocks.lost(&self.name);
        let news = {
            let mut state = self.state.lock();
            let answered = state.processes.answers();
            state.processes.lost(self.now());
            answered
        };
        if news {
            self.shared.announce();
        }
    }
}

/// Whether all inputs of decisions are unchanged.
fn is_unchanged(one: &Observation, other: &Observation) -> bool {
    let keys = |observed: &Observation| {
        // The averages are rounded, because exact ones would change at each probe.
        (observed.endless_keys() > 0, observed.keyspace.average_ttl.as_secs().checked_ilog2())
    };
    (&one.open_users, one.is_master, &one.maxmemory_policy, keys(one))
        == (&other.open_users, other.is_master, &other.maxmemory_policy, keys(other))
}
