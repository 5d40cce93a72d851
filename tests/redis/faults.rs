use crate::quorum::{Quorum, TTL, connected, extension, fresh_value, settings};
use crate::server::{endpoint, locker, wait_until};
use crate::{net, quorum};
use redlock_operator::redis_member::Link;
use redlock_operator::redlock::{
    Acquire, Command, Electorate, Extend, FencingToken, LockKey, LockMember, LockValue, MemberError, MemberFailure,
    Votes,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    #[allow(clippy::disallowed_methods, reason = "a test measures its own time")]
    let started = Instant::now();
    (future.await, started.elapsed())
}

#[tokio::test]
async fn a_healthy_quorum_grants_renews_and_releases() {
    let quorum = Quorum::of(3).await;
    let value = fresh_value();
    let grant = quorum.granted("k", &value).await;
    assert!(grant.votes.yes >= 2 && grant.votes.of == 3);
    let renewal = extension("k", &value, TTL, grant.valid_until);
    let outcome = quorum.redlock.extend(&quorum.electorate(), renewal).await;
    let [Extend::Renewed { valid_until, votes, .. }] = &outcome[..] else { panic!("{outcome:?}") };
    assert!(*valid_until > grant.valid_until);
    assert_eq!(*votes, Votes { yes: 3, of: 3 });
    assert_eq!(quorum.release("k", &value).await, 3);
    assert_eq!(quorum.release("k", &value).await, 0, "a second release must delete nothing");
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_frozen_minority_delays_nothing_and_keeps_no_key() {
    for (size, frozen) in [(3, 1), (5, 2)] {
        let quorum = Quorum::of(size).await;
        let (value, other) = (fresh_value(), fresh_value());
        quorum.servers[..frozen].iter().for_each(|server| server.freeze());
        let (grant, took) = timed(quorum.granted("k", &value)).await;
        assert!(took < settings().node_timeout / 2, "waited for a frozen member of {size}: {took:?}");
        assert_eq!(grant.votes, Votes { yes: size - frozen, of: size });
        let refused = quorum.acquire("k", &other).await;
        assert!(matches!(refused, Acquire::HeldByOther { .. }), "{refused:?}");
        assert_eq!(quorum.release("k", &value).await, size - frozen);
        // Each release follows its SET on the same connection.
        for index in 0..frozen {
            quorum.servers[index].thaw();
            quorum.has_voted(index).await;
        }
        quorum.is_empty().await;
    }
}

#[tokio::test]
async fn two_frozen_of_three_are_no_quorum_and_keep_no_key() {
    let quorum = Quorum::of(3).await;
    quorum.servers[..2].iter().for_each(|server| server.freeze());
    let (outcome, took) = timed(quorum.acquire("k", &fresh_value())).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    let timed_out = |name: &str| (name.into(), MemberFailure::Member(MemberError::TimedOut));
    assert_eq!(failures, [timed_out("m0"), timed_out("m1")]);
    assert!(took < settings().node_timeout * 2, "{took:?}");
    for index in 0..2 {
        quorum.servers[index].thaw();
        quorum.has_voted(index).await;
    }
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_member_frozen_until_its_connection_ends_keeps_no_key() {
    let quorum = Quorum::of(3).await;
    let value = fresh_value();
    quorum.granted("k", &value).await;
    quorum.servers[0].freeze();
    let mut link = quorum.members[0].link();
    let down = tokio::time::timeout(Duration::from_secs(10), link.wait_for(|link| matches!(link, Link::Down(_))));
    down.await.expect("the silent connection was not closed").unwrap();
    // Without a connection the release is pending. The member gets it on the next connection.
    assert_eq!(quorum.release("k", &value).await, 2);
    quorum.servers[0].thaw();
    quorum.is_empty().await;
    connected(&quorum.members[0]).await;
    assert_eq!(quorum.granted("k", &fresh_value()).await.votes.of, 3);
}

#[tokio::test]
async fn a_dead_member_fails_at_once_and_is_found_again() {
    let mut quorum = Quorum::of(3).await;
    quorum.servers[2].kill();
    let value = fresh_value();
    let (grant, took) = timed(quorum.granted("k", &value)).await;
    assert!(took < settings().node_timeout / 2, "{took:?}");
    assert_eq!(grant.votes.yes, 2);
    let (released, took) = timed(quorum.redlock.release(&quorum.electorate(), &"k".into(), &value)).await;
    assert_eq!(released.deleted, 2);
    assert!(took < settings().node_timeout, "it waited for a dead member: {took:?}");
    let [(name, MemberFailure::Member(MemberError::Unreachable(_)))] = &released.failures[..] else {
        panic!("{released:?}")
    };
    assert_eq!(name, quorum.members[2].name());
    quorum.servers[2].restart().await;
    quorum.electors[2].admitted = Some(quorum::open(&quorum.servers[2]).await);
    connected(&quorum.members[2]).await;
    quorum.is_empty().await;
    quorum.servers[0].freeze();
    assert_eq!(quorum.granted("k2", &fresh_value()).await.votes.yes, 2);
}

#[tokio::test]
async fn a_member_that_accepts_and_never_answers_costs_nothing() {
    let silent = net::silent().await;
    let quorum =
        Quorum::with_addresses(3, |n, server| if n == 0 { silent.address.clone() } else { server.address() }).await;
    connected(&quorum.members[1]).await;
    connected(&quorum.members[2]).await;
    let value = fresh_value();
    let (grant, took) = timed(quorum.granted("k", &value)).await;
    assert!(took < settings().node_timeout / 2, "{took:?}");
    assert_eq!(grant.votes.yes, 2);
    assert_eq!(quorum.release("k", &value).await, 2);
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_member_that_answers_late_is_released_in_order() {
    let delay = settings().node_timeout;
    let mut addresses = Vec::new();
    // The proxies need the servers' addresses, so the members get them afterwards.
    let quorum = Quorum::of(3).await;
    for server in &quorum.servers[..2] {
        addresses.push(net::slow(server.address(), delay).await);
    }
    for (member, proxy) in quorum.members.iter().zip(&addresses) {
        member.set_endpoint(endpoint(&proxy.address, locker().name()));
        let mut link = member.link();
        let down = link.wait_for(|link| !matches!(link, Link::Open(_)));
        let _ = tokio::time::timeout(Duration::from_secs(10), down)
            .await
            .expect("the member did not leave its old address");
    }
    connected(&quorum.members[0]).await;
    connected(&quorum.members[1]).await;
    let outcome = quorum.acquire("k", &fresh_value()).await;
    assert!(matches!(&outcome, Acquire::NoQuorum { failures } if failures.len() == 2), "{outcome:?}");
    // The SETs arrive late, and the releases after them.
    quorum.has_voted(0).await;
    quorum.has_voted(1).await;
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_member_without_its_data_gives_no_second_majority() {
    let mut quorum = Quorum::of(3).await;
    let value = fresh_value();
    // Members 0 and 1 have the key. Then member 1 loses its data.
    quorum.servers[2].freeze();
    quorum.granted("k", &value).await;
    quorum.servers[1].restart().await;
    quorum.servers[2].thaw();
    // The test opens the process without an admission, so its vote must not count.
    quorum::open(&quorum.servers[1]).await;
    connected(&quorum.members[1]).await;
    wait_until("member 2 has executed its SET", async || !quorum.servers[2].keys().await.is_empty()).await;
    let outcome = quorum.acquire("k", &fresh_value()).await;
    assert!(matches!(outcome, Acquire::HeldByOther { refusals: 2, .. }), "{outcome:?}");
    assert_eq!(quorum.release("k", &value).await, 2);
    // For a new key, the votes of members 0 and 2 count, and that of member 1 does not.
    let fresh = fresh_value();
    quorum.granted("k3", &fresh).await;
    quorum.servers[0].freeze();
    let outcome = quorum.acquire("k4", &fresh_value()).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    assert!(failures.contains(&("m1".into(), MemberFailure::NotAdmitted)), "{failures:?}");
    quorum.servers[0].thaw();
    quorum.release("k3", &fresh).await;
    quorum.is_empty().await;
}

#[tokio::test]
async fn two_addresses_of_one_process_are_one_vote() {
    let quorum = Quorum::of(3).await;
    let value = fresh_value();
    let grant = quorum.granted_everywhere("k", &value).await;
    let twin = quorum::member("m1", &quorum.servers[0].address());
    connected(&twin).await;
    let mut electors = quorum.electors.clone();
    electors[1].member = twin;
    electors[1].admitted = electors[0].admitted.clone();
    let electorate = Electorate::single(electors);
    // An acquisition cannot show this. Its second SET NX is refused because of its own key.
    let renewal = extension("k", &value, TTL, grant.valid_until);
    quorum.servers[2].freeze();
    let alone = quorum.redlock.extend(&electorate, renewal.clone()).await;
    let [Extend::NoQuorum { failures }] = &alone[..] else { panic!("{alone:?}") };
    assert_eq!(failures[..], [("m2".into(), MemberFailure::Member(MemberError::TimedOut))]);
    quorum.servers[2].thaw();
    let both = quorum.redlock.extend(&electorate, renewal).await;
    assert!(matches!(both[..], [Extend::Renewed { votes: Votes { yes: 2, of: 3 }, .. }]), "{both:?}");
    assert_eq!(quorum.release("k", &value).await, 3);
    quorum.is_empty().await;
}

#[tokio::test]
async fn many_holds_are_renewed_in_one_go() {
    let quorum = Quorum::of(3).await;
    let mut holds = Vec::new();
    for n in 0..200 {
        let value = fresh_value();
        let key = format!("k{n}");
        let valid_until = quorum.granted(&key, &value).await.valid_until;
        holds.extend(extension(&key, &value, TTL, valid_until));
    }
    let (outcomes, took) = timed(quorum.redlock.extend(&quorum.electorate(), holds.clone())).await;
    let full = |extend: &Extend| matches!(extend, Extend::Renewed { votes: Votes { yes: 3, of: 3 }, .. });
    assert!(outcomes.len() == 200 && outcomes.iter().all(full), "{outcomes:?}");
    assert!(took < settings().node_timeout, "{took:?}");
    for hold in holds {
        assert_eq!(quorum.release(hold.key.as_str(), &hold.value).await, 3);
    }
    quorum.is_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_attempts_on_a_frozen_member_leaves_no_key() {
    let quorum = Arc::new(Quorum::of(3).await);
    quorum.servers[0].freeze();
    let workers = (0..50).map(|worker| {
        let quorum = Arc::clone(&quorum);
        tokio::spawn(async move {
            for turn in 0..10 {
                let (key, value) = (format!("k{worker}/{turn}"), fresh_value());
                quorum.granted(&key, &value).await;
                let release = Command::Release { key: key.into(), value };
                quorum.members.iter().for_each(|member| drop(member.send(vec![release.clone()])));
            }
        })
    });
    futures::future::join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    quorum.servers[0].thaw();
    quorum.has_voted(0).await;
    quorum.is_empty().await;
    assert_eq!(quorum.servers[0].counter().await.map(FencingToken::get), Some(500), "a SET was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_attempts_on_an_abandoned_member_leaves_no_key() {
    let quorum = Arc::new(Quorum::of(3).await);
    quorum.servers[0].freeze();
    let link = quorum.members[0].link();
    let workers = (0..20).map(|worker| {
        let (quorum, link) = (Arc::clone(&quorum), link.clone());
        tokio::spawn(async move {
            // The connection breaks during some attempts. Other attempts begin without a connection.
            let mut without_connection = 0;
            while without_connection < 5 {
                let (key, value) = (format!("k{worker}"), fresh_value());
                quorum.granted(&key, &value).await;
                assert!(quorum.release(&key, &value).await >= 2);
                without_connection += usize::from(matches!(*link.borrow(), Link::Down(_)));
            }
        })
    });
    futures::future::join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    quorum.servers[0].thaw();
    connected(&quorum.members[0]).await;
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_stalled_connection_gets_pending_releases_when_it_continues() {
    const ATTEMPTS: usize = 50_000;
    let quorum = Quorum::of(1).await;
    let member = &quorum.members[0];
    quorum.servers[0].freeze();
    let attempts: Vec<_> = (0..ATTEMPTS).map(|n| (LockKey::from(format!("k{n}")), fresh_value())).collect();
    let acquire = |(key, value): &(LockKey, LockValue)| Command::Acquire {
        key: key.clone(),
        value: value.clone(),
        ttl: Duration::from_secs(60),
        token: false,
        not_after: None,
    };
    let release = |(key, value): &(LockKey, LockValue)| Command::Release { key: key.clone(), value: value.clone() };
    let mut answers = Vec::with_capacity(2 * ATTEMPTS);
    let commands = attempts.iter().map(acquire).chain(attempts.iter().map(release));
    for (n, command) in commands.enumerate() {
        answers.push(member.send(vec![command]));
        if n % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(member.outstanding() < ATTEMPTS, "the connection accepted too many commands: {}", member.outstanding());
    quorum.servers[0].thaw();
    wait_until("every answer has come", async || member.outstanding() == 0).await;
    quorum.is_empty().await;
    let given_up = matches!(*member.link().borrow(), Link::Down(_));
    assert!(!given_up, "the connection was replaced");
    let answered = futures::future::join_all(answers).await.into_iter().filter(Result::is_ok).count();
    assert!(answered > 1000 && answered < ATTEMPTS, "{answered}");
}
