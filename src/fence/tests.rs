use super::*;

mod ended;
mod sequences;

const DELAY: Duration = Duration::from_millis(30_660);

fn at(millis: u64) -> Monotonic {
    Monotonic::new(Duration::from_millis(millis))
}

fn run(name: &str) -> RunId {
    RunId::new(name)
}

fn process(name: &str) -> Process {
    Process {
        run_id: run(name),
        pod_uid: format!("pod-of-{name}"),
        container_id: Some(format!("container-of-{name}")),
        node_name: Some("node-c".into()),
        node: None,
    }
}

fn answering(name: &str, first_observed: u64, users: Users) -> Reach {
    let closed_since = (users == Users::Closed).then(|| at(first_observed));
    Reach::Answering(ObservedProcess { run_id: run(name), first_observed: at(first_observed), users, closed_since })
}

fn record(state: State, name: &str) -> Record {
    Record {
        state,
        reason: (state == State::Fenced).then_some(Reason::Restarted),
        run_id: Some(run(name)),
        admitted: state == State::Admitted,
        process: Some(process(name)),
        predecessor: None,
    }
}

fn unconfirmed_until(until: Option<u64>) -> Verdict {
    Verdict::Unconfirmed { node: Some("node-c".into()), until: until.map(at) }
}

/// A decision with everything else in order.
fn decide_at(now: u64, record: &Record, reach: &Reach) -> FenceStep {
    decide_with(now, record, reach, &Verdict::None, None)
}

fn decide_with(now: u64, record: &Record, reach: &Reach, verdict: &Verdict, fenced_since: Option<u64>) -> FenceStep {
    decide(&view(now, record, reach, verdict, fenced_since))
}

fn view<'a>(
    now: u64,
    record: &'a Record,
    reach: &'a Reach,
    verdict: &'a Verdict,
    fenced_since: Option<u64>,
) -> View<'a> {
    View {
        now: at(now),
        record,
        reach,
        predecessor: verdict,
        rejoin_delay: DELAY,
        fenced_since: fenced_since.map(at),
        epoch_raised: true,
        clock_jumped: false,
        must_restart: false,
        unreported: false,
        process: None,
    }
}

fn fenced(reason: Reason, rejoin_at: u64, close: bool) -> FenceStep {
    FenceStep::WriteFenced { reason, rejoin_at: Some(at(rejoin_at)), close }
}

#[test]
fn no_decision_about_a_process_before_its_epoch_is_raised() {
    for (record, reach) in [
        (Record::default(), answering("a", 0, Users::Closed)),
        (record(State::Fenced, "a"), answering("a", 0, Users::Closed)),
        (record(State::Admitted, "a"), answering("a", 0, Users::Open)),
        (record(State::Fenced, "a"), answering("a", 0, Users::Open)),
    ] {
        let view = View { epoch_raised: false, ..view(90_000, &record, &reach, &Verdict::None, None) };
        assert_eq!(decide(&view), FenceStep::RaiseEpoch);
    }
}

#[test]
fn the_first_start_waits_too() {
    let reach = answering("a", 1_000, Users::Closed);
    assert_eq!(decide_at(1_000, &Record::default(), &reach), fenced(Reason::FirstStart, 31_660, false));
    let mut first = record(State::Fenced, "a");
    first.reason = Some(Reason::FirstStart);
    assert_eq!(decide_at(1_001, &first, &reach), FenceStep::Wait { until: Some(at(31_660)) });
    assert_eq!(decide_at(31_659, &first, &reach), FenceStep::Wait { until: Some(at(31_660)) });
    assert_eq!(decide_at(31_660, &first, &reach), FenceStep::Admit);
}

