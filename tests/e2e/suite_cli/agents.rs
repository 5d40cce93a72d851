//! `redlock agent` as a native sidecar.
//!
//! An application sends requests all the time and logs the answers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::quorum_with_reader;
use crate::{bench::Bench, operators, pods, poll};

const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(90);
/// The outage lasts several ttls, so that only the members can confirm the validity.
const AWAY: Duration = Duration::from_secs(15);
const POD: &str = "app";
const AGENT: &str = "redlock";
const MAIN: &str = "main";

/// The application prints the boot-time clock before the request, the instance, and the answer.
///
/// If the agent was down, the application registers again.
const APPLICATION: &str = r#"
url=http://127.0.0.1:4040
register() { wget -q -O - --header 'X-Redlock: 1' --post-data '' $url/register 2>/dev/null | sed -n 's/.*"instance":"\([0-9a-f]*\)".*/\1/p'; }
id=
while :; do
  [ -n "$id" ] || id=$(register)
  read up rest </proc/uptime
  if said=$(wget -q -O - "$url/leader?instance=$id" 2>&1); then
    echo "$up ${id:-none} $said"
  else
    echo "$up ${id:-none} no"
    case $said in *409*|*503*) ;; *) id= ;; esac
  fi
  # The test cannot kill it while the API server is away.
  [ "${up%.*}" -lt "$(cat /tmp/end 2>/dev/null || echo 999999999)" ] || exit 1
  sleep 0.1
done"#;

/// One answer that the application received.
#[derive(Clone, Debug)]
struct Answer {
    /// The time before the request, in milliseconds since boot.
    asked: u64,
    instance: String,
    /// The token and the deadline of the work, if the application leads.
    leads: Option<(i64, u64)>,
}

fn parse_answer(line: &str) -> Option<Answer> {
    let (up, rest) = line.split_once(' ')?;
    let (instance, said) = rest.split_once(' ')?;
    let asked = up.replace('.', "").parse::<u64>().ok()? * 10;
    let leads = serde_json::from_str::<Value>(said)
        .ok()
        .and_then(|said| Some((said["fencingToken"].as_i64()?, asked + said["validForMs"].as_u64()?)));
    Some(Answer { asked, instance: instance.to_owned(), leads })
}

/// The application's pod.
struct Application(Bench);

impl Application {
    /// Waits until the application leads.
    ///
    /// Returns it with its answer and the token.
    async fn leading(bench: &Bench) -> anyhow::Result<(Self, Answer, i64)> {
        let _quorum = quorum_with_reader(bench, TTL).await?;
        bench.create::<Pod>(pod(bench).await?).await?;
        let application = Self(bench.clone());
        let first = application.until_leads(0).await?;
        let token = first.leads.map_or(0, |(token, _)| token);
        Ok((application, first, token))
    }

    /// The answers of the current application, or with `before` those of the killed one.
    async fn log(&self, before: bool) -> anyhow::Result<Vec<Answer>> {
        let mut arguments = vec!["logs", POD, "-c", MAIN];
        if before {
            arguments.push("--previous");
        }
        // A container that has not started yet has no log.
        let text = self.0.kubectl(&arguments).await.unwrap_or_default();
        Ok(text.lines().filter_map(parse_answer).collect())
    }

    /// Waits until the application leads with a token above this one.
    async fn until_leads(&self, above: i64) -> anyhow::Result<Answer> {
        let leads = async || {
            let log = self.log(false).await?;
            Ok(log.into_iter().find(|answer| answer.leads.is_some_and(|(token, _)| token > above)))
        };
        poll::until(LONG, "the application leads", leads).await
    }

    async fn restarts(&self, container: &str) -> anyhow::Result<i32> {
        let status = self.0.api::<Pod>().get(POD).await?.status.unwrap_or_default();
        let all = status.container_statuses.into_iter().chain(status.init_container_statuses).flatten();
        Ok(all.filter(|status| status.name == container).map(|status| status.restart_count).sum())
    }

    async fn kill(&self, container: &str) -> anyhow::Result<()> {
        self.0.cluster.faults.kill_container(&self.0.namespace, POD, container).await
    }
}

/// A pod with the agent as a native sidecar, and an application with only a shell.
async fn pod(bench: &Bench) -> anyhow::Result<Value> {
    let image = operators::image(&bench.cluster).await?;
    let lock = format!("{}/reindex", bench.namespace);
    let ttl = format!("{}s", TTL.as_secs());
    let arguments = ["agent", "--lock", &lock, "--ttl", &ttl, "--quorum", "q", "--members-secret", "/client"];
    Ok(json!({
        "metadata": {"name": POD},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": "app",
            "securityContext": pods::pod_security(),
            "volumes": [{"name": "client", "secret": {"secretName": "q-client-look"}}],
            "initContainers": [{
                "name": AGENT, "image": image, "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always",
                "command": ["/usr/local/bin/redlock"], "args": arguments,
                "volumeMounts": [{"name": "client", "mountPath": "/client"}],
                "securityContext": pods::container_security(),
            }],
            "containers": [pods::container(bench, MAIN, APPLICATION)],
        },
    }))
}

