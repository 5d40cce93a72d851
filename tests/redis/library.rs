//! The library with the Secrets that the operator gives to clients.

use crate::quorum::{LEADER, Quorum, TTL, fresh_value};
use crate::server::{PREFIX, Server, client, password, reader, run, wait_until};
use redlock_client::{Client, Event, NotAcquired, Owner, Reader, Reading};
use redlock_operator::api::RedisQuorum;
use redlock_operator::quorum::model::auth::Auth;
use redlock_operator::quorum::model::build::{Transport, client_secret};
use redlock_operator::quorum::model::plan::validate;
use redlock_operator::redlock::{FencingToken, LockValue, Nonce, TOKEN_KEY};
use redlock_operator::time::{Clock, SystemClock};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

type Data = BTreeMap<String, Vec<u8>>;

/// The Secret in the operator's format, with the addresses and the password of these servers.
fn secret(user: &str, servers: &[Server]) -> Data {
    let spec = json!({"members": servers.len(), "nodeTimeout": "400ms",
        "clients": [{"name": "billing", "namespace": "shop", "keyPrefix": PREFIX}]});
    let mut quorum = RedisQuorum::new("main", serde_json::from_value(spec).unwrap());
    (quorum.metadata.namespace, quorum.metadata.uid) = (Some("shop".into()), Some("uid".into()));
    let plan = validate(&quorum).unwrap();
    let secret = client_secret(&plan, &Auth::random(), &Transport::default(), &plan.clients[0], "shop");
    let mut data: Data = secret.data.unwrap().into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
    data.insert("urls".into(), urls(user, servers).into_bytes());
    data
}

fn urls(user: &str, servers: &[Server]) -> String {
    let password = password().expose().replace(' ', "%20");
    servers.iter().map(|server| format!("redis://{user}:{password}@{}\n", server.address())).collect()
}

async fn reading(quorum: &Quorum) -> Reader {
    for server in &quorum.servers {
        assert_eq!(server.admin().await.open(LEADER, &[reader()]).await, Ok(()));
    }
    let secret = secret(reader().name(), &quorum.servers);
    Reader::from_secret(&secret).unwrap().connect().await.unwrap()
}

async fn reading_of(reader: &Reader, key: &str, value: &LockValue) -> Reading {
    reader.read(key, &Owner::Value(value.clone())).await.reading
}

async fn await_reading(reader: &Reader, key: &str, value: &LockValue, expected: Reading) {
    wait_until(&format!("{expected:?}"), async || reading_of(reader, key, value).await == expected).await;
}

#[tokio::test]
async fn a_program_locks_with_the_secret_of_its_client() {
    let quorum = Quorum::of(3).await;
    let client = Client::from_secret(&secret(client().name(), &quorum.servers)).unwrap().connect().await.unwrap();
    wait_until("all members vote", async || client.voters() == 3).await;
    let key = format!("{PREFIX}job");
    let mut last = 0;
    for _ in 0..5 {
        let guard = client.lock(key.as_str()).ttl(TTL).try_acquire().await.unwrap();
        assert!(guard.token().get() > last);
        last = guard.token().get();
        let refused = quorum.acquire(&key, &fresh_value()).await;
        assert!(matches!(refused, redlock_operator::redlock::Acquire::HeldByOther { .. }), "{refused:?}");
        // Only a majority has the key. On the third member the operator's attempt can come first, and leave nothing to delete.
        let release = guard.release().await;
        assert!(release.deleted() >= 1 && release.failures().is_empty(), "{release:?}");
    }
    // The tokens of the operator's locks belong to the same sequence.
    let value = fresh_value();
    assert!(quorum.granted(&key, &value).await.token.get() > last);
    quorum.release(&key, &value).await;
    assert_eq!(client.lock("other/job").ttl(TTL).try_acquire().await.err(), Some(NotAcquired::Key));
    let most = Duration::from_secs(30);
    let too_long = client.lock(key.as_str()).ttl(most + Duration::from_millis(1)).try_acquire().await;
    assert_eq!(too_long.err(), Some(NotAcquired::Ttl { most }), "the operator's fence covers no longer ttl");
    client.close(TTL).await.unwrap();
    quorum.is_empty().await;
}

