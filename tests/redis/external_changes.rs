//! The record of an external master while member lists change.
//!
//! It closes an epoch, and keeps the old list until its end.

use crate::external::{LIST, Master, claim};
use crate::quorum::{connected, fresh_value};
use crate::server::wait_until;
use redlock_operator::redis_member::{Claim, Guard, RECORD_KEY, RedisMember, read_record};
use redlock_operator::redlock::{Command, LockMember, LockValue, MemberError, Reply};
use redlock_operator::time::SystemClock;
use std::sync::Arc;
use std::time::Duration;

/// A member that votes for the quorum `uid` under this membership epoch.
async fn voter(master: &Master, uid: &str, epoch: i64) -> Arc<RedisMember> {
    guarded(master, Guard { uid: uid.into(), epoch, since: None }).await
}

async fn guarded(master: &Master, guard: Guard) -> Arc<RedisMember> {
    let member = Arc::new(RedisMember::guarded("vm".into(), master.endpoint(), Arc::new(SystemClock), guard));
    connected(&member).await;
    member
}

async fn ask(member: &RedisMember, commands: Vec<Command>) -> Vec<Reply> {
    member.send(commands).await.unwrap().replies.to_vec()
}

fn acquire(key: &str, value: &LockValue) -> Command {
    let ttl = Duration::from_secs(25);
    Command::Acquire { key: key.into(), value: value.clone(), ttl, token: true, not_after: None }
}

fn extend(key: &str, value: &LockValue) -> Command {
    Command::Extend { key: key.into(), value: value.clone(), ttl: Duration::from_secs(25) }
}

#[tokio::test]
async fn a_member_refuses_votes_of_an_epoch_that_its_record_ended() {
    let mut master = Master::start().await;
    let (old, new, other) =
        (voter(&master, "ours", 2).await, voter(&master, "ours", 4).await, voter(&master, "theirs", 2).await);
    let (held, later) = (fresh_value(), fresh_value());
    master.claims(&claim("theirs", LIST, 30)).await;
    master.claims(&claim("ours", LIST, 30)).await;
    let replies = ask(&old, vec![acquire("a", &held), extend("a", &held)]).await;
    assert!(matches!(replies[..], [Reply::Acquired { .. }, Reply::Extended { .. }]), "{replies:?}");

    let next = Claim { epoch: 3, ended: false, lives: Duration::from_millis(200), ..claim("ours", LIST, 30) };
    assert_eq!(master.claims(&next).await.epoch, 3);
    let refused = vec![Reply::Failed(MemberError::Fenced), Reply::Failed(MemberError::Fenced)];
    assert_eq!(ask(&old, vec![acquire("b", &later), extend("a", &held)]).await, refused);
    let replies = ask(&new, vec![extend("a", &held), acquire("b", &later)]).await;
    assert!(matches!(replies[..], [Reply::Extended { .. }, Reply::Acquired { .. }]), "{replies:?}");
    let replies = ask(&other, vec![acquire("c", &later)]).await;
    assert!(matches!(replies[..], [Reply::Acquired { .. }]), "the epochs of two quorums are independent: {replies:?}");
    // Commands other than votes still work.
    let release = Command::Release { key: "a".into(), value: held.clone() };
    assert_eq!(ask(&old, vec![release]).await, [Reply::Done(true)]);

    // The claim expires, but the record keeps the epoch.
    let mut last = claim("theirs", LIST, 30);
    last.generation = 2;
    wait_until("the claim has run out", async || master.claims(&last).await.others.is_empty()).await;
    assert_eq!(ask(&old, vec![acquire("d", &later), extend("b", &later)]).await, refused);
    let state = master.claims(&claim("ours", LIST, 30)).await;
    assert_eq!((state.kept, state.stood, state.epoch), (false, false, 3), "a lagging replica must make no claim");
    assert!(master.claims(&next).await.kept);

    // Only a restarted process loses the record. In production no lagging replica has admitted that process.
    master.restart().await;
    wait_until("the next process does not know", async || {
        let answers = old.send(vec![acquire("a", &held)]).await;
        answers.is_ok_and(|answers| matches!(answers.replies[..], [Reply::Acquired { .. }]))
    })
    .await;
}

