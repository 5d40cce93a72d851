//! A member that scripts keep from voting (rule 11): they are ended, whoever sends one after the other is shut out, and a member that
//! neither frees is stuck: nothing but its end helps.

use std::time::Duration;

use super::inspections::ShutOut;
use super::{ADMIN_DEADLINE, MemberLink, PROBE_PERIOD, Target};
use crate::redis_member::{AdminConnection, ScriptKill, Senders, Strain};
use crate::redlock::MemberError;
use crate::time::Monotonic;

/// A script that has written and runs for so long will hardly end by itself. Its member takes part in no vote meanwhile.
const UNKILLABLE_FOR: Duration = Duration::from_secs(5);
/// Scripts that can be ended, one after the other: a client may have sent some hundred at once. When the last one has been ended, the
/// member still has its locks, and it says who has sent them; a new process has forgotten both.
const ENDED_FOR: Duration = Duration::from_secs(30);
/// What was said so long ago says nothing of now.
const OLD: Duration = Duration::from_secs(3);
/// So long scripts are ended one after the other before anybody else has a turn with the member.
const ROUND: Duration = Duration::from_secs(2);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(20);
/// So long after a script was ended the link looks for its sender, who may have closed its connection and come again.
const SOUGHT_FOR: Duration = Duration::from_secs(60);
/// So often it is tried to shut out a client whose next script begins at once. Whoever is quicker wins.
const ATTEMPTS: usize = 20;

/// A member that has been busy, with no moment in between in which it served others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    since: Monotonic,
    last: Monotonic,
    unkillable: bool,
}

impl Busy {
    fn after(before: Option<Self>, unkillable: bool, now: Monotonic) -> Self {
        let before = before.filter(|before| now.since(before.last) < OLD);
        Self { since: before.map_or(now, |before| before.since), last: now, unkillable }
    }

    fn is_stuck(&self, now: Monotonic) -> bool {
        let patience = if self.unkillable { UNKILLABLE_FOR } else { ENDED_FOR };
        now.since(self.last) < OLD && self.last.since(self.since) >= patience
    }
}

impl MemberLink {
    /// Whether a script, or one after the other, has kept the member busy for so long that nothing but its end helps.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let now = self.machine.clock.monotonic();
        self.seen().looks.busy.is_some_and(|busy| busy.is_stuck(now))
    }

    /// How long to wait until the next look.
    pub(super) fn pause(&self) -> Duration {
        if self.seen().looks.busy.is_some() { PAUSE } else { PROBE_PERIOD }
    }

    /// The member has answered to a question that a busy one refuses.
    pub(super) fn note_free(&self) {
        self.seen().looks.busy = None;
    }

    /// Ends the script that keeps a new connection from being of use.
    pub(super) async fn end_script_at(&self, target: &Target) {
        let outcome = AdminConnection::kill_busy_script(&target.admin, self.machine.clone(), ADMIN_DEADLINE).await;
        self.note_busy(&outcome);
        self.note_script(&outcome);
    }

    /// Ends scripts until none runs, and shuts out who has sent one after the other.
    pub(super) async fn end_scripts(&self, admin: &mut AdminConnection) {
        let began = self.machine.clock.monotonic();
        loop {
            let outcome = admin.end_script().await;
            let killed = outcome.as_ref().map(|(killed, _)| *killed).map_err(Clone::clone);
            self.note_busy(&killed);
            self.note_script(&killed);
            let is_over = self.machine.clock.monotonic().since(began) >= ROUND;
            match outcome {
                Ok((_, Some(senders))) => return self.shut_out_sender(admin, &senders).await,
                Ok((ScriptKill::Killed, None)) if !is_over => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// After scripts were ended on this member, when it serves others again: their sender is connected still, perhaps, or again.
    pub(super) async fn look_for_senders(&self, admin: &mut AdminConnection) {
        let now = self.machine.clock.monotonic();
        if self.seen().looks.senders_sought.is_some_and(|until| now < until) {
            self.end_scripts(admin).await;
        }
    }

    fn note_busy(&self, outcome: &Result<ScriptKill, MemberError>) {
        let unkillable = match outcome {
            Ok(ScriptKill::Killed) => false,
            Err(MemberError::Other(code)) if code == "UNKILLABLE" => true,
            Ok(ScriptKill::NotBusy) => return self.note_free(),
            Err(_) => return,
        };
        let now = self.machine.clock.monotonic();
        let is_stuck = {
            let looks = &mut self.seen().looks;
            let busy = Busy::after(looks.busy, unkillable, now);
            looks.busy = Some(busy);
            looks.senders_sought = Some(now + SOUGHT_FOR);
            busy.is_stuck(now)
        };
        if is_stuck {
            // Again and again: its turn to be restarted may come later.
            self.announce();
        }
    }

    async fn shut_out_sender(&self, admin: &mut AdminConnection, senders: &Senders) {
        let Some(user) = senders.worst().filter(|_| self.leads(admin.run_id())) else { return };
        for _ in 0..ATTEMPTS {
            match admin.shut_out(user).await {
                Ok(()) => {
                    self.seen().looks.senders_sought = None;
                    return self.note_shut_out(user, Strain::Time);
                }
                Err(MemberError::Busy) => drop(admin.script_kill().await),
                Err(_) => return,
            }
        }
    }

    /// A client is shut out of the member for a while.
    pub(super) fn note_shut_out(&self, user: &str, strain: Strain) {
        tracing::warn!(member = %self.name, user, %strain, "client shut out: it used most of what the member has");
        let until = self.machine.clock.monotonic() + super::inspections::SHUT_OUT;
        self.seen().looks.shut_out.push(ShutOut { user: user.to_owned(), strain, until });
        self.announce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_stuck_when_it_has_served_nobody_for_some_seconds() {
        let at = |millis| Monotonic::default() + Duration::from_millis(millis);
        let busy_until = |unkillable, end: u64| {
            (0..=end).step_by(500).fold(None, |busy, millis| Some(Busy::after(busy, unkillable, at(millis)))).unwrap()
        };
        assert!(!busy_until(true, 4_500).is_stuck(at(4_600)));
        assert!(busy_until(true, 5_000).is_stuck(at(5_100)));
        assert!(!busy_until(true, 5_000).is_stuck(at(8_000)), "nobody has looked since");
        assert!(!busy_until(false, 29_500).is_stuck(at(29_500)), "they are being ended");
        assert!(busy_until(false, 30_000).is_stuck(at(30_000)));
        // One that can be ended, and then one that cannot.
        assert!(Busy::after(Some(busy_until(false, 6_000)), true, at(6_500)).is_stuck(at(6_500)));
        // A while ago is another time.
        assert!(!Busy::after(Some(busy_until(true, 9_000)), true, at(12_000)).is_stuck(at(12_000)));
    }
}
