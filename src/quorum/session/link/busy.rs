//! A member that serves no client (rule 11): the outcome of an attempt to end a script, and when a process counts as stuck.

use std::time::Duration;

use super::{MemberLink, PROBE_PERIOD};
use crate::quorum::model::events::QuorumEvent;
use crate::redlock::MemberError;
use crate::time::Monotonic;

/// How long a script that has written can run before its process is ended.
///
/// Its member does not vote during that time.
const UNKILLABLE_FOR: Duration = Duration::from_secs(5);
/// How long a member can serve no client before its process is ended.
///
/// Such a state can end without a restart, when the scripts end or the process frees memory or connections. The process keeps
/// its locks until then, but a new process has forgotten them.
const REFUSES_FOR: Duration = Duration::from_secs(60);
/// Maximum age of an observation that still counts.
const LONGEST_AGE: Duration = Duration::from_secs(3);
/// The pause between two attempts to end a script.
const PAUSE: Duration = Duration::from_millis(20);
/// The minimum time between two Events about the same outcome.
const EVENT_PERIOD: Duration = Duration::from_secs(30);

/// Why a member serves no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A script that can be ended.
    Script,
    /// A script that has written, so it ends only when it returns or its process ends.
    Unkillable,
    /// Its connections or its memory are used up.
    Full,
}

/// A time in which the member served no client, as this replica observed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    since: Monotonic,
    last: Monotonic,
    cause: Cause,
}

impl Refusal {
    fn after(before: Option<Self>, cause: Cause, now: Monotonic) -> Self {
        let before = before.filter(|before| now.since(before.last) < LONGEST_AGE);
        Self { since: before.map_or(now, |before| before.since), last: now, cause }
    }

    fn is_stuck(&self, now: Monotonic) -> bool {
        let longest = if self.cause == Cause::Unkillable { UNKILLABLE_FOR } else { REFUSES_FOR };
        now.since(self.last) < LONGEST_AGE && self.last.since(self.since) >= longest
    }
}

/// The service of a member for clients, as its link observed it.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    refusal: Option<Refusal>,
    /// The last outcome with an Event, and its time.
    script: Option<(Cause, Monotonic)>,
}

impl Service {
    /// Whether the member has served no client for the maximum time, so that the operator must end it.
    pub(super) fn is_stuck(&self, now: Monotonic) -> bool {
        self.refusal.is_some_and(|refusal| refusal.is_stuck(now))
    }

    /// Whether the connections or the memory of the member are used up. It still serves its connections.
    pub(super) fn is_full(&self) -> bool {
        self.refusal.is_some_and(|refusal| refusal.cause == Cause::Full)
    }

    /// How long to wait until the next probe.
    pub(super) fn pause(&self) -> Duration {
        match self.refusal {
            Some(Refusal { cause: Cause::Script | Cause::Unkillable, .. }) => PAUSE,
            _ => PROBE_PERIOD,
        }
    }

    /// Takes an answer of the member. Returns whether the member is stuck.
    ///
    /// It stays stuck at each later observation, because the turn of the member can come later.
    fn note_full(&mut self, is_full: bool, now: Monotonic) -> bool {
        self.refusal = is_full.then(|| Refusal::after(self.refusal, Cause::Full, now));
        self.is_stuck(now)
    }

    /// Takes the outcome of an attempt to end a script. Returns whether an Event about it is due.
    fn note_script(&mut self, cause: Cause, now: Monotonic) -> bool {
        self.refusal = Some(Refusal::after(self.refusal, cause, now));
        let is_new = self.script.is_none_or(|(last, since)| last != cause || now.since(since) >= EVENT_PERIOD);
        if is_new {
            self.script = Some((cause, now));
        }
        is_new
    }
}

/// Takes an answer of the member, and announces the quorum if the member is stuck.
pub(super) fn note_full(link: &MemberLink, is_full: bool) {
    let now = link.now();
    let is_stuck = link.state.lock().service.note_full(is_full, now);
    if is_stuck {
        link.shared.announce();
    }
}

/// Takes the outcome of an attempt to end a script, and publishes an Event about a new one.
///
/// Every replica publishes its own acts, because each can end a script.
pub(super) fn note_script(link: &MemberLink, outcome: &Result<(), MemberError>) {
    let member = link.name.to_string();
    let (cause, event) = match outcome {
        Ok(()) => (Cause::Script, QuorumEvent::ScriptKilled { member }),
        Err(MemberError::Other(code)) if code == "UNKILLABLE" => {
            (Cause::Unkillable, QuorumEvent::ScriptUnkillable { member, pod: link.plan.pod_name() })
        }
        // The script has ended, another replica was faster, or the member is gone, which its connection shows.
        Err(_) => return,
    };
    let now = link.now();
    let is_new = link.state.lock().service.note_script(cause, now);
    if is_new {
        tracing::warn!(quorum = %link.shared.quorum, member = %link.name, %event, "a member was busy with a script");
        // Without a receiver the session has ended.
        let _ = link.shared.events.send(event);
    }
    if link.is_stuck() {
        link.shared.announce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_stuck_when_it_has_served_no_client_for_a_while() {
        let at = |millis| Monotonic::default() + Duration::from_millis(millis);
        let until = |cause, end: u64| {
            (0..=end).step_by(500).fold(None, |before, millis| Some(Refusal::after(before, cause, at(millis)))).unwrap()
        };
        assert!(!until(Cause::Unkillable, 4_500).is_stuck(at(4_600)));
        assert!(until(Cause::Unkillable, 5_000).is_stuck(at(5_100)));
        assert!(!until(Cause::Unkillable, 5_000).is_stuck(at(8_000)), "nothing was observed since");
        for cause in [Cause::Script, Cause::Full] {
            assert!(!until(cause, 59_500).is_stuck(at(59_500)), "it can serve again");
            assert!(until(cause, 60_000).is_stuck(at(60_000)));
        }
        // The script of the first time can be ended, and the next one cannot.
        assert!(Refusal::after(Some(until(Cause::Script, 6_000)), Cause::Unkillable, at(6_500)).is_stuck(at(6_500)));
        // A pause between two refusals starts a new time.
        assert!(
            !Refusal::after(Some(until(Cause::Unkillable, 9_000)), Cause::Unkillable, at(12_000)).is_stuck(at(12_000))
        );
    }

    #[test]
    fn a_member_that_serves_for_a_moment_is_not_stuck() {
        let at = |seconds| Monotonic::default() + Duration::from_secs(seconds);
        let mut service = Service::default();
        for second in 0..60 {
            assert!(!service.note_full(true, at(second)), "{second} s");
        }
        assert!(service.note_full(true, at(60)) && service.is_stuck(at(60)));
        assert!(!service.note_full(false, at(61)) && !service.is_stuck(at(61)));
        assert!(!service.note_full(true, at(62)), "the time starts again");
        assert_eq!(service.pause(), PROBE_PERIOD);
    }
}