#[test]
fn a_restart_in_place_is_fenced_from_its_first_observation() {
    let admitted = record(State::Admitted, "a");
    let reach = answering("b", 50_000, Users::Closed);
    assert_eq!(decide_at(50_100, &admitted, &reach), fenced(Reason::Restarted, 80_660, false));
    let next = admitted.after(fenced(Reason::Restarted, 80_660, false), Some(&process("b")), &Verdict::None);
    assert_eq!((next.state, next.admitted), (State::Fenced, false));
    assert_eq!(next.predecessor, Some(process("a")));
    assert_eq!(decide_at(80_659, &next, &reach), FenceStep::Wait { until: Some(at(80_660)) });
    assert_eq!(decide_at(80_660, &next, &reach), FenceStep::Admit);
}

#[test]
fn a_member_closed_for_an_update_waits_like_any_other() {
    let close = FenceStep::WriteFenced { reason: Reason::Updating, rejoin_at: None, close: true };
    let next = record(State::Admitted, "a").after(close, Some(&process("a")), &Verdict::None);
    assert_eq!((next.state, next.reason, next.admitted), (State::Fenced, Some(Reason::Updating), false));
    assert_eq!(next.predecessor, Some(process("a")), "it may be open until its closing is confirmed");
    // Its pod was not deleted after all: it has waited for itself.
    let closed = answering("a", 10_000, Users::Closed);
    assert_eq!(decide_with(40_659, &next, &closed, &Verdict::None, None), FenceStep::Wait { until: Some(at(40_660)) });
    assert_eq!(decide_with(40_660, &next, &closed, &Verdict::None, None), FenceStep::Admit);
    // The closing failed.
    let open = answering("a", 10_000, Users::Open);
    assert_eq!(decide_at(10_000, &next, &open), fenced(Reason::Restarted, 40_660, true));
    // The successor waits for its death.
    let reach = answering("b", 50_000, Users::Closed);
    assert_eq!(decide_at(50_000, &next, &reach), fenced(Reason::Restarted, 80_660, false));
    let after = next.after(fenced(Reason::Restarted, 80_660, false), Some(&process("b")), &Verdict::None);
    assert_eq!(after.threat_to(Some(&run("b"))), Some(&process("a")));
}

#[test]
fn each_restart_within_a_delay_starts_the_wait_again() {
    let fenced_b = record(State::Fenced, "b");
    assert_eq!(
        decide_at(70_000, &fenced_b, &answering("c", 70_000, Users::Closed)),
        fenced(Reason::Restarted, 100_660, false)
    );
    let mut watch = ProcessWatch::default();
    for (name, now) in [("b", 50_000), ("c", 70_000), ("b", 75_000)] {
        watch.observe(&run(name), Users::Closed, at(now));
    }
    // The old process is back behind the name: two of them alternate. It counts as new.
    assert_eq!(watch.last().map(|answering| answering.first_observed), Some(at(75_000)));
}

#[test]
fn the_predecessor_stays_the_last_process_that_voted() {
    let admitted = record(State::Admitted, "a");
    let step = fenced(Reason::Restarted, 0, false);
    let second = admitted.after(step, Some(&process("b")), &unconfirmed_until(None));
    let third = second.after(step, Some(&process("c")), &unconfirmed_until(None));
    assert_eq!(third.predecessor, Some(process("a")));
    assert_eq!(third.run_id, Some(run("c")));
    let gone = third.after(FenceStep::WritePending, None, &unconfirmed_until(None));
    assert_eq!(gone.predecessor, Some(process("a")));
    assert_eq!(gone.after(FenceStep::WritePending, None, &Verdict::Dead(Evidence::Terminated)).predecessor, None);
}

#[test]
fn an_admitted_member_found_closed_is_fenced_again() {
    // The opening failed, or the leader died between the record and the opening.
    let admitted = record(State::Admitted, "a");
    let reach = answering("a", 1_000, Users::Closed);
    assert_eq!(decide_at(90_000, &admitted, &reach), fenced(Reason::Restarted, 90_000 + 30_660, true));
    let next = admitted.after(fenced(Reason::Restarted, 0, true), Some(&process("a")), &Verdict::None);
    assert_eq!(next.threat_to(Some(&run("a"))), None, "it is its own successor, nothing else has to be dead");
    assert_eq!(next.threat_to(Some(&run("b"))), Some(&process("a")), "the closing is not confirmed yet");
    let step = decide_with(100_000, &next, &reach, &Verdict::None, Some(90_050));
    assert_eq!(step, FenceStep::Wait { until: Some(at(90_050 + 30_660)) });
    assert_eq!(decide_with(120_710, &next, &reach, &Verdict::None, Some(90_050)), FenceStep::Admit);
}

