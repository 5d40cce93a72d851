//! Whom the vote monitor asks, and as whom: what the status and the Secrets of the quorums say.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use redlock_operator::{api::RedisQuorum, quorum::auth::Auth, redis_member::acl::OPERATOR_USER};
use tokio::{io::AsyncWriteExt as _, process::ChildStdin};

use super::monitor::Target;
use crate::record::{Recorder, Version};

/// The client whose rights the monitor has.
pub(super) const CLIENT: &str = "outside";
const PORT: u16 = 6379;

/// Objects as they were last, by name. Deleted ones stay: a process may outlive them.
type Last<K> = BTreeMap<String, K>;

/// Tells the monitor's process whom to ask, whenever that changes.
pub(super) async fn follow(
    quorums: Arc<Recorder<RedisQuorum>>,
    secrets: Recorder<Secret>,
    mut stdin: ChildStdin,
) -> anyhow::Result<()> {
    let (mut seen_quorums, mut seen_secrets) = (0, 0);
    let (mut known_quorums, mut known_secrets) = (Last::new(), Last::new());
    let mut targets: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    loop {
        tokio::select! {
            news = quorums.after(seen_quorums) => seen_quorums += learn(&mut known_quorums, news),
            news = secrets.after(seen_secrets) => seen_secrets += learn(&mut known_secrets, news),
        }
        let before = targets.clone();
        for quorum in known_quorums.values() {
            if let Some(found) = targets_of(quorum, &known_secrets) {
                targets.insert(quorum.name_any(), found);
            }
        }
        if targets != before {
            let all: Vec<&Target> = targets.values().flatten().collect();
            stdin.write_all(format!("{}\n", serde_json::to_string(&all)?).as_bytes()).await?;
        }
    }
}

fn learn<K: kube::Resource<DynamicType = ()>>(last: &mut Last<K>, news: Vec<Version<K>>) -> usize {
    let count = news.len();
    last.extend(news.into_iter().map(|version| (version.object.name_any(), version.object)));
    count
}

/// The members of a quorum; `None` if it has no such client, or while status and Secrets are of different times.
fn targets_of(quorum: &RedisQuorum, secrets: &Last<Secret>) -> Option<Vec<Target>> {
    let (name, namespace) = (quorum.name_any(), quorum.namespace()?);
    let data = |suffix: &str| secrets.get(&format!("{name}-{suffix}"))?.data.as_ref();
    let text = |key: &str| String::from_utf8(data(&format!("client-{CLIENT}"))?.get(key)?.0.clone()).ok();
    let (auth, urls, user) = (Auth::from_data(data("auth")?)?, text("urls")?, text("username")?);
    let status = quorum.status.as_ref()?;
    if !user.ends_with(&format!("-e{}", status.membership_epoch?)) {
        return None;
    }
    // The order of the URLs.
    let mut members = status.voters.clone();
    members.sort();
    let authorities = text("ca.crt");
    let target = |(member, url): (String, &str)| {
        // With `expose` it has another address, which leads to the same member.
        let (scheme, rest) = url.split_once("://")?;
        let password = rest.split_once('@')?.0.split_once(':')?.1;
        Some(Target {
            operator_password: auth.password(&member, OPERATOR_USER).expose().to_owned(),
            host: format!("{member}.{namespace}.svc"),
            member,
            port: PORT,
            authorities: authorities.clone().filter(|_| scheme == "rediss"),
            user: user.clone(),
            password: password.to_owned(),
            key_prefix: format!("{namespace}/"),
        })
    };
    let all = members.len() == urls.lines().count();
    members.into_iter().zip(urls.lines()).map(target).collect::<Option<_>>().filter(|_| all)
}
