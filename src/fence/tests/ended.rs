//! Processes that are ended: whose clock was stepped, or that a script keeps busy.

use super::*;

#[test]
fn a_busy_process_is_ended_and_its_successor_waits() {
    let admitted = record(State::Admitted, "a");
    let step = |record: &Record, reach: &Reach, stuck| {
        let epoch_raised = false;
        decide(&FenceInput { must_restart: stuck, epoch_raised, ..input(90_000, record, reach, &Verdict::None, None) })
    };
    let write = FenceStep::WriteFenced { reason: Reason::Busy, rejoin_at: None, close: true };
    let open = answering("a", 0, Users::Open);
    // A busy process executes no command, so the leader neither raises the epoch nor closes the process first.
    assert_eq!(step(&admitted, &open, true), write);
    assert_eq!(step(&admitted, &open, false), FenceStep::RaiseEpoch, "not stuck yet, or another member is away");
    assert_eq!(step(&record(State::Fenced, "b"), &open, true), write, "open without an admission");
    assert_eq!(
        step(&record(State::Fenced, "a"), &answering("a", 0, Users::Closed), true),
        FenceStep::RaiseEpoch,
        "harmless"
    );
    let busy = admitted.after(write, Some(&process("a")), &Verdict::None);
    assert_eq!((busy.state, busy.reason, busy.admitted), (State::Fenced, Some(Reason::Busy), false));
    assert_eq!(busy.predecessor, Some(process("a")));
    // This holds even if the script has ended during that time, and for every leader.
    for reach in [answering("a", 0, Users::Open), answering("a", 0, Users::Closed)] {
        assert_eq!(step(&busy, &reach, false), FenceStep::RestartProcess);
    }
    // A new replica does not receive the `run_id` of a busy process.
    let (connecting, lost) = (Reach::Connecting { since: at(0) }, Reach::Lost { since: at(0) });
    for reach in [&connecting, &lost] {
        assert_eq!(step(&admitted, reach, true), write);
        assert_eq!(step(&busy, reach, true), FenceStep::RestartProcess);
        assert!(!matches!(step(&busy, reach, false), FenceStep::RestartProcess));
    }
    let unseen = admitted.after(write, None, &Verdict::None);
    assert_eq!((unseen.run_id.clone(), unseen.predecessor.clone()), (Some(run("a")), Some(process("a"))));
    assert_eq!(step(&busy, &Reach::NotRunning, true), FenceStep::WritePending);
    // The successor of the ended process.
    let next = busy.after(FenceStep::WritePending, None, &Verdict::None);
    let fresh = answering("b", 80_000, Users::Closed);
    let fence = decide_with(90_000, &next, &fresh, &unconfirmed_until(None), None);
    let waits = next.after(fence, Some(&process("b")), &unconfirmed_until(None));
    assert_eq!(waits.predecessor, Some(process("a")));
    let later = decide_with(900_000, &waits, &fresh, &unconfirmed_until(None), None);
    assert!(!matches!(later, FenceStep::Admit), "the previous process is not known to be dead: {later:?}");
}

#[test]
fn a_process_without_later_evidence_of_its_end_never_votes() {
    let step = |record: &Record, users, unreported| {
        decide(&FenceInput { unreported, ..input(90_000, record, &answering("a", 0, users), &Verdict::None, None) })
    };
    let fenced = record(State::Fenced, "a");
    assert_eq!(step(&fenced, Users::Closed, true), FenceStep::RestartProcess);
    assert_eq!(step(&fenced, Users::Closed, false), FenceStep::Admit);
    assert_eq!(
        step(&record(State::Admitted, "a"), Users::Open, true),
        FenceStep::Nothing,
        "it votes, and its container was known"
    );
    // The leader records and closes the process first.
    for users in [Users::Open, Users::Closed] {
        assert!(matches!(step(&record(State::Fenced, "b"), users, true), FenceStep::WriteFenced { .. }));
    }
}

#[test]
fn a_process_with_a_stepped_clock_is_ended_and_never_admitted() {
    let admitted = record(State::Admitted, "a");
    let jumped = |record: &Record, reach: &Reach, clock_jumped, now| {
        decide(&FenceInput { clock_jumped, ..input(now, record, reach, &Verdict::None, None) })
    };
    let open = answering("a", 0, Users::Open);
    let step = FenceStep::WriteFenced { reason: Reason::ClockJump, rejoin_at: None, close: true };
    assert_eq!(jumped(&admitted, &open, true, 90_000), step);
    // The leader had no connection at first. It detects the step when the connection is back.
    let unreachable = Record { state: State::Unreachable, ..admitted.clone() };
    assert_eq!(jumped(&unreachable, &open, true, 90_000), step);
    let fenced_a = admitted.after(step, Some(&process("a")), &Verdict::None);
    assert_eq!((fenced_a.state, fenced_a.reason, fenced_a.admitted), (State::Fenced, Some(Reason::ClockJump), false));
    assert_eq!(fenced_a.predecessor, Some(process("a")), "until its end is observed");
    // The next leader does not need to know the clock, and the time does not matter.
    let closed = answering("a", 0, Users::Closed);
    for now in [90_100, 900_000] {
        assert_eq!(jumped(&fenced_a, &closed, false, now), FenceStep::RestartProcess);
    }
    // The closing failed after the record was written.
    assert_eq!(jumped(&fenced_a, &open, false, 90_100), step);
    // The next process is fenced as after an ordinary restart.
    let reach = answering("b", 95_000, Users::Closed);
    assert_eq!(jumped(&fenced_a, &reach, false, 95_000), fenced(Reason::Restarted, 125_660, false));
}
