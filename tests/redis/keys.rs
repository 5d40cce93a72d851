use crate::quorum::{Quorum, TTL, extension, fresh_value};
use crate::server::PREFIX;
use redlock_operator::redlock::{Acquire, Extend, KeyState, LockKey, Missing, Occupant, Seal, ValueSigner};
use std::time::Duration;

/// The longest time to live of a lock on any server.
async fn longest(quorum: &Quorum) -> Duration {
    let mut longest = Duration::ZERO;
    for server in &quorum.servers {
        longest = server.keys().await.into_iter().filter_map(|(_, left)| left).fold(longest, Duration::max);
    }
    longest
}

#[tokio::test]
async fn foreign_shapes_are_reported_and_never_deleted() {
    let quorum = Quorum::of(3).await;
    let key = format!("{PREFIX}job");
    for (command, args) in [
        ("SET", &["1795284168"][..]),                          // SETNX with a timestamp: no TTL
        ("SET", &["far beyond maxTTL", "PX", "86400000"][..]), // a day
        ("EVAL", &["return redis.call('HSET', KEYS[1], 'uuid:1', 1)"][..]), // Redisson
    ] {
        for server in &quorum.servers {
            // A client's user cannot use HSET, so an administrator creates the keys.
            let mut admin = server.connect_as("operator").await;
            let everything = redis::cmd("ACL").arg(&["SETUSER", "tester", "on", "nopass", "~*", "+@all"]).to_owned();
            everything.query_async::<()>(&mut admin).await.unwrap();
            let mut tester = server.connect_as("tester").await;
            redis::cmd("DEL").arg(&key).query_async::<()>(&mut tester).await.unwrap();
            let mut make = redis::cmd(command);
            match command {
                "SET" => make.arg(&key).arg(args),
                _ => make.arg(args).arg(1).arg(&key),
            };
            make.query_async::<()>(&mut tester).await.unwrap();
        }
        let outcome = quorum.acquire(&key, &fresh_value()).await;
        let Acquire::HeldByOther { refusals: 2.., longest, occupants } = outcome else { panic!("{outcome:?}") };
        let Occupant { holder, .. } = &occupants[0];
        match (command, args.len(), holder) {
            ("SET", 1, KeyState::String { value, remaining: None }) => assert_eq!(value.expose(), "1795284168"),
            ("SET", 3, KeyState::String { remaining: Some(left), .. }) => assert!(left.as_secs() > 86_000, "{left:?}"),
            ("EVAL", 1, KeyState::OtherType { name, remaining: None }) => assert_eq!(name, "hash"),
            other => panic!("{other:?}"),
        }
        assert_eq!(longest, holder.remaining().and(longest));
        assert_eq!(quorum.release(&key, &fresh_value()).await, 0);
        let states = quorum.redlock.inspect(&quorum.electorate(), &LockKey::new(&*key)).await;
        assert!(states.iter().all(|(_, state)| !matches!(state, Ok(KeyState::Missing) | Err(_))), "{states:?}");
        // The operator must not extend or seal it, whatever its type.
        let valid_until = redlock_operator::time::Clock::boottime(&redlock_operator::time::SystemClock) + TTL;
        let extended = extension(&key, &fresh_value(), TTL, valid_until);
        let extended = quorum.redlock.extend(&quorum.electorate(), extended).await;
        assert!(matches!(extended[..], [Extend::Refused { .. }]), "{extended:?}");
        let (ours, electorate) = (fresh_value(), quorum.electorate());
        let sealed = quorum.redlock.seal(&electorate, &LockKey::new(&*key), &ours, &fresh_value(), TTL).await;
        assert_eq!(sealed, Seal::Gone);
    }
}

