//! A member that scripts keep from voting (rule 11): they are ended, a client that sends one after the other is shut out, and a member
//! that neither frees is stuck: nothing but its end helps.

use std::time::Duration;

use super::inspections::{Inspections, note_shut_out};
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
/// So long scripts are ended one after the other before anything else is done to the member.
const ROUND: Duration = Duration::from_secs(2);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(20);
/// For how long after a script was ended the link looks for its sender.
/// The sender may have closed its connection and come again.
const SOUGHT_FOR: Duration = Duration::from_secs(60);
/// So often it is tried to shut out a client whose next script begins at once: it is a race.
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

impl Inspections {
    /// Whether scripts have kept the member busy for so long that only its end helps.
    ///
    /// It may be one script, or several in a row.
    pub(super) fn is_stuck(&self, now: Monotonic) -> bool {
        self.busy.is_some_and(|busy| busy.is_stuck(now))
    }

    /// How long to wait until the next look.
    pub(super) fn pause(&self) -> Duration {
        if self.busy.is_some() { PAUSE } else { PROBE_PERIOD }
    }

    /// What became of an attempt to end a script. Whether the member is stuck: again and again, since its turn to be restarted may come
    /// later.
    fn note_busy(&mut self, outcome: &Result<ScriptKill, MemberError>, now: Monotonic) -> bool {
        let unkillable = match outcome {
            Ok(ScriptKill::Killed) => false,
            Err(MemberError::Other(code)) if code == "UNKILLABLE" => true,
            Ok(ScriptKill::NotBusy) => {
                self.busy = None;
                return false;
            }
            Err(_) => return false,
        };
        let busy = Busy::after(self.busy, unkillable, now);
        (self.busy, self.senders_sought) = (Some(busy), Some(now + SOUGHT_FOR));
        busy.is_stuck(now)
    }
}

/// Ends the script that keeps a new connection from being of use.
pub(super) async fn end_script_at(link: &MemberLink, target: &Target) {
    let outcome = AdminConnection::kill_busy_script(&target.admin, link.machine.clone(), ADMIN_DEADLINE).await;
    note(link, &outcome);
}

/// Ends scripts until none runs, and shuts out who has sent one after the other.
pub(super) async fn end_scripts(link: &MemberLink, admin: &mut AdminConnection) {
    let began = link.now();
    loop {
        let outcome = admin.end_script().await;
        note(link, &outcome.as_ref().map(|(killed, _)| *killed).map_err(Clone::clone));
        let is_over = link.now().since(began) >= ROUND;
        match outcome {
            Ok((_, Some(senders))) => return shut_out_sender(link, admin, &senders).await,
            Ok((ScriptKill::Killed, None)) if !is_over => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Looks for the senders of scripts that were ended on this member, when it serves others again.
///
/// They may still be connected, or connected again.
pub(super) async fn look_for_senders(link: &MemberLink, admin: &mut AdminConnection) {
    let now = link.now();
    if link.seen().looks.senders_sought.is_some_and(|until| now < until) {
        end_scripts(link, admin).await;
    }
}

fn note(link: &MemberLink, outcome: &Result<ScriptKill, MemberError>) {
    let now = link.now();
    let (stuck, news) = {
        let looks = &mut link.seen().looks;
        (looks.note_busy(outcome, now), looks.note_script(outcome, now))
    };
    if let Some(news) = news {
        tracing::warn!(member = %link.name, outcome = ?news, "member was busy with a script");
    }
    if stuck || news.is_some() {
        link.announce();
    }
}

async fn shut_out_sender(link: &MemberLink, admin: &mut AdminConnection, senders: &Senders) {
    let Some(user) = senders.worst().filter(|_| link.seen().leads(admin.run_id())) else { return };
    for _ in 0..ATTEMPTS {
        match admin.shut_out(user).await {
            Ok(()) => {
                link.seen().looks.senders_sought = None;
                return note_shut_out(link, user, Strain::Time);
            }
            Err(MemberError::Busy) => drop(admin.script_kill().await),
            Err(_) => return,
        }
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
