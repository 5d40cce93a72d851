//! The members and users of the vote monitor, from the statuses and Secrets of the quorums.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use redlock_operator::{api::RedisQuorum, quorum::model::auth::Auth, redis_member::acl::OPERATOR_USER};
use tokio::{io::AsyncWriteExt as _, process::ChildStdin};

use super::monitor::Target;
use crate::record::{Recorder, Version};

/// The client whose rights the monitor has.
pub(super) const CLIENT: &str = "outside";
const PORT: u16 = 6379;

/// The last versions of objects, by name.
///
/// Deleted objects stay, because a process can outlive its object.
type Last<K> = BTreeMap<String, K>;

/// Sends the targets to the monitor's process, whenever they change.
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
            news = quorums.after(seen_quorums) => seen_quorums += apply(&mut known_quorums, news),
            news = secrets.after(seen_secrets) => seen_secrets += apply(&mut known_secrets, news),
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

fn apply<K: kube::Resource<DynamicType = ()>>(last: &mut Last<K>, news: Vec<Version<K>>) -> usize {
    let count = news.len();
    last.extend(news.into_iter().map(|version| (version.object.name_any(), version.object)));
    count
}

/// The managed members of a quorum, including those that join or leave.
///
/// Returns `None` if the quorum has no such client.
fn targets_of(quorum: &RedisQuorum, secrets: &Last<Secret>) -> Option<Vec<Target>> {
    let (name, namespace) = (quorum.name_any(), quorum.namespace()?);
    let data = |suffix: &str| secrets.get(&format!("{name}-{suffix}"))?.data.as_ref();
    let text = |key: &str| String::from_utf8(data(&format!("client-{CLIENT}"))?.get(key)?.0.clone()).ok();
    let (auth, urls, user) = (Auth::from_data(data("auth")?)?, text("urls")?, text("username")?);
    let status = quorum.status.as_ref()?;
    // The members of the URLs, in their order. Members that join or leave have none.
    let mut voters = status.voters.clone();
    voters.sort();
    let uses_tls = |member: &String| {
        let position = voters.iter().position(|voter| voter == member);
        let url = position.and_then(|position| urls.lines().nth(position)).or_else(|| urls.lines().next());
        url.is_some_and(|url| url.starts_with("rediss:"))
    };
    let is_own = |member: &String| !quorum.spec.external.iter().any(|external| external.name == *member);
    let authorities = text("ca.crt");
    let target = |member: String| Target {
        operator_password: auth.password(&member, OPERATOR_USER).expose().to_owned(),
        // With `expose` the URL has another address of the same member.
        host: format!("{member}.{namespace}.svc"),
        port: PORT,
        authorities: authorities.clone().filter(|_| uses_tls(&member)),
        user: user.clone(),
        password: auth.password(&member, &user).expose().to_owned(),
        key_prefix: format!("{namespace}/"),
        member,
    };
    let members = status.members.iter().map(|member| member.name.clone());
    Some(members.filter(is_own).map(target).collect())
}