/// A client's user can publish and subscribe within its prefix, which Redisson needs.
#[tokio::test]
async fn programs_with_a_clients_secret_receive_each_others_releases() {
    let quorum = Quorum::of(3).await;
    let secret = secret(client().name(), &quorum.servers);
    let holder = Client::from_secret(&secret).unwrap().connect().await.unwrap();
    let (refused, mut refusals) = watch::channel(0);
    let patient = Client::from_secret(&secret).unwrap().retry(Duration::from_secs(60)).on_event(move |event| {
        if let Event::NotAcquired { .. } = event {
            refused.send_modify(|count| *count += 1);
        }
    });
    let waiter = patient.connect().await.unwrap();
    wait_until("all members vote", async || holder.voters() == 3 && waiter.voters() == 3).await;
    let key = format!("{PREFIX}job");
    let guard = holder.lock(key.as_str()).ttl(TTL).try_acquire().await.unwrap();
    let waiting = key.clone();
    let task = tokio::spawn(async move { waiter.lock(waiting).ttl(TTL).wait(Duration::from_secs(60)).acquire().await });
    // After this number of refusals the pause between attempts is more than three seconds.
    refusals.wait_for(|count| *count >= 11).await.unwrap();
    let _ = guard.release().await;
    let guard = timeout(Duration::from_secs(1), task).await.expect("no release message arrived").unwrap().unwrap();
    let _ = guard.release().await;
}

#[tokio::test]
async fn a_reader_reports_how_long_a_majority_stores_the_value() {
    let quorum = Quorum::of(3).await;
    let reader = reading(&quorum).await;
    let (key, value, nonce) = (format!("{PREFIX}job"), fresh_value(), Nonce::random());
    await_reading(&reader, &key, &value, Reading::NotHeld).await;
    let before = SystemClock.boottime();
    let grant = quorum.granted_everywhere(&key, &value).await;
    let Reading::Held { value: reported, valid_until } = reading_of(&reader, &key, &value).await else {
        panic!("not held")
    };
    assert_eq!(reported, value);
    assert!(valid_until > before + TTL / 2 && valid_until < SystemClock.boottime() + TTL);
    assert!(
        valid_until.since(grant.valid_until) < Duration::from_secs(1),
        "the reader's validity must differ only by the drift of the remaining time"
    );
    let by_nonce: Nonce = value.expose()[..20].parse().unwrap();
    let by_other = reader.read(key.as_str(), &Owner::Nonce(nonce)).await.reading;
    assert_eq!(by_other, Reading::NotHeld, "a nonce of another hold");
    let found = reader.read(key.as_str(), &Owner::Nonce(by_nonce)).await.reading;
    assert!(matches!(found, Reading::Held { .. }), "{found:?}");
    // One frozen member leaves a majority, and two do not.
    quorum.servers[0].freeze();
    assert!(matches!(reading_of(&reader, &key, &value).await, Reading::Held { .. }));
    quorum.servers[1].freeze();
    let alone = reader.read(key.as_str(), &Owner::Value(value.clone())).await;
    assert_eq!((alone.reading, alone.failures.len()), (Reading::Unknown, 2));
    quorum.servers[0].thaw();
    quorum.servers[1].thaw();
    wait_until("it is seen", async || matches!(reading_of(&reader, &key, &value).await, Reading::Held { .. })).await;
    quorum.release(&key, &value).await;
    await_reading(&reader, &key, &value, Reading::NotHeld).await;
}

#[tokio::test]
async fn a_reader_reports_the_end_of_a_hold_without_renewal() {
    let quorum = Quorum::of(3).await;
    let reader = reading(&quorum).await;
    let (key, value) = (format!("{PREFIX}job"), fresh_value());
    let mut request = crate::quorum::request(&key, &value);
    request.ttl = Duration::from_secs(2);
    let granted = quorum.redlock.acquire(&quorum.electorate(), request).await;
    assert!(matches!(granted, redlock_operator::redlock::Acquire::Granted(_)), "{granted:?}");
    let last_validity = async {
        let mut latest = None;
        loop {
            match reading_of(&reader, &key, &value).await {
                Reading::Held { valid_until, .. } => latest = latest.max(Some(valid_until)),
                Reading::NotHeld => return latest,
                // A busy machine can delay the answers.
                _ => {}
            }
        }
    };
    let latest = timeout(TTL, last_validity).await.expect("the hold ends").expect("no reading was Held");
    assert!(SystemClock.boottime() > latest, "a reported validity must end before the keys do");
}

