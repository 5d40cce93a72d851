use super::*;

#[test]
fn the_wait_begins_when_the_last_old_member_is_closed() {
    assert_eq!(World::changing(3, 1, 0).run(), WHOLE);
    let mut world = World::changing(3, 1, 3);
    let until = at(world.now) + DELAY;
    assert_eq!(world.step(), ChangeStep::WaitUntil(until));
    world.now += 9;
    assert_eq!(world.step(), ChangeStep::WaitUntil(until));
    // A replica that has just observed it starts the wait now.
    world.closed_since = None;
    assert_eq!(world.step(), ChangeStep::WaitUntil(at(world.now) + DELAY));
    world.closed_since = Some(world.now - 9);
    world.now += 1;
    assert_eq!(world.step(), ChangeStep::Finish);
}

#[test]
fn the_end_needs_old_counters_and_a_new_majority() {
    let mut world = World::changing(3, 5, 4);
    assert_eq!(world.step(), ChangeStep::Finish);
    world.up[..2].fill(false);
    let votes = |members: &[String]| ChangeStep::Wait(Until::MembersVote { members: listed(members) });
    assert_eq!(world.step(), votes(&[name(0), name(1)]));
    world.up[1] = true;
    world.up[3..5].fill(false);
    assert_eq!(world.step(), votes(&[0, 3, 4].map(name)));
    world.up[3] = true;
    assert_eq!(world.step(), ChangeStep::Finish);
}

#[test]
fn an_old_member_that_cannot_be_closed_stops_the_change() {
    let mut world = World::changing(3, 5, 2);
    world.fence(&name(2), true);
    // A member that only joins is in no majority of the old list.
    world.fence(&name(4), true);
    assert_eq!(world.act(), ChangeStep::Close([0, 1, 3].map(name).to_vec()));
    world.now += 1_000;
    assert_eq!(world.step(), ChangeStep::Unclosed(vec![name(2)]));
    let text = describe(&world.lists(), &world.step(), &["main-2: no answer".into()]).unwrap();
    for part in ["from 3 to 5 members", "main-2 can still run", "known to be dead", "no answer"] {
        assert!(text.contains(part), "{text}");
    }
    // Its death is known. No remaining process can vote for the old list, so the wait begins now.
    world.fence(&name(2), false);
    world.closed_since = former_is_closed(&world.quorum).then_some(world.now);
    assert_eq!(world.step(), ChangeStep::WaitUntil(at(world.now) + DELAY));
}

#[test]
fn an_edit_before_the_switch_acts_at_once_and_later_ones_wait() {
    let mut world = World::settled(3);
    world.quorum.spec.members = 5;
    assert!(matches!(world.step(), ChangeStep::Wait(_)));
    world.quorum.spec.members = 3;
    assert_eq!(world.step(), ChangeStep::Nothing);
    world.quorum.spec.members = 5;
    world.admit_all();
    world.act_times(1);
    assert_eq!(world.act(), ChangeStep::Switch);
    world.quorum.spec.members = 7;
    assert!(matches!(world.act(), ChangeStep::Close(_)));
    assert_eq!(world.run(), WHOLE[3..]);
    assert_eq!((world.lists().voters.len(), world.lists().is_settled()), (5, false));
    world.admit_all();
    assert_eq!(world.run(), WHOLE);
    assert_eq!((world.lists().voters.len(), world.lists().epoch), (7, 3));
}
