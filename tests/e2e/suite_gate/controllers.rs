//! Processes of the elector in `go/examples`, which `local/go.sh example` builds. Each has the service account token of one pod. The container of
//! that pod stands for the process: a test that kills the one kills the other.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use redlock_operator::api::{LEASE_LABEL, LEASE_TOKEN_ANNOTATION};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

use crate::{
    bench::Bench,
    cluster,
    locks::{Lock, token},
    operators, poll,
    suite_lock::support::{IDLE, POD_LIMIT, election, led_by, run, valid_until, with, worker},
};

const LEASE: &str = "controller.example.com";
/// Twice the lease duration of the elector.
const TTL: Duration = Duration::from_secs(30);
/// Of the elector.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that still leads has said so within this time.
const LATELY: i64 = 3_000_000;
/// The next leader has the lock, and tries its Lease again after up to 4.4 s. That is far from the lease duration.
const FOLLOWED: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(90);

/// For how long a process has led, in microseconds of Unix time.
type Span = Option<(i64, i64)>;

/// A process of the elector.
struct Controller {
    pod: &'static str,
    child: Child,
    span: watch::Receiver<Span>,
}

impl Controller {
    /// Starts it with a token of this pod.
    async fn start(bench: &Bench, pod: &'static str) -> anyhow::Result<Self> {
        let program = cluster::checkout().join(".local/go/elector");
        ensure!(program.exists(), "{} does not exist: run `local/go.sh example` first", program.display());
        let name = format!("--bound-object-name={pod}");
        let token = ["create", "token", "default", "--bound-object-kind=Pod", &name, "--duration=1h"];
        let token = bench.kubectl(&token).await?;
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &bench.cluster.kubeconfig).env("TOKEN", token.trim());
        command.envs([("NAMESPACE", bench.namespace.as_str()), ("LEASE", LEASE), ("IDENTITY", pod)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let (led, span) = watch::channel(None);
        tokio::spawn(read(BufReader::new(stdout).lines(), led));
        Ok(Self { pod, child, span })
    }

    fn span(&self) -> Span {
        *self.span.borrow()
    }

    fn is_leading(&self, bench: &Bench) -> bool {
        self.span().is_some_and(|(_, last)| bench.wall().0 * 1_000 - last < LATELY)
    }

    async fn leads(&self, limit: Duration) -> anyhow::Result<()> {
        let span = async || Ok(self.span());
        poll::until(limit, &format!("the controller of {} leads", self.pod), span).await.map(drop)
    }

    /// client-go's loop has given up, and the process with it.
    async fn has_stopped(&mut self) -> anyhow::Result<()> {
        let ended = timeout(LONG, self.child.wait()).await.context("it leads on")??;
        ensure!(ended.code() == Some(1), "{ended:?}");
        Ok(())
    }
}

async fn read(mut lines: Lines<BufReader<ChildStdout>>, led: watch::Sender<Span>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let Some(at) = line.strip_prefix("leads ").and_then(|at| at.parse().ok()) else { continue };
        led.send_modify(|span| *span = Some((span.map_or(at, |(first, _)| first), at)));
    }
}

/// One led after the other.
fn check(controllers: &[&Controller]) -> anyhow::Result<()> {
    let mut spans: Vec<_> = controllers.iter().filter_map(|it| Some((it.span()?, it.pod))).collect();
    ensure!(spans.len() == controllers.len(), "each has led once: {spans:?}");
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let [before, after] = pair else { continue };
        ensure!(before.0.1 < after.0.0, "two lead at once: {before:?} and {after:?}");
    }
    Ok(())
}

/// The gate, two pods, and what their service account needs.
async fn prepare(bench: &Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_with(&["leaseGate.enabled=true"]).await?;
    let role = ["create", "role", "electors", "--verb=get,create,update", "--resource=leases.coordination.k8s.io"];
    bench.kubectl(&role).await?;
    let account = format!("--serviceaccount={}:default", bench.namespace);
    bench.kubectl(&["create", "rolebinding", "electors", "--role=electors", &account]).await?;
    // The operator elects the older one. Times of creation are whole seconds, and then the name decides.
    for pod in ["app-0", "app-1"] {
        run(bench, worker(bench, pod, "app", IDLE)).await?;
    }
    Ok(())
}

