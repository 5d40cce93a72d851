//! External members.

use super::*;
use crate::api::test_util::quorum;

/// A quorum of external members, admitted under the first epoch.
fn external(names: &[&str]) -> RedisQuorum {
    let member = |name: &&str| json!({"name": name, "address": format!("{name}.example:6379")});
    let spec = json!({"members": 0, "external": names.iter().map(member).collect::<Vec<_>>()});
    let published = |name: &&str| {
        json!({"name": name, "state": "Admitted", "runID": format!("run of {name}"), "admittedAt": "2026-01-01T00:00:00.000Z",
            "epoch": 1, "external": {"address": format!("{name}.example:6379")}})
    };
    let status =
        json!({"membershipEpoch": 1, "voters": names, "members": names.iter().map(published).collect::<Vec<_>>()});
    quorum(spec, status)
}

#[test]
fn an_annotation_declares_an_external_process_dead() {
    let mut quorum = external(&["a", "b", "c"]);
    let status = quorum.status.get_or_insert_default();
    (status.membership_epoch, status.former_voters) = (Some(2), status.voters.clone());
    let closed = |quorum: &RedisQuorum, name: &str| is_closed(quorum, name, &Lists::of(quorum));
    assert!(!closed(&quorum, "a"));
    quorum.metadata.annotations = Some([(PREDECESSOR_DEAD_ANNOTATION.into(), "run of a".into())].into());
    assert!(closed(&quorum, "a") && !closed(&quorum, "b"));
    let record = quorum.status.as_mut().unwrap().members.first_mut().unwrap();
    record.run_id = Some("another run".into());
    assert!(!closed(&quorum, "a"), "only the declared process");
}

#[test]
fn a_dead_leaving_external_member_does_not_delay_a_change() {
    let lists = Lists {
        epoch: 1,
        voters: ["a", "b", "c"].map(str::to_owned).to_vec(),
        former: None,
        wanted: ["b", "c", "d"].map(str::to_owned).to_vec(),
    };
    let step = |dead: bool, left_behind: &[String]| {
        let member = |name: String| MemberSummary {
            votes: name != "a",
            dead: dead && name == "a",
            ready_for_next: true,
            name,
            ..MemberSummary::default()
        };
        let members: Vec<_> = lists.members().into_iter().map(member).collect();
        decide(&Input {
            now: at(100),
            lists: &lists,
            members: &members,
            incomplete_locks: &[],
            busy: None,
            left_behind,
            former_closed_since: None,
            rejoin_delay: DELAY,
        })
    };
    assert_eq!(step(false, &[]), awaits(&["a".into()]));
    let others = vec!["shop/q".to_owned()];
    let waits = ChangeStep::Wait(Until::MastersKept { quorums: listed(&others) });
    assert_eq!(step(true, &others), waits, "another operator could not notice the new list");
    let said = describe(&lists, &waits, &[]).unwrap();
    assert!(said.contains("RedisQuorum shop/q does not use the former masters, or more than half"), "{said}");
    assert_eq!(step(true, &[]), ChangeStep::Switch);
}

#[test]
fn the_record_names_the_old_list_until_its_promises_expire() {
    use crate::quorum::model::plan::shared_list;
    let mut quorum = external(&["a", "b", "c"]);
    let text = |names: &str| names.split(' ').map(|name| format!("{name}.example:6379")).collect::<Vec<_>>().join(" ");
    quorum.spec.external.remove(0);
    quorum.spec.external.push(serde_json::from_value(json!({"name": "d", "address": "d.example:6379"})).unwrap());
    let state = |quorum: &RedisQuorum| (shared_list(quorum), Lists::of(quorum).record_epoch());
    assert_eq!(state(&quorum), (text("a b c"), 2));
    Lists::of(&quorum).switch(quorum.status.get_or_insert_default());
    assert_eq!(state(&quorum), (text("a b c"), 3));
    let closed = |quorum: &RedisQuorum| ["a", "d"].map(|name| is_closed(quorum, name, &Lists::of(quorum)));
    let joins = json!({"name": "d", "state": "Admitted", "runID": "run of d", "admittedAt": "2026-01-01T00:00:00.000Z",
        "epoch": 1, "external": {"address": "d.example:6379"}});
    quorum.status.get_or_insert_default().members.push(serde_json::from_value(joins).unwrap());
    assert_eq!(closed(&quorum), [false, true], "a master that joins has given no vote");
    quorum.status.get_or_insert_default().former_voters.clear();
    assert_eq!(state(&quorum), (text("b c d"), 4));
}

#[test]
fn a_name_belongs_to_one_master_until_it_has_left() {
    use crate::quorum::model::invalid::Invalid;
    use crate::quorum::model::plan::{external_members, recorded_members, validate};
    let mut quorum = external(&["a", "b", "c"]);
    assert!(validate(&quorum).is_ok());
    quorum.spec.external[0].secret_ref = Some(crate::api::SecretRef { name: "other".into() });
    let place = |quorum: &RedisQuorum| external_members(quorum)[0].external.clone().unwrap();
    assert_eq!(place(&quorum).secret_ref.unwrap().name, "other");
    quorum.spec.external[0].address = "elsewhere:6379".into();
    assert!(matches!(validate(&quorum), Err(Invalid::External(name, _)) if name == "a"));
    assert_eq!(place(&quorum).address, "a.example:6379", "the master at this address votes");
    quorum.spec.external[0] = serde_json::from_value(json!({"name": "z", "address": "a.example:6379"})).unwrap();
    assert!(matches!(validate(&quorum), Err(Invalid::External(name, _)) if name == "z"));
    // The operator still connects to a member that leaves.
    quorum.spec.external[0].address = "z.example:6379".into();
    assert!(validate(&quorum).is_ok());
    let status = quorum.status.get_or_insert_default();
    status.voters = ["z", "b", "c"].map(str::to_owned).to_vec();
    let known: Vec<_> =
        recorded_members(&quorum).into_iter().map(|member| (member.name.clone(), member.address("locks"))).collect();
    assert_eq!(known.last().unwrap(), &("a".to_owned(), "a.example:6379".to_owned()));
}
