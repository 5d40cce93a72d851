//! Agents in the pods of an election: all name the same leader, and only its own application leads.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;

use crate::{
    bench::Bench,
    locks::{Lock, is_held, leader, token},
    operators, pods, poll,
    suite_lock::support::election,
};

const LONG: Duration = Duration::from_secs(90);
const APP: &str = "follower";

/// Sends the requests of clients of leader-elector and nais/elector, and `GET /leader`.
const APPLICATION: &str = r#"
url=http://127.0.0.1:4040
until id=$(wget -q -O - --header 'X-Redlock: 1' --post-data '' $url/register | sed -n 's/.*"instance":"\([^"]*\)".*/\1/p') && [ "$id" ]; do sleep 0.3; done
while sleep 0.3; do
  read up rest </proc/uptime
  name=$(wget -q -O - $url/ 2>/dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p')
  token=$(wget -q -O - "$url/leader?instance=$id" 2>/dev/null | sed -n 's/.*"fencingToken":\([0-9]*\).*/\1/p')
  echo "$up ${name:-nobody} ${token:-none}"
done"#;

/// Three pods, each with an agent that follows the election `scheduler`.
async fn deploy(bench: &Bench) -> anyhow::Result<()> {
    bench.create_account(APP, operators::HOLDER_ROLE).await?;
    let image = operators::image(&bench.cluster).await?;
    let arguments = ["agent", "--election", "scheduler"];
    let deployment = json!({
        "metadata": {"name": APP},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": APP}},
            "template": {
                "metadata": {"labels": {"app": APP}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "serviceAccountName": APP,
                    "securityContext": pods::pod_security(),
                    "initContainers": [{
                        "name": "redlock", "image": image, "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always",
                        "command": ["/usr/local/bin/redlock"], "args": arguments, "securityContext": pods::container_security(),
                    }],
                    "containers": [pods::container(bench, "main", APPLICATION)],
                },
            },
        },
    });
    bench.create::<Deployment>(deployment).await?;
    Ok(())
}

/// The last line of each pod that is not being deleted.
///
/// It has the leader that the pod names, and the token if its application leads.
async fn reported(bench: &Bench) -> anyhow::Result<BTreeMap<String, (String, Option<i64>)>> {
    let pods = bench.api::<Pod>().list(&ListParams::default().labels(&format!("app={APP}"))).await?;
    let mut reported = BTreeMap::new();
    for pod in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let output = bench.kubectl_output(&["logs", &pod.name_any(), "-c", "main", "--tail=1"], "").await?;
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        if let [_, name, token] = line.split_whitespace().collect::<Vec<_>>()[..] {
            reported.insert(pod.name_any(), (name.to_owned(), token.parse().ok()));
        }
    }
    Ok(reported)
}

/// Waits until all three name the pod of the status, and that pod has the token of the status.
async fn agree(bench: &Bench, election: &Lock, above: i64) -> anyhow::Result<(String, i64)> {
    let agreed = async || {
        let object = election.recorder.last()?.object;
        if !is_held(&object) || token(&object)? <= above {
            return Ok(None);
        }
        let (leader, token) = (leader(&object).context("no pod")?, token(&object)?);
        let reported = reported(bench).await?;
        let all = reported.len() == 3 && reported.values().all(|(name, _)| *name == leader);
        let leading: Vec<_> = reported.iter().filter_map(|(pod, (_, token))| Some((pod, (*token)?))).collect();
        Ok((all && leading == [(&leader, token)]).then_some((leader, token)))
    };
    poll::until(LONG, "all agents name the leader", agreed).await
}

pub(crate) async fn agents_name_the_leader_of_an_election(bench: Bench) -> anyhow::Result<()> {
    let election = Lock::create(&bench, election("scheduler", APP, Duration::from_secs(10))).await?;
    deploy(&bench).await?;
    let (first, before) = agree(&bench, &election, 0).await?;
    let deleted = bench.now();
    bench.kubectl(&["delete", "pod", &first, "--wait=false"]).await?;
    let (second, after) = agree(&bench, &election, before).await?;
    bench.figures.add("agents of an election: leader deleted -> all name the next one", bench.now().since(deleted));
    ensure!(first != second && after > before, "{first} {before}, {second} {after}");
    Ok(())
}
