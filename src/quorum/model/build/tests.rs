use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::*;
use crate::api::RedisQuorum;
use crate::api::test_util::parsed;
use crate::quorum::model::plan::validate;

mod outside;
mod pods;
mod security;
mod updates;

/// The names of the fixture differ from each other and from the product, so that swaps are detected.
fn quorum_with(spec: Value, status: Value) -> RedisQuorum {
    let metadata = json!({"name": "blue", "namespace": "vault", "uid": "uid-1"});
    parsed(json!({"metadata": metadata, "spec": spec, "status": status}))
}

fn quorum(spec: Value) -> RedisQuorum {
    quorum_with(spec, Value::Null)
}

fn plan(spec: Value) -> Plan {
    validate(&quorum(spec)).unwrap()
}

/// The objects of a plan, with a fixed namespace and labels of the operator.
fn build(plan: &Plan, auth: &Auth) -> Objects {
    let labels =
        [("app.kubernetes.io/name", "redlock"), ("app.kubernetes.io/version", "7"), ("pod-template-hash", "1")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    super::build(plan, auth, operator_pods("control", &labels), &Transport::default())
}

fn auth() -> Auth {
    Auth::from_seed(&[9; 32]).unwrap()
}

fn names<K: kube::ResourceExt>(objects: &[K]) -> Vec<String> {
    objects.iter().map(kube::ResourceExt::name_any).collect()
}

fn text(secret: &Secret, key: &str) -> String {
    String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap()
}

fn pod_spec(set: &StatefulSet) -> PodSpec {
    set.spec.clone().unwrap().template.spec.unwrap()
}

#[test]
fn every_object_is_named_after_the_quorum_and_owned_by_it() {
    let plan = plan(json!({"clients": [{"name": "billing", "namespace": "shop", "keyPrefix": "shop/"}]}));
    let objects = build(&plan, &auth());
    assert_eq!(names(&objects.stateful_sets), ["blue-0", "blue-1", "blue-2"]);
    assert_eq!(names(&objects.services), ["blue-0", "blue-1", "blue-2"]);
    assert_eq!(names(&objects.clients), ["blue-client-billing"]);
    let auth_secret = auth_secret(&plan, &auth());
    let Objects { config, disruption_budget, network_policy, .. } = &objects;
    let (budget, policy) = (disruption_budget.as_ref().unwrap(), network_policy.as_ref().unwrap());
    let metas = [&config.metadata, &budget.metadata, &policy.metadata, &auth_secret.metadata];
    assert_eq!(metas.map(|meta| meta.name.clone().unwrap()), ["blue-config", "blue", "blue", "blue-auth"]);
    for meta in metas.into_iter().chain(objects.stateful_sets.iter().map(|set| &set.metadata)) {
        let owner = &meta.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.uid.as_str(), owner.kind.as_str(), owner.controller), ("uid-1", "RedisQuorum", Some(true)));
        assert_eq!(meta.namespace.as_deref(), Some("vault"));
        assert_eq!(meta.labels.as_ref().unwrap()[QUORUM_LABEL], "blue");
    }
}

#[test]
fn a_member_is_selected_by_its_own_name() {
    let plan = plan(json!({}));
    let objects = build(&plan, &auth());
    for (index, set) in objects.stateful_sets.iter().enumerate() {
        let (name, spec) = (format!("blue-{index}"), set.spec.clone().unwrap());
        let labels = spec.template.metadata.unwrap().labels.unwrap();
        assert_eq!((labels[QUORUM_LABEL].as_str(), &labels[MEMBER_LABEL]), ("blue", &name));
        for (key, value) in spec.selector.match_labels.unwrap() {
            assert_eq!(labels[&key], value);
        }
        assert_eq!((spec.replicas, spec.service_name), (Some(1), Some(name.clone())));
        assert_eq!(spec.update_strategy.unwrap().type_.as_deref(), Some("OnDelete"));
        let service = objects.services[index].spec.clone().unwrap();
        assert_eq!(service.selector.unwrap()[MEMBER_LABEL], name);
        assert_eq!((service.cluster_ip.as_deref(), service.publish_not_ready_addresses), (Some("None"), Some(true)));
    }
}

