use super::*;

mod ended;
mod predecessor_evidence;
mod sequences;

const DELAY: Duration = Duration::from_millis(30_660);

fn at(millis: u64) -> Monotonic {
    Monotonic::new(Duration::from_millis(millis))
}

fn run(name: &str) -> RunId {
    RunId::new(name)
}

pub(crate) fn process(name: &str) -> Process {
    Process {
        run_id: run(name),
        pod_uid: format!("pod-of-{name}"),
        container_id: Some(format!("container-of-{name}")),
        node_name: Some("node-c".into()),
        node: None,
    }
}

pub(super) fn answering(name: &str, first_observed: u64, users: Users) -> Reach {
    let closed_since = (users == Users::Closed).then(|| at(first_observed));
    Reach::Answering(ObservedProcess { run_id: run(name), first_observed: at(first_observed), users, closed_since })
}

pub(super) fn record(state: State, name: &str) -> Record {
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
    Verdict::Unconfirmed { until: until.map(at) }
}

/// A decision in which all other inputs are normal.
fn decide_at(now: u64, record: &Record, reach: &Reach) -> FenceStep {
    decide_with(now, record, reach, &Verdict::None, None)
}

fn decide_with(now: u64, record: &Record, reach: &Reach, verdict: &Verdict, fenced_since: Option<u64>) -> FenceStep {
    decide(&input(now, record, reach, verdict, fenced_since))
}

pub(super) fn input<'a>(
    now: u64,
    record: &'a Record,
    reach: &'a Reach,
    verdict: &'a Verdict,
    fenced_since: Option<u64>,
) -> FenceInput<'a> {
    FenceInput {
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
        forgot: false,
        unfit: false,
    }
}

fn fenced(reason: Reason, rejoin_at: u64, close: bool) -> FenceStep {
    FenceStep::WriteFenced { reason, rejoin_at: Some(at(rejoin_at)), close }
}

/// The status does not admit it any more, because its open users belong to an unknown member list.
#[test]
fn a_withdrawn_process_is_closed_and_waits_again() {
    let withdrawn = record(State::Admitted, "a").after(FenceStep::WriteStarting, None, &Verdict::None);
    let step = decide_at(100_000, &withdrawn, &answering("a", 100_000, Users::Open));
    assert!(matches!(step, FenceStep::WriteFenced { close: true, .. }), "{step:?}");
}

#[test]
fn no_decision_about_a_process_before_its_epoch_is_raised() {
    for (record, reach) in [
        (Record::default(), answering("a", 0, Users::Closed)),
        (record(State::Fenced, "a"), answering("a", 0, Users::Closed)),
        (record(State::Admitted, "a"), answering("a", 0, Users::Open)),
        (record(State::Fenced, "a"), answering("a", 0, Users::Open)),
    ] {
        let input = FenceInput { epoch_raised: false, ..input(90_000, &record, &reach, &Verdict::None, None) };
        assert_eq!(decide(&input), FenceStep::RaiseEpoch);
    }
}

#[test]
fn the_first_process_of_a_member_waits() {
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
    assert_eq!(next.predecessor, Some(process("a")), "it can be open until its closing is confirmed");
    // Its pod was not deleted after all, and it does not wait for its own death.
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
    // The old process answers again at this address, because two processes alternate. It counts as a new process.
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
    assert_eq!(next.threat_to(Some(&run("a"))), None, "it is its own successor, so no other process must be dead");
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
    // The fencing of a process that has been closed since its first observation does not restart its wait.
    assert_eq!(decide_with(32_000, &record, &reach, &Verdict::None, None), FenceStep::Admit);
}

#[test]
fn a_location_that_is_observed_later_is_recorded() {
    let (admitted, reach) = (record(State::Admitted, "a"), answering("a", 0, Users::Open));
    let at_last = Process { container_id: Some("c2".into()), ..process("a") };
    let step = |record: &Record, seen: &Process| {
        decide(&FenceInput { process: Some(seen), ..input(90_000, record, &reach, &Verdict::None, None) })
    };
    assert_eq!(step(&admitted, &process("a")), FenceStep::Nothing);
    assert_eq!(step(&admitted, &at_last), FenceStep::WriteAdmittedAgain);
    let next = admitted.after(FenceStep::WriteAdmittedAgain, Some(&at_last), &Verdict::None);
    assert_eq!((next.admitted, &next.process), (true, &Some(at_last.clone())));
    assert!(!next.restarts_count(&admitted, &run("a")));
    assert_eq!(step(&next, &at_last), FenceStep::Nothing);
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

    // Silence does not shorten the wait of a fenced process.
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
    // A new replica has observed no process yet. It keeps the admission of the running process.
    let admitted = record(State::Admitted, "a");
    assert_eq!(decide_at(0, &admitted, &connecting), FenceStep::Wait { until: Some(at(2_000)) });
    assert_eq!(decide_at(2_000, &admitted, &connecting), FenceStep::WriteUnreachable);
}
