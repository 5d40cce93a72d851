//! One member of three is fenced after a restart: two are a majority, for every library.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::{FenceReason, MemberState};

use crate::{
    bench::Bench,
    foreign::Client,
    libraries::{LIBRARIES, LockClient, REDLOCK_PY},
    locks::{Lock, SOON, claim, is_held},
    quorums::Quorum,
    suite_quorum::helpers::{RESTART_LIMIT, is_admitted, is_fenced_for},
};

/// The member is fenced long enough for all libraries to run their tests.
const MAX_TTL: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(4);
/// The pause before an extension, which is longer than all of its requests.
///
/// The clients wait for a member for a fifth of a second.
const BEFORE_EXTENSION: Duration = Duration::from_secs(1);
const VICTIM: usize = 1;

pub(crate) async fn every_library_continues_while_a_member_is_fenced(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let redis = Client::start(&quorum).await?;
    let claimed = Lock::create(&bench, claim("claimed", "claimed", Some("q"), TTL)).await?;
    claimed.held(SOON).await?;
    let mut clients = Vec::new();
    for library in LIBRARIES {
        let mut client = LockClient::start(&quorum, library).await?;
        client.acquire_within(SOON, &bench.key(library.name), TTL).await?;
        client.release().await?;
        clients.push(client);
    }
    let mark = quorum.recorder.mark();
    bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{VICTIM}-0"), "redis").await?;
    let restarted = |m: &_| is_fenced_for(m, FenceReason::Restarted);
    quorum.member_until(mark, VICTIM, RESTART_LIMIT, "is fenced as Restarted", restarted).await?;
    let fenced = quorum.recorder.mark();

    for client in &mut clients {
        let name = client.library.name;
        let mine = bench.key(name);
        let held = client.acquire_within(SOON, &mine, TTL).await?;
        if client.library.extends {
            // A library can subtract from the validity the durations of the extension and of the query of the remaining
            // time. They are shorter than this pause, so the extended validity must end later than the first one.
            tokio::time::sleep(BEFORE_EXTENSION).await;
            let extended = client.extend(TTL).await?;
            ensure!(extended.until > held.until, "{name}: {held:?}, extended: {extended:?}");
        }
        let missing = redis.redis(VICTIM, &["EXISTS", &mine]).await?;
        ensure!(missing.starts_with("NOPERM"), "{name}: the fenced member answers {missing:?}");
        client.release().await?;
        let left = redis.shell(&format!("for m in 0 2; do redis $m EXISTS {mine}; done")).await?;
        ensure!(left == "0\n0", "{name} has left its key behind: {left:?}");
        let taken = client.acquire(&bench.key("claimed"), TTL).await?;
        ensure!(taken.is_none(), "{name} took what a claim holds: {taken:?}");
    }
    // docs/clients.md describes that plain redlock-py fails although two members voted.
    let careless = &mut clients[0];
    ensure!(careless.library == REDLOCK_PY, "not redlock-py: {:?}", careless.library);
    let answer = careless.ask(&format!("plain {} 1000", bench.key("careless"))).await?;
    ensure!(answer.contains("MultipleRedlockException"), "plain redlock-py now tolerates a fenced member: {answer}");
    ensure!(is_held(&claimed.recorder.last()?.object), "the claim has lost its lock");
    let still_fenced = quorum.recorder.last()?.object.status.unwrap_or_default();
    let state = still_fenced.members.get(VICTIM).map(|member| member.state);
    ensure!(state == Some(MemberState::Fenced), "the libraries were not quick enough: the member is {state:?}");

    // They reconnect to the member automatically.
    quorum.member_until(fenced, VICTIM, MAX_TTL + RESTART_LIMIT, "is admitted", is_admitted).await?;
    for client in &mut clients {
        let name = client.library.name;
        let mine = bench.key(name);
        let found = async {
            loop {
                client.acquire_within(SOON, &mine, TTL).await?;
                let there = redis.redis(VICTIM, &["EXISTS", &mine]).await?;
                client.release().await?;
                if there == "1" {
                    return Ok::<_, anyhow::Error>(());
                }
            }
        };
        tokio::time::timeout(SOON, found).await.with_context(|| format!("{name} asks the member no more"))??;
    }
    Ok(())
}
