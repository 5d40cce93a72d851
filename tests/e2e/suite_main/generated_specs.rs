//! Random specifications, valid and invalid.
//!
//! The API server refuses exactly what the documentation forbids. The operator accepts what the API server accepts. No
//! accepted specification ends an operator or keeps it busy. `SEED` repeats them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, PostParams},
};
use redlock_operator::{
    api::{DistributedLock, GoDuration, RedisQuorum},
    quorum::model::plan,
};
use serde_json::{Map, Value, json};

use crate::{
    bench::Bench,
    locks::SOON,
    operators,
    quorums::Quorum,
    record::{Recorder, Version},
    rng::Rng,
    runner::given_seed,
};

const EACH: usize = 150;
/// The number of accepted specifications that the test uses.
const LOCKS: usize = 24;
const QUORUMS: usize = 4;
const DEFAULT_TTL_MS: u64 = 10_000;
const MAX_TTL: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_secs(4);
/// The maximum number of writes to a lock or a quorum during quiet, without renewals.
const VERSIONS_WHILE_QUIET: usize = 8;

/// A field and its values, as a list.
///
/// About every third value is invalid.
type Field = (&'static str, fn() -> Value);

const LOCK: &[Field] = &[
    ("key", || json!(["k", "a/b:c.d_e-f", "k", "a b", "", "k".repeat(201)])),
    ("ttl", || json!(["1s", "1h", "3600s", "10s", "1m30s", "999ms", "61m", "ten", "1.5s", "-1s", ""])),
    ("renewInterval", || json!(["100ms", "500ms", "5s", "6s", "99ms"])),
    ("minHold", || json!(["0s", "5s", "20s", "24h", "25h"])),
    ("maxHold", || json!(["10s", "1ms", "0s", "8760h", "8761h"])),
    ("waitTimeout", || json!(["5s", "1m", "0s", "525600m", "9999999h"])),
    ("lockDelay", || json!(["0s", "1h", "61m"])),
    ("retry", || {
        json!([{}, {"delay": "1m"}, {"delay": "10ms", "jitter": "10ms"},
            {"delay": "9ms", "jitter": "0s"}, {"delay": "50ms"}, {"delay": "61s"}])
    }),
    ("priority", || json!([0, 1_000_000, -1_000_000, 1_000_001, "1"])),
    ("slots", || json!([1, 2, 100, 0, 101])),
    ("liveness", || {
        let http = json!({"path": "/healthz", "port": 8080});
        json!([{"httpGet": http}, {"tcpSocket": {"port": 65535}, "failureThreshold": 3},
            {}, {"httpGet": http, "tcpSocket": {"port": 1}}, {"tcpSocket": {"port": 0}}])
    }),
    ("ttlAfterFinished", || json!(["5s", "0s", "8760h", "8760h1ms", "9999999h"])),
    ("suspend", || json!([true, false])),
    ("validity", || json!(["Published", "Transitions", "Sometimes"])),
];

const CLAIM: fn() -> Value = || {
    json!([
        {"identity": "a"}, {"podName": "a-0"}, {"identity": "a", "heartbeat": "1s"},
        {"identity": "a"}, {"podName": "a-0"}, {"identity": "a", "heartbeat": "1s"},
        {"podName": "a-0", "podUID": "5f1e", "container": "app"},
        {}, {"identity": "a", "podName": "a-0"}, {"identity": "a", "heartbeat": "999ms"},
        {"identity": "a", "podUID": "5f1e"}, {"identity": "a", "container": "app"},
        {"podName": "a-0", "heartbeat": "2s"},
    ])
};

const ELECTION: fn() -> Value = || {
    let labels = json!({"matchLabels": {"app": "a"}});
    let exists = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    json!([{"selector": labels}, {"selector": exists}, {"selector": labels}, {"selector": exists},
        {"selector": {}}, {"selector": {"matchLabels": {}}}])
};

const QUORUM: &[Field] = &[
    ("members", || json!([1, 3, 9, 2, 11, -1])),
    ("maxTTL", || json!(["1s", "1h", "30s", "999ms", "3601s", "soon"])),
    ("nodeTimeout", || json!(["5ms", "5s", "50ms", "4ms", "5001ms"])),
    ("clockDrift", || {
        json!([{"ppm": 0}, {"ppm": 100_000, "floor": "1s"}, {"floor": "0s"},
            {"ppm": 100_001}, {"ppm": -1}, {"floor": "1001ms"}])
    }),
    ("keys", || json!(["Namespaced", "Verbatim", "Other"])),
    ("image", || json!(["redis:7.2", "x", ""])),
    ("allowedNamespaces", || {
        let labels = json!({"matchLabels": {"a": "b"}});
        json!([{"from": "All"}, {"from": "Selector", "selector": labels},
            {"from": "Selector"}, {"from": "All", "selector": labels}])
    }),
    ("clients", || {
        let client = |name: &str, prefix: &str| json!({"name": name, "namespace": "shop", "keyPrefix": prefix});
        json!([
            [client("a", "shop/")],
            [client("a", "shop/a/"), client("b-2", "shop/b/c.d/")],
            [client("a", "other/")],
            [client("locker", "shop/")],
            [client("a", "shop")],
            [client("A", "shop/")],
            [client("a", "shop/* ~*/")],
            [client("a", "shop/"), client("a", "shop/b/")],
        ])
    }),
];

/// A duration in milliseconds, or `None` if it cannot be parsed.
fn millis(spec: &Value, path: &str, default: u64) -> Option<u64> {
    match spec.pointer(path) {
        None => Some(default),
        Some(text) => Some(u64::try_from(text.as_str()?.parse::<GoDuration>().ok()?.get().as_millis()).ok()?),
    }
}

fn one_of(value: Option<&Value>, known: &[&str]) -> bool {
    value.is_none_or(|value| value.as_str().is_some_and(|value| known.contains(&value)))
}

fn within(value: Option<&Value>, least: i64, most: i64) -> bool {
    value.is_none_or(|value| value.as_i64().is_some_and(|value| (least..=most).contains(&value)))
}

/// The rules of the API documentation for a lock.
fn lock_is_good(spec: &Value) -> bool {
    let has = |path: &str| spec.pointer(path).is_some();
    let time = |path: &str, default: u64, least: u64, most: u64| {
        millis(spec, path, default).is_some_and(|millis| (least..=most).contains(&millis))
    };
    let (claim, election, any, year) = (has("/claim"), has("/election"), u64::MAX, 365 * 86_400_000);
    let key = spec.get("key").and_then(Value::as_str);
    let key_is_good = |key: &str| {
        (1..=200).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte))
    };
    let selects = |name: &str| {
        let of = spec.pointer(&format!("/election/selector/{name}"));
        of.is_some_and(|of| {
            of.as_object().is_some_and(|map| !map.is_empty()) || of.as_array().is_some_and(|list| !list.is_empty())
        })
    };
    let ttl = millis(spec, "/ttl", DEFAULT_TTL_MS).unwrap_or(0);
    let jitter = millis(spec, "/retry/jitter", 100).unwrap_or(any);
    claim != election
        && (!claim || key.is_some() && has("/claim/identity") != has("/claim/podName"))
        && (has("/claim/podName") || !has("/claim/podUID") && !has("/claim/container"))
        && (!election || selects("matchLabels") || selects("matchExpressions"))
        && (!has("/key") || key.is_some_and(key_is_good))
        && time("/ttl", 10_000, 1_000, 3_600_000)
        && time("/claim/heartbeat", 1_000, 1_000, 1_000.max(ttl / 2))
        && (!has("/renewInterval") || time("/renewInterval", 0, ttl / 10, ttl / 2))
        && (!has("/minHold") || claim && time("/minHold", 0, 0, 86_400_000))
        && (!has("/maxHold") || time("/minHold", 0, 0, millis(spec, "/maxHold", 0).unwrap_or(0)))
        && time("/maxHold", 1, 1, year)
        && (!has("/waitTimeout") || claim && time("/waitTimeout", 0, 1, year))
        && time("/lockDelay", 0, 0, 3_600_000)
        && time("/retry/delay", 200, 10.max(jitter), 60_000)
        && within(spec.get("priority"), -1_000_000, 1_000_000)
        && within(spec.get("slots"), 1, 100)
        && (!has("/liveness") || election || has("/claim/podName"))
        && (!has("/liveness") || has("/liveness/httpGet") != has("/liveness/tcpSocket"))
        && within(spec.pointer("/liveness/tcpSocket/port"), 1, 65_535)
        && (!has("/ttlAfterFinished") || claim && time("/ttlAfterFinished", 0, 0, year))
        && one_of(spec.get("validity"), &["Published", "Transitions"])
}

