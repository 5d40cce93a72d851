//! The operator or the API server is away.

use std::time::Duration;

use anyhow::ensure;

use super::surfaces::{doctor_names, redlock};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators,
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn without_the_operator_the_command_says_so(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("app", "job", None, TTL)).await?;
    lock.held(SOON).await?;
    operators::scale(&bench.cluster, 0).await?;
    let named = doctor_names(&bench, &["operator", "no lock is granted without a leader"]).await;
    operators::scale(&bench.cluster, operators::REPLICAS).await?;
    named
}

pub(crate) async fn without_the_api_server_the_command_says_so(bench: Bench) -> anyhow::Result<()> {
    bench.cluster.faults.stop_api_server().await?;
    let doctor = redlock(&bench, &["doctor"]).await;
    let explain = redlock(&bench, &["explain", "dlock/app"]).await;
    bench.cluster.faults.start_api_server().await?;
    let (doctor, explain) = (doctor?, explain?);
    ensure!(doctor.contains("bad   API server") && !doctor.contains("All is well"), "{doctor}");
    ensure!(explain.starts_with("redlock: ") || explain.contains("error"), "{explain}");
    Ok(())
}