/// Checks that the second instance leads only after the last deadline of the first one.
fn check_successor(before: &[Answer], after: &[Answer]) -> anyhow::Result<i64> {
    let promises = || before.iter().filter_map(|answer| answer.leads);
    let (largest, end) = (promises().map(|(token, _)| token).max(), promises().map(|(_, until)| until).max());
    let (largest, end) = (largest.context("it never led")?, end.unwrap_or_default());
    let first = after.iter().find(|answer| answer.leads.is_some()).context("the second instance never led")?;
    let tokens: Vec<_> = after.iter().filter_map(|answer| Some(answer.leads?.0)).collect();
    ensure!(tokens.iter().all(|token| *token > largest), "tokens {tokens:?} after {largest}");
    // The agent measures the deadline from its own reading of the clock, and the client from before its request. A
    // reading of /proc/uptime has a resolution of 10 ms.
    ensure!(first.asked + 1_000 >= end, "it leads at {} although the first instance can work until {end}", first.asked);
    Ok(largest)
}

/// Checks that no answer promises more than one ttl.
///
/// The tokens must not fall.
fn check_promises(log: &[Answer]) -> anyhow::Result<()> {
    let ttl = u64::try_from(TTL.as_millis())?;
    let mut largest = 0;
    for (answer, (token, until)) in log.iter().filter_map(|answer| Some((answer, answer.leads?))) {
        ensure!(until <= answer.asked + ttl, "{answer:?} promises more than one ttl");
        ensure!(token >= largest, "{answer:?} comes after token {largest}");
        largest = token;
    }
    Ok(())
}

pub(crate) async fn an_application_that_is_killed_gets_a_token_of_its_own(bench: Bench) -> anyhow::Result<()> {
    let (application, first, token) = Application::leading(&bench).await?;
    application.kill(MAIN).await?;
    let second = application.until_leads(token).await?;
    ensure!(second.instance != first.instance, "the same instance");
    let (before, after) = (application.log(true).await?, application.log(false).await?);
    check_promises(&before)?;
    check_promises(&after)?;
    check_successor(&before, &after)?;
    ensure!(application.restarts(AGENT).await? == 0, "the agent was restarted");
    Ok(())
}

pub(crate) async fn an_application_leads_through_an_outage_and_no_successor_does(bench: Bench) -> anyhow::Result<()> {
    let (application, first, token) = Application::leading(&bench).await?;
    let end = format!("read up rest </proc/uptime; echo $((${{up%.*}} + {})) >/tmp/end", AWAY.as_secs());
    bench.kubectl(&["exec", POD, "-c", MAIN, "--", "sh", "-c", &end]).await?;
    bench.cluster.faults.stop_api_server().await?;
    // This is the outage: there is no condition to await.
    sleep(AWAY * 2).await;
    bench.cluster.faults.start_api_server().await?;
    let second = application.until_leads(token).await?;
    ensure!(second.instance != first.instance, "the same instance");
    let (before, after) = (application.log(true).await?, application.log(false).await?);
    check_promises(&before)?;
    check_successor(&before, &after)?;
    let last = before.last().map_or(0, |answer| answer.asked);
    let gaps: Vec<_> = before.iter().filter(|answer| answer.asked > first.asked && answer.leads.is_none()).collect();
    ensure!(gaps.is_empty(), "it did not lead {} times before {last}, such as {:?}", gaps.len(), gaps.first());
    let led = last.saturating_sub(first.asked);
    ensure!(u128::from(led) > (2 * TTL).as_millis(), "it led for {led} ms, and the outage was longer");
    Ok(())
}

pub(crate) async fn an_application_outlives_its_agent_and_leads_again(bench: Bench) -> anyhow::Result<()> {
    let (application, first, token) = Application::leading(&bench).await?;
    application.kill(AGENT).await?;
    let second = application.until_leads(token).await?;
    ensure!(second.instance != first.instance, "a new agent must not serve an earlier instance");
    let log = application.log(false).await?;
    check_promises(&log)?;
    let (before, after): (Vec<_>, Vec<_>) = log.into_iter().partition(|answer| answer.instance == first.instance);
    check_successor(&before, &after)?;
    ensure!(application.restarts(MAIN).await? == 0, "the application was restarted");
    Ok(())
}
