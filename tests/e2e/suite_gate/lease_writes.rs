//! The cost of the policy for Leases beside many locks.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    bench::Bench,
    figures::median,
    locks::{claim, create_all, status, until_all, watch_all, with},
};

/// The number of locks in the namespace, which is the chart's limit.
const LOCKS: usize = 10_000;
/// The number of writes of the Lease in each namespace, in turn.
const WRITES: usize = 2_000;
/// The longest time until the operator has the status of each lock.
const ALL_SERVED: Duration = Duration::from_secs(600);
const NAME: &str = "of-no-lock";

pub(crate) async fn ten_thousand_locks_do_not_slow_the_writes_of_leases(bench: Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_with(&["leaseGate.enabled=true"]).await?;
    let locks = watch_all(&bench).await?;
    let lock = |number: usize| claim(&format!("many-{number}"), "many", None, Duration::from_secs(30));
    create_all(&bench.api(), LOCKS, |number| with(lock(number), json!({"suspend": true}))).await?;
    until_all(&locks, LOCKS, ALL_SERVED, "served", |lock| !status(&lock.object).conditions.is_empty()).await?;
    Bench::beside(&bench, "without-locks", async |empty| {
        let leases: [Api<Lease>; 2] = [bench.api(), empty.api()];
        for leases in &leases {
            let lease = json!({"metadata": {"name": NAME}, "spec": {"holderIdentity": "a"}});
            leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        }
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..WRITES {
            for (leases, times) in leases.iter().zip(&mut times) {
                let change = json!({"spec": {"leaseTransitions": number}});
                let began = bench.now();
                leases.patch(NAME, &PatchParams::default(), &Patch::Merge(&change)).await?;
                times.push(bench.now().since(began));
            }
        }
        let [many, none] = times.map(|times| median(&times));
        let ratio = many.as_secs_f64() / none.as_secs_f64();
        println!("         a write of a Lease takes {ratio:.3} times as long beside {LOCKS} locks: {many:?}, {none:?} (medians)");
        ensure!(ratio < 1.05, "{ratio:.3} times as long");
        Ok(())
    })
    .await
}
