//! All libraries and two claims contend for one key, while members restart one after the other.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use redlock_operator::api::{MemberState, MemberStatus};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    bench::Bench,
    libraries::{Held, LIBRARIES, LockClient},
    locks::{Lock, claim, status},
    quorums::Quorum,
    spans::{Span, check_exclusion},
    suite_quorum::helpers::{RESTART_LIMIT, is_admitted},
};

const MAX_TTL: Duration = Duration::from_secs(3);
/// The ttl is short, because some holds expire without a release.
const TTL: Duration = Duration::from_secs(1);
const KEY: &str = "contended";
const CLAIMANTS: usize = 2;
/// Each client has to hold this often.
const HOLDS: usize = 5;
/// The limit for the holds of all clients.
const LIMIT: Duration = Duration::from_secs(200);
const LEAST_RESTARTS: usize = 3;

/// All holds so far.
type History = Arc<Mutex<Vec<Span>>>;

/// Whether each client has held often enough.
fn is_full(book: &History) -> bool {
    let mut names: Vec<_> = book.lock().iter().map(|span| span.who.clone()).collect();
    names.sort();
    names.chunk_by(|a, b| a == b).filter(|holds| holds.len() >= HOLDS).count() == LIBRARIES.len() + CLAIMANTS
}

pub(crate) async fn libraries_on_a_key_exclude_each_other_while_members_restart(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let book = History::default();
    let ((), restarts) = tokio::try_join!(all_contend(&bench, &quorum, &book), restart(&bench, &quorum, &book))?;
    ensure!(restarts >= LEAST_RESTARTS, "only {restarts} restarts");
    println!("{restarts} restarts of members meanwhile");
    Ok(())
}

/// Kills one member after the other, each time when all are admitted, until the history is full.
///
/// Returns the number of kills.
async fn restart(bench: &Bench, quorum: &Quorum, book: &History) -> anyhow::Result<usize> {
    let mut restarts = 0;
    while !is_full(book) {
        let (mark, member) = (quorum.recorder.mark(), restarts % 3);
        bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{member}-0"), "redis").await?;
        let is_fenced = |m: &MemberStatus| m.state == MemberState::Fenced;
        quorum.member_until(mark, member, RESTART_LIMIT, "is fenced", is_fenced).await?;
        let fenced = quorum.recorder.mark();
        quorum.member_until(fenced, member, RESTART_LIMIT, "is admitted", is_admitted).await?;
        restarts += 1;
    }
    Ok(restarts)
}

async fn all_contend(bench: &Bench, quorum: &Quorum, book: &History) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for library in LIBRARIES {
        clients.push(LockClient::start(quorum, library).await?);
    }
    for client in clients {
        tasks.spawn(contend(bench.clone(), client, book.clone()));
    }
    for number in 0..CLAIMANTS {
        tasks.spawn(claimant(bench.clone(), number, book.clone()));
    }
    let all = timeout(LIMIT, async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok::<_, anyhow::Error>(())
    });
    let all = all.await;
    let spans = book.lock().clone();
    check_exclusion(&spans)?;
    all.with_context(|| format!("not everybody has held {HOLDS} times within {LIMIT:?}: {spans:?}"))??;
    println!("{} holds of one key by {} libraries and {CLAIMANTS} claimants", spans.len(), LIBRARIES.len());
    Ok(())
}

fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..to))
}

/// Takes the lock repeatedly, like a program that alternates between its work and other tasks.
async fn contend(bench: Bench, mut client: LockClient, book: History) -> anyhow::Result<()> {
    let key = format!("{}/{KEY}", bench.namespace);
    let mut holds = 0_usize;
    while !is_full(&book) {
        // With a member down some libraries report the failure instead of the lock.
        let Ok(Some(held)) = client.acquire(&key, TTL).await else {
            sleep(millis(20, 120)).await;
            continue;
        };
        sleep(millis(20, 200)).await;
        let mut until = held.until;
        let now = bench.wall().0;
        if client.library.extends && holds % 3 == 1 && now < until {
            // After a failed extension the hold ends now, because some libraries release the lock then.
            until = client.extend(TTL).await.map_or(until.min(now), |Held { until, .. }| until);
            sleep(millis(20, 200)).await;
        }
        holds += 1;
        let who = client.library.name.to_owned();
        // One in three holders ends without a release: its hold expires.
        if holds.is_multiple_of(3) {
            book.lock().push(Span { who, from: held.from, until, token: None });
            let left = u64::try_from(until - bench.wall().0).unwrap_or_default();
            sleep(Duration::from_millis(left)).await;
        } else {
            let now = bench.wall().0;
            book.lock().push(Span { who, from: held.from, until: until.min(now), token: None });
            // On a busy machine the lock can have expired, which some libraries treat as an error.
            let _released = client.release().await;
        }
        sleep(millis(100, 600)).await;
    }
    Ok(())
}

/// Claims are created and deleted, with the same work in between.
async fn claimant(bench: Bench, number: usize, book: History) -> anyhow::Result<()> {
    let mut round = 0;
    while !is_full(&book) {
        let lock = Lock::create(&bench, claim(&format!("claim-{number}-{round}"), KEY, Some("q"), TTL)).await?;
        let held = status(&lock.held(LIMIT).await?.object);
        sleep(millis(20, 400)).await;
        let now = bench.wall().0;
        let valid = status(&lock.recorder.last()?.object).valid_until.context("the claim was not renewed")?;
        let acquired = held.acquired_at.context("no acquiredAt")?;
        ensure!(valid > acquired, "a validity that ends before it begins: {valid}");
        // These times are from the clock of the API server, which runs on this machine.
        let (from, until) = (acquired.as_millis(), valid.as_millis().min(now));
        book.lock().push(Span { who: format!("claim {number}"), from, until, token: None });
        lock.remove().await?;
        sleep(millis(100, 600)).await;
        round += 1;
    }
    Ok(())
}