#[test]
fn only_readiness_follows_admission() {
    let redis = pod_spec(&build(&plan(json!({})), &auth()).stateful_sets[1]).containers.remove(0);
    let ready = redis.readiness_probe.unwrap().exec.unwrap().command.unwrap();
    assert!(ready[2].contains("--user probe") && ready[2].contains("ECHO votes"), "{ready:?}");
    assert!(ready[2].contains("REDISCLI_AUTH=$(cat /etc/redis/readiness) "), "{ready:?}");
    let alive = redis.liveness_probe.unwrap();
    assert!(alive.exec.is_none() && alive.tcp_socket.is_some(), "a fenced or busy member must not be killed");
}

#[test]
fn redis_keeps_nothing_and_evicts_nothing() {
    let conf = redis_conf(false);
    for line in [
        "save \"\"",
        "appendonly no",
        "maxmemory-policy noeviction",
        "aclfile /etc/redis/users.acl",
        "proto-max-bulk-len 1mb",
    ] {
        assert!(conf.lines().any(|found| found == line), "{line} is not in\n{conf}");
    }
    assert!(!conf.contains("replicaof") && conf.ends_with('\n'));
}

#[test]
fn a_member_always_has_a_memory_limit() {
    for (resources, request, limit) in [
        (json!({}), Some("64Mi"), "128Mi"),
        (json!({"requests": {"cpu": "200m"}}), Some("64Mi"), "128Mi"),
        (json!({"limits": {"cpu": "1"}}), Some("64Mi"), "128Mi"),
        (json!({"requests": {"memory": "96Mi"}}), Some("96Mi"), "128Mi"),
        (json!({"requests": {"memory": "1Gi"}}), Some("1Gi"), "1Gi"),
        // Without a request Kubernetes takes the limit.
        (json!({"limits": {"memory": "1Gi"}}), None, "1Gi"),
    ] {
        let plan = plan(json!({"pod": {"resources": resources}}));
        let found = pod_spec(&build(&plan, &auth()).stateful_sets[0]).containers[0].resources.clone().unwrap();
        let found = serde_json::to_value(found).unwrap();
        assert_eq!(found["requests"]["memory"].as_str(), request, "{resources}");
        assert_eq!(found["limits"]["memory"], limit, "{resources}");
        for kind in ["requests", "limits"] {
            assert_eq!(found[kind]["cpu"], resources[kind]["cpu"], "{resources}");
        }
        assert_eq!(memory_settings(&plan)[0].0, "maxmemory", "{resources}");
    }
}

/// During a paused update, processes of pods with the earlier limit restart with the newest redis.conf.
#[test]
fn a_raised_memory_limit_does_not_change_redis_conf() {
    let objects = |memory: &str| build(&plan(json!({"pod": {"resources": {"limits": {"memory": memory}}}})), &auth());
    let (small, large) = (objects("128Mi"), objects("1Gi"));
    assert_eq!(small.config, large.config);
    for (objects, [memory, of_clients, clients]) in
        [(small, ["100663296", "25165824", "512"]), (large, ["805306368", "201326592", "4096"])]
    {
        let command = pod_spec(&objects.stateful_sets[0]).containers.remove(0).command.unwrap();
        let settings = ["--maxmemory", memory, "--maxmemory-clients", of_clients, "--maxclients", clients];
        assert_eq!(command[2..], settings);
    }
}

