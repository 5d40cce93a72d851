//! Quorums of one test, and the installed default one.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use redlock_operator::api::{
    DEFAULT_QUORUM_ANNOTATION, GoDuration, MemberState, MemberStatus, RedisQuorum, conditions::is_true,
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    cluster::Cluster,
    locks::with,
    record::{Recorder, Version},
};

/// The time from the creation to Ready, in addition to maxTTL.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The limit for the default quorum.
///
/// Its maxTTL is 30 s, and the chart can have just been installed.
const DEFAULT_LIMIT: Duration = Duration::from_secs(150);

/// Waits for the default quorum, which locks use if they name none.
pub(crate) async fn default_is_ready(cluster: &Cluster) -> anyhow::Result<()> {
    let what = "a RedisQuorum that is annotated as the default, and Ready";
    let all = Recorder::labelled(cluster.operator_api(), "").await?;
    all.until(DEFAULT_LIMIT, what, |version| is_default(&version.object) && is_ready(version)).await.map(drop)
}

/// Runs a test with another maxTTL of the default quorum, and restores the former one afterwards, even if the test fails.
pub(crate) async fn with_default_max_ttl<T>(
    cluster: &Cluster,
    max_ttl: Duration,
    test: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let quorums = cluster.operator_api::<RedisQuorum>();
    let list = quorums.list(&ListParams::default()).await?;
    let quorum = list.into_iter().find(is_default).context("there is no default quorum")?;
    let (name, former) = (quorum.name_any(), quorum.spec.max_ttl.get());
    let set = async |ttl: Duration| {
        let spec = json!({"spec": {"maxTTL": format!("{}ms", ttl.as_millis())}});
        quorums.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await
    };
    set(max_ttl).await?;
    let is_set = |version: &Version<RedisQuorum>| {
        version.object.name_any() == name && max_ttl_in_force(&version.object) == Some(max_ttl)
    };
    let result = async {
        let all = Recorder::labelled(quorums.clone(), "").await?;
        all.until(START_LIMIT, "the maxTTL is in force", is_set).await?;
        test.await
    };
    let result = result.await;
    set(former).await?;
    result
}

/// The maxTTL by which restarted members wait now.
pub(crate) fn max_ttl_in_force(quorum: &RedisQuorum) -> Option<Duration> {
    quorum.status.as_ref()?.max_ttl_in_force.map(GoDuration::get)
}

fn is_default(quorum: &RedisQuorum) -> bool {
    quorum.annotations().get(DEFAULT_QUORUM_ANNOTATION).is_some_and(|value| value == "true")
}

/// Whether all members are admitted and nothing is in progress.
pub(crate) fn is_ready(version: &Version<RedisQuorum>) -> bool {
    let status = version.object.status.as_ref();
    status.is_some_and(|status| is_true(&status.conditions, "Ready")) && !version.gone
}

/// A quorum in a test's namespace, with a client `outside` for all keys of that namespace.
pub(crate) struct Quorum {
    pub(crate) bench: Bench,
    pub(crate) name: String,
    pub(crate) recorder: Recorder<RedisQuorum>,
}

impl Quorum {
    /// Creates it, and does not wait until it is Ready.
    pub(crate) async fn create(bench: &Bench, manifest: Value) -> anyhow::Result<Self> {
        let name = manifest["metadata"]["name"].as_str().context("a quorum without a name")?.to_owned();
        let recorder = bench.record::<RedisQuorum>(&name).await?;
        bench.create::<RedisQuorum>(manifest).await?;
        Ok(Self { bench: bench.clone(), name, recorder })
    }

    /// Creates a usual quorum and waits until all members are admitted.
    pub(crate) async fn ready(bench: &Bench, name: &str, max_ttl: Duration) -> anyhow::Result<Self> {
        Self::ready_with(bench, name, max_ttl, json!({})).await
    }

    /// Creates it with additional fields of the specification, and does not wait until it is Ready.
    pub(crate) async fn create_with(
        bench: &Bench,
        name: &str,
        max_ttl: Duration,
        fields: Value,
    ) -> anyhow::Result<Self> {
        Self::create(bench, with(manifest(bench, name, max_ttl), fields)).await
    }

