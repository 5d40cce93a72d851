//! The fence of an external master (`docs/dev/rules.md`, rule 8). The operator can neither open nor close such a process. Its votes count
//! for this operator only because of the record. So a predecessor cannot stay open, and the fence does not wait for its death: after the
//! record its votes do not count here.

use std::time::Duration;

use super::decommission::EndStep;
use super::record::{Record, State};
use super::{
    Evidence, FenceInput, FenceStep, Reach, Reason, RunId, Verdict, count_from, decide_silent, fenced,
    first_or_restarted, record_state,
};
use crate::time::Monotonic;

/// The verdict on a predecessor: the fence does not wait for its death.
pub const PREDECESSOR: Verdict = Verdict::Dead(Evidence::Discounted);

/// The verdict on the predecessor for a record that is written because of the `current` process.
///
/// A process that is fenced while it runs, or while it is silent, is not gone. A replica that has not read the new
/// record still counts its votes.
pub fn predecessor(record: &Record, current: Option<&RunId>) -> Verdict {
    let before = record.can_be_open().map(|process| &process.run_id);
    if before.zip(current).is_some_and(|(before, current)| before != current) { PREDECESSOR } else { Verdict::None }
}

/// Decides the next step for one external member. No step opens, closes or ends a process.
pub fn decide_external(input: &FenceInput<'_>) -> FenceStep {
    match input.reach {
        Reach::Connecting { since } if input.record.admitted => decide_silent(input.record, *since, input.now),
        Reach::NotRunning | Reach::Connecting { .. } => {
            record_state(input.record, State::Starting, FenceStep::WriteStarting)
        }
        Reach::Lost { since } => decide_silent(input.record, *since, input.now),
        Reach::Answering(answering) if input.record.admits(&answering.run_id) => standing(input),
        Reach::Answering(answering) => {
            let recorded =
                input.record.state == State::Fenced && input.record.run_id.as_ref() == Some(&answering.run_id);
            let may_vote_at = count_from(answering, input.fenced_since) + input.rejoin_delay;
            if !recorded {
                // The votes of the previous process count until this is recorded.
                let may_vote_at = if input.record.admitted { input.now + input.rejoin_delay } else { may_vote_at };
                return fenced(first_or_restarted(input.record), Some(may_vote_at), false);
            }
            match input.unfit {
                true => FenceStep::Wait { until: None },
                false if input.now < may_vote_at => FenceStep::Wait { until: Some(may_vote_at) },
                false => FenceStep::Admit,
            }
        }
    }
}

/// Decides about an answering process that the record admits.
fn standing(input: &FenceInput<'_>) -> FenceStep {
    match input.record.state {
        // The operator cannot end the process. Keys that the step shortened are lost, and keys that it prolonged only refuse other holders.
        // The process waits like a restarted one, and is then judged by its new time.
        _ if input.clock_jumped => fenced(Reason::ClockJump, Some(input.now + input.rejoin_delay), false),
        _ if input.unfit => fenced(Reason::Restarted, None, false),
        // As after a restart: its wait for the forgotten promises starts at the record.
        _ if input.forgot => fenced(Reason::Restarted, Some(input.now + input.rejoin_delay), false),
        State::Admitted => FenceStep::Nothing,
        _ => FenceStep::WriteAdmittedAgain,
    }
}