/// The rules of the API documentation for a quorum.
fn quorum_is_good(spec: &Value) -> bool {
    let time = |path: &str, default: u64, least: u64, most: u64| {
        millis(spec, path, default).is_some_and(|millis| (least..=most).contains(&millis))
    };
    let from = spec.pointer("/allowedNamespaces/from").and_then(Value::as_str) == Some("Selector");
    let clients: &[Value] = spec.get("clients").and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let text = |client: &Value, field: &str| client[field].as_str().unwrap_or_default().to_owned();
    let namespaced = spec.get("keys").is_none_or(|keys| keys == "Namespaced");
    let client_is_good = |client: &Value| {
        let (name, prefix) = (text(client, "name"), text(client, "keyPrefix"));
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let part = |part: &str| !part.is_empty() && part.chars().all(is_part);
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && name != "locker"
            && prefix.strip_suffix('/').is_some_and(|parts| parts.split('/').all(part))
            && (!namespaced || prefix.split('/').next() == Some(&text(client, "namespace")))
    };
    let names: BTreeSet<_> = clients.iter().map(|client| text(client, "name")).collect();
    spec.get("members").is_none_or(|members| [1, 3, 5, 7, 9].contains(&members.as_i64().unwrap_or(0)))
        && time("/maxTTL", 30_000, 1_000, 3_600_000)
        && time("/nodeTimeout", 50, 5, 5_000)
        && time("/clockDrift/floor", 2, 0, 1_000)
        && within(spec.pointer("/clockDrift/ppm"), 0, 100_000)
        && one_of(spec.get("keys"), &["Namespaced", "Verbatim"])
        && spec.get("image").is_none_or(|image| image != "")
        && from == spec.pointer("/allowedNamespaces/selector").is_some()
        && clients.iter().all(client_is_good)
        && names.len() == clients.len()
}

