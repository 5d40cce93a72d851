//! The addresses at which outside clients reach the members.
//!
//! They come from the quorum's Secret, with the pods' addresses instead of names, because a node of the local cluster
//! does not use the cluster's DNS.

use std::collections::BTreeMap;

use anyhow::Context as _;
use futures::{StreamExt as _, stream::select};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    ResourceExt as _,
    api::ListParams,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use redlock_operator::api::MEMBER_LABEL;
use tokio::sync::watch;

use crate::{
    bench::Bench,
    quorums::{CLIENT_SECRET, client_urls},
    record::Steady,
};

/// One URL for each voter, in their order.
pub(crate) async fn urls(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let pods = bench.api::<Pod>().list(&ListParams::default().labels(MEMBER_LABEL)).await?;
    let of_member = |pod: Pod| Some((pod.labels().get(MEMBER_LABEL)?.clone(), pod.status?.pod_ip?));
    let addresses: BTreeMap<_, _> = pods.into_iter().filter_map(of_member).collect();
    client_urls(bench)
        .await?
        .iter()
        .map(|url| {
            let (user, host) = url.split_once('@').context("no host")?;
            let (name, port) = host.split_once(':').context("no port")?;
            let member = name.split('.').next().unwrap_or(name);
            // A member without a pod: no process listens there.
            let address = addresses.get(member).map_or("127.0.0.1", String::as_str);
            Ok(format!("{user}@{address}:{port}"))
        })
        .collect()
}

/// Sends the URLs again whenever a pod or the quorum's client Secret changes.
pub(crate) async fn follow(bench: Bench, known: watch::Sender<Vec<String>>) {
    let config = watcher::Config::default().timeout(20);
    let pods = watcher(bench.api::<Pod>(), config.clone().labels(MEMBER_LABEL)).backoff(Steady).map(drop);
    let secret = watcher(bench.api::<Secret>(), config.fields(&format!("metadata.name={CLIENT_SECRET}")));
    let mut news = select(pods, secret.backoff(Steady).map(drop)).boxed();
    while news.next().await.is_some() {
        // If the API server is down now, the next event repeats this.
        if let Ok(urls) = urls(&bench).await {
            known.send_if_modified(|before| {
                let changed = *before != urls;
                *before = urls;
                changed
            });
        }
    }
}