/// Decides the next step of an external member that leaves.
///
/// First the operator takes its admission from the record. Then the promises that were made with it expire. `harmless_since` is since
/// when this replica has known that the votes of no process of the member count. It is `None` in a quorum that remains, because
/// the pause of the change has waited for those promises.
pub fn decide_external_end(
    record: &Record,
    harmless_since: Option<Monotonic>,
    now: Monotonic,
    delay: Duration,
) -> EndStep {
    match harmless_since.map(|since| since + delay) {
        _ if record.admitted => EndStep::Close,
        Some(until) if now < until => EndStep::Wait { until },
        _ => EndStep::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::tests::{self, process, record};
    use crate::fence::{UNREACHABLE_AFTER, Users};
    use crate::tests::monotonic as at;

    const DELAY: Duration = Duration::from_secs(30);

    fn answering(name: &str, first_observed: u64) -> Reach {
        tests::answering(name, first_observed * 1_000, Users::Closed)
    }

    fn input<'a>(now: u64, record: &'a Record, reach: &'a Reach, since: Option<u64>) -> FenceInput<'a> {
        let (now, rejoin_delay, fenced_since) = (at(now), DELAY, since.map(at));
        let usual = tests::input(0, record, reach, &Verdict::None, None);
        FenceInput { now, rejoin_delay, fenced_since, epoch_raised: false, ..usual }
    }

    fn decide(now: u64, record: &Record, reach: &Reach, unfit: bool) -> FenceStep {
        decide_external(&FenceInput { unfit, ..input(now, record, reach, None) })
    }

    fn plainly(now: u64, record: &Record, reach: &Reach) -> FenceStep {
        decide(now, record, reach, false)
    }

    #[test]
    fn the_first_wait_is_never_skipped() {
        let reach = answering("a", 10);
        let step = plainly(10, &Record::default(), &reach);
        assert_eq!(step, fenced(Reason::FirstStart, Some(at(40)), false));
        let next = Record::default().after(step, Some(&process("a")), &PREDECESSOR);
        assert_eq!(plainly(39, &next, &reach), FenceStep::Wait { until: Some(at(40)) });
        assert_eq!(plainly(40, &next, &reach), FenceStep::Admit);
        let admitted = next.after(FenceStep::Admit, Some(&process("a")), &PREDECESSOR);
        assert_eq!(plainly(41, &admitted, &reach), FenceStep::Nothing);
    }

    #[test]
    fn a_lost_vote_delays_the_admission_from_its_record_on() {
        for (case, successor, forgot, jumped, reason) in [
            ("a restart", "b", false, false, Reason::Restarted),
            ("a process that forgot without a restart", "a", true, false, Reason::Restarted),
            ("a step of its clock", "a", false, true, Reason::ClockJump),
        ] {
            let (admitted, reach) = (record(State::Admitted, "a"), answering(successor, 1));
            let step = |record: &Record, now, fenced_since: Option<u64>, clock_jumped| {
                decide_external(&FenceInput { forgot, clock_jumped, ..input(now, record, &reach, fenced_since) })
            };
            let fence = step(&admitted, 50, None, jumped);
            assert_eq!(fence, fenced(reason, Some(at(80)), false), "{case}");
            let next = admitted.after(fence, Some(&process(successor)), &PREDECESSOR);
            assert_eq!((next.admitted, &next.predecessor), (false, &None), "{case}: the admission waits for no death");
            // Every replica starts the wait when it observes that the previous process does not count.
            assert!(next.restarts_count(&admitted, &RunId::new(successor)), "{case}");
            assert_eq!(step(&next, 79, Some(50), false), FenceStep::Wait { until: Some(at(80)) }, "{case}");
            assert_eq!(step(&next, 80, Some(50), false), FenceStep::Admit, "{case}");
        }
    }

    #[test]
    fn a_silent_member_keeps_its_admission() {
        let admitted = record(State::Admitted, "a");
        for reach in [Reach::Lost { since: at(10) }, Reach::Connecting { since: at(10) }] {
            let until = at(10) + UNREACHABLE_AFTER;
            assert_eq!(plainly(11, &admitted, &reach), FenceStep::Wait { until: Some(until) });
            assert_eq!(plainly(12, &admitted, &reach), FenceStep::WriteUnreachable);
        }
        let silent = admitted.after(FenceStep::WriteUnreachable, None, &PREDECESSOR);
        assert!(silent.admits(&RunId::new("a")));
        assert_eq!(plainly(99, &silent, &answering("a", 1)), FenceStep::WriteAdmittedAgain);
        assert_eq!(plainly(0, &Record::default(), &Reach::Connecting { since: at(0) }), FenceStep::WriteStarting);
    }

    #[test]
    fn a_running_fenced_process_can_be_open_until_its_successor() {
        let (a, b) = (RunId::new("a"), RunId::new("b"));
        let admitted = record(State::Admitted, "a");
        let after = |record: &Record, step, current: Option<&str>| {
            let run_id = current.map(RunId::new);
            record.after(step, current.map(process).as_ref(), &predecessor(record, run_id.as_ref()))
        };
        let fenced_alive = after(&admitted, fenced(Reason::ClockJump, Some(at(80)), false), Some("a"));
        assert_eq!(fenced_alive.can_be_open().map(|process| &process.run_id), Some(&a));
        assert!(fenced_alive.restarts_count(&admitted, &a), "and waits only for its own promises");
        let silent = after(&fenced_alive, FenceStep::WriteStarting, None);
        assert_eq!(silent.can_be_open().map(|process| &process.run_id), Some(&a));
        let next = after(&silent, fenced(Reason::Restarted, Some(at(90)), false), Some("b"));
        assert_eq!((next.can_be_open(), &next.run_id), (None, &Some(b)));
        let again = after(&fenced_alive, FenceStep::Admit, Some("a"));
        assert_eq!((again.admits(&a), again.predecessor), (true, None));
    }

    #[test]
    fn a_process_that_can_lose_data_loses_its_admission() {
        let reach = answering("a", 1);
        let step = decide(50, &record(State::Admitted, "a"), &reach, true);
        assert_eq!(step, fenced(Reason::Restarted, None, false));
        assert_eq!(decide(90, &record(State::Fenced, "a"), &reach, true), FenceStep::Wait { until: None });
    }

    #[test]
    fn the_end_of_a_quorum_waits_until_its_promises_have_run_out() {
        let end = |record: &Record, since: Option<u64>, now| decide_external_end(record, since.map(at), at(now), DELAY);
        let admitted = record(State::Admitted, "a");
        assert_eq!(end(&admitted, None, 10), EndStep::Close);
        let left = admitted.after(fenced(Reason::Leaving, None, false), Some(&process("a")), &PREDECESSOR);
        // A process that has just restarted is like one that left. Its earlier promise is alive, and a user can create a quorum of this
        // name with shorter fences.
        for record in [left, record(State::Fenced, "b")] {
            assert_eq!(end(&record, Some(10), 39), EndStep::Wait { until: at(40) });
            assert_eq!(end(&record, Some(10), 40), EndStep::Ended);
            assert_eq!(end(&record, None, 10), EndStep::Ended, "the quorum remains, or never voted");
        }
        assert_eq!(end(&Record::default(), None, 10), EndStep::Ended);
    }
}
