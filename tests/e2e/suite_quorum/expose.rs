//! Members that outside clients reach.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    core::v1::{Node, Pod, Secret, Service},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use redlock_operator::{
    api::{MemberStatus, RedisQuorum},
    quorum::model::tls::{Data, read},
};
use serde_json::json;

use super::helpers::{condition, run_ids};
use crate::{
    bench::Bench,
    locks::SOON,
    quorums::{CLIENT_SECRET, Quorum, member_of},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(2);
/// A kubelet updates a Secret in its pods within about a minute.
const KUBELET_LIMIT: Duration = Duration::from_secs(150);

/// The function `outside COMMAND...`, which runs a command on a machine outside the cluster.
///
/// The machine is connected to the nodes, but has no route to pods and Services.
const OUTSIDE: &str = r#"set -euo pipefail
unshare --net sleep 100 & machine=$!
trap 'kill $machine' EXIT
until [ "$(readlink /proc/$machine/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add outside type veth peer name eth0 netns $machine
ip link set outside master br0 up
outside() { nsenter --target $machine --net -- "$@"; }
outside ip addr add 10.99.1.200/24 dev eth0
outside ip link set eth0 up
"#;

async fn node_addresses(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(bench.cluster.client.clone()).list(&ListParams::default()).await?;
    let internal = |node: &Node| {
        let addresses = node.status.as_ref()?.addresses.as_ref()?;
        addresses.iter().find(|address| address.type_ == "InternalIP").map(|address| address.address.clone())
    };
    Ok(nodes.iter().filter_map(internal).collect())
}

/// Splits `rediss://user:password@host:port` into user, password and address.
fn split_url(url: &str) -> anyhow::Result<[&str; 3]> {
    let rest =
        url.strip_prefix("rediss://").with_context(|| format!("no TLS: {}", url.split(':').next().unwrap_or("")))?;
    let (user, rest) = rest.split_once(':').context("no password")?;
    let (password, address) = rest.split_once('@').context("no address")?;
    Ok([user, password, address])
}

pub(crate) async fn node_ports_are_reached_from_outside_with_a_valid_certificate(bench: Bench) -> anyhow::Result<()> {
    let nodes = node_addresses(&bench).await?;
    ensure!(nodes.len() >= 3, "three nodes are needed, not {nodes:?}");
    let spec = json!({"tls": {"mode": "Managed"}, "expose": {"type": "NodePort", "addresses": nodes[..2]}});
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, spec).await?;
    let secrets = bench.record::<Secret>(CLIENT_SECRET).await?;
    let text = |secret: &Secret, key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    };
    let given = |secret: &Secret| text(secret, "urls").lines().take(2).all(|url| url.contains("@10."));
    let secret = secrets.until(SOON, "the urls have the addresses", |version| given(&version.object)).await?.object;
    let (urls, authorities) = (text(&secret, "urls"), text(&secret, "ca.crt"));

    let last = quorum.recorder.last()?.object;
    let mut script = format!("{OUTSIDE}cat >/tmp/outside-ca.crt <<'END'\n{authorities}END\n");
    for (index, url) in urls.lines().enumerate().take(2) {
        let [user, password, address] = split_url(url)?;
        let (host, _) = address.rsplit_once(':').context("no port")?;
        let shown = member_of(&last, &quorum.member(index)).and_then(|member| member.external_address.clone());
        ensure!(shown.as_deref() == Some(address), "the status shows {shown:?}, the url {address}");
        let session = format!("AUTH {user} {password}\\r\\nSET {}/foreign v NX PX 1500\\r\\n", bench.namespace);
        let connect =
            format!("openssl s_client -connect {address} -CAfile /tmp/outside-ca.crt -verify_return_error -quiet");
        // The replies arrive before the input ends.
        script += &format!(
            "echo 'member {index}'; {{ printf '{session}'; sleep 2; }} | outside timeout 10 {connect} -verify_ip {host} 2>/dev/null || true\n\
             echo 'member {index} under another name'; {{ printf '{session}'; sleep 2; }} | \
             outside timeout 10 {connect} -verify_hostname other.example.com 2>/dev/null || true\n\
             echo 'member {index} without TLS'; outside timeout 3 redis-cli -h {host} -p {} PING 2>&1 || true\n",
            address.rsplit(':').next().unwrap_or_default()
        );
    }
    let pod = bench.api::<Pod>().get("q-0-0").await?;
    let pod_ip = pod.status.and_then(|status| status.pod_ip).context("no pod IP")?;
    script += &format!(
        "echo pod; outside timeout 2 bash -c ': </dev/tcp/{pod_ip}/6379' 2>/dev/null && echo reached || true\n"
    );
    let told = bench.cluster.faults.beside_the_control_plane(&script).await?;
    let of_member =
        |index| format!("member {index}\n+OK\n+OK\nmember {index} under another name\nmember {index} without TLS\n");
    let told: Vec<&str> = told.lines().map(str::trim_end).filter(|line| !line.starts_with("Error: ")).collect();
    ensure!(told.join("\n") == of_member(0) + &of_member(1) + "pod", "{told:?}");

    let policy = bench.api::<NetworkPolicy>().get("q").await?.spec.and_then(|spec| spec.ingress).unwrap_or_default();
    let is_open = policy.iter().any(|rule| rule.from.is_none());
    ensure!(is_open, "the NetworkPolicy admits no client from outside: {policy:?}");

    // Without `expose` the Services and the rule must be gone.
    let services = bench.record::<Service>("q-1-external").await?;
    bench.patch("rq", "q", r#"{"spec": {"expose": null}}"#).await?;
    services.until_gone(SOON).await?;
    let policies = bench.record::<NetworkPolicy>("q").await?;
    let closed = |policy: &NetworkPolicy| {
        let rules = policy.spec.as_ref().and_then(|spec| spec.ingress.as_ref());
        rules.is_some_and(|rules| rules.iter().all(|rule| rule.from.is_some()))
    };
    policies.until(SOON, "lets only clients in", |version| closed(&version.object)).await.map(drop)
}

/// The cluster has no load balancers, so the test writes their addresses.
pub(crate) async fn the_address_of_a_load_balancer_is_published_and_certified(bench: Bench) -> anyhow::Result<()> {
    let (address, annotation) = ("203.0.113.7", "example.com/balancer");
    let expose = json!({"type": "LoadBalancer", "annotations": {annotation: "small"}});
    let spec = json!({"tls": {"mode": "Managed"}, "expose": expose});
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, spec).await?;
    let before = quorum.recorder.last()?.object;
    let mark = quorum.recorder.mark();
    let balanced = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}));
    let service = bench.api::<Service>().patch_status("q-1-external", &PatchParams::default(), &balanced).await?;
    let noted = service.metadata.annotations.and_then(|mut annotations| annotations.remove(annotation));
    ensure!(noted.as_deref() == Some("small"), "the annotation is {noted:?}");
    let shown = format!("{address}:6379");
    let is_shown = |member: &MemberStatus| member.external_address.as_deref() == Some(&shown);
    quorum.member_until(mark, 1, SOON, "shows the address", is_shown).await?;

    let certificates = bench.record::<Secret>("q-tls").await?;
    let now = bench.wall().0 / 1000;
    let names = |secret: &Secret| read(secret.data.as_ref().unwrap_or(&Data::new()), &[address.to_owned()], now);
    let named = certificates.until(SOON * 2, "names the address", |version| names(&version.object).is_ok()).await?;
    let fingerprint = names(&named.object)?.fingerprint.to_string();
    let is_served = |version: &Version<RedisQuorum>| {
        let (ready, _, message) = condition(version, "TLSReady");
        ready == "True" && message.contains(&fingerprint)
    };
    let served = quorum.recorder.until_after(mark, KUBELET_LIMIT, "every member serves it", is_served).await?;
    ensure!(run_ids(&served.object) == run_ids(&before), "a member was restarted");
    Ok(())
}
