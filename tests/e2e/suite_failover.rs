//! `make bench ONLY=failover`: how soon the next leader follows one that was killed, three ways in the same cluster.

use std::time::Duration;

use crate::{
    bench::Bench,
    locks::Lock,
    pods::is_ready,
    poll,
    programs::{CLIENT_GO, LEASE, Program},
    runner::{Test, tests},
    suite_gate::controllers::{gated, prepare},
    suite_lock::support::{POD_LIMIT, led_by},
};

pub(crate) const TESTS: &[Test] = tests![
    local self::a_plain_lease,
    local self::a_lease_behind_the_gate,
    local self::the_go_module,
];

/// Kills of each way.
const ROUNDS: usize = 20;
const LONG: Duration = Duration::from_secs(90);
/// The leader leads alone for this time before it is killed, so that the next candidate waits.
const ALONE: Duration = Duration::from_secs(5);
const NAMES: [&str; 2] = ["app-0", "app-1"];

/// Kills the leader again and again, and starts it again as a candidate.
async fn rounds(
    bench: &Bench,
    way: &str,
    start: impl AsyncFn(&str) -> anyhow::Result<Program>,
    kill: impl AsyncFn(&mut Program) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let [first, second] = NAMES;
    let mut leader = start(first).await?;
    leader.leads(LONG).await?;
    let mut next = start(second).await?;
    for _ in 0..ROUNDS {
        let alone = async || Ok(leader.is_leading(bench) && next.term().is_none());
        poll::stays(ALONE, "one leads alone", alone).await?;
        let killed = bench.now();
        kill(&mut leader).await?;
        next.leads(LONG).await?;
        bench.figures.add(&format!("{way}: leader killed -> next leader"), bench.now().since(killed));
        let again = start(&leader.name).await?;
        leader = std::mem::replace(&mut next, again);
    }
    Ok(())
}

async fn kill(program: &mut Program) -> anyhow::Result<()> {
    Ok(program.child.kill().await?)
}

/// The programs have the rights of an administrator, and no lock names their Lease.
pub(crate) async fn a_plain_lease(bench: Bench) -> anyhow::Result<()> {
    let start = async |name: &str| Program::start(&bench, name, CLIENT_GO, &[("LEASE", LEASE), ("IDENTITY", name)]);
    rounds(&bench, "plain Lease", start, kill).await
}

pub(crate) async fn a_lease_behind_the_gate(bench: Bench) -> anyhow::Result<()> {
    let pods = prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    led_by(&lock, 0, NAMES[0], POD_LIMIT).await?;
    let start = async |name: &str| {
        // The container of a leader that was killed starts again.
        let pod =
            pods.iter().find(|pod| pod.last().is_ok_and(|last| last.object.metadata.name.as_deref() == Some(name)));
        if let Some(pod) = pod {
            pod.until(LONG, "the pod is ready", |version| is_ready(&version.object)).await?;
        }
        Program::of_pod(&bench, CLIENT_GO, name).await
    };
    let kill = async |program: &mut Program| {
        let faults = &bench.cluster.faults;
        let (process, container) =
            tokio::join!(program.child.kill(), faults.kill_container(&bench.namespace, &program.name, "app"));
        process?;
        container
    };
    rounds(&bench, "Lease behind the gate", start, kill).await
}

pub(crate) async fn the_go_module(bench: Bench) -> anyhow::Result<()> {
    let start = async |name: &str| Program::start(&bench, name, &["controller"], &[("KEY", "controller")]);
    rounds(&bench, "Go module", start, kill).await
}