#[tokio::test]
async fn a_reader_needs_both_lists_while_the_members_change() {
    let quorum = Quorum::of(3).await;
    let reader = reading(&quorum).await;
    let (key, value) = (format!("{PREFIX}job"), fresh_value());
    let joining = [Server::start().await, Server::start().await];
    let name = crate::server::reader().name().to_owned();
    let mut joint = secret(&name, &quorum.servers);
    let old = urls(&name, &quorum.servers);
    joint.insert("urls".into(), format!("{old}{}", urls(&name, &joining)).into_bytes());
    joint.insert("quorum".into(), b"3".to_vec());
    joint.insert("formerUrls".into(), old.into_bytes());
    quorum.granted_everywhere(&key, &value).await;
    assert!(matches!(reading_of(&reader, &key, &value).await, Reading::Held { .. }));
    reader.update(&joint).unwrap();
    // The joining members are fenced, and refuse the reader. Three of five and three of three members are left.
    wait_until("a majority of both", async || matches!(reading_of(&reader, &key, &value).await, Reading::Held { .. }))
        .await;
    quorum.servers[0].freeze();
    assert_eq!(reading_of(&reader, &key, &value).await, Reading::Unknown, "two of five");
    quorum.servers[0].thaw();
    // With the joining members a majority of five has the key without two of the former three.
    for server in &joining {
        crate::quorum::open(server).await;
        assert_eq!(server.admin().await.open(LEADER, &[crate::server::reader()]).await, Ok(()));
        let mut locker = server.connect_as(crate::server::locker().name()).await;
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(value.expose()).arg("PX").arg(20_000).exec_async(&mut locker).await.unwrap();
    }
    quorum.servers[0].freeze();
    let owner = Owner::Value(value.clone());
    wait_until("four of five and two of three", async || {
        let read = reader.read(key.as_str(), &owner).await;
        matches!(read.reading, Reading::Held { .. }) && read.failures.len() == 1
    })
    .await;
    quorum.servers[1].freeze();
    let former = reader.read(key.as_str(), &owner).await;
    assert_eq!((former.reading, former.failures.len()), (Reading::Unknown, 2), "three of five, but one of three");
    quorum.servers[0].thaw();
    quorum.servers[1].thaw();
    // An unreadable Secret changes nothing.
    joint.remove("fenced");
    assert!(reader.update(&joint).is_err());
    wait_until("it is seen", async || matches!(reading_of(&reader, &key, &value).await, Reading::Held { .. })).await;
}

/// Increments the counter as fast as one connection permits.
async fn takes_numbers(
    mut connection: redis::aio::MultiplexedConnection,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> u64 {
    let mut taken = 0;
    let mut batch = redis::pipe();
    for _ in 0..200 {
        batch.cmd("INCR").arg(TOKEN_KEY).ignore();
    }
    while !*stopped.borrow_and_update() {
        batch.query_async::<()>(&mut connection).await.unwrap();
        taken += 200;
    }
    taken
}

#[tokio::test]
async fn a_client_that_takes_many_numbers_makes_none_repeat() {
    let quorum = Quorum::of(3).await;
    let program = Client::from_secret(&secret(client().name(), &quorum.servers)).unwrap().connect().await.unwrap();
    wait_until("all members vote", async || program.voters() == 3).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut hostile = JoinSet::new();
    // First one counter runs ahead, then all of them at different speeds.
    for server in [&quorum.servers[0], &quorum.servers[0], &quorum.servers[1], &quorum.servers[2]] {
        hostile.spawn(takes_numbers(server.connect_as(client().name()).await, stopped.clone()));
        let (mut last, mut denied) = (FencingToken::ZERO, 0);
        for _ in 0..15 {
            last = quorum.rises(last).await;
            // A program with only INCR can fail to get a token, but must not get an old one.
            match program.lock(format!("{PREFIX}k")).ttl(TTL).try_acquire().await {
                Ok(guard) => {
                    assert!(guard.token() > last, "{} after {last}", guard.token());
                    last = guard.token();
                    let _ = guard.release().await;
                }
                Err(NotAcquired::CountersApart | NotAcquired::NoQuorum { .. }) => denied += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(denied < 15, "every attempt failed although all members run");
    }
    stop.send(true).unwrap();
    assert!(hostile.join_all().await.into_iter().all(|taken| taken > 0));
    program.close(TTL).await.unwrap();
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_client_cannot_lower_delete_read_or_overflow_the_counter() {
    let quorum = Quorum::of(1).await;
    let before = quorum.rises(FencingToken::ZERO).await;
    let mut connection = quorum.servers[0].connect_as(client().name()).await;
    let in_script = if quorum.servers[0].is_redis_7_0().await { "can't" } else { "no permissions" };
    let commands = "SET @ 1; SET @ 9007199254740991; SET @ 1 NX; DEL @; GET @; PTTL @; EXPIRE @ 1; PEXPIRE @ 1; \
        INCRBY @ 9007199254740991; INCRBYFLOAT @ 0.5; DECR @; HINCRBY @ f 1; EXISTS @; WATCH @; GETDEL @; \
        RENAME @ other; APPEND @ 0; EVAL return(redis.call('set',KEYS[1],'1')) 1 @; \
        EVAL return(redis.call('incr',KEYS[1])) 1 @; EVAL return(redis.call('set','@','1')) 0; \
        EVAL return(redis.call('incrby','@',9)) 0; EVAL return(redis.call('del','@')) 0";
    for command in commands.replace('@', TOKEN_KEY).split("; ") {
        let answer = run(&mut connection, command).await;
        let refused = answer.as_ref().err().map(|error| error.to_string().to_lowercase()).unwrap_or_default();
        assert!(refused.contains("noperm") || refused.contains(in_script), "{command}: {answer:?}");
    }
    assert_eq!(quorum.rises(before).await.get(), before.get() + 1, "the counter changed");
}
