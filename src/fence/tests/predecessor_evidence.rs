use super::*;

#[test]
fn an_unconfirmed_predecessor_holds_its_successor_back() {
    let mut record = record(State::Fenced, "b");
    record.predecessor = Some(process("a"));
    let reach = answering("b", 1_000, Users::Closed);
    let doubt = unconfirmed_until(None);
    let early = decide_with(2_000, &record, &reach, &doubt, None);
    assert_eq!(early, FenceStep::Wait { until: Some(at(6_000)) }, "the pod status lags a moment");
    let unconfirmed = FenceStep::WriteFenced { reason: Reason::PredecessorUnconfirmed, rejoin_at: None, close: false };
    assert_eq!(decide_with(6_000, &record, &reach, &doubt, None), unconfirmed);
    let record = record.after(unconfirmed, Some(&process("b")), &doubt);
    assert_eq!(record.predecessor, Some(process("a")));
    for now in [6_001, 40_000, 10_000_000] {
        assert_eq!(
            decide_with(now, &record, &reach, &doubt, None),
            FenceStep::Wait { until: None },
            "time proves nothing"
        );
    }
    let ready = unconfirmed_until(Some(130_000));
    assert_eq!(decide_with(40_000, &record, &reach, &ready, None), FenceStep::Wait { until: Some(at(130_000)) });
}

#[test]
fn a_pod_with_an_unrecorded_former_process_is_deleted_later() {
    let mut record = record(State::Fenced, "b");
    let former = Process { pod_uid: process("b").pod_uid, ..process("a") };
    (record.reason, record.predecessor) = (Some(Reason::PredecessorUnconfirmed), Some(former));
    let (reach, doubt, successor) = (answering("b", 1_000, Users::Closed), unconfirmed_until(None), process("b"));
    let step = |now| decide(&FenceInput { process: Some(&successor), ..input(now, &record, &reach, &doubt, None) });
    assert_eq!(step(6_001), FenceStep::Wait { until: Some(at(31_000)) }, "the kubelet can be late");
    assert_eq!(step(31_000), FenceStep::RestartProcess);
    // A former process in another pod: neither time nor the deletion of this pod proves its death.
    record.predecessor = Some(process("a"));
    let step = decide(&FenceInput { process: Some(&successor), ..input(31_000, &record, &reach, &doubt, None) });
    assert_eq!(step, FenceStep::Wait { until: None });
}

#[test]
fn each_way_out_of_doubt_is_recorded_first() {
    let mut record = record(State::Fenced, "b");
    (record.reason, record.predecessor) = (Some(Reason::PredecessorUnconfirmed), Some(process("a")));
    let reach = answering("b", 1_000, Users::Closed);
    for evidence in
        [Evidence::Terminated, Evidence::NodeReady, Evidence::OutOfService, Evidence::NodeDeleted, Evidence::Declared]
    {
        let dead = Verdict::Dead(evidence);
        let step = decide_with(40_000, &record, &reach, &dead, None);
        assert_eq!(step, FenceStep::WritePredecessorDead);
        let next = record.after(step, Some(&process("b")), &dead);
        assert_eq!(next.predecessor, None);
        let named = decide_with(20_000, &next, &reach, &Verdict::None, None);
        assert_eq!(named, fenced(Reason::Restarted, 31_660, false));
        let next = next.after(named, Some(&process("b")), &Verdict::None);
        let wait = FenceStep::Wait { until: Some(at(50_660)) };
        assert_eq!(decide_with(40_000, &next, &reach, &Verdict::None, Some(20_000)), wait);
        assert_eq!(decide_with(50_660, &next, &reach, &Verdict::None, Some(20_000)), FenceStep::Admit);
    }
}

/// The evidence of a death is recorded before it can vanish.
///
/// A pod status names the last two containers only, and a node can come and go before a successor answers.
#[test]
fn a_death_is_recorded_though_nothing_answers() {
    let dead = Verdict::Dead(Evidence::Terminated);
    let lost = Reach::Lost { since: at(1_000) };
    for (reach, step, state) in [
        (Reach::NotRunning, FenceStep::WritePending, State::Pending),
        (Reach::Connecting { since: at(1_000) }, FenceStep::WriteStarting, State::Starting),
        (lost.clone(), FenceStep::WriteStarting, State::Starting),
    ] {
        let admitted = record(State::Admitted, "a");
        assert_eq!(decide_with(1_001, &admitted, &reach, &dead, None), step, "{reach:?}");
        let next = admitted.after(step, None, &dead);
        assert_eq!((next.state, next.admitted, next.predecessor), (state, false, None));
    }
    // The process had been fenced, and its closing was never confirmed.
    let mut waiting = record(State::Unreachable, "b");
    waiting.predecessor = Some(process("a"));
    let step = decide_with(1_001, &waiting, &lost, &dead, None);
    assert_eq!(step, FenceStep::WritePredecessorDead);
    let next = waiting.after(step, None, &dead);
    assert_eq!(next.predecessor, None);
    assert_eq!(decide_with(1_002, &next, &lost, &Verdict::None, None), FenceStep::Wait { until: None });
}

#[test]
fn the_wait_of_a_successor_begins_at_its_predecessors_death() {
    let admitted = record(State::Admitted, "a");
    let dead = Verdict::Dead(Evidence::Declared);
    // "b" possibly waited from the start, but "a" was able to vote until its death was known.
    let waiting = admitted.after(fenced(Reason::Restarted, 0, false), Some(&process("b")), &unconfirmed_until(None));
    assert!(!waiting.restarts_count(&admitted, &run("b")));
    let known = waiting.after(FenceStep::WritePredecessorDead, Some(&process("b")), &dead);
    assert!(known.restarts_count(&waiting, &run("b")) && !known.restarts_count(&waiting, &run("a")));
    assert!(known.restarts_count(&admitted, &run("b")), "also for a watch that skipped the record between");
    assert!(!known.restarts_count(&known, &run("b")), "once");
    let closed = admitted.after(fenced(Reason::Restarted, 0, true), Some(&process("a")), &Verdict::None);
    assert!(closed.restarts_count(&admitted, &run("a")), "a process that was fenced itself");
}
