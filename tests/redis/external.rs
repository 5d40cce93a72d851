//! External masters: plain `redis-server` processes, with the user that docs/external.md requires.

use crate::port::free_port;
use crate::quorum::{connected, extension, fresh_value, request, settings};
use crate::server::{Process, are_refused, connect, log_in, password, run, wait_until};
use redlock_operator::redis_member::acl::external_user;
use redlock_operator::redis_member::{
    AdminConnection, Claim, Endpoint, Guard, OtherClaim, RECORD_KEY, RecordState, RedisMember, Secret, missing_rights,
    raise_counter, read_record,
};
use redlock_operator::redlock::{
    Acquire, Command, Elector, Electorate, Extend, FencingToken, LockMember, MemberError, Redlock, Reply,
};
use redlock_operator::time::{Clock as _, SystemClock};
use std::sync::Arc;
use std::time::Duration;

const USER: &str = "redlock";
pub(crate) const LIST: &str = "a:1 b:1 c:1";

/// A master with an open default user, and the operator's user.
pub(crate) struct Master {
    process: Process,
    port: u16,
}

impl Master {
    pub(crate) async fn start() -> Self {
        let port = free_port();
        let mut master = Self { process: spawn(port), port };
        master.ready().await;
        master
    }

    pub(crate) async fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.port);
        self.ready().await;
    }

    async fn ready(&mut self) {
        wait_until("redis-server answers", async || self.as_owner("PING").await.is_ok()).await;
        self.set_user().await;
    }

    /// Gives the operator's user its rights.
    async fn set_user(&self) {
        self.as_owner(&external_user(USER).replace("PASSWORD", self.endpoint().password.expose())).await.unwrap();
    }

    pub(crate) async fn as_owner(&self, command: &str) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(format!("redis://{}/", self.address()))?;
        run(&mut client.get_multiplexed_async_connection().await?, command).await
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let password = Secret::new(password().expose().replace(' ', "-"));
        Endpoint { address: self.address(), username: USER.to_owned(), password, tls: None }
    }

    pub(crate) async fn watch(&self) -> AdminConnection {
        connect(&self.endpoint()).await.unwrap()
    }

    pub(crate) async fn read(&self, claim: &Claim, write: bool) -> RecordState {
        let state = read_record(&mut self.watch().await, claim, write).await.unwrap();
        RecordState { since: 0, ..state }
    }

    pub(crate) async fn claims(&self, claim: &Claim) -> RecordState {
        self.read(claim, true).await
    }

    /// When the record first named this quorum.
    pub(crate) async fn since(&self, claim: &Claim, write: bool) -> i64 {
        read_record(&mut self.watch().await, claim, write).await.unwrap().since
    }
}

fn spawn(port: u16) -> Process {
    Process::start(&[&["--port", &port.to_string(), "--bind", "127.0.0.1", "::1", "--save", ""]])
}

pub(crate) fn claim(uid: &str, list: &str, ttl: u64) -> Claim {
    Claim {
        uid: uid.into(),
        name: format!("locks/{uid}"),
        list: list.into(),
        ttl: Duration::from_secs(ttl),
        epoch: 2,
        ended: true,
        generation: 1,
        lives: Duration::from_secs(60),
        joined: false,
    }
}

/// The state in epoch 2, if the record keeps the claim and has no other quorum.
fn stands() -> RecordState {
    RecordState { kept: true, epoch: 2, ..RecordState::default() }
}

/// The state in epoch 2, if the record does not keep the claim and has no other quorum.
fn stands_not() -> RecordState {
    RecordState { epoch: 2, ..RecordState::default() }
}

pub(crate) fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

#[test]
fn the_documentation_has_the_line_for_the_owner_of_a_master() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/external.md")).unwrap();
    let line = external_user(USER);
    assert!(text.lines().any(|text| text == line), "not in docs/external.md: {line}");
}

#[tokio::test]
async fn rights_that_votes_need_are_checked_without_a_vote() {
    let master = Master::start().await;
    let mut watch = master.watch().await;
    assert_eq!(missing_rights(&mut watch).await, Ok(Vec::new()), "the documented user");
    for (rules, missing) in [
        ("-set", &["+set"][..]),
        ("-del -pexpire -time", &["+del", "+pexpire", "+time"]),
        ("resetkeys ~shop/*", &["+get", "+set", "+del", "+pexpire", "+pttl", "+type", "~*"]),
        ("resetkeys ~redlock-operator/*", &["~*"]),
    ] {
        master.set_user().await;
        master.as_owner(&format!("ACL SETUSER {USER} {rules}")).await.unwrap();
        let found = missing_rights(&mut watch).await.unwrap();
        assert_eq!(found, missing, "{rules}");
    }
    let keys = master.as_owner("DBSIZE").await.unwrap();
    assert_eq!(keys, redis::Value::Int(0), "the check wrote a key");
    master.as_owner(&format!("ACL SETUSER {USER} allkeys -evalsha")).await.unwrap();
    assert_eq!(missing_rights(&mut watch).await, Err(MemberError::Fenced));
}