fn pick(rng: &mut Rng, values: &Value) -> Value {
    let count = values.as_array().map_or(1, Vec::len);
    values[usize::try_from(rng.below(count as u64)).unwrap_or(0)].clone()
}

/// Draws each field with this probability in percent.
///
/// About half of the specifications are valid then.
fn generate(rng: &mut Rng, fields: &[Field], chance: u64) -> Map<String, Value> {
    let mut spec = Map::new();
    for (name, values) in fields {
        if rng.percent(chance) {
            spec.insert((*name).to_owned(), pick(rng, &values()));
        }
    }
    spec
}

fn lock_spec(rng: &mut Rng) -> Value {
    let mut spec = generate(rng, LOCK, 8);
    let kind = rng.below(20);
    if kind < 12 || kind == 19 {
        spec.insert("claim".into(), pick(rng, &CLAIM()));
        if rng.percent(90) {
            spec.entry("key").or_insert_with(|| json!("k"));
        }
    }
    if (12..18).contains(&kind) || kind == 19 {
        spec.insert("election".into(), pick(rng, &ELECTION()));
    }
    Value::Object(spec)
}

/// Sends an object to the API server, and returns the error message if it is refused.
pub(crate) async fn judged(
    api: &Api<DynamicObject>,
    object: &Value,
    dry_run: bool,
) -> anyhow::Result<Result<(), String>> {
    let parameters = PostParams { dry_run, field_manager: None };
    match api.create(&parameters, &serde_json::from_value(object.clone())?).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Err(status.message.clone())),
        Err(error) => bail!("neither taken nor refused: {error}"),
    }
}

/// The accepted objects.
///
/// Checks that the API server's verdict is the expected one.
async fn taken(
    api: &Api<DynamicObject>,
    kind: &str,
    mut spec: impl FnMut() -> Value,
    is_good: fn(&Value) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let mut good = Vec::new();
    for number in 0..EACH {
        let spec = spec();
        let name = format!("{}-{number}", kind.to_lowercase());
        let object = json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "labels": {"generated": "yes"}},
        });
        match (judged(api, &object, true).await?, is_good(&object["spec"])) {
            (Ok(()), true) => good.push(object),
            (Err(_), false) => {}
            (Ok(()), false) => bail!("taken, and must be refused: {object}"),
            (Err(why), true) => bail!("refused, and is right: {object}: {why}"),
        }
    }
    let count = good.len();
    let has_both = (EACH / 6..EACH * 5 / 6).contains(&count);
    ensure!(has_both, "{count} of {EACH} were good, so the test covers only one side");
    Ok(good)
}

