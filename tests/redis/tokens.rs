use crate::quorum::{LEADER, Quorum, connected, fresh_value, request};
use crate::server::{client, locker};
use redlock_operator::redis_member::Guarded;
use redlock_operator::redlock::{Acquire, AcquireRequest, FencingToken, MemberError, MemberFailure};

fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

#[tokio::test]
async fn tokens_rise_through_frozen_members_and_the_loss_of_one() {
    let mut quorum = Quorum::of(3).await;
    let mut last = FencingToken::ZERO;
    for turn in 0..12 {
        if turn == 6 {
            // Lost and restored as an admission does it: from the highest of a majority of the others, then open.
            quorum.servers[0].restart().await;
            let mut highest = FencingToken::ZERO;
            for server in &quorum.servers[1..] {
                highest = highest.max(server.admin().await.observe(&[]).await.unwrap().counter.unwrap());
            }
            let mut admin = quorum.servers[0].admin().await;
            assert_eq!(admin.raise_epoch(LEADER).await, Ok(Guarded::Done));
            assert_eq!(admin.restore_counter(highest).await, Ok(highest));
            assert_eq!(admin.restore_counter(FencingToken::ZERO).await, Ok(highest), "never lowered");
            assert_eq!(admin.open(LEADER, &[locker(), client()]).await, Ok(Guarded::Done));
            quorum.electors[0].admitted = Some(admin.run_id().clone());
            connected(&quorum.members[0]).await;
        }
        let frozen = &quorum.servers[turn % 3];
        frozen.freeze();
        let value = fresh_value();
        let grant = quorum.granted("k", &value).await;
        assert!(grant.token > last, "turn {turn}: {} after {last}", grant.token);
        last = grant.token;
        quorum.release("k", &value).await;
        frozen.thaw();
    }
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_token_is_written_back_to_a_majority_when_the_counters_differ() {
    let quorum = Quorum::of(3).await;
    let mut admin = quorum.servers[0].admin().await;
    assert_eq!(admin.restore_counter(token(100)).await, Ok(token(100)));
    quorum.servers[2].freeze();
    let value = fresh_value();
    assert_eq!(quorum.granted("k", &value).await.token, token(101));
    let stored = quorum.servers[1].admin().await.observe(&[]).await.unwrap().counter;
    assert_eq!(stored, Some(token(101)));
    quorum.servers[2].thaw();
    quorum.release("k", &value).await;
    quorum.is_empty().await;
}

#[tokio::test]
async fn a_hint_raises_the_token_and_one_that_is_far_off_is_refused() {
    let quorum = Quorum::of(3).await;
    let acquire = async |hint: i64| {
        let value = fresh_value();
        let hinted = AcquireRequest { hint: token(hint), ..request("k", &value) };
        let outcome = quorum.redlock.acquire(&quorum.electorate(), hinted).await;
        quorum.release("k", &value).await;
        outcome
    };
    let outcome = acquire(1 << 31).await;
    assert!(matches!(outcome, Acquire::Granted(grant) if grant.token.get() == (1 << 31) + 1), "{outcome:?}");
    let outcome = acquire(1 << 40).await;
    let Acquire::NoQuorum { refusals: 0, failures } = outcome else { panic!("{outcome:?}") };
    let too_large = MemberFailure::Member(MemberError::HintTooLarge);
    assert!(failures.len() >= 2 && failures.iter().all(|(_, failure)| *failure == too_large), "{failures:?}");
    quorum.is_empty().await;
}

#[tokio::test]
async fn the_largest_counters_stay_exact() {
    let quorum = Quorum::of(1).await;
    let mut admin = quorum.servers[0].admin().await;
    let high = token(FencingToken::MAX.get() - 2);
    assert_eq!(admin.restore_counter(high).await, Ok(high));
    let value = fresh_value();
    assert_eq!(quorum.granted("k", &value).await.token.get(), high.get() + 1);
}
