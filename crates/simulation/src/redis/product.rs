//! The product's own connections use the state machine, on a paused clock.

mod machine;

use super::Config;
use machine::{World, password};
use redlock_operator::redis_member::acl::{KeyPrefix, OPERATOR_USER, UserRule};
use redlock_operator::redis_member::{
    ActError, AdminConnection, Claim, Guard, Keys, Link, RedisMember, Secret, raise_counter, read_record,
};
use redlock_operator::redlock::{
    Command, FencingToken, KeyState, LockMember, LockValue, MemberError, Reply, RunId, StoredValue,
};
use redlock_operator::time::UnixMicros;
use std::time::Duration;
use tokio::task::LocalSet;

const EPOCH: i64 = 3;
const TTL: Duration = Duration::from_secs(30);

fn locker() -> UserRule {
    UserRule::locker(7, &password())
}

fn value(text: &str) -> LockValue {
    LockValue::from_text(text)
}

async fn open(world: &World) -> RunId {
    let mut admin = world.admin().await.unwrap();
    assert_eq!(admin.raise_epoch(EPOCH).await, Ok(()));
    assert_eq!(admin.open(EPOCH, &[locker()]).await, Ok(()));
    admin.run_id().clone()
}

async fn one(member: &RedisMember, command: Command) -> Reply {
    let answers = member.send(vec![command]).await.unwrap();
    answers.replies.into_first().unwrap()
}

fn acquire(key: &str, text: &str) -> Command {
    Command::Acquire { key: key.into(), value: value(text), ttl: TTL, token: true, not_after: None }
}

async fn linked(member: &RedisMember, state: impl Fn(&Link) -> bool) {
    let mut link = member.link();
    link.wait_for(state).await.unwrap();
}

fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_member_votes_extends_seals_releases_and_repairs() {
    LocalSet::new().run_until(votes()).await;
}

async fn votes() {
    let world = World::new();
    let member = world.voter();
    linked(&member, |link| *link == Link::Unidentified(MemberError::Fenced)).await;
    assert_eq!(member.send(vec![acquire("k", "v")]).await, Err(MemberError::Fenced));
    let run_id = open(&world).await;
    assert_eq!(one(&member, acquire("k", "v")).await, Reply::Acquired { token: token(1), time: None });
    linked(&member, |link| *link == Link::Open(run_id.clone())).await;

    tokio::time::sleep(Duration::from_secs(10)).await;
    let time = UnixMicros(world.now());
    let holder = KeyState::String { value: StoredValue::new("v".to_owned()), remaining: Some(Duration::from_secs(20)) };
    assert_eq!(one(&member, acquire("k", "w")).await, Reply::Refused { holder: holder.clone(), time: None });
    let extend = |text: &str| Command::Extend { key: "k".into(), value: value(text), ttl: TTL };
    assert_eq!(one(&member, extend("w")).await, Reply::Refused { holder, time: Some(time) });
    assert_eq!(one(&member, extend("v")).await, Reply::Extended { time: Some(time) });
    let raise = Command::RaiseCounter { key: "k".into(), value: value("v"), token: token(9), behind: 0 };
    assert_eq!(one(&member, raise).await, Reply::Raised);
    let seal = Command::Seal {
        key: "k".into(),
        value: value("v"),
        sealed: value("sealed"),
        lock_delay: Duration::from_secs(5),
        least: Duration::from_secs(1),
    };
    let sealed = Reply::Sealed { remaining: Duration::from_secs(35) };
    assert_eq!(one(&member, seal.clone()).await, sealed);
    assert_eq!(one(&member, seal).await, sealed, "sealing again changes nothing");
    let release = |text: &str| Command::Release { key: "k".into(), value: value(text) };
    assert_eq!(one(&member, release("v")).await, Reply::Done(false));
    assert_eq!(one(&member, release("sealed")).await, Reply::Done(true));
    let not_after = UnixMicros(world.now() + 2_000_000);
    let repair = Command::Repair { key: "k".into(), value: value("v"), px: TTL, until: not_after, not_after };
    assert_eq!(one(&member, repair).await, Reply::Done(true));
    let inspect = || Command::Inspect { key: "k".into() };
    let state = KeyState::String { value: StoredValue::new("v".to_owned()), remaining: Some(Duration::from_secs(2)) };
    assert_eq!(one(&member, inspect()).await, Reply::State(state));
    tokio::time::sleep(Duration::from_millis(2_001)).await;
    assert_eq!(one(&member, inspect()).await, Reply::State(KeyState::Missing));
    assert_eq!(one(&member, acquire("k", "x")).await, Reply::Acquired { token: token(10), time: None });
    world.is_modelled();
}