pub(crate) async fn generated_specifications_are_judged_as_documented(bench: Bench) -> anyhow::Result<()> {
    let seed = given_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let before = operators::restarts(&bench.cluster).await?;
    let _quorum = Quorum::ready_with(&bench, "q", MAX_TTL, json!({"members": 1})).await?;

    let api = |resource: &ApiResource| {
        Api::<DynamicObject>::namespaced_with(bench.cluster.client.clone(), &bench.namespace, resource)
    };
    let locks = api(&ApiResource::erase::<DistributedLock>(&()));
    let quorums = api(&ApiResource::erase::<RedisQuorum>(&()));
    let good_locks = taken(&locks, "DistributedLock", || lock_spec(&mut rng), lock_is_good).await?;
    let mut rng = rng.fork();
    let good_quorums =
        taken(&quorums, "RedisQuorum", || Value::Object(generate(&mut rng, QUORUM, 20)), quorum_is_good).await?;
    for object in &good_quorums {
        let mut quorum: RedisQuorum = serde_json::from_value(object.clone())?;
        (quorum.metadata.namespace, quorum.metadata.uid) = (Some(bench.namespace.clone()), Some("uid".into()));
        plan::validate(&quorum)
            .with_context(|| format!("taken by the API server and not by the operator: {object}"))?;
    }
    carried_out(&bench, &locks, &quorums, good_locks, good_quorums).await?;
    ensure!(operators::restarts(&bench.cluster).await? == before, "an operator pod was restarted");
    Ok(())
}

/// The number of renewals of a lock with this ttl during quiet.
///
/// A lock is renewed after a third of its ttl in milliseconds, and with a ttl of a second every renewal is published.
fn renewals(ttl: Option<&Option<u64>>) -> usize {
    let ttl = ttl.copied().flatten().unwrap_or(DEFAULT_TTL_MS).max(1);
    usize::try_from(3 * QUIET.as_millis() as u64 / ttl).unwrap_or(usize::MAX)
}

/// Waits until each object has a status for its specification.
///
/// Then it checks that the operator writes nothing more.
async fn carried_out(
    bench: &Bench,
    locks: &Api<DynamicObject>,
    quorums: &Api<DynamicObject>,
    good_locks: Vec<Value>,
    good_quorums: Vec<Value>,
) -> anyhow::Result<()> {
    let seen_locks = Recorder::<DistributedLock>::labelled(bench.api(), "generated=yes").await?;
    let seen_quorums = Recorder::<RedisQuorum>::labelled(bench.api(), "generated=yes").await?;
    let mut ttls = BTreeMap::new();
    for mut object in good_locks.into_iter().take(LOCKS) {
        object["spec"]["quorumRef"] = json!({"name": "q"});
        judged(locks, &object, false).await?.map_err(anyhow::Error::msg)?;
        let name = object["metadata"]["name"].as_str().context("no name")?.to_owned();
        ttls.insert(name, millis(&object["spec"], "/ttl", DEFAULT_TTL_MS));
    }
    for mut object in good_quorums.into_iter().take(QUORUMS) {
        object["spec"]["members"] = json!(1);
        judged(quorums, &object, false).await?.map_err(anyhow::Error::msg)?;
        let name = object["metadata"]["name"].as_str().context("no name")?.to_owned();
        let known = |quorum: &RedisQuorum| {
            quorum.name_any() == name && quorum.status.as_ref().is_some_and(|s| !s.conditions.is_empty())
        };
        seen_quorums.until(SOON, &format!("{name} has conditions"), |version| known(&version.object)).await?;
    }
    for name in ttls.keys() {
        let is_judged = |version: &Version<DistributedLock>| {
            let status = version.object.status.as_ref();
            let is_it = version.object.name_any() == *name;
            version.gone || is_it && status.is_some_and(|status| status.observed_generation.is_some())
        };
        seen_locks.until(SOON, &format!("{name} has a status"), is_judged).await?;
    }
    let (mark, quorum_mark) = (seen_locks.mark(), seen_quorums.mark());
    // An unwanted write would happen now.
    tokio::time::sleep(QUIET).await;
    let versions = seen_locks.versions().into_iter().skip(mark).map(|version| version.object.name_any());
    let versions = versions.chain(seen_quorums.versions().into_iter().skip(quorum_mark).map(|v| v.object.name_any()));
    let mut counts = BTreeMap::<String, usize>::new();
    versions.for_each(|name| *counts.entry(name).or_default() += 1);
    let busy: Vec<_> =
        counts.iter().filter(|(name, count)| **count > VERSIONS_WHILE_QUIET + renewals(ttls.get(*name))).collect();
    ensure!(busy.is_empty(), "written repeatedly in {QUIET:?}: {busy:?}");
    Ok(())
}
