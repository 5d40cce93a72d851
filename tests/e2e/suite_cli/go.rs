//! Controllers in Go: processes of the example in `go/examples`, which `dev/go.sh example` builds.
//!
//! They run client-go's own loop.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use redlock_operator::api::{DistributedLock, conditions::is_true};

use super::{
    running::{claims, held},
    support::terminate,
};
use crate::{
    bench::Bench,
    locks::{SOON, reason_of, status},
    poll,
    programs::{Program, check},
};

/// The ttl of the example.
const TTL: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(90);

fn start(bench: &Bench, name: &str) -> anyhow::Result<Program> {
    Program::start(bench, name, &["controller"], &[("KEY", "controller")])
}

/// Waits until this program leads, and returns the token.
async fn leads(program: &Program, limit: Duration) -> anyhow::Result<i64> {
    program.leads(limit).await?.token.context("no token")
}

/// Waits until one claim waits for the lock.
async fn one_waits(bench: &Bench) -> anyhow::Result<()> {
    let is_waiting = |claim: &DistributedLock| {
        let status = status(claim);
        status.holder.is_none() && !is_true(&status.conditions, "Finished")
    };
    let one = async || Ok(claims(bench).await?.iter().any(is_waiting).then_some(()));
    poll::until(LONG, "the next controller waits", one).await
}

/// The token of the last write of the example's counter.
async fn counted_with(bench: &Bench) -> anyhow::Result<Option<String>> {
    let counter = bench.api::<ConfigMap>().get_opt("counter").await?;
    Ok(counter.and_then(|counter| counter.annotations().get("example.com/fencing-token").cloned()))
}

pub(crate) async fn controllers_in_go_lead_one_after_the_other(bench: Bench) -> anyhow::Result<()> {
    let mut first = start(&bench, "first")?;
    let token = leads(&first, LONG).await?;
    let mut second = start(&bench, "second")?;
    one_waits(&bench).await?;
    // This is longer than a hold without renewals.
    let micros = i64::try_from(2 * TTL.as_micros())?;
    let renewed = async || Ok(first.term().filter(|term| term.token == Some(token) && term.last - term.first > micros));
    poll::until(LONG, "it leads on", renewed).await?;
    let killed = bench.now();
    first.child.kill().await?;
    second.leads(LONG).await?;
    let took = bench.now().since(killed);
    bench.figures.add("killed controller in Go: the next one leads after", took);
    // The lock is free one ttl, one renewal interval and a second after the last heartbeat. The grant and its
    // observation take two more seconds.
    let most = TTL + TTL / 3 + Duration::from_secs(3);
    ensure!(took <= most, "the next one leads after {took:?}, the limit is {most:?}");
    let mut third = start(&bench, "third")?;
    one_waits(&bench).await?;
    the_next_controller_leads_after_a_release(&bench, &mut second, &third).await?;
    a_broken_lock_ends_its_controller(&bench, &mut third).await?;
    check(&[&first, &second, &third])
}

async fn the_next_controller_leads_after_a_release(
    bench: &Bench,
    second: &mut Program,
    third: &Program,
) -> anyhow::Result<()> {
    let its_claim = held(bench).await?.name_any();
    let signalled = bench.now();
    terminate(&second.child).await?;
    let token = leads(third, SOON).await?;
    bench.figures.add("stopped controller in Go: the next one leads after", bench.now().since(signalled));
    let ended = second.ended(LONG).await?;
    ensure!(ended.success(), "{ended:?}");
    let released = bench.api::<DistributedLock>().get(&its_claim).await?;
    ensure!(reason_of(&released, "Held") == Some("Released"), "{:?}", released.status);
    let counted = async || Ok(counted_with(bench).await?.filter(|found| *found == token.to_string()));
    poll::until(SOON, "the third one writes with its token", counted).await.map(drop)
}

async fn a_broken_lock_ends_its_controller(bench: &Bench, controller: &mut Program) -> anyhow::Result<()> {
    let claim = held(bench).await?.name_any();
    bench.break_lock(&claim, "break", "a test").await?;
    let ended = controller.ended(LONG).await?;
    ensure!(ended.code() == Some(1), "{ended:?}");
    let claim = bench.api::<DistributedLock>().get(&claim).await?;
    ensure!(status(&claim).ending.is_some(), "the hold has not run out yet: {:?}", claim.status);
    Ok(())
}