#[tokio::test]
async fn an_unreadable_record_refuses_claims_and_votes() {
    let master = Master::start().await;
    let voter = voter(&master, "ours", 2).await;
    master.as_owner(&format!("SET {RECORD_KEY} nonsense")).await.unwrap();
    let refused = MemberError::Other("RECORD".to_owned());
    let read = read_record(&mut master.watch().await, &claim("ours", LIST, 30), true).await;
    assert_eq!(read, Err(refused.clone()));
    assert_eq!(ask(&voter, vec![acquire("a", &fresh_value())]).await, [Reply::Failed(refused)]);
}

#[tokio::test]
async fn an_emptied_master_has_no_vote_before_its_next_admission() {
    let master = Master::start().await;
    let admitted =
        async |since: i64| guarded(&master, Guard { uid: "ours".into(), epoch: 2, since: Some(since) }).await;
    let before = master.since(&claim("ours", LIST, 30), true).await;
    let voter = admitted(before).await;
    let held = fresh_value();
    assert!(matches!(ask(&voter, vec![acquire("a", &held)]).await[..], [Reply::Acquired { .. }]));
    master.as_owner("FLUSHALL").await.unwrap();
    let votes = || vec![acquire("b", &held), extend("a", &held)];
    let refused = vec![Reply::Failed(MemberError::Fenced), Reply::Failed(MemberError::Fenced)];
    assert_eq!(ask(&voter, votes()).await, refused);
    // A replica writes the record again, before the leader has read that it was lost.
    let after = master.since(&claim("ours", LIST, 30), true).await;
    assert_ne!(after, before);
    assert_eq!(ask(&voter, votes()).await, refused);
    let replies = ask(&*admitted(after).await, vec![acquire("b", &held)]).await;
    assert!(matches!(replies[..], [Reply::Acquired { .. }]), "{replies:?}");
}

const NEXT: &str = "a:1 b:1 d:1";

#[tokio::test]
async fn the_old_list_stays_in_force_while_either_operator_pauses() {
    let master = Master::start().await;
    let (ours, theirs) = (claim("ours", LIST, 30), claim("theirs", LIST, 30));
    master.claims(&ours).await;
    master.claims(&theirs).await;
    let pauses = |old: &Claim| Claim { epoch: 3, ended: false, ..old.clone() };
    let ended = |uid| Claim { epoch: 4, ..claim(uid, NEXT, 30) };
    assert!(master.claims(&pauses(&ours)).await.kept, "the old list stays until its promises expire");
    assert!(master.claims(&theirs).await.kept, "our pause must not stop the other operator");
    let state = master.claims(&ended("ours")).await;
    assert_eq!((state.kept, state.others.len()), (false, 1), "the change must wait for the other operator");
    assert!(!master.claims(&pauses(&ours)).await.kept, "a lagging replica must not restore the old list");
    let state = master.claims(&theirs).await;
    assert_eq!((state.kept, state.others.len()), (true, 0), "our claim with the old list must be gone");

    assert!(master.claims(&pauses(&theirs)).await.kept);
    assert!(!master.claims(&ended("ours")).await.kept, "our new list must wait for their promises");
    assert!(master.claims(&ended("theirs")).await.kept);
    assert!(master.claims(&ended("ours")).await.kept);
    assert!(!master.claims(&claim("late", LIST, 30)).await.kept);
}

#[tokio::test]
async fn an_operator_that_disagrees_closes_its_epochs_all_the_same() {
    let master = Master::start().await;
    master.claims(&claim("theirs", NEXT, 30)).await;
    let ours = claim("ours", LIST, 30);
    assert!(!master.claims(&ours).await.kept);
    let state = master.read(&Claim { epoch: 3, ended: false, ..ours }, false).await;
    assert_eq!((state.kept, state.epoch), (false, 3));
    assert!(master.claims(&Claim { epoch: 4, ..claim("ours", NEXT, 30) }).await.kept);
}
