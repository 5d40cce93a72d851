use crate::quorum::{LEADER, Quorum, connected, fresh_value, member, open};
use crate::server::{Server, USERS, client, locker};
use redlock_operator::redis_member::acl::UserRule;
use redlock_operator::redis_member::{ActError, Link};
use redlock_operator::redlock::{Acquire, Command, LockMember, MemberError, MemberFailure, Reply};
use std::time::Duration;

fn inspect() -> Vec<Command> {
    vec![Command::Inspect { key: "k".into() }]
}

#[tokio::test]
async fn a_process_is_fenced_from_its_start_until_it_is_opened() {
    let server = Server::start().await;
    let voter = member("m0", &server.address());
    let mut link = voter.link();
    link.wait_for(|link| *link == Link::Unidentified(MemberError::Fenced)).await.unwrap();
    assert_eq!(voter.send(inspect()).await, Err(MemberError::Fenced));
    let mut admin = server.admin().await;
    let users = [&UserRule::locker_name(USERS)[..], "billing-e7", "nobody-e1"];
    let observed = admin.observe(&users).await.unwrap();
    assert!(observed.open_users.is_empty() && observed.unfit.is_none(), "{observed:?}");
    assert_eq!((observed.epoch, observed.counter), (None, None));
    let run_id = open(&server).await;
    // The old connection can vote immediately after the opening.
    let answers = voter.send(inspect()).await.unwrap();
    assert_eq!(answers.run_id, run_id);
    assert!(matches!(answers.replies[..], [Reply::State(_)]), "{answers:?}");
    let mut admin = server.admin().await;
    let observed = admin.observe(&users).await.unwrap();
    assert_eq!(observed.open_users, users[..2]);
    assert_eq!((observed.epoch, observed.run_id), (Some(LEADER), run_id));
    assert!(observed.clock.sent <= observed.clock.received && observed.clock.time.0 > 1_700_000_000_000_000);
}

#[tokio::test]
async fn a_restarted_process_is_fenced_and_its_votes_do_not_return() {
    let mut quorum = Quorum::of(3).await;
    let old = quorum.electors[0].admitted.clone().unwrap();
    quorum.servers[0].restart().await;
    let mut link = quorum.members[0].link();
    link.wait_for(|link| *link == Link::Unidentified(MemberError::Fenced)).await.unwrap();
    quorum.servers[1].freeze();
    let outcome = quorum.acquire("k", &fresh_value()).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    assert!(failures.contains(&("m0".into(), MemberFailure::Member(MemberError::Fenced))), "{failures:?}");
    let new = open(&quorum.servers[0]).await;
    assert_ne!(new, old);
    connected(&quorum.members[0]).await;
    let outcome = quorum.acquire("k", &fresh_value()).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    assert!(failures.contains(&("m0".into(), MemberFailure::NotAdmitted)), "{failures:?}");
    // The admitted process votes.
    quorum.electors[0].admitted = Some(new);
    let value = fresh_value();
    quorum.granted("k2", &value).await;
    quorum.release("k2", &value).await;
    quorum.servers[1].thaw();
    quorum.is_empty().await;
}

#[tokio::test]
async fn opening_never_reaches_a_process_that_came_after_the_check() {
    let mut server = Server::start().await;
    let mut admin = server.admin().await;
    assert_eq!(admin.raise_epoch(LEADER).await, Ok(()));
    let checked = admin.run_id().clone();
    server.restart().await;
    let opened = admin.open(LEADER, &[locker()]).await;
    assert!(matches!(opened, Err(ActError::Member(MemberError::Unreachable(_)))), "{opened:?}");
    tokio::time::timeout(Duration::from_secs(5), admin.disconnected())
        .await
        .expect("the connection did not report its end");
    assert!(matches!(admin.observe(&[]).await, Err(MemberError::Unreachable(_))));
    let mut admin = server.admin().await;
    assert_ne!(*admin.run_id(), checked);
    let observed = admin.observe(&[locker().name()]).await.unwrap();
    assert!(observed.open_users.is_empty(), "{observed:?}");
}

#[tokio::test]
async fn an_operator_with_an_older_epoch_can_neither_open_nor_close() {
    let server = Server::start().await;
    let users = [locker(), client()];
    let names = [users[0].name(), users[1].name()];
    let mut old = server.admin().await;
    assert_eq!(old.raise_epoch(4).await, Ok(()));
    let mut new = server.admin().await;
    assert_eq!(new.raise_epoch(5).await, Ok(()));
    // The new leader closed the old leader's connection. A new connection of the old leader has no effect.
    assert!(old.observe(&[]).await.is_err());
    let mut old = server.admin().await;
    assert_eq!(old.open(4, &users).await, Err(ActError::Deposed));
    assert_eq!(old.raise_epoch(4).await, Err(ActError::Outdated(5)));
    assert!(new.observe(&names).await.unwrap().open_users.is_empty());
    assert_eq!(new.open(5, &users).await, Ok(()));
    assert_eq!(old.close(4, &users).await, Err(ActError::Deposed));
    assert_eq!(new.observe(&names).await.unwrap().open_users, names);
    // The leader can raise its own epoch again.
    assert_eq!(new.raise_epoch(5).await, Ok(()));
}

#[tokio::test]
async fn nothing_is_opened_before_an_epoch_was_raised() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    assert_eq!(admin.open(0, &[locker()]).await, Err(ActError::Deposed));
    assert!(admin.observe(&[locker().name()]).await.unwrap().open_users.is_empty());
}

#[tokio::test]
async fn closing_acts_on_open_connections_at_once() {
    let quorum = Quorum::of(1).await;
    let value = fresh_value();
    quorum.granted("k", &value).await;
    let mut other = quorum.servers[0].admin().await;
    let mut admin = quorum.servers[0].admin().await;
    assert_eq!(admin.close(LEADER, &[locker(), client()]).await, Ok(()));
    assert!(other.observe(&[]).await.is_err(), "the operator's other connection must end");
    assert!(admin.observe(&[]).await.is_ok());
    let outcome = quorum.acquire("k2", &fresh_value()).await;
    let fenced = ("m0".into(), MemberFailure::Member(MemberError::Fenced));
    assert_eq!(outcome, Acquire::NoQuorum { failures: vec![fenced] });
    // The voter needs no new connection after the process is opened again.
    assert_eq!(admin.open(LEADER, &[locker()]).await, Ok(()));
    assert_eq!(quorum.release("k", &value).await, 1);
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_connection_that_missed_a_deadline_is_not_used_again() {
    let server = Server::start().await;
    let endpoint = crate::server::endpoint(&server.address(), "operator");
    let clock = std::sync::Arc::new(redlock_operator::time::SystemClock);
    let connecting =
        redlock_operator::redis_member::AdminConnection::connect(&endpoint, clock, Duration::from_millis(300));
    let mut admin = connecting.await.unwrap();
    server.freeze();
    assert_eq!(admin.raise_epoch(1).await, Err(ActError::Member(MemberError::TimedOut)));
    server.thaw();
    let refused = admin.open(1, &[locker()]).await;
    assert!(matches!(refused, Err(ActError::Member(MemberError::Unreachable(_)))), "{refused:?}");
}