#[test]
fn an_open_process_without_admission_is_closed_and_waits() {
    for (record, reason) in [
        (Record::default(), Reason::FirstStart),
        (record(State::Fenced, "a"), Reason::Restarted),
        (record(State::Starting, "a"), Reason::Restarted),
        (record(State::Admitted, "b"), Reason::Restarted),
    ] {
        let step = decide_at(90_000, &record, &answering("a", 1_000, Users::Open));
        assert_eq!(step, fenced(reason, 90_000 + 30_660, true), "{record:?}");
    }
    let mut watch = ProcessWatch::default();
    for (users, now) in
        [(Users::Closed, 1_000), (Users::Open, 40_000), (Users::Closed, 41_000), (Users::Closed, 50_000)]
    {
        watch.observe(&run("a"), users, at(now));
    }
    let answering = watch.last().unwrap();
    assert_eq!(count_from(answering, None), at(41_000));
    assert_eq!(count_from(answering, Some(at(41_200))), at(41_200));
}

#[test]
fn a_recorded_fencing_restarts_the_count_for_this_replica() {
    let record = record(State::Fenced, "a");
    let reach = answering("a", 1_000, Users::Closed);
    let step = decide_with(32_000, &record, &reach, &Verdict::None, Some(20_000));
    assert_eq!(step, FenceStep::Wait { until: Some(at(50_660)) });
    // A fencing of a process that has been closed since its first observation is no new beginning.
    assert_eq!(decide_with(32_000, &record, &reach, &Verdict::None, None), FenceStep::Admit);
}

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
    let step = |now| decide(&View { process: Some(&successor), ..view(now, &record, &reach, &doubt, None) });
    assert_eq!(step(6_001), FenceStep::Wait { until: Some(at(31_000)) }, "the kubelet may be late");
    assert_eq!(step(31_000), FenceStep::RestartProcess);
    // A former process in another pod: time proves nothing, and the deletion of this pod would prove nothing.
    record.predecessor = Some(process("a"));
    let step = decide(&View { process: Some(&successor), ..view(31_000, &record, &reach, &doubt, None) });
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
    // It had been fenced, and its closing was never confirmed.
    let mut waiting = record(State::Unreachable, "b");
    waiting.predecessor = Some(process("a"));
    let step = decide_with(1_001, &waiting, &lost, &dead, None);
    assert_eq!(step, FenceStep::WritePredecessorDead);
    let next = waiting.after(step, None, &dead);
    assert_eq!(next.predecessor, None);
    assert_eq!(decide_with(1_002, &next, &lost, &Verdict::None, None), FenceStep::Wait { until: None });
}

#[test]
fn a_location_that_is_known_later_is_recorded() {
    let (admitted, reach) = (record(State::Admitted, "a"), answering("a", 0, Users::Open));
    let at_last = Process { container_id: Some("c2".into()), ..process("a") };
    let step = |record: &Record, seen: &Process| {
        decide(&View { process: Some(seen), ..view(90_000, record, &reach, &Verdict::None, None) })
    };
    assert_eq!(step(&admitted, &process("a")), FenceStep::Nothing);
    assert_eq!(step(&admitted, &at_last), FenceStep::WriteAdmittedAgain);
    let next = admitted.after(FenceStep::WriteAdmittedAgain, Some(&at_last), &Verdict::None);
    assert_eq!((next.admitted, &next.process), (true, &Some(at_last.clone())));
    assert!(!next.restarts_count(&admitted, &run("a")));
    assert_eq!(step(&next, &at_last), FenceStep::Nothing);
}