#[test]
fn memory_limits_are_read_as_kubernetes_writes_them() {
    for (limit, bytes) in [
        ("128Mi", Some(100_663_296)),
        ("1Gi", Some(805_306_368)),
        ("1.5Gi", Some(1_207_959_552)),
        ("0.5Gi", Some(402_653_184)),
        ("0.25G", Some(187_500_000)),
        ("1e9", Some(750_000_000)),
        ("3E8", Some(225_000_000)),
        ("5e-1", None),
        ("1Ti", Some(824_633_720_832)),
        ("268435456000m", Some(201_326_592)),
        (".5Mi", Some(393_216)),
        ("16Ei", None),
        ("a", None),
        ("1e99999999999", None),
        ("200M", Some(150_000_000)),
        ("134217728", Some(100_663_296)),
        ("64Ki", Some(49_152)),
        ("1k", Some(750)),
        ("0", None),
        ("12Pi", Some(10_133_099_161_583_616)),
        ("", None),
    ] {
        assert_eq!(max_memory(&Quantity(limit.into())), bytes, "{limit}");
    }
}

#[test]
fn pod_settings_are_taken_over() {
    let plan = plan(json!({"pod": {
        "nodeSelector": {"disk": "none"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "pull"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "affinity": {"nodeAffinity": {}},
    }, "image": "valkey/valkey:8"}));
    let pod = pod_spec(&build(&plan, &auth()).stateful_sets[0]);
    let selector = pod.node_selector.unwrap();
    assert_eq!((selector["disk"].as_str(), selector["kubernetes.io/os"].as_str()), ("none", "linux"));
    assert!(
        pod.volumes.unwrap().iter().all(|volume| volume.empty_dir.is_none()),
        "a node with such a pod can be drained"
    );
    assert_eq!(pod.tolerations.unwrap()[0].key.as_deref(), Some("edge"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("high"));
    assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "pull");
    assert!(pod.affinity.unwrap().pod_anti_affinity.is_none());
    assert_eq!(pod.containers[0].image.as_deref(), Some("valkey/valkey:8"));
    let default = pod_spec(&build(&super::tests::plan(json!({})), &auth()).stateful_sets[0]);
    let anti_affinity = default.affinity.unwrap().pod_anti_affinity.unwrap();
    assert!(
        anti_affinity.required_during_scheduling_ignored_during_execution.is_none(),
        "a small cluster must be enough"
    );
    assert_eq!(anti_affinity.preferred_during_scheduling_ignored_during_execution.unwrap().len(), 2);
}

#[test]
fn a_client_gets_one_url_per_member_with_that_members_password() {
    let plan = plan(json!({"clients": [{"name": "billing", "namespace": "shop", "keyPrefix": "shop/a/"}]}));
    let secret = client_secret(&plan, &auth(), &Transport::default(), &plan.clients[0], "vault");
    assert_eq!((text(&secret, "username"), text(&secret, "keyPrefix")), ("billing-e1".into(), "shop/a/".into()));
    let urls = text(&secret, "urls");
    let expected: String = (0..3)
        .map(|index| {
            let password = auth().password(&format!("blue-{index}"), "billing-e1");
            format!("redis://billing-e1:{}@blue-{index}.vault.svc:6379\n", password.expose())
        })
        .collect();
    assert_eq!(urls, expected);
    assert!(secret.metadata.owner_references.is_some());
    let copy = client_secret(&plan, &auth(), &Transport::default(), &plan.clients[0], "shop");
    let has_instance = |secret: &Secret| secret.metadata.labels.as_ref().unwrap().contains_key(INSTANCE_LABEL);
    assert!(has_instance(&secret) && !has_instance(&copy), "Argo CD would delete the copy");
    assert_eq!((copy.metadata.namespace.as_deref(), copy.metadata.owner_references), (Some("shop"), None));
}

/// A difference here restarts the wait of every member of every quorum.
///
/// The restart happens at the next replacement of the member's pod, so change the template on purpose only.
#[test]
fn the_pod_template_is_the_same_in_every_version() {
    use sha2::Digest;
    for (tls, expected) in [("Disabled", "b406c66363a6608a"), ("Managed", "0cf859bcfbe0b96e")] {
        let template = |spec: Value| {
            let sets = build(&plan(spec), &auth()).stateful_sets;
            serde_json::to_string(&sets[0].spec.as_ref().unwrap().template).unwrap()
        };
        let tls = json!({"mode": tls});
        let clients = json!([{"name": "b", "namespace": "s", "keyPrefix": "s/"}]);
        // The test sets an image, because the default image can change between versions. A quorum keeps the image of its creation.
        let text = template(json!({"tls": tls, "image": "redis:7.2"}));
        assert_eq!(text, template(json!({"tls": tls, "image": "redis:7.2", "clients": clients})));
        let digest: String = sha2::Sha256::digest(&text).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, expected, "{text}");
    }
}

