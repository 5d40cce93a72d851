//! Manifests that `kubectl apply` refuses.
//!
//! The message names the correction.

use anyhow::ensure;
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{SOON, claim},
    operators,
};

/// A manifest's spec, and a required part of the message.
type Case = (&'static str, &'static str);

const LOCKS: &[Case] = &[
    ("{key: k}", "set exactly one of claim (names the holder) and election (names candidate pods)"),
    (
        "{key: k, claim: {identity: a}, election: {selector: {matchLabels: {app: a}}}}",
        "set exactly one of claim (names the holder) and election (names candidate pods)",
    ),
    ("{claim: {identity: a}}", "set the key that the claims compete for, e.g. key: reindex"),
    ("{key: k, ttl: 500ms, claim: {identity: a}}", "set a ttl from 1s to the quorum's maxTTL"),
    ("{key: k, ttl: ten, claim: {identity: a}}", "write whole numbers with the units"),
    ("{key: k, ttl: '10', claim: {identity: a}}", "write whole numbers with the units"),
    ("{key: k, ttl: 1d, claim: {identity: a}}", "write whole numbers with the units"),
    ("{key: k, ttl: -5s, claim: {identity: a}}", "write whole numbers with the units"),
    ("{key: k, ttl: 1.5s, claim: {identity: a}}", "write whole numbers with the units"),
    ("{key: k, ttl: 2h, claim: {identity: a}}", "set a ttl from 1s to the quorum's maxTTL"),
    ("{key: k, maxHold: 0s, claim: {identity: a}}", "set a maxHold above 0s"),
    ("{key: k, minHold: 10m, maxHold: 5m, claim: {identity: a}}", "set a minHold that is not larger than maxHold"),
    ("{key: k, minHold: 10m, election: {selector: {matchLabels: {app: a}}}}", "only with a claim"),
    ("{key: k, lockDelay: 2h, claim: {identity: a}}", "set a lockDelay of at most 1h"),
    ("{key: k, claim: {identity: a, podName: b}}", "set exactly one of identity (free text), podName"),
    ("{key: k, claim: {identity: a, container: b}}", "podUID and container need podName"),
    ("{key: k, claim: {jobName: a, heartbeat: 5s}}", "remove heartbeat"),
    ("{key: k, claim: {identity: a, heartbeat: 9s}, ttl: 10s}", "set a heartbeat of at most half of ttl"),
    ("{key: k, claim: {identity: a}, liveness: {httpGet: {path: /healthz, port: 80}}}", "liveness needs a pod"),
    ("{ttlAfterFinished: 1h, election: {selector: {matchLabels: {app: a}}}}", "an election never finishes"),
    ("{key: 'shop*', claim: {identity: a}}", "write the key in letters, digits"),
    (
        "{key: k, ttl: 4s, renewInterval: 3s, claim: {identity: a}}",
        "set a renewInterval of at most half of ttl, or remove it",
    ),
    (
        "{key: k, ttl: 30s, renewInterval: 1s, claim: {identity: a}}",
        "set a renewInterval of at least a tenth of ttl, or remove it",
    ),
    ("{key: 'a b', claim: {identity: a}}", "write the key in letters, digits"),
    ("{key: k, claim: {}}", "set exactly one of identity (free text), podName"),
    (
        "{election: {selector: {}}}",
        "an empty selector makes every pod a candidate: set one, e.g. selector: {matchLabels: {app: scheduler}}",
    ),
    (
        "{waitTimeout: 5s, election: {selector: {matchLabels: {app: a}}}}",
        "set a waitTimeout above 0s, and only with a claim",
    ),
    ("{key: k, tll: 5s, claim: {identity: a}}", "unknown field \"spec.tll\""),
];

