//! When may a quorum that is being deleted go? Its members must be unable to vote, and what they promised must have expired:
//! a quorum of the same name may be made at once. Redis is never needed: a member that nobody can reach ends by the same
//! evidence as a predecessor.

use std::time::Duration;

use super::{Reach, Record, Users, Verdict};
use crate::time::Monotonic;

/// What the end of one member depends on.
#[derive(Clone, Debug)]
pub struct EndView<'a> {
    /// Now.
    pub now: Monotonic,
    /// What the status says.
    pub record: &'a Record,
    /// What this replica sees.
    pub reach: &'a Reach,
    /// What is known of [`Record::may_be_open`], whether or not it is the process that is seen.
    pub verdict: &'a Verdict,
    /// How long a promise can live.
    pub rejoin_delay: Duration,
    /// When this leader confirmed that [`Record::may_be_open`] is closed; it stays so, whether or not it answers.
    pub closed_since: Option<Monotonic>,
}

/// The next step towards the end of one member.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndStep {
    /// Record it as leaving, then close it.
    Close,
    /// Closed; its promises expire then.
    Wait {
        /// The moment.
        until: Monotonic,
    },
    /// It may be open, and nobody can close it.
    Unconfirmed {
        /// Where it was last.
        node: Option<String>,
        /// When evidence may be complete.
        until: Option<Monotonic>,
    },
    /// It can promise nothing any more.
    Ended,
}

/// Decides the next step towards the end of one member.
pub fn decide_end(view: &EndView<'_>) -> EndStep {
    let threat = view.record.may_be_open();
    if let Reach::Seen(sight) = view.reach {
        let is_threat = threat.is_some_and(|process| process.run_id == sight.run_id);
        if sight.users == Users::Open || (is_threat && view.closed_since.is_none()) {
            return EndStep::Close;
        }
    }
    match (threat, view.verdict, view.closed_since) {
        (None, ..) | (Some(_), Verdict::None | Verdict::Dead(_), _) => EndStep::Ended,
        (Some(_), Verdict::Unconfirmed { .. }, Some(closed)) => {
            let until = closed + view.rejoin_delay;
            if view.now < until { EndStep::Wait { until } } else { EndStep::Ended }
        }
        (Some(_), Verdict::Unconfirmed { node, until }, None) => {
            EndStep::Unconfirmed { node: node.clone(), until: *until }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{Evidence, Process, RunId, Sight, State};

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn admitted(name: &str) -> Record {
        let process = Process {
            run_id: RunId::new(name),
            pod_uid: "pod".into(),
            container_id: None,
            node_name: Some("n".into()),
        };
        Record {
            state: State::Admitted,
            reason: None,
            run_id: Some(RunId::new(name)),
            admitted: true,
            process: Some(process),
            predecessor: None,
        }
    }

    fn seen(name: &str, users: Users) -> Reach {
        Reach::Seen(Sight { run_id: RunId::new(name), first_seen: at(1), users, closed_since: None })
    }

    fn end(record: &Record, reach: &Reach, verdict: &Verdict, closed: Option<u64>, now: u64) -> EndStep {
        let rejoin_delay = Duration::from_secs(30);
        let closed_since = closed.map(at);
        decide_end(&EndView { now: at(now), record, reach, verdict, rejoin_delay, closed_since })
    }

    const DOUBT: Verdict = Verdict::Unconfirmed { node: None, until: None };

    #[test]
    fn a_member_ends_when_its_promises_have_expired_after_it_was_closed() {
        let record = admitted("a");
        assert_eq!(end(&record, &seen("a", Users::Open), &DOUBT, None, 100), EndStep::Close);
        assert_eq!(
            end(&record, &seen("a", Users::Closed), &DOUBT, None, 100),
            EndStep::Close,
            "not confirmed by this leader"
        );
        for reach in [seen("a", Users::Closed), Reach::Lost { since: at(101) }, Reach::NotRunning] {
            assert_eq!(end(&record, &reach, &DOUBT, Some(100), 129), EndStep::Wait { until: at(130) });
            assert_eq!(end(&record, &reach, &DOUBT, Some(100), 130), EndStep::Ended);
        }
        assert_eq!(end(&record, &seen("a", Users::Open), &DOUBT, Some(100), 110), EndStep::Close, "somebody opened it");
    }

    #[test]
    fn a_member_that_nobody_can_close_ends_by_evidence_only() {
        let record = admitted("a");
        for reach in [Reach::Lost { since: at(2) }, Reach::NotRunning, seen("b", Users::Closed)] {
            assert_eq!(end(&record, &reach, &DOUBT, None, 1_000_000), EndStep::Unconfirmed { node: None, until: None });
            assert_eq!(end(&record, &reach, &Verdict::Dead(Evidence::Declared), None, 3), EndStep::Ended);
        }
    }

    #[test]
    fn a_member_that_was_never_open_ends_at_once() {
        assert_eq!(end(&Record::default(), &Reach::NotRunning, &Verdict::None, None, 1), EndStep::Ended);
        assert_eq!(end(&Record::default(), &seen("a", Users::Closed), &Verdict::None, None, 1), EndStep::Ended);
        assert_eq!(end(&Record::default(), &seen("a", Users::Open), &Verdict::None, None, 1), EndStep::Close);
    }
}
