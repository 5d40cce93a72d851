//! A change of the member list, on one member that votes throughout.

use super::*;

const TERM: i64 = 7;

/// The plan of a quorum of one member with this status, and the users that its link reads.
fn plan_with(status: serde_json::Value) -> (Plan, Vec<String>) {
    let clients = json!([{"name": "billing", "namespace": "shop", "keyPrefix": "shop/"}]);
    let quorum = quorum(json!({"members": 3, "clients": clients}), status);
    (validate(&quorum).unwrap(), voting_users(&quorum, "main-0"))
}

fn open_users(link: &MemberLink) -> Vec<String> {
    link.state().observation().map(|observation| observation.open_users.clone()).unwrap_or_default()
}

#[tokio::test]
async fn only_clients_with_the_earlier_list_are_shut_out() {
    let all = ["main-0", "main-1", "main-2"];
    let member_of = |epoch: i64| json!([{"name": "main-0", "epoch": epoch}]);
    let (learning, users) = plan_with(json!({"membershipEpoch": 1, "voters": ["main-0"], "members": member_of(1)}));
    let auth = Auth::random();
    let member = Member::new(&learning, &auth);
    let link = linked(&member, &learning, &users, &auth).await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let mut admin = link.admin_session(&run_id).await.unwrap();
    admin.raise_epoch(TERM).await.unwrap();
    admin.open(TERM, &learning.open_rules(&auth, "main-0"), token(1_000)).await.unwrap();
    admin.open_more(TERM, &[learning.next_locker(&auth, "main-0")]).await.unwrap();
    drop(admin);
    assert_eq!(open_users(&link), ["locker-e1", "billing-e1", "locker-e2", "probe"]);
    // An electorate that is made now and used later.
    let lagging = link.voter(1).unwrap();
    assert_eq!(vote_by(lagging.clone(), &run_id, "a").await, Some(token(1_001)));

    let joint = json!({"membershipEpoch": 2, "voters": all, "formerVoters": ["main-0"], "members": member_of(1)});
    let (joint, users) = plan_with(joint);
    place(&link, "pod-1", &member, (&joint, &users, &auth));
    assert!(link.voter(1).is_none(), "the link has no voter for the previous epoch");
    assert_eq!(vote_by(lagging.clone(), &run_id, "b").await, Some(token(1_002)), "until the users are closed");
    let former = joint.former_rules(1);
    link.admin_session(&run_id).await.unwrap().close_some(TERM, &former).await.unwrap();
    assert_eq!(vote_by(lagging, &run_id, "c").await, None, "an old connection no longer votes");
    assert_eq!(vote_by(link.voter(2).unwrap(), &run_id, "c").await, Some(token(1_003)));
    let seen = until(&link, |state| state.observation().is_some_and(|seen| seen.open_users.len() == 2)).await;
    assert_eq!(seen.observation().unwrap().open_users, ["locker-e2", "probe"]);
    assert!(seen.fenced_since().is_none(), "it still votes, so no wait begins");

    // At the end the counter rises and never falls, and the users of clients of the new list are opened.
    link.admin_session(&run_id).await.unwrap().restore_counter(token(5_000)).await.unwrap();
    link.admin_session(&run_id).await.unwrap().restore_counter(token(4_000)).await.unwrap();
    let (ended, _) = plan_with(json!({"membershipEpoch": 2, "voters": all, "members": member_of(2)}));
    link.admin_session(&run_id).await.unwrap().open_more(TERM, &ended.open_rules(&auth, "main-0")).await.unwrap();
    assert_eq!(open_users(&link), ["locker-e2", "billing-e2", "probe"]);
    assert_eq!(vote_by(link.voter(2).unwrap(), &run_id, "d").await, Some(token(5_001)));
}

/// A process is closed for users that neither the status nor the spec names.
///
/// A client can be removed at the moment when the process is fenced, and a user can have edited the epoch in the
/// status.
#[tokio::test]
async fn a_process_is_closed_for_users_outside_status_and_spec() {
    let (plan, _) = plan();
    let auth = Auth::random();
    let member = Member::new(&plan, &auth);
    let asked = ["locker-e1".to_owned(), "probe".to_owned()];
    let link = linked(&member, &plan, &asked, &auth).await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let mut admin = link.admin_session(&run_id).await.unwrap();
    admin.raise_epoch(TERM).await.unwrap();
    assert_eq!(link.state().highest_epoch(), Some(1), "as in its ACL file");
    admin.open(TERM, &plan.open_rules(&auth, "main-0"), token(1_000)).await.unwrap();
    let earlier = UserRule::locker(7, &auth.password("main-0", "locker-e7"));
    admin.open_more(TERM, std::slice::from_ref(&earlier)).await.unwrap();
    drop(admin);
    assert_eq!(open_users(&link), ["locker-e1", "probe"], "no other user is read");

    let rules: Vec<UserRule> =
        plan.open_rules(&auth, "main-0").into_iter().filter(|rule| !rule.name().starts_with("billing")).collect();
    link.admin_session(&run_id).await.unwrap().close(TERM, &rules).await.unwrap();
    let state = link.state();
    assert_eq!((state.highest_epoch(), state.processes.last().unwrap().users), (Some(7), Users::Closed));
    assert!(link.admin_session(&run_id).await.unwrap().observe_all().await.unwrap().open_users.is_empty());

    // The next leader observes a user that opens later, and its probes observe it from then on.
    link.admin_session(&run_id).await.unwrap().open_more(TERM, &[earlier]).await.unwrap();
    link.admin_session(&run_id).await.unwrap().raise_epoch(TERM + 1).await.unwrap();
    assert_eq!(open_users(&link), ["locker-e7"]);
    until(&link, |state| state.processes.last().is_some_and(|process| process.users == Users::Open)).await;
}
