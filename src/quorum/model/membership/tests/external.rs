//! Members that others run.

use super::*;

fn text(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// One of three external members is being replaced.
fn joint(announced: Option<Announced>) -> Lists {
    let (old, new) = (text(&["a", "b", "c"]), text(&["b", "c", "d"]));
    Lists { epoch: 2, voters: new.clone(), former: Some(old), announced, wanted: new }
}

/// A change of external members, at its end: all closed, and waited for.
fn announced(step: Option<Announced>, behind: &[&str], told: &[&str]) -> ChangeStep {
    let lists = joint(step);
    let member =
        |name: String| MemberView { name, votes: true, ready_for_next: true, closed: true, ..MemberView::default() };
    let members: Vec<_> = lists.members().into_iter().map(member).collect();
    let (behind, told) = (text(behind), text(told));
    decide(&View {
        now: at(100),
        lists: &lists,
        members: &members,
        incomplete_locks: &[],
        busy: None,
        others: Some(Others { unclaimed: &[], behind: &behind, told: &told }),
        former_closed_since: Some(at(50)),
        rejoin_delay: DELAY,
    })
}

#[test]
fn other_operators_are_told_step_by_step_before_the_old_list_is_given_up() {
    let waits = |obstacle| ChangeStep::Wait(obstacle);
    let untold = |names: &[&str]| waits(Obstacle::Untold(names.iter().map(|name| (*name).to_owned()).collect()));
    assert_eq!(
        announced(None, &["shop/q"], &[]),
        ChangeStep::Announce(Announced::BothLists),
        "it is not asked for more"
    );
    let (both, new) = (Some(Announced::BothLists), Some(Announced::NewList));
    for step in [both, new] {
        assert_eq!(
            announced(step, &["shop/q"], &["a", "b", "c", "d"]),
            waits(Obstacle::Operators(vec!["shop/q".into()]))
        );
        assert_eq!(announced(step, &[], &["b"]), untold(&["a", "c", "d"]));
        // A majority of each list.
        assert_eq!(announced(step, &[], &["a", "b"]), untold(&["c", "d"]));
        assert_eq!(announced(step, &[], &["c", "d"]), untold(&["a", "b"]));
    }
    assert_eq!(announced(both, &[], &["b", "c"]), ChangeStep::Announce(Announced::NewList));
    assert_eq!(announced(new, &[], &["b", "c"]), ChangeStep::Finish);
}

/// A quorum of external members, admitted under the first epoch.
fn external(names: &[&str]) -> RedisQuorum {
    let member = |name: &&str| json!({"name": name, "address": format!("{name}.example:6379")});
    let spec = json!({"members": 0, "external": names.iter().map(member).collect::<Vec<_>>()});
    let mut quorum = RedisQuorum::new("main", serde_json::from_value(spec).unwrap());
    quorum.metadata.namespace = Some("locks".into());
    let published = |name: &&str| {
        json!({"name": name, "state": "Admitted", "runID": format!("run of {name}"), "admittedAt": "2026-01-01T00:00:00.000Z",
            "epoch": 1, "external": {"address": format!("{name}.example:6379")}})
    };
    let status =
        json!({"membershipEpoch": 1, "voters": names, "members": names.iter().map(published).collect::<Vec<_>>()});
    quorum.status = Some(serde_json::from_value(status).unwrap());
    quorum
}

#[test]
fn a_person_can_say_that_an_external_process_is_dead() {
    let mut quorum = external(&["a", "b", "c"]);
    let status = quorum.status.get_or_insert_default();
    (status.membership_epoch, status.former_voters) = (Some(2), status.voters.clone());
    let closed = |quorum: &RedisQuorum, name: &str| is_closed(quorum, name, &Lists::of(quorum));
    assert!(!closed(&quorum, "a"));
    quorum.metadata.annotations = Some([(PREDECESSOR_DEAD_ANNOTATION.into(), "run of a".into())].into());
    assert!(closed(&quorum, "a") && !closed(&quorum, "b"));
    let record = quorum.status.as_mut().unwrap().members.first_mut().unwrap();
    record.run_id = Some("another run".into());
    assert!(!closed(&quorum, "a"), "that one only");
}

#[test]
fn a_dead_external_member_that_leaves_is_not_waited_for() {
    let lists = Lists {
        epoch: 1,
        voters: ["a", "b", "c"].map(str::to_owned).to_vec(),
        former: None,
        announced: None,
        wanted: ["b", "c", "d"].map(str::to_owned).to_vec(),
    };
    let step = |dead: bool, unclaimed: &[String]| {
        let member = |name: String| MemberView {
            votes: name != "a",
            dead: dead && name == "a",
            ready_for_next: true,
            name,
            ..MemberView::default()
        };
        let members: Vec<_> = lists.members().into_iter().map(member).collect();
        decide(&View {
            now: at(100),
            lists: &lists,
            members: &members,
            incomplete_locks: &[],
            busy: None,
            others: Some(Others { unclaimed, behind: &[], told: &[] }),
            former_closed_since: None,
            rejoin_delay: DELAY,
        })
    };
    assert_eq!(step(false, &[]), ChangeStep::Wait(Obstacle::Members(vec!["a".into()])));
    assert_eq!(step(true, &["d".into()]), ChangeStep::Wait(Obstacle::Unclaimed(vec!["d".into()])));
    assert_eq!(step(true, &[]), ChangeStep::Switch);
}

#[test]
fn what_is_said_to_others_follows_what_was_promised() {
    use crate::quorum::model::plan::shared_lists;
    let mut quorum = external(&["a", "b", "c"]);
    let text = |names: &str| names.split(' ').map(|name| format!("{name}.example:6379")).collect::<Vec<_>>().join(" ");
    quorum.spec.external.remove(0);
    quorum.spec.external.push(serde_json::from_value(json!({"name": "d", "address": "d.example:6379"})).unwrap());
    assert_eq!(shared_lists(&quorum), text("a b c"), "who learns does not count");
    let lists = Lists::of(&quorum);
    assert_eq!(lists.members(), ["b", "c", "d", "a"]);
    lists.switch(quorum.status.get_or_insert_default());
    assert_eq!(shared_lists(&quorum), text("a b c"), "what was promised to it alone lives");
    quorum.status.get_or_insert_default().announced = Some(Announced::BothLists);
    assert_eq!(shared_lists(&quorum), format!("{}|{}", text("b c d"), text("a b c")));
    let status = quorum.status.get_or_insert_default();
    status.former_voters.clear();
    assert_eq!(shared_lists(&quorum), text("b c d"));
}

#[test]
fn a_name_belongs_to_one_master_until_it_has_left() {
    use crate::quorum::model::invalid::Invalid;
    use crate::quorum::model::plan::{external_members, known_members, validate};
    let mut quorum = external(&["a", "b", "c"]);
    quorum.metadata.uid = Some("uid".into());
    assert!(validate(&quorum).is_ok());
    quorum.spec.external[0].secret_ref = Some(crate::api::SecretRef { name: "other".into() });
    let place = |quorum: &RedisQuorum| external_members(quorum)[0].external.clone().unwrap();
    assert_eq!(place(&quorum).secret.as_deref(), Some("other"));
    quorum.spec.external[0].address = "elsewhere:6379".into();
    assert!(matches!(validate(&quorum), Err(Invalid::External(name, _)) if name == "a"));
    assert_eq!(place(&quorum).address, "a.example:6379", "that is the one that votes");
    quorum.spec.external[0] = serde_json::from_value(json!({"name": "z", "address": "a.example:6379"})).unwrap();
    assert!(matches!(validate(&quorum), Err(Invalid::External(name, _)) if name == "z"));
    // Who leaves is still reached.
    quorum.spec.external[0].address = "z.example:6379".into();
    assert!(validate(&quorum).is_ok());
    let status = quorum.status.get_or_insert_default();
    status.voters = ["z", "b", "c"].map(str::to_owned).to_vec();
    let known: Vec<_> =
        known_members(&quorum).into_iter().map(|member| (member.name.clone(), member.address("locks"))).collect();
    assert_eq!(known.last().unwrap(), &("a".to_owned(), "a.example:6379".to_owned()));
}

#[test]
fn what_a_change_of_shared_masters_waits_for_is_told() {
    let lists = joint(None);
    for (step, told) in [
        (ChangeStep::Wait(Obstacle::Unclaimed(text(&["d"]))), "the records of d hold the claim"),
        (
            ChangeStep::Wait(Obstacle::Operators(text(&["shop/q"]))),
            "RedisQuorum shop/q has the new members too: edit each",
        ),
        (ChangeStep::Wait(Obstacle::Untold(text(&["a", "b"]))), "the records of a, b tell other operators"),
        (ChangeStep::Announce(Announced::BothLists), "other operators are told"),
    ] {
        let said = describe(&lists, &step, &[]).unwrap();
        assert!(said.starts_with("the members change to b, c, d: ") && said.contains(told), "{said}");
    }
}
