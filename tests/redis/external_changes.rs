//! What the record of a master that others run does when member lists change: it closes an epoch, and tells who may rely on which list.

use crate::external::{LIST, Master, claim, kept};
use crate::quorum::{connected, fresh_value};
use crate::server::wait_until;
use redlock_operator::redis_member::{Claim, Guard, RECORD_KEY, RedisMember};
use redlock_operator::redlock::{Command, LockMember, LockValue, MemberError, Reply};
use redlock_operator::time::SystemClock;
use std::sync::Arc;
use std::time::Duration;

/// One that votes for the quorum `uid` under this membership epoch.
async fn voter(master: &Master, uid: &str, epoch: i64) -> Arc<RedisMember> {
    let guard = Guard { uid: uid.into(), epoch };
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
async fn nobody_votes_under_an_epoch_that_the_record_knows_to_be_over() {
    let mut master = Master::start().await;
    let (old, new, other) =
        (voter(&master, "ours", 1).await, voter(&master, "ours", 2).await, voter(&master, "theirs", 1).await);
    let (held, later) = (fresh_value(), fresh_value());
    master.look(&claim("theirs", LIST, 30), Some(30)).await;
    master.look(&claim("ours", LIST, 30), Some(30)).await;
    let replies = ask(&old, vec![acquire("a", &held), extend("a", &held)]).await;
    assert!(matches!(replies[..], [Reply::Acquired { .. }, Reply::Extended { .. }]), "{replies:?}");

    let next = Claim { epoch: 2, lives: Duration::from_millis(200), ..claim("ours", LIST, 30) };
    assert_eq!(master.look(&next, Some(30)).await.epoch, 2);
    let refused = vec![Reply::Failed(MemberError::Fenced), Reply::Failed(MemberError::Fenced)];
    assert_eq!(ask(&old, vec![acquire("b", &later), extend("a", &held)]).await, refused);
    let replies = ask(&new, vec![extend("a", &held), acquire("b", &later)]).await;
    assert!(matches!(replies[..], [Reply::Extended { .. }, Reply::Acquired { .. }]), "{replies:?}");
    let replies = ask(&other, vec![acquire("c", &later)]).await;
    assert!(
        matches!(replies[..], [Reply::Acquired { .. }]),
        "an epoch of another quorum is another epoch: {replies:?}"
    );
    // What is no vote goes on.
    let release = Command::Release { key: "a".into(), value: held.clone() };
    assert_eq!(ask(&old, vec![release]).await, [Reply::Done(true)]);

    // The claim runs out, the epoch is remembered.
    let mut last = claim("theirs", LIST, 30);
    last.generation = 2;
    wait_until("the claim has run out", async || master.look(&last, Some(30)).await.others.is_empty()).await;
    assert_eq!(ask(&old, vec![acquire("d", &later), extend("b", &later)]).await, refused);
    let look = master.look(&claim("ours", LIST, 30), Some(30)).await;
    assert_eq!((look.kept, look.stood, look.epoch), (None, false, 2), "who lags behind makes no claim either");
    assert_eq!(master.look(&next, Some(30)).await.kept, kept(30));

    // Only the process that starts anew has forgotten, and nobody who lags behind has admitted that one.
    master.restart().await;
    wait_until("the next process does not know", async || {
        let answers = old.send(vec![acquire("a", &held)]).await;
        answers.is_ok_and(|answers| matches!(answers.replies[..], [Reply::Acquired { .. }]))
    })
    .await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_voted_by_nobody() {
    let master = Master::start().await;
    let voter = voter(&master, "ours", 1).await;
    master.as_owner(&format!("SET {RECORD_KEY} nonsense")).await.unwrap();
    let refused = Reply::Failed(MemberError::Other("RECORD".to_owned()));
    assert_eq!(ask(&voter, vec![acquire("a", &fresh_value())]).await, [refused]);
}

const NEXT: &str = "a:1 b:1 d:1";

/// In the middle of a change from the one list to the other.
fn changing(uid: &str) -> Claim {
    Claim { list: format!("{NEXT}|{LIST}"), epoch: 2, phase: 1, ..claim(uid, LIST, 30) }
}

#[tokio::test]
async fn operators_agree_while_they_share_a_list() {
    let master = Master::start().await;
    let ours = Claim { joined: true, ..claim("ours", LIST, 30) };
    master.look(&ours, Some(30)).await;
    let look = master.look(&changing("theirs"), Some(30)).await;
    assert_eq!((look.kept, look.list), (kept(30), changing("theirs").list), "it has a majority of ours, too");
    assert_eq!(master.look(&ours, Some(30)).await.kept, kept(30));
    let ahead = Claim { list: NEXT.into(), epoch: 2, ..claim("ahead", LIST, 30) };
    assert_eq!(master.look(&ahead, Some(30)).await.kept, None, "not with us");

    // Nobody gives up the list that somebody else counts alone.
    let ends = Claim { newest: true, phase: 2, ..changing("theirs") };
    let look = master.look(&ends, Some(30)).await;
    assert_eq!((look.kept, look.newest), (kept(30), false), "it goes on voting with both");
    let look = master.look(&changing("ours"), Some(30)).await;
    assert_eq!((look.kept, look.stood), (kept(30), true), "what stood goes on");
    assert!(master.look(&ends, Some(30)).await.newest);

    // From then on nobody comes who counts the old one alone, and nobody goes back.
    assert_eq!(master.look(&claim("late", LIST, 30), Some(30)).await.kept, None);
    let back = Claim { list: format!("{LIST}|{NEXT}"), newest: true, phase: 2, ..changing("ours") };
    let look = master.look(&back, Some(30)).await;
    assert_eq!((look.kept, look.newest), (kept(30), false));
    assert_eq!(master.look(&Claim { list: LIST.into(), epoch: 3, ..ours }, Some(30)).await.kept, None);
    let done = Claim { list: NEXT.into(), phase: 3, ..changing("theirs") };
    assert_eq!(master.look(&done, Some(30)).await.kept, kept(30));
    assert_eq!(master.look(&ahead, Some(30)).await.kept, kept(30));
    // An earlier step of the same change is behind.
    let look = master.look(&changing("theirs"), Some(30)).await;
    assert_eq!((look.kept, look.list.as_str()), (kept(30), NEXT), "and what another replica has said counts for it");
}
