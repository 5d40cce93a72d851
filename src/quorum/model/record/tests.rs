use serde_json::json;

use super::*;
use crate::api::test_util::quorum;
use crate::fence::tests::process;

#[test]
fn a_record_survives_its_publication() {
    let fenced = Record {
        state: State::Fenced,
        reason: Some(Reason::PredecessorUnconfirmed),
        run_id: Some(RunId::new("b")),
        admitted: false,
        process: Some(process("b")),
        predecessor: Some(process("a")),
    };
    let admitted = Record { state: State::Admitted, reason: None, admitted: true, predecessor: None, ..fenced.clone() };
    let unreachable = Record { state: State::Unreachable, ..admitted.clone() };
    let mut member = MemberStatus { name: "main-1".into(), ..MemberStatus::default() };
    let at = MilliTime::from_millis(1_767_225_600_000);
    let updating = Record { reason: Some(Reason::Updating), ..fenced.clone() };
    for record in [fenced, updating, admitted, unreachable] {
        publish(&mut member, &record, Stamps { admitted_at: at, ..Stamps::default() });
        assert_eq!(record_of(&member), record);
    }
    assert_eq!(record_of(&MemberStatus::default()), Record::default());
}

#[test]
fn an_unconfirmed_predecessor_is_explained() {
    let mut member = MemberStatus { name: "main-1".into(), ..MemberStatus::default() };
    let record = Record {
        state: State::Fenced,
        reason: Some(Reason::PredecessorUnconfirmed),
        predecessor: Some(process("a")),
        ..Record::default()
    };
    publish(&mut member, &record, Stamps::default());
    let message = member.message.clone().unwrap();
    for part in ["node-c", "pod-of-a", "redlock-operator.io/predecessor-dead", "out-of-service", "the same Node object"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert!(message.len() <= 1024);
    publish(&mut member, &Record { reason: Some(Reason::ClockJump), ..record.clone() }, Stamps::default());
    assert!(member.message.as_ref().is_some_and(|message| message.contains("clock was stepped")), "{member:?}");
    assert_eq!(record_of(&member).reason, Some(Reason::ClockJump), "the next leader also ends the process");
    publish(&mut member, &Record { reason: Some(Reason::Restarted), ..record }, Stamps::default());
    assert_eq!(member.message, None);
}

#[test]
fn a_message_relies_on_ids_only_while_they_are_unique() {
    let machine = Machine { system_uuid: "s".into(), machine_id: "m".into() };
    let node = NodeIdentity { uid: "n".into(), machine: Some(machine) };
    let record = Record {
        state: State::Fenced,
        reason: Some(Reason::PredecessorUnconfirmed),
        predecessor: Some(Process { node: Some(node), ..process("a") }),
        ..Record::default()
    };
    let mut member = MemberStatus { name: "main-1".into(), ..MemberStatus::default() };
    publish(&mut member, &record, Stamps::default());
    let needs_object =
        |message: Option<String>| message.is_some_and(|message| message.contains("the same Node object"));
    assert!(!needs_object(message_of(&member, |node| node)));
    assert!(needs_object(message_of(&member, |node| NodeIdentity { machine: None, ..node })));
}

#[test]
fn only_admitted_processes_have_votes() {
    let members = json!([
        {"name": "main-0", "state": "Admitted", "runID": "a", "admittedAt": "2026-01-01T00:00:00.000Z"},
        {"name": "main-1", "state": "Fenced", "runID": "b"},
        {"name": "main-2", "state": "Unreachable", "runID": "c", "admittedAt": "2026-01-01T00:00:00.000Z"},
        {"name": "main-3", "state": "Unreachable", "runID": "d"},
        {"name": "main-4", "state": "Pending"},
    ]);
    let quorum = quorum(json!({}), json!({"members": members}));
    let admitted = |name| admitted_run_id(&quorum, name).map(|run_id| run_id.to_string());
    assert_eq!(admitted("main-0").as_deref(), Some("a"));
    assert_eq!(admitted("main-2").as_deref(), Some("c"), "silence for the leader ends no admission");
    for name in ["main-1", "main-3", "main-4", "main-5"] {
        assert_eq!(admitted(name), None, "{name}");
    }
}

#[test]
fn joining_and_restarted_members_have_different_fence_reasons() {
    let mut member = MemberStatus { name: "main-3".into(), ..MemberStatus::default() };
    let first = Record { state: State::Fenced, reason: Some(Reason::FirstStart), ..Record::default() };
    let stamps = Stamps { joins: true, ..Stamps::default() };
    publish(&mut member, &first, stamps);
    assert_eq!((member.reason, record_of(&member).reason), (Some(Reason::Joining), Some(Reason::FirstStart)));
    publish(&mut member, &Record { reason: Some(Reason::Restarted), ..first }, stamps);
    assert_eq!(member.reason, Some(Reason::Restarted));
}

/// An older status was restored, and the users of a later membership epoch are open.
#[test]
fn a_process_without_its_admission_is_its_own_predecessor() {
    let admitted = Record {
        state: State::Admitted,
        run_id: Some(RunId::new("a")),
        admitted: true,
        process: Some(process("a")),
        ..Record::default()
    };
    let mut member = MemberStatus { name: "main-0".into(), ..MemberStatus::default() };
    publish(&mut member, &admitted, Stamps::default());
    withdraw(&mut member, 1);
    assert_eq!(member.epoch, Some(1), "users of all later epochs are closed");
    let withdrawn = record_of(&member);
    assert!(withdrawn.state == State::Starting && !withdrawn.admitted, "{withdrawn:?}");
    assert_eq!(withdrawn.predecessor, Some(process("a")));
}
