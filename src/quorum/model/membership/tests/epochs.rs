//! The membership epoch never falls.

use super::*;
use crate::api::test_util::parsed;
use crate::quorum::model::lists::lost_epoch;

/// A user can change every field with `kubectl patch rq main --subresource=status`.
#[test]
fn the_epoch_is_never_lower_than_one_that_a_member_has_had() {
    let lists = |epoch: Option<i64>, recorded: Option<i64>| {
        let member = crate::api::MemberStatus { name: "main-0".into(), epoch: recorded, ..Default::default() };
        let status = RedisQuorumStatus { membership_epoch: epoch, members: vec![member], ..Default::default() };
        Lists::of_status(Some(&status), vec!["main-0".into()])
    };
    for (epoch, recorded, expected) in
        [(None, None, 1), (Some(7), None, 7), (Some(7), Some(7), 7), (None, Some(7), 7), (Some(2), Some(7), 7)]
    {
        assert_eq!(lists(epoch, recorded).epoch, expected, "{epoch:?} {recorded:?}");
    }
    // The whole status is lost, and a member has users of epoch 7.
    let lost = |found| lost_epoch(&lists(None, None), found, []);
    assert_eq!((lost(None), lost(Some(1))), (None, None));
    assert_eq!(lost(Some(2)), None, "made for the next change");
    assert_eq!(lost(Some(7)), Some(8), "its list is unknown");
    // An older status was restored, but the members have closed the users of its epoch.
    let open = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>();
    let with = |epoch, found, users: &[&str], is_admitted| {
        lost_epoch(&lists(Some(epoch), None), Some(found), [(open(users).as_slice(), is_admitted)])
    };
    for is_admitted in [false, true] {
        let restored = |users: &[&str]| with(1, 2, users, is_admitted);
        assert_eq!(restored(&["locker-e1", "locker-e2"]), None, "opened for the next change");
        assert_eq!(restored(&["locker-e2"]), Some(3), "the users of epoch 1 cannot vote");
        assert_eq!(restored(&[]), None, "closed by the fence");
    }
    // A user raised the epoch in the status.
    assert_eq!(with(9, 8, &["ci-e7", "locker-e7"], true), Some(11), "no member opens the users of epoch 9");
    assert_eq!(with(9, 8, &["locker-e7"], false), None, "the fence closes it");
}

#[test]
fn a_raised_epoch_withdraws_the_admissions_of_own_members() {
    let member = |name: &str, state: &str, external: bool| {
        let external = external.then_some(json!({"address": "redis.example:6379"}));
        let reason = (state == "Fenced").then_some("ClockJump");
        json!({"name": name, "state": state, "runID": name, "external": external, "epoch": 1, "reason": reason})
    };
    let members = [member("a", "Admitted", false), member("b", "Fenced", false), member("c", "Admitted", true)];
    let mut status: RedisQuorumStatus = parsed(json!({"membershipEpoch": 1, "members": members}));
    let before = status.clone();
    let lists = Lists::of_status(Some(&status), vec!["a".into()]);
    lists.continue_with(3, &mut status);
    assert_eq!(status.membership_epoch, Some(3));
    assert_eq!(status.members[0].state, crate::api::MemberState::Starting);
    assert_eq!(status.members[0].epoch, Some(1), "its users of epoch 1 and later are closed");
    assert_eq!(status.members[1..], before.members[1..], "a fenced member keeps its reason");
}