/// An election among these pods, with the Lease of the controllers.
fn gated() -> Value {
    let election = election("app", "app", TTL);
    let selector = election["spec"]["election"]["selector"].clone();
    with(election, json!({"election": {"selector": selector, "lease": {"name": LEASE}}}))
}

async fn holder(bench: &Bench) -> anyhow::Result<Option<String>> {
    Ok(bench.api::<Lease>().get(LEASE).await?.spec.and_then(|spec| spec.holder_identity))
}

pub(crate) async fn an_unchanged_controller_leads_and_is_followed_within_seconds(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    let held = led_by(&lock, 0, "app-0", POD_LIMIT).await?;
    ensure!(held.object.labels().get(LEASE_LABEL).is_some_and(|value| value == "true"), "{:?}", held.object.metadata);
    let second = Controller::start(&bench, "app-1").await?;
    let mut first = Controller::start(&bench, "app-0").await?;
    first.leads(LONG).await?;
    let lease = bench.api::<Lease>().get(LEASE).await?;
    let stamp = lease.annotations().get(LEASE_TOKEN_ANNOTATION).cloned();
    ensure!(stamp == Some(token(&held.object)?.to_string()), "{stamp:?} is not the token of the hold");
    let alone = async || {
        Ok(first.is_leading(&bench) && second.span().is_none() && holder(&bench).await? == Some("app-0".into()))
    };
    poll::stays(2 * LEASE_DURATION, "app-0 leads alone", alone).await?;
    let message = bench.patch_refused("lease", LEASE, r#"{"spec": {"holderIdentity": "me"}}"#).await?;
    ensure!(message.contains("only a pod that holds the lock"), "{message}");

    let killed = bench.now();
    let faults = &bench.cluster.faults;
    let (process, container) =
        tokio::join!(first.child.kill(), faults.kill_container(&bench.namespace, "app-0", "app"));
    process?;
    container?;
    second.leads(LONG).await?;
    let took = bench.now().since(killed);
    bench.figures.add("killed controller with client-go's election: the next one leads after", took);
    ensure!(took <= FOLLOWED, "the next one leads after {took:?}, expected are at most {FOLLOWED:?}");
    check(&[&first, &second])
}

pub(crate) async fn a_leader_of_before_the_lock_is_followed_when_it_has_stopped(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let mut before = Controller::start(&bench, "app-1").await?;
    before.leads(LONG).await?;
    let lock = Lock::create(&bench, gated()).await?;
    led_by(&lock, 0, "app-0", POD_LIMIT).await?;
    let after = Controller::start(&bench, "app-0").await?;
    after.leads(LONG).await?;
    before.has_stopped().await?;
    check(&[&before, &after])
}

pub(crate) async fn without_the_operator_a_leader_stops_before_its_validity_ends(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    let token = token(&led_by(&lock, 0, "app-0", POD_LIMIT).await?.object)?;
    let mut first = Controller::start(&bench, "app-0").await?;
    let second = Controller::start(&bench, "app-1").await?;
    first.leads(LONG).await?;
    operators::scale(&bench.cluster, 0).await?;
    let stopped = first.has_stopped().await;
    let followed = second.span();
    operators::scale(&bench.cluster, operators::REPLICAS).await?;
    stopped?;
    ensure!(followed.is_none(), "another one leads though nothing was granted");
    let ((_, last), valid_until) = (first.span().context("it has not led")?, valid_until(&lock, token)?);
    ensure!(last < valid_until * 1_000, "it led until {last}, and the lock was valid until {valid_until} ms");
    // The container of its pod lives, and can be elected again.
    let again = Controller::start(&bench, "app-0").await?;
    let next = async || Ok(again.span().or(second.span()));
    poll::until(LONG, "a controller leads again", next).await?;
    let led: Vec<_> = [&first, &second, &again].into_iter().filter(|it| it.span().is_some()).collect();
    check(&led)
}