    /// Creates it with additional fields of the specification, and waits until all members are admitted.
    pub(crate) async fn ready_with(
        bench: &Bench,
        name: &str,
        max_ttl: Duration,
        fields: Value,
    ) -> anyhow::Result<Self> {
        // The members get their certificates first.
        let certificates = Duration::from_secs(if fields["tls"].is_object() { 30 } else { 0 });
        let quorum = Self::create_with(bench, name, max_ttl, fields).await?;
        quorum.recorder.until(START_LIMIT + certificates + max_ttl, "Ready", is_ready).await?;
        Ok(quorum)
    }

    /// Name of a member.
    pub(crate) fn member(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    /// The first version after `mark` in which the condition is true of the member with this number.
    pub(crate) async fn member_until(
        &self,
        mark: usize,
        member: usize,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&MemberStatus) -> bool,
    ) -> anyhow::Result<(Version<RedisQuorum>, MemberStatus)> {
        self.named_until(mark, &self.member(member), limit, what, is_so).await
    }

    /// The first version after `mark` in which the condition is true of the member with this name.
    pub(crate) async fn named_until(
        &self,
        mark: usize,
        name: &str,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&MemberStatus) -> bool,
    ) -> anyhow::Result<(Version<RedisQuorum>, MemberStatus)> {
        let is_it = |version: &Version<RedisQuorum>| member_of(&version.object, name).is_some_and(&is_so);
        let version = self.recorder.until_after(mark, limit, &format!("{name} {what}"), is_it).await?;
        let status = member_of(&version.object, name).cloned().context("the member was there a moment ago")?;
        Ok((version, status))
    }
}

/// The Secret of the client `outside` of the quorum `q`.
pub(crate) const CLIENT_SECRET: &str = "q-client-outside";

/// The URLs in that Secret: one for each member, in their order.
pub(crate) async fn client_urls(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let secret = bench.api::<Secret>().get(CLIENT_SECRET).await?;
    let urls = secret.data.and_then(|mut data| data.remove("urls")).context("no urls in the Secret")?;
    Ok(String::from_utf8(urls.0)?.lines().map(str::to_owned).collect())
}

/// The status of a member.
pub(crate) fn member_of<'a>(quorum: &'a RedisQuorum, name: &str) -> Option<&'a MemberStatus> {
    quorum.status.as_ref()?.members.iter().find(|member| member.name == name)
}

/// Checks a member's admission.
///
/// It must come at least `delay` after `since`, when all promises of the earlier process have expired. It must not be
/// much later than announced.
pub(crate) fn check_admission(
    member: &MemberStatus,
    announced: i64,
    since: i64,
    delay: Duration,
) -> anyhow::Result<()> {
    let (name, delay) = (&member.name, i64::try_from(delay.as_millis())?);
    ensure!(member.state == MemberState::Admitted, "{name}: {:?}", member.state);
    let admitted = member.admitted_at.with_context(|| format!("{name} has no admittedAt"))?.as_millis();
    let (waited, late) = (admitted - since, admitted - announced);
    ensure!(waited >= delay, "{name} was admitted {waited} ms after its start, not {delay}");
    ensure!(late >= 0, "{name} was admitted {} ms before rejoinAt", -late);
    ensure!(late <= 1000, "{name} was admitted {late} ms after rejoinAt");
    Ok(())
}

/// The manifest of a test's quorum, without TLS, because tests read and time its traffic.
///
/// Tests of TLS enable it, and the installed default quorum has it.
pub(crate) fn manifest(bench: &Bench, name: &str, max_ttl: Duration) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "members": 3,
            "maxTTL": format!("{}ms", max_ttl.as_millis()),
            "image": bench.cluster.member_image,
            "tls": {"mode": "Disabled"},
            "clients": clients_with(bench, None),
        },
    })
}

/// The client `outside` for all keys of the test's namespace, and another client.
pub(crate) fn clients_with(bench: &Bench, other: Option<Value>) -> Value {
    [client(bench, "outside", "ReadWrite")].into_iter().chain(other).collect()
}

/// A client for all keys of the test's namespace with this access.
pub(crate) fn client(bench: &Bench, name: &str, access: &str) -> Value {
    let prefix = format!("{}/", bench.namespace);
    json!({"name": name, "namespace": bench.namespace, "keyPrefix": prefix, "access": access})
}
