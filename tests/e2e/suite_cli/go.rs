//! Controllers in Go: processes of the example in `go/examples`, which `local/go.sh example` builds. client-go's loop runs in them as it is.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use redlock_operator::api::{DistributedLock, conditions::is_true};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

use super::running::{claims, held};
use crate::{
    bench::Bench,
    cluster,
    locks::{SOON, reason_of, status},
    poll,
};

/// Of the example.
const TTL: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(90);

/// For how long a process has said that it leads with one token, in microseconds of Unix time.
#[derive(Clone, Copy, Debug)]
struct Term {
    token: i64,
    first: i64,
    last: i64,
}

/// A process of the example.
struct Controller {
    child: Child,
    terms: watch::Receiver<Vec<Term>>,
}

impl Controller {
    fn start(bench: &Bench) -> anyhow::Result<Self> {
        let program = cluster::checkout().join(".local/go/controller");
        ensure!(program.exists(), "{} does not exist: run `local/go.sh example` first", program.display());
        let mut command = Command::new(program);
        let environment = [("NAMESPACE", bench.namespace.as_str()), ("KEY", "controller")];
        command.env("KUBECONFIG", &bench.cluster.kubeconfig).envs(environment);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let (seen, terms) = watch::channel(Vec::new());
        tokio::spawn(read(BufReader::new(stdout).lines(), seen));
        Ok(Self { child, terms })
    }

    /// The newest term, if it has led.
    fn term(&self) -> Option<Term> {
        self.terms.borrow().last().copied()
    }

    /// Waits until it leads, and gives the token.
    async fn leads(&self, limit: Duration) -> anyhow::Result<i64> {
        let token = async || Ok(self.term().map(|term| term.token));
        poll::until(limit, "the controller leads", token).await
    }
}

async fn read(mut lines: Lines<BufReader<ChildStdout>>, seen: watch::Sender<Vec<Term>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let mut words = line.split(' ');
        let is_leading = words.next() == Some("leads");
        let mut number = || words.next()?.parse::<i64>().ok();
        let (true, Some(token), Some(at)) = (is_leading, number(), number()) else { continue };
        seen.send_modify(|terms| match terms.last_mut() {
            Some(term) if term.token == token => term.last = at,
            _ => terms.push(Term { token, first: at, last: at }),
        });
    }
}

/// One led after the other, and tokens rise.
fn check(controllers: &[&Controller]) -> anyhow::Result<()> {
    let mut terms: Vec<Term> = controllers.iter().flat_map(|controller| controller.terms.borrow().clone()).collect();
    terms.sort_by_key(|term| term.first);
    ensure!(terms.len() == controllers.len(), "each has led once: {terms:?}");
    for pair in terms.windows(2) {
        let [before, after] = pair else { continue };
        ensure!(before.last < after.first, "two lead at once: {before:?} and {after:?}");
        ensure!(before.token < after.token, "the token does not rise: {before:?} and {after:?}");
    }
    Ok(())
}

/// A claim waits for the lock.
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
    let mut first = Controller::start(&bench)?;
    let token = first.leads(LONG).await?;
    let mut second = Controller::start(&bench)?;
    one_waits(&bench).await?;
    // Longer than any hold that is not renewed.
    let micros = i64::try_from(2 * TTL.as_micros())?;
    let renewed = async || Ok(first.term().filter(|term| term.token == token && term.last - term.first > micros));
    poll::until(LONG, "it leads on", renewed).await?;
    let killed = bench.now();
    first.child.kill().await?;
    second.leads(LONG).await?;
    let took = bench.now().since(killed);
    bench.figures.add("killed controller in Go: the next one leads after", took);
    // One ttl, one renewal interval and a second after the last heartbeat it is free; then it is granted, and seen.
    let most = TTL + TTL / 3 + Duration::from_secs(3);
    ensure!(took <= most, "the next one leads after {took:?}, promised are {most:?}");
    let mut third = Controller::start(&bench)?;
    one_waits(&bench).await?;
    a_released_lock_goes_on_at_once(&bench, &mut second, &third).await?;
    a_broken_lock_ends_its_controller(&bench, &mut third).await?;
    check(&[&first, &second, &third])
}

async fn a_released_lock_goes_on_at_once(
    bench: &Bench,
    second: &mut Controller,
    third: &Controller,
) -> anyhow::Result<()> {
    let its_claim = held(bench).await?.name_any();
    let pid = second.child.id().context("no process ID")?;
    let signalled = bench.now();
    ensure!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?.success(), "kill");
    let token = third.leads(SOON).await?;
    bench.figures.add("stopped controller in Go: the next one leads after", bench.now().since(signalled));
    let ended = timeout(LONG, second.child.wait()).await.context("it has not ended")??;
    ensure!(ended.success(), "{ended:?}");
    let released = bench.api::<DistributedLock>().get(&its_claim).await?;
    ensure!(reason_of(&released, "Held") == Some("Released"), "{:?}", released.status);
    let counted = async || Ok(counted_with(bench).await?.filter(|found| *found == token.to_string()));
    poll::until(SOON, "the third one writes with its token", counted).await.map(drop)
}

async fn a_broken_lock_ends_its_controller(bench: &Bench, controller: &mut Controller) -> anyhow::Result<()> {
    let claim = held(bench).await?.name_any();
    bench.break_lock(&claim, "break", "a test").await?;
    let ended = timeout(LONG, controller.child.wait()).await.context("it has not ended")??;
    ensure!(ended.code() == Some(1), "{ended:?}");
    let claim = bench.api::<DistributedLock>().get(&claim).await?;
    ensure!(status(&claim).ending.is_some(), "the hold has not run out yet: {:?}", claim.status);
    Ok(())
}