#[test]
fn unsupported_settings_are_refused() {
    use crate::quorum::model::invalid::Invalid;
    let client = |name: &str, prefix: &str| json!({"clients": [{"name": name, "namespace": "s", "keyPrefix": prefix}]});
    for (spec, invalid) in [
        (json!({"members": 2}), Invalid::Members(2)),
        (json!({"members": -1}), Invalid::Members(-1)),
        (json!({"tls": {"mode": "Secret"}}), Invalid::Incomplete("spec.tls.secretRef")),
        (json!({"maxTTL": "2h"}), Invalid::Range("maxTTL")),
        (json!({"pod": {"resources": {"limits": {"memory": "1GB"}}}}), Invalid::Memory("1GB".into())),
        (json!({"pod": {"resources": {"limits": {"memory": "1Mi"}}}}), Invalid::Memory("1Mi".into())),
        (json!({"expose": {"type": "NodePort", "addresses": ["a b"]}}), Invalid::Address("a b".into())),
        (client("locker", "s/"), Invalid::ClientName("locker".into())),
        (client("a b", "s/"), Invalid::ClientName("a b".into())),
        (client("a", "s* ~"), Invalid::KeyPrefix("a".into())),
    ] {
        assert_eq!(validate(&quorum(spec.clone())), Err(invalid), "{spec}");
    }
}

#[test]
fn an_exposed_member_has_its_own_service_open_to_all_peers() {
    let spec = json!({"tls": {"mode": "Managed"}, "expose": {"type": "NodePort", "annotations": {"a": "b"},
        "addresses": ["a.example.com:7001", "192.0.2.1"]},
        "clients": [{"name": "b", "namespace": "s", "keyPrefix": "s/"}]});
    let plan = plan(spec);
    let addresses = vec![plan.expose.as_ref().unwrap().given(0, None), None, None];
    let transport = Transport { tls: vec![true; 3], authorities: None, addresses };
    let objects = super::build(&plan, &auth(), NetworkPolicyPeer::default(), &transport);
    assert_eq!(names(&objects.services)[3..], ["blue-0-external", "blue-1-external", "blue-2-external"]);
    let service = objects.services[4].clone();
    let spec = service.spec.unwrap();
    assert_eq!((spec.type_.as_deref(), spec.publish_not_ready_addresses), (Some("NodePort"), Some(true)));
    assert_eq!(spec.selector.unwrap()[MEMBER_LABEL], "blue-1");
    assert_eq!((service.metadata.annotations.unwrap()["a"].as_str(), spec.cluster_ip), ("b", None));
    let ingress = &serde_json::to_value(objects.network_policy).unwrap()["spec"]["ingress"];
    assert_eq!(*ingress, json!([{"ports": [{"port": 6379, "protocol": "TCP"}]}]));
    let urls = text(&objects.clients[0], "urls");
    let hosts: Vec<_> = urls.lines().map(|url| url.split('@').nth(1).unwrap()).collect();
    assert_eq!(hosts, ["a.example.com:7001", "blue-1.vault.svc:6379", "blue-2.vault.svc:6379"]);
    let names = plan.issued_names(&["192.0.2.9".into()]);
    for name in ["blue-2.vault.svc", "blue-2.vault.svc.cluster.local", "a.example.com", "192.0.2.1", "192.0.2.9"] {
        assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
    }
}
