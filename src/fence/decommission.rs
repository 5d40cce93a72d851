//! Decides when a deleted quorum, or a single member that leaves, can go.
//!
//! Its members must be unable to vote, and their promises must have expired. A user can create a quorum of the same
//! name immediately, with shorter fences. No step needs a connection to Redis. The same evidence as for a predecessor proves
//! the end of an unreachable member, and its promises expire on the leader's own clock.

use std::time::Duration;

use super::{Reach, Record, Users, Verdict};
use crate::time::Monotonic;

/// The input of a decision about the end of one member.
#[derive(Clone, Debug)]
pub struct EndInput<'a> {
    /// Now.
    pub now: Monotonic,
    /// The published record.
    pub record: &'a Record,
    /// The connection state of the member at this replica.
    pub reach: &'a Reach,
    /// The verdict on [`Record::can_be_open`], for answering and silent processes.
    pub verdict: &'a Verdict,
    /// How long a promise can live.
    pub rejoin_delay: Duration,
    /// When this leader confirmed that [`Record::can_be_open`] is closed.
    /// It stays closed even if it does not answer.
    pub closed_since: Option<Monotonic>,
    /// Since when this replica has known that no process of the member can vote.
    /// It is set in a quorum that is being deleted and has voted. It is `None` where this decision does not wait for promises,
    /// because the fences of a remaining quorum do that.
    pub harmless_since: Option<Monotonic>,
}

/// The next step towards the end of one member.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndStep {
    /// Record it as leaving, then close it.
    Close,
    /// It is closed, and its promises expire at this moment.
    Wait {
        /// The moment.
        until: Monotonic,
    },
    /// It is possibly open, and no operator can reach it to close it.
    Unconfirmed {
        /// When evidence can be complete.
        until: Option<Monotonic>,
    },
    /// All its promises have expired, and it can make no other.
    Ended,
}

/// Decides the next step towards the end of one member.
pub fn decide_end(input: &EndInput<'_>) -> EndStep {
    let threat = input.record.can_be_open();
    if let Reach::Answering(answering) = input.reach {
        let is_threat = threat.is_some_and(|process| process.run_id == answering.run_id);
        if answering.users == Users::Open || (is_threat && input.closed_since.is_none()) {
            return EndStep::Close;
        }
    }
    let since = match (threat, input.verdict, input.closed_since) {
        (None, ..) | (Some(_), Verdict::None | Verdict::Dead(_), _) => match input.harmless_since {
            Some(since) => input.closed_since.map_or(since, |closed| closed.min(since)),
            None => return EndStep::Ended,
        },
        (Some(_), Verdict::Unconfirmed { .. }, Some(closed)) => closed,
        (Some(_), Verdict::Unconfirmed { until }, None) => return EndStep::Unconfirmed { until: *until },
    };
    let until = since + input.rejoin_delay;
    if input.now < until { EndStep::Wait { until } } else { EndStep::Ended }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{Evidence, State, tests};
    use crate::tests::monotonic as at;

    fn admitted(name: &str) -> Record {
        tests::record(State::Admitted, name)
    }

    fn answering(name: &str, users: Users) -> Reach {
        tests::answering(name, 1_000, users)
    }

    fn input<'a>(record: &'a Record, reach: &'a Reach, verdict: &'a Verdict, now: u64) -> EndInput<'a> {
        let (now, rejoin_delay) = (at(now), Duration::from_secs(30));
        EndInput { now, record, reach, verdict, rejoin_delay, closed_since: None, harmless_since: None }
    }

    fn end(record: &Record, reach: &Reach, verdict: &Verdict, closed: Option<u64>, now: u64) -> EndStep {
        decide_end(&EndInput { closed_since: closed.map(at), ..input(record, reach, verdict, now) })
    }

    /// The end of a member in a quorum that is being deleted.
    fn end_for_good(record: &Record, verdict: &Verdict, closed: Option<u64>, harmless: u64, now: u64) -> EndStep {
        let (closed_since, harmless_since) = (closed.map(at), Some(at(harmless)));
        decide_end(&EndInput { closed_since, harmless_since, ..input(record, &Reach::NotRunning, verdict, now) })
    }

    const DOUBT: Verdict = Verdict::Unconfirmed { until: None };

    #[test]
    fn a_closed_member_ends_when_its_promises_have_expired() {
        let record = admitted("a");
        assert_eq!(end(&record, &answering("a", Users::Open), &DOUBT, None, 100), EndStep::Close);
        let unconfirmed = end(&record, &answering("a", Users::Closed), &DOUBT, None, 100);
        assert_eq!(unconfirmed, EndStep::Close, "not confirmed by this leader");
        for reach in [answering("a", Users::Closed), Reach::Lost { since: at(101) }, Reach::NotRunning] {
            assert_eq!(end(&record, &reach, &DOUBT, Some(100), 129), EndStep::Wait { until: at(130) });
            assert_eq!(end(&record, &reach, &DOUBT, Some(100), 130), EndStep::Ended);
        }
        let opened = end(&record, &answering("a", Users::Open), &DOUBT, Some(100), 110);
        assert_eq!(opened, EndStep::Close, "an administrator opened it");
    }

    #[test]
    fn a_member_that_cannot_be_closed_ends_only_with_evidence() {
        let record = admitted("a");
        for reach in [Reach::Lost { since: at(2) }, Reach::NotRunning, answering("b", Users::Closed)] {
            assert_eq!(end(&record, &reach, &DOUBT, None, 1_000_000), EndStep::Unconfirmed { until: None });
            assert_eq!(end(&record, &reach, &Verdict::Dead(Evidence::Declared), None, 3), EndStep::Ended);
        }
    }

    #[test]
    fn a_quorum_outlasts_the_promises_of_its_dead_members() {
        let (record, dead) = (admitted("a"), Verdict::Dead(Evidence::Declared));
        // A new quorum of this name with a smaller maxTTL could vote while a promise of 29 s is alive.
        assert_eq!(end_for_good(&record, &dead, None, 100, 101), EndStep::Wait { until: at(130) });
        assert_eq!(end_for_good(&record, &dead, None, 100, 130), EndStep::Ended);
        // The death was recorded before the deletion, or the member had just restarted.
        assert_eq!(end_for_good(&Record::default(), &Verdict::None, None, 100, 129), EndStep::Wait { until: at(130) });
        assert_eq!(end_for_good(&Record::default(), &Verdict::None, None, 100, 130), EndStep::Ended);
        // The member was closed before it died, so it made no promise after that.
        assert_eq!(end_for_good(&record, &dead, Some(90), 100, 119), EndStep::Wait { until: at(120) });
        assert_eq!(end_for_good(&record, &dead, Some(90), 100, 120), EndStep::Ended);
        // If its death is unknown, the leader waits for that first.
        assert_eq!(end_for_good(&record, &DOUBT, None, 100, 1_000), EndStep::Unconfirmed { until: None });
    }

    #[test]
    fn a_member_that_was_never_open_ends_at_once() {
        assert_eq!(end(&Record::default(), &Reach::NotRunning, &Verdict::None, None, 1), EndStep::Ended);
        assert_eq!(end(&Record::default(), &answering("a", Users::Closed), &Verdict::None, None, 1), EndStep::Ended);
        assert_eq!(end(&Record::default(), &answering("a", Users::Open), &Verdict::None, None, 1), EndStep::Close);
    }
}
