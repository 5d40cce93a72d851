//! The membership epoch never falls.

use super::*;
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
    let restored = |users: &[&str]| lost_epoch(&lists(Some(1), None), Some(2), [open(users).as_slice()]);
    assert_eq!(restored(&["locker-e1", "locker-e2"]), None, "opened for the next change");
    assert_eq!(restored(&["locker-e2"]), Some(3), "the users of epoch 1 cannot vote");
    assert_eq!(restored(&[]), None, "closed by the fence");
}
