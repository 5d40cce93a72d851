use crate::external::token;
use crate::quorum::{LEADER, Quorum, TTL, connected, extension, fresh_value, request, settings};
use crate::server::{client, locker};
use redlock_operator::quorum::model::counters::{MOST_LAG, behind};
use redlock_operator::quorum::model::lists::meets_every_majority;
use redlock_operator::redlock::{Acquire, Extend, FencingToken, MemberError, MemberFailure, Redlock, restored};
use redlock_operator::time::SystemClock;
use std::sync::Arc;

#[tokio::test]
async fn tokens_rise_through_frozen_members_and_the_loss_of_one() {
    let mut quorum = Quorum::of(3).await;
    let mut last = FencingToken::ZERO;
    for turn in 0..12 {
        if turn == 6 {
            // The restarted member loses its counter. An admission sets it to the highest counter of the others, and then opens.
            quorum.servers[0].restart().await;
            let mut highest = FencingToken::ZERO;
            for server in &quorum.servers[1..] {
                highest = highest.max(server.counter().await.unwrap());
            }
            let mut admin = quorum.servers[0].admin().await;
            assert_eq!(admin.raise_epoch(LEADER).await, Ok(()));
            assert_eq!(admin.restore_counter(highest).await, Ok(highest));
            assert_eq!(admin.restore_counter(FencingToken::ZERO).await, Ok(highest), "the counter must not fall");
            assert_eq!(admin.open(LEADER, &[locker(), client()]).await, Ok(()));
            quorum.electors[0].admitted = Some(admin.run_id().clone());
            connected(&quorum.members[0]).await;
        }
        let frozen = &quorum.servers[turn % 3];
        frozen.freeze();
        last = quorum.rises(last).await;
        frozen.thaw();
    }
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_token_is_written_back_to_a_majority_if_counters_differ() {
    let quorum = Quorum::of(3).await;
    let mut admin = quorum.servers[0].admin().await;
    assert_eq!(admin.restore_counter(token(100)).await, Ok(token(100)));
    quorum.servers[2].freeze();
    let value = fresh_value();
    assert_eq!(quorum.granted("k", &value).await.token, token(101));
    assert_eq!(quorum.servers[1].counter().await, Some(token(101)));
    quorum.servers[2].thaw();
    quorum.release("k", &value).await;
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_majority_stores_the_token_though_the_counters_are_apart() {
    let quorum = Quorum::of(3).await;
    for (server, counter) in quorum.servers.iter().zip([50, 100, 150]) {
        let mut admin = server.admin().await;
        assert_eq!(admin.restore_counter(token(counter)).await, Ok(token(counter)));
    }
    let mut last = token(100);
    for _ in 0..5 {
        let value = fresh_value();
        let grant = quorum.granted("k", &value).await;
        assert!(grant.token > last, "{} after {last}", grant.token);
        last = grant.token;
        let mut stored = 0;
        for server in &quorum.servers {
            stored += usize::from(server.counter().await.unwrap() >= last);
        }
        assert!(stored >= 2, "{stored} members store {last}");
        quorum.release("k", &value).await;
    }
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_counter_that_has_run_out_of_numbers_gives_none() {
    let quorum = Quorum::of(1).await;
    let mut admin = quorum.servers[0].admin().await;
    let last = token(FencingToken::OUTLIER.get() - 2);
    assert_eq!(admin.restore_counter(last).await, Ok(last));
    assert_eq!(quorum.rises(last).await.get(), last.get() + 1);
    let outcome = quorum.redlock.acquire(&quorum.electorate(), request("k", &fresh_value())).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    assert_eq!(failures[0].1, MemberFailure::Member(MemberError::CounterSpent));
}

/// The current time in microseconds: the initial value of counters.
fn now() -> i64 {
    redlock_operator::time::Clock::wall(&SystemClock).0 * 1_000
}

/// Restarts a process, and admits it like the operator.
///
/// Its counter is restored, the others are levelled, and then it is opened.
async fn restart(quorum: &mut Quorum, server: usize, floor: FencingToken) {
    let size = quorum.servers.len();
    quorum.servers[server].restart().await;
    let mut others = Vec::new();
    for other in (0..size).filter(|other| *other != server) {
        others.push((other, quorum.servers[other].counter().await.unwrap_or_default()));
    }
    let names: Vec<String> = (0..size).map(|member| format!("m{member}")).collect();
    let counters: Vec<_> = others.iter().map(|(_, counter)| *counter).collect();
    let number = restored(&counters, meets_every_majority(&names), floor, token(now()));
    let (highest, members) = behind(others, number, MOST_LAG);
    for member in members {
        quorum.servers[member].admin().await.restore_counter(highest).await.unwrap();
    }
    let mut admin = quorum.servers[server].admin().await;
    assert_eq!(admin.raise_epoch(LEADER).await, Ok(()));
    admin.restore_counter(number).await.unwrap();
    assert_eq!(admin.open(LEADER, &[locker(), client()]).await, Ok(()));
    quorum.electors[server].admitted = Some(admin.run_id().clone());
    connected(&quorum.members[server]).await;
}

/// Checks that tokens rise over grants by each majority, and returns the last token.
///
/// The grants alternate between the operator and a client with INCR only.
async fn tokens_rise(quorum: &Quorum, mut last: FencingToken) -> FencingToken {
    let direct = Redlock::new(Arc::new(SystemClock), settings()).with_token_reach(1_000);
    for away in 0..quorum.servers.len() {
        quorum.servers[away].freeze();
        for redlock in [&quorum.redlock, &direct] {
            let value = fresh_value();
            let outcome = redlock.acquire(&quorum.electorate(), request("other", &value)).await;
            let Acquire::Granted(grant) = outcome else { panic!("without member {away}: {outcome:?}") };
            assert!(grant.token > last, "without member {away}: {} after {last}", grant.token);
            last = grant.token;
            quorum.release("other", &value).await;
        }
        quorum.servers[away].thaw();
    }
    last
}

#[tokio::test]
async fn tokens_rise_after_a_quiet_day_and_one_restart() {
    let mut quorum = Quorum::of(3).await;
    let yesterday = now() - 86_400 * 1_000_000;
    for (server, lag) in quorum.servers.iter().zip([0, 7, 400]) {
        server.admin().await.restore_counter(token(yesterday - lag)).await.unwrap();
    }
    let last = tokens_rise(&quorum, token(yesterday - 7)).await;
    restart(&mut quorum, 1, last).await;
    let last = tokens_rise(&quorum, last).await;
    assert!(last.get() > yesterday + 80_000 * 1_000_000, "{last}");
    quorum.is_empty().await;
}

/// The clock of the API server was in 1970 at the first admissions, and then it was corrected.
#[tokio::test]
async fn after_a_clock_that_was_far_behind_tokens_still_rise() {
    let mut quorum = Quorum::of(3).await;
    for server in &quorum.servers {
        server.admin().await.restore_counter(token(now() / 1_000)).await.unwrap();
    }
    let value = fresh_value();
    let held = quorum.granted("held", &value).await;
    assert!(held.token.get() < now() / 100, "the counter is not far behind: {}", held.token);
    let mut last = held.token;
    for server in 0..3 {
        // The restarted member loses the held locks, and the two others keep them.
        restart(&mut quorum, server, last).await;
        last = tokens_rise(&quorum, last).await;
        assert!(last.get() > now() / 2, "the counter does not follow the clock: {last}");
        if server == 0 {
            let extension = extension("held", &value, TTL, held.valid_until);
            let outcome = quorum.redlock.extend(&quorum.electorate(), extension).await.pop();
            assert!(matches!(outcome, Some(Extend::Renewed { .. })), "{outcome:?}");
            quorum.release("held", &value).await;
        }
    }
    quorum.is_empty().await;
}

#[tokio::test]
async fn after_a_clock_that_was_ahead_tokens_still_rise() {
    let mut quorum = Quorum::of(3).await;
    let ahead = now() + 10 * 86_400 * 1_000_000;
    for server in &quorum.servers {
        server.admin().await.restore_counter(token(ahead)).await.unwrap();
    }
    let last = tokens_rise(&quorum, token(ahead)).await;
    // The clock is correct again, and there is no floor. The counters of the others are enough.
    restart(&mut quorum, 0, FencingToken::ZERO).await;
    tokens_rise(&quorum, last).await;
    quorum.is_empty().await;
}