const QUORUMS: &[Case] = &[
    ("{members: 2}", "set 1, 3, 5, 7 or 9 in total"),
    ("{maxTTL: 2h}", "set a maxTTL from 1s to 1h, e.g. 30s"),
    ("{nodeTimeout: 1ms}", "set a nodeTimeout from 5ms to 5s, e.g. 50ms"),
    ("{clients: [{name: a, namespace: shop, keyPrefix: 'shop* ~*/'}]}", "ends with a slash"),
    ("{clients: [{name: a, namespace: shop, keyPrefix: other/}]}", "a client's keyPrefix begins with its namespace"),
    ("{allowedNamespaces: {from: Selector}}", "set from: Selector together with a selector"),
    ("{tls: {mode: Secret}}", "set mode: Secret together with secretRef"),
    ("{expose: {type: NodePort}, tls: {mode: Disabled}}", "members that are reachable from outside need TLS"),
    ("{expose: {addresses: [a.example.com]}}", "addresses, annotations and sourceRanges are for Services"),
    ("{expose: {type: NodePort, sourceRanges: ['10.0.0.0']}}", "write a network with its prefix length"),
    ("{expose: {type: NodePort, sourceRanges: ['300.1.1.0/24']}}", "write a network with its prefix length"),
    ("{pod: {resources: {limits: {memory: 16Mi}}}}", "set a larger limits.memory, e.g. 256Mi"),
    ("{expose: {type: NodePort, addresses: ['a b', b, c]}}", "write host or host:port"),
    ("{clients: [{name: locker, namespace: a, keyPrefix: a/}]}", "give the client another name"),
    ("{members: 2, external: [{name: a, address: 'no port'}]}", "write host:port, or [address]:port for IPv6"),
    ("{members: 3, external: [{name: a, address: 'a:6379'}]}", "set 1, 3, 5, 7 or 9 in total"),
    ("{members: 2, external: [{name: OWN-NAME-0, address: 'a:6379'}]}", "give the external member another name"),
    (
        "{members: 1, external: [{name: a, address: 'a:6379'}, {name: b, address: 'a:6379'}]}",
        "two external members have the same address",
    ),
    (
        "{members: 2, external: [{name: a, address: 'a:6379'}], clients: [{name: b, namespace: c, keyPrefix: c/}]}",
        "leave clients out",
    ),
];

async fn refusals(bench: &Bench, kind: &str, cases: &[Case]) -> anyhow::Result<()> {
    for (number, (spec, message)) in cases.iter().enumerate() {
        let spec = spec.replace("OWN-NAME", &format!("bad-{number}"));
        let manifest = format!(
            "{{apiVersion: redlock-operator.io/v1alpha1, kind: {kind}, metadata: {{name: bad-{number}}}, spec: {spec}}}"
        );
        let told = bench.refused(&manifest).await?;
        ensure!(told.contains(message), "{kind} {spec}: expected {message:?}, got:\n{told}");
        let is_raw = ["should match", "type conversion error", "evaluating rule"].iter().any(|raw| told.contains(raw));
        ensure!(!is_raw, "{kind} {spec}: an expression in place of what to set:\n{told}");
    }
    ensure!(bench.kubectl(&["get", "rq,dlock", "-o", "name"]).await?.is_empty(), "something was created");
    Ok(())
}

pub(crate) async fn a_malformed_manifest_is_refused_with_a_correction(bench: Bench) -> anyhow::Result<()> {
    let before = operators::restarts(&bench.cluster).await?;
    refusals(&bench, "DistributedLock", LOCKS).await?;
    refusals(&bench, "RedisQuorum", QUORUMS).await?;

    bench.create::<DistributedLock>(claim("fine", "key", None, SOON)).await?;
    let change = r#"{"spec": {"key": "other"}}"#;
    let told = bench.patch_refused("dlock", "fine", change).await?;
    let wanted = "key cannot be changed, added or removed: create another DistributedLock";
    ensure!(told.contains(wanted), "a changed key: {told}");
    ensure!(operators::restarts(&bench.cluster).await? == before, "an operator pod was restarted");
    Ok(())
}

pub(crate) async fn metadata_that_is_too_large_is_refused(bench: Bench) -> anyhow::Result<()> {
    let object = |field: &str, value: Value| {
        let mut object = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "large"}, "spec": {"key": "k", "claim": {"identity": "a"}}});
        object["metadata"][field] = value;
        object.to_string()
    };
    let pairs = || (0..65).map(|number| (format!("n{number}"), json!("x"))).collect::<serde_json::Map<_, _>>();
    let finalizers: Vec<_> = (0..21).map(|number| format!("example.com/f{number}")).collect();
    for (field, value, most) in [
        ("labels", json!(pairs()), "64 labels"),
        ("annotations", json!(pairs()), "64 annotations"),
        ("annotations", json!({"example.com/large": "x".repeat(32 * 1024)}), "32 KiB of annotations"),
        ("finalizers", json!(finalizers), "20 finalizers"),
    ] {
        let message = bench.refused(&object(field, value)).await?;
        ensure!(message.contains(&format!("set at most {most}")), "{field}: {message}");
    }
    Ok(())
}