#[tokio::test]
async fn the_documented_user_is_enough_to_vote_and_for_nothing_else() {
    let master = Master::start().await;
    let guard = Guard { uid: "ours".to_owned(), epoch: 1, since: None };
    let member = Arc::new(RedisMember::guarded("vm".into(), master.endpoint(), Arc::new(SystemClock), guard));
    connected(&member).await;
    let mut watch = master.watch().await;
    let seen = watch.observe(&[]).await.unwrap();
    assert_eq!(seen.unfit, None);
    assert_eq!(raise_counter(&mut watch, token(500)).await, Ok(token(500)));

    let elector = Elector { member: member.clone(), admitted: Some(seen.run_id) };
    let electorate = Electorate::single(vec![elector]);
    let (redlock, value) = (Redlock::new(Arc::new(SystemClock), settings()), fresh_value());
    let Acquire::Granted(grant) = redlock.acquire(&electorate, request("k", &value)).await else { panic!("granted") };
    assert_eq!(grant.token, token(501));
    let extension = extension("k", &value, Duration::from_secs(25), grant.valid_until);
    let extended = redlock.extend(&electorate, extension).await;
    assert!(matches!(extended[..], [Extend::Renewed { .. }]), "{extended:?}");
    let sealed = fresh_value();
    let commands = vec![
        Command::RaiseCounter { key: "k".into(), value: value.clone(), token: token(600), behind: 0 },
        Command::Inspect { key: "k".into() },
        Command::Seal {
            key: "k".into(),
            value,
            sealed: sealed.clone(),
            lock_delay: Duration::from_secs(1),
            least: Duration::ZERO,
        },
        Command::Release { key: "k".into(), value: sealed },
    ];
    let replies = member.send(commands).await.unwrap().replies;
    assert!(
        matches!(replies[..], [Reply::Raised, Reply::State(_), Reply::Sealed { .. }, Reply::Done(true)]),
        "{replies:?}"
    );

    let mut connection = log_in(&master.address(), USER, &master.endpoint().password).await.unwrap();
    let forbidden = "ACL SETUSER redlock +@all; ACL LIST; CONFIG GET maxmemory-policy; CONFIG SET save 1; \
        CLIENT KILL TYPE normal; CLIENT LIST; SCRIPT KILL; SCRIPT FLUSH; EVAL return 0; KEYS *; SCAN 0; FLUSHALL; \
        SHUTDOWN NOSAVE; REPLICAOF 127.0.0.1 1; MULTI";
    are_refused(&mut connection, forbidden).await;
}

#[tokio::test]
async fn a_master_is_reached_by_name_and_by_either_kind_of_address() {
    let master = Master::start().await;
    let run_id = master.watch().await.run_id().clone();
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let endpoint = Endpoint { address: format!("{host}:{}", master.port), ..master.endpoint() };
        assert_eq!(*connect(&endpoint).await.unwrap().run_id(), run_id, "{host}");
    }
    // A master that requires no password accepts a login without one.
    let endpoint = Endpoint { username: String::new(), password: Secret::new(""), ..master.endpoint() };
    assert!(connect(&endpoint).await.is_ok());
}

#[tokio::test]
async fn a_counter_is_raised_and_never_lowered() {
    let mut master = Master::start().await;
    let mut watch = master.watch().await;
    assert_eq!(raise_counter(&mut watch, token(100)).await, Ok(token(100)));
    assert_eq!(raise_counter(&mut watch, token(7)).await, Ok(token(100)));
    master.as_owner("SCRIPT FLUSH").await.unwrap();
    assert_eq!(raise_counter(&mut watch, FencingToken::MAX).await, Ok(FencingToken::MAX));
    master.restart().await;
    assert!(raise_counter(&mut watch, token(8)).await.is_err(), "the old connection must end with its process");
    assert_eq!(raise_counter(&mut master.watch().await, token(8)).await, Ok(token(8)));
}

#[tokio::test]
async fn agreeing_operators_read_each_others_claims() {
    let mut master = Master::start().await;
    let (ours, theirs) = (claim("ours", LIST, 30), claim("theirs", LIST, 30));
    assert_eq!(master.read(&ours, false).await, stands_not());
    assert_eq!(master.claims(&ours).await, stands());
    let state = master.claims(&theirs).await;
    assert_eq!((state.kept, state.stood), (true, false));
    let [other] = &state.others[..] else { panic!("{state:?}") };
    let (uid, name, list, ttl) = ("ours".into(), "locks/ours".into(), LIST.into(), Duration::from_secs(30));
    assert_eq!(*other, OtherClaim { uid, name, list, ttl, left: other.left });
    assert!(other.left <= Duration::from_secs(60) && other.left > Duration::from_secs(50), "{other:?}");
    // The record has the claim, but `stood` needs a replica that found the claim on every member (`joined`).
    let state = master.claims(&ours).await;
    assert_eq!((state.kept, state.stood, state.others.len()), (true, false, 1));
    master.claims(&Claim { joined: true, ..ours.clone() }).await;
    master.claims(&ours).await;
    assert!(master.claims(&ours).await.stood, "a replica without `joined` must not change `stood`");
    // A restarted process has no data.
    master.restart().await;
    assert_eq!(master.read(&ours, false).await, stands_not());
}