#[tokio::test]
async fn an_extension_never_shortens_a_key() {
    let quorum = Quorum::of(3).await;
    let value = fresh_value();
    let grant = quorum.granted_everywhere("k", &value).await;
    let short = extension("k", &value, Duration::from_secs(1), grant.valid_until);
    let outcome = quorum.redlock.extend(&quorum.electorate(), short).await;
    let [Extend::Renewed { valid_until, .. }] = &outcome[..] else { panic!("{outcome:?}") };
    assert_eq!(*valid_until, grant.valid_until);
    for server in &quorum.servers {
        let keys = server.keys().await;
        assert!(matches!(keys[..], [(_, Some(ttl))] if ttl > Duration::from_secs(10)), "{keys:?}");
    }
}

#[tokio::test]
async fn a_sealed_key_is_not_extended_and_reports_its_time_to_live() {
    let quorum = Quorum::of(3).await;
    let signer = ValueSigner::new(b"a key");
    let value = fresh_value();
    let sealed = signer.sealed(&value);
    let grant = quorum.granted("k", &value).await;
    let seal = async |delay: u64| {
        let delay = Duration::from_secs(delay);
        quorum.redlock.seal(&quorum.electorate(), &"k".into(), &value, &sealed, delay).await
    };
    let outcome = seal(5).await;
    let Seal::Sealed { until } = outcome else { panic!("{outcome:?}") };
    let left = longest(&quorum).await;
    assert!(left > TTL && left <= TTL + Duration::from_secs(5), "{left:?}");
    assert!(until > grant.valid_until + Duration::from_secs(4));
    let outcome = seal(5).await;
    assert!(matches!(outcome, Seal::Sealed { .. }), "{outcome:?}");
    let left = longest(&quorum).await;
    assert!(left <= TTL + Duration::from_secs(5), "a second seal must not add the delay again: {left:?}");
    let outcome = quorum.redlock.extend(&quorum.electorate(), extension("k", &value, TTL, grant.valid_until)).await;
    assert!(matches!(outcome[..], [Extend::Refused { .. }]), "{outcome:?}");
    assert_eq!(quorum.release("k", &value).await, 0, "the old value must release nothing");
    assert_eq!(quorum.release("k", &sealed).await, 3);
    assert_eq!(seal(0).await, Seal::Gone);
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_lost_key_is_repaired_within_its_validity_if_it_is_free() {
    let quorum = Quorum::of(3).await;
    let value = fresh_value();
    let grant = quorum.granted_everywhere("k", &value).await;
    let mut locker = quorum.servers[0].connect_as(crate::server::locker().name()).await;
    redis::cmd("DEL").arg("k").query_async::<()>(&mut locker).await.unwrap();
    let outcome = quorum.redlock.extend(&quorum.electorate(), extension("k", &value, TTL, grant.valid_until)).await;
    let [Extend::Renewed { valid_until, missing, .. }] = &outcome[..] else { panic!("{outcome:?}") };
    assert!(matches!(&missing[..], [Missing { member, .. }] if member.as_str() == "m0"), "{missing:?}");
    let repair = async || {
        quorum.redlock.repair(&quorum.electorate(), &"k".into(), &value, (*valid_until, *valid_until), missing).await
    };
    assert_eq!(repair().await, ["m0".into()]);
    let keys = quorum.servers[0].keys().await;
    assert!(matches!(keys[..], [(_, Some(ttl))] if ttl < TTL && ttl > TTL / 2), "{keys:?}");
    redis::cmd("SET").arg("k").arg("other").query_async::<()>(&mut locker).await.unwrap();
    assert!(repair().await.is_empty());
    // The member sets no key if its own clock is after the request's `not_after`.
    redis::cmd("DEL").arg("k").query_async::<()>(&mut locker).await.unwrap();
    let mut stale = missing.clone();
    stale[0].clock.time.0 -= 60_000_000;
    let late =
        quorum.redlock.repair(&quorum.electorate(), &"k".into(), &value, (*valid_until, *valid_until), &stale).await;
    assert!(late.is_empty());
    assert_eq!(quorum.release("k", &value).await, 2);
    quorum.is_empty().await;
}