#[tokio::test(start_paused = true)]
async fn a_restarted_member_is_fenced_again() {
    LocalSet::new().run_until(restarts()).await;
}

async fn restarts() {
    let world = World::new();
    let member = world.voter();
    let first = open(&world).await;
    linked(&member, |link| *link == Link::Open(first.clone())).await;
    let mut admin = world.admin().await.unwrap();
    world.restart();
    admin.disconnected().await;
    assert!(matches!(admin.open(EPOCH, &[locker()]).await, Err(ActError::Member(MemberError::Unreachable(_)))));
    linked(&member, |link| *link == Link::Unidentified(MemberError::Fenced)).await;
    assert_eq!(member.send(vec![acquire("k", "v")]).await, Err(MemberError::Fenced));
    let mut admin = world.admin().await.unwrap();
    let observed = admin.observe(&[locker().name()]).await.unwrap();
    assert_eq!((observed.open_users, observed.epoch, observed.counter), (Vec::new(), None, None));
    assert_ne!(*admin.run_id(), first);
    assert_eq!(observed.clock.time, UnixMicros(world.now()));
    world.is_modelled();
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_opens_and_closes() {
    LocalSet::new().run_until(leads()).await;
}

async fn leads() {
    let world = World::new();
    let client = UserRule::client("billing", 7, &KeyPrefix::parse("shop/").unwrap(), &password());
    let users = [locker(), client];
    let names = [users[0].name(), users[1].name()];
    let mut old = world.admin().await.unwrap();
    assert_eq!(old.open(0, &users).await, Err(ActError::Deposed));
    assert_eq!(old.raise_epoch(4).await, Ok(()));
    let mut new = world.admin().await.unwrap();
    assert_eq!(new.raise_epoch(5).await, Ok(()));
    assert!(old.observe(&[]).await.is_err(), "the new leader has cut it");
    let mut old = world.admin().await.unwrap();
    assert_eq!(old.raise_epoch(4).await, Err(ActError::Outdated(5)));
    assert_eq!(old.open(4, &users).await, Err(ActError::Deposed));
    assert_eq!(new.open(5, &users).await, Ok(()));
    assert_eq!(old.close(4, &users).await, Err(ActError::Deposed));
    let observed = new.observe(&names).await.unwrap();
    assert_eq!(observed.open_users, names);
    assert_eq!(observed.unfit, None);
    assert_eq!(new.restore_counter(token(40)).await, Ok(token(40)));
    let member = world.voter();
    assert_eq!(linked_vote(&member).await, token(41));
    let observed = new.observe(&[]).await.unwrap();
    assert_eq!(observed.keys, Keys { endless: 0, average_ttl: TTL }, "without the operator's own keys");
    assert_eq!(new.close(5, &users).await, Ok(()));
    assert_eq!(*member.send(vec![acquire("l", "v")]).await.unwrap().replies, [Reply::Failed(MemberError::Fenced)]);
    assert!(old.observe(&[]).await.is_err(), "closing cuts the operator's other connections");
    new.reload_certificate("/tls/tls.crt", "/tls/tls.key").await.unwrap();
    assert!(!world.user(OPERATOR_USER).contains("config"), "the operator removes this right");
    world.is_modelled();
}

async fn linked_vote(member: &RedisMember) -> FencingToken {
    linked(member, |link| matches!(link, Link::Open(_))).await;
    match one(member, acquire("k", "v")).await {
        Reply::Acquired { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn passwords_are_changed_under_open_connections() {
    LocalSet::new().run_until(rotates()).await;
}

async fn rotates() {
    let world = World::new();
    open(&world).await;
    let member = world.voter();
    linked_vote(&member).await;
    let new = Secret::new("new");
    let both = [password(), new.clone()];
    let mut admin = world.admin().await.unwrap();
    let users = [locker().accepting(&both)];
    assert_eq!(admin.set_passwords(2, &both, &users, true).await, Err(ActError::Deposed));
    assert_eq!(admin.set_passwords(EPOCH, &both, &users, false).await, Ok(()));
    assert_eq!(one(&member, Command::Release { key: "k".into(), value: value("v") }).await, Reply::Done(true));
    let mut admin = world.admin_with(OPERATOR_USER, &new).await.unwrap();
    let users = [locker().accepting(std::slice::from_ref(&new))];
    let changed = admin.set_passwords(EPOCH, std::slice::from_ref(&new), &users, true).await;
    assert_eq!(changed, Ok(()));
    for user in [OPERATOR_USER, locker().name()] {
        assert_eq!(world.admin_with(user, &password()).await.map(drop), Err(MemberError::Refused), "{user}");
    }
    linked(&member, |link| *link == Link::Down(MemberError::Refused)).await;
    member.set_endpoint(world.endpoint(locker().name(), &new));
    linked_vote(&member).await;
    world.is_modelled();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_member_is_given_up_and_its_ghost_is_released() {
    LocalSet::new().run_until(freezes()).await;
}

async fn freezes() {
    let world = World::new();
    open(&world).await;
    let member = world.voter();
    linked(&member, |link| matches!(link, Link::Open(_))).await;
    world.freeze();
    let vote = member.send(vec![acquire("k", "v")]);
    let release = member.send(vec![Command::Release { key: "k".into(), value: value("v") }]);
    assert!(matches!(vote.await, Err(MemberError::Unreachable(_))));
    assert!(matches!(release.await, Err(MemberError::Unreachable(_))));
    let mut admin = Box::pin(world.admin());
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut admin).await.is_err());
    world.thaw();
    admin.await.unwrap().observe(&[]).await.unwrap();
    linked(&member, |link| matches!(link, Link::Open(_))).await;
    assert!(world.locks().is_empty(), "both commands were executed in their order: {:?}", world.locks());
    assert_eq!(world.counter(), Some("1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_busy_member_is_freed() {
    LocalSet::new().run_until(frees()).await;
}

async fn frees() {
    let world = World::new();
    let mut admin = world.admin().await.unwrap();
    assert_eq!(admin.script_kill().await, Err(MemberError::Other("NOTBUSY".to_owned())));
    world.set_busy(false);
    assert_eq!(admin.observe(&[]).await.map(drop), Err(MemberError::Busy));
    let endpoint = world.endpoint(OPERATOR_USER, &password());
    let killed = AdminConnection::kill_busy_script(&endpoint, world.machine(), Duration::from_secs(5)).await;
    assert_eq!(killed, Ok(()));
    assert_eq!(admin.observe(&[]).await.map(drop), Ok(()));
    world.set_busy(true);
    assert!(matches!(admin.script_kill().await, Err(MemberError::Other(code)) if code == "UNKILLABLE"));
}

#[tokio::test(start_paused = true)]
async fn operators_agree_on_a_shared_external_master() {
    LocalSet::new().run_until(agrees()).await;
}

fn claim(uid: &str, list: &str, epoch: i64) -> Claim {
    Claim {
        uid: uid.to_owned(),
        name: format!("ns/{uid}"),
        list: list.to_owned(),
        ttl: TTL,
        epoch,
        ended: true,
        generation: 1,
        lives: Duration::from_secs(60),
        joined: false,
    }
}

async fn agrees() {
    let world = World::external();
    let mut admin = world.admin_with("redlock", &password()).await.unwrap();
    let first = read_record(&mut admin, &claim("one", "a/1 b/2 c/3", 1), true).await.unwrap();
    assert_eq!((first.kept, first.stood, first.others.len(), first.epoch), (true, false, 0, 1));
    let second = read_record(&mut admin, &claim("two", "a/1 b/2 c/3", 1), true).await.unwrap();
    assert_eq!((second.kept, second.others.len(), second.others[0].left), (true, 1, Duration::from_secs(60)));
    let stranger = read_record(&mut admin, &claim("three", "d/4", 1), true).await.unwrap();
    assert_eq!((stranger.kept, stranger.others.len()), (false, 2), "it has another list");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let alone = read_record(&mut admin, &claim("one", "a/1 b/2 c/3", 2), true).await.unwrap();
    assert_eq!((alone.kept, alone.others.len(), alone.epoch), (true, 0, 2));
    assert_eq!(raise_counter(&mut admin, token(7)).await, Ok(token(7)));
    // The `#quorum` record decides whether votes count.
    let guarded = |epoch| world.guarded("redlock", Guard { uid: "one".to_owned(), epoch, since: None });
    let (old, new) = (guarded(1), guarded(2));
    linked(&old, |link| matches!(link, Link::Open(_))).await;
    assert_eq!(one(&old, acquire("k", "v")).await, Reply::Failed(MemberError::Fenced), "its epoch has ended");
    assert_eq!(linked_vote(&new).await, token(8));
    world.flush_scripts();
    assert!(matches!(one(&new, acquire("l", "v")).await, Reply::Failed(_)), "a user flushed the scripts");
    assert!(matches!(one(&new, acquire("l", "v")).await, Reply::Acquired { .. }), "the scripts are loaded again");
    world.is_modelled();
}