#[tokio::test]
async fn a_newcomer_with_another_list_or_max_ttl_makes_no_claim() {
    let master = Master::start().await;
    let ours = claim("ours", LIST, 30);
    master.claims(&ours).await;
    for theirs in [claim("theirs", "a:1 b:1 d:1", 30), claim("theirs", LIST, 10), claim("theirs", LIST, 60)] {
        let state = master.claims(&theirs).await;
        assert_eq!((state.kept, state.others.len()), (false, 1));
        assert_eq!(master.claims(&ours).await, stands());
    }
    // An operator without others changes its own claim immediately.
    assert_eq!(master.claims(&Claim { generation: 2, ..claim("ours", LIST, 60) }).await, stands());
}

#[tokio::test]
async fn a_replica_that_lags_behind_changes_nothing() {
    let master = Master::start().await;
    let newer = Claim { generation: 2, ..claim("ours", LIST, 30) };
    master.claims(&newer).await;
    let older = claim("ours", LIST, 10);
    assert_eq!(master.claims(&older).await, stands_not());
    assert_eq!(master.claims(&claim("ours", LIST, 30)).await, stands(), "the newer claim has the same list and maxTTL");
    let theirs = async |master: &Master| master.read(&claim("theirs", LIST, 30), false).await.others[0].ttl;
    assert_eq!(theirs(&master).await, Duration::from_secs(30));
    let elsewhere = Claim { list: "x:1".into(), ..older };
    assert!(!master.claims(&elsewhere).await.kept, "a replica with another list must not vote");
    // A higher epoch is newer, even with a smaller generation.
    let epoch = Claim { epoch: 4, generation: 1, ..claim("ours", LIST, 20) };
    assert!(master.claims(&epoch).await.kept);
    assert_eq!(theirs(&master).await, Duration::from_secs(20));
}

#[tokio::test]
async fn an_expired_claim_does_not_conflict_with_another_one() {
    let master = Master::start().await;
    let gone = Claim { lives: Duration::from_millis(300), ..claim("gone", "x:1", 30) };
    master.claims(&gone).await;
    assert!(!master.claims(&claim("ours", LIST, 30)).await.kept);
    wait_until("it counts no more", async || master.claims(&claim("ours", LIST, 30)).await.kept).await;
    let week = i64::try_from(Duration::from_secs(7 * 24 * 60 * 60).as_millis()).unwrap();
    let left = master.as_owner(&format!("PTTL {RECORD_KEY}")).await;
    assert!(matches!(left, Ok(redis::Value::Int(left)) if left > 60_000 && left <= week), "{left:?}");
}

#[tokio::test]
async fn long_values_in_a_hostile_masters_record_are_cut() {
    let master = Master::start().await;
    let now = SystemClock.wall().0;
    let claims: Vec<_> = (0..40)
        .map(|number| {
            let (list, name) = ("l".repeat(3_000), format!("\\u001b[31m{}", "n".repeat(1_000)));
            format!(
                r#""u{number}":{{"name":"{name}","list":"{list}","ttl":1,"lives":60000,"at":{now},"epoch":1,"generation":1}}"#
            )
        })
        .collect();
    master.as_owner(&format!("SET {RECORD_KEY} {{{}}}", claims.join(","))).await.unwrap();
    let state = master.claims(&claim("ours", LIST, 30)).await;
    assert!(!state.kept && state.others.len() == 16, "{} others", state.others.len());
    let fits =
        |other: &OtherClaim| other.name.len() < 320 && other.list.len() < 2_400 && !other.name.contains('\u{1b}');
    assert!(state.others.iter().all(fits), "{:?}", state.others[0]);
}

#[tokio::test]
async fn a_lost_record_gets_a_new_start_time() {
    let master = Master::start().await;
    let ours = claim("ours", LIST, 30);
    let since = master.since(&ours, false).await;
    assert!(since > 0);
    assert_eq!(master.since(&ours, true).await, since);
    let next = Claim { epoch: 4, ..ours };
    assert_eq!(master.since(&next, true).await, since, "a change must keep the time");
    tokio::time::sleep(Duration::from_millis(5)).await;
    master.as_owner("FLUSHALL").await.unwrap();
    let again = master.since(&next, true).await;
    assert!(again > since, "{again} {since}");
}