#[test]
fn the_wait_of_a_successor_begins_at_its_predecessors_death() {
    let admitted = record(State::Admitted, "a");
    let dead = Verdict::Dead(Evidence::Declared);
    // "b" perhaps waited from the start, but "a" could vote until it was found dead.
    let waiting = admitted.after(fenced(Reason::Restarted, 0, false), Some(&process("b")), &unconfirmed_until(None));
    assert!(!waiting.restarts_count(&admitted, &run("b")));
    let known = waiting.after(FenceStep::WritePredecessorDead, Some(&process("b")), &dead);
    assert!(known.restarts_count(&waiting, &run("b")) && !known.restarts_count(&waiting, &run("a")));
    assert!(known.restarts_count(&admitted, &run("b")), "also for a watch that skipped the record between");
    assert!(!known.restarts_count(&known, &run("b")), "once");
    let closed = admitted.after(fenced(Reason::Restarted, 0, true), Some(&process("a")), &Verdict::None);
    assert!(closed.restarts_count(&admitted, &run("a")), "a process that was fenced itself");
}

#[test]
fn a_silent_member_keeps_the_admission_of_the_same_process() {
    let admitted = record(State::Admitted, "a");
    let lost = Reach::Lost { since: at(10_000) };
    assert_eq!(decide_at(11_999, &admitted, &lost), FenceStep::Wait { until: Some(at(12_000)) });
    assert_eq!(decide_at(12_000, &admitted, &lost), FenceStep::WriteUnreachable);
    let unreachable = admitted.after(FenceStep::WriteUnreachable, None, &Verdict::None);
    assert_eq!(decide_at(20_000, &unreachable, &lost), FenceStep::Wait { until: None });
    assert!(unreachable.admits(&run("a")) && !unreachable.admits(&run("b")));

    assert_eq!(decide_at(30_000, &unreachable, &answering("a", 0, Users::Open)), FenceStep::WriteAdmittedAgain);
    assert_eq!(unreachable.after(FenceStep::WriteAdmittedAgain, Some(&process("a")), &Verdict::None), admitted);
    assert_eq!(
        decide_at(30_000, &unreachable, &answering("b", 30_000, Users::Closed)),
        fenced(Reason::Restarted, 60_660, false)
    );
    assert_eq!(
        decide_at(30_000, &unreachable, &answering("a", 0, Users::Closed)),
        fenced(Reason::Restarted, 60_660, true)
    );

    // A fenced process gains nothing by its silence.
    let lost = record(State::Fenced, "a").after(FenceStep::WriteUnreachable, None, &Verdict::None);
    assert!(!lost.admits(&run("a")));
    assert_eq!(
        decide_at(20_000, &lost, &answering("a", 1_000, Users::Closed)),
        fenced(Reason::Restarted, 31_660, false)
    );
}

#[test]
fn states_without_a_process_are_recorded_once() {
    let fresh = Record { state: State::Starting, ..Record::default() };
    assert_eq!(decide_at(0, &fresh, &Reach::NotRunning), FenceStep::WritePending);
    assert_eq!(decide_at(0, &Record::default(), &Reach::NotRunning), FenceStep::Wait { until: None });
    let connecting = Reach::Connecting { since: at(0) };
    assert_eq!(decide_at(0, &Record::default(), &connecting), FenceStep::WriteStarting);
    assert_eq!(decide_at(0, &fresh, &connecting), FenceStep::Wait { until: None });
    // A new replica has observed no process yet: the admission of the one that runs is not dropped for that.
    let admitted = record(State::Admitted, "a");
    assert_eq!(decide_at(0, &admitted, &connecting), FenceStep::Wait { until: Some(at(2_000)) });
    assert_eq!(decide_at(2_000, &admitted, &connecting), FenceStep::WriteUnreachable);
}
