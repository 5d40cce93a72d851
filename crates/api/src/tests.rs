mod properties;

use serde_json::{Value, json};

use super::*;

/// Maximum bytes of an annotation, into which client-side `kubectl apply` writes the object.
const LAST_APPLIED_LIMIT: usize = 262_144;

fn crd(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(crd).unwrap()
}

/// Every schema below `value`, with its path.
fn schemas<'a>(path: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        for (name, schema) in properties {
            schemas(format!("{path}.{name}"), schema, found);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = value.get(inner) {
            schemas(format!("{path}[]"), schema, found);
        }
    }
    found.push((path, value));
}

fn all_schemas(crd: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    schemas(String::new(), &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut found);
    found
}

#[test]
fn crds_fit_into_client_side_apply() {
    for crd in crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < LAST_APPLIED_LIMIT, "{}: {size} bytes", crd.spec.names.kind);
    }
}

#[test]
fn names_in_the_crds_are_the_constants() {
    for crd in crds() {
        assert_eq!(crd.spec.group, GROUP);
        assert_eq!(crd.spec.versions[0].name, VERSION);
        assert_eq!(crd.spec.names.categories, Some(vec!["redlock".to_owned()]));
    }
    assert_eq!(crd("RedisQuorum")["spec"]["names"]["shortNames"], json!(["rq"]));
    assert_eq!(crd("DistributedLock")["spec"]["names"]["shortNames"], json!(["dlock"]));
    assert_eq!(leader_label("x"), "leader.redlock-operator.io/x");
}

#[test]
fn no_field_is_nullable_and_our_fields_are_described() {
    for crd in [crd("RedisQuorum"), crd("DistributedLock")] {
        for (path, schema) in all_schemas(&crd) {
            assert!(schema.get("nullable").is_none(), "{path} is nullable");
            // The API server takes it beside `x-kubernetes-int-or-string`, with nothing added inside, which `tidy` would.
            assert!(schema.get("anyOf").is_none(), "{path}");
            if !path.ends_with("[]") && path.matches('.').count() < 3 && !path.is_empty() {
                assert!(schema.get("description").is_some_and(|text| text != ""), "{path} is not described");
            }
        }
    }
}

/// Kubernetes' own types below `spec.pod`, the owner's texts and maps, and everything else: nothing is left to the limit of etcd.
#[test]
fn texts_numbers_lists_and_maps_are_bounded() {
    for crd in [crd("RedisQuorum"), crd("DistributedLock")] {
        let mut seen = 0;
        for (path, schema) in all_schemas(&crd) {
            if !path.starts_with(".spec.") && !path.starts_with(".status.") {
                continue;
            }
            let has = |bound: &str| schema.get(bound).is_some();
            let is_bounded = match schema["type"].as_str() {
                _ if has("enum") => true,
                _ if has("x-kubernetes-int-or-string") => has("maxLength") && has("pattern"),
                Some("string") => has("maxLength"),
                Some("array") => has("maxItems"),
                Some("integer" | "number") => has("minimum") && has("maximum"),
                Some("object") if has("additionalProperties") => has("maxProperties"),
                Some("object") => has("properties") && !has("x-kubernetes-preserve-unknown-fields"),
                Some("boolean") => true,
                other => panic!("{path}: {other:?}"),
            };
            assert!(is_bounded, "{path}: {schema}");
            seen += 1;
        }
        assert!(seen > 60, "only {seen} were looked at");
    }
}

#[test]
fn a_label_selector_is_short() {
    let crd = crd("DistributedLock");
    let selector = all_schemas(&crd).into_iter().find(|(path, _)| path == ".spec.election.selector").unwrap().1;
    let properties = &selector["properties"];
    assert_eq!(properties["matchLabels"]["maxProperties"], 16);
    assert_eq!(properties["matchExpressions"]["maxItems"], 16);
    assert_eq!(properties["matchExpressions"]["items"]["properties"]["values"]["maxItems"], 64);
}

#[test]
fn every_rule_has_a_message_and_an_existing_field_path() {
    for crd in [crd("RedisQuorum"), crd("DistributedLock")] {
        for (path, schema) in all_schemas(&crd) {
            for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                assert!(rule["message"].as_str().is_some_and(|text| text.len() > 10), "{path}: {rule}");
                if let Some(field) = rule.get("fieldPath").and_then(Value::as_str) {
                    assert!(schema["properties"].get(field.trim_start_matches('.')).is_some(), "{path}: no {field}");
                }
            }
        }
    }
}

#[test]
fn schema_defaults_are_the_defaults_in_rust() {
    let check = |kind: &str, spec: Value| {
        let crd = crd(kind);
        let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for (name, schema) in properties.as_object().unwrap() {
            assert_eq!(schema.get("default"), spec.get(name), "{kind} spec.{name}");
        }
    };
    check("RedisQuorum", serde_json::to_value(RedisQuorumSpec::default()).unwrap());
    check("DistributedLock", serde_json::to_value(DistributedLockSpec::default()).unwrap());
}

#[test]
fn a_manifest_reads_and_writes_the_same() {
    let manifest = json!({
        "apiVersion": "redlock-operator.io/v1alpha1",
        "kind": "DistributedLock",
        "metadata": {"name": "scheduler", "namespace": "shop"},
        "spec": {
            "quorumRef": {"name": "main", "namespace": "locks"}, "key": "scheduler", "ttl": "5s", "renewInterval": "1500ms",
            "minHold": "1s", "maxHold": "1h", "lockDelay": "2s", "validity": "Published",
            "retry": {"delay": "200ms", "jitter": "100ms"}, "priority": 3, "slots": 1, "suspend": false,
            "election": {"selector": {"matchLabels": {"app": "scheduler"}}, "container": "app",
                "preference": "LowestOrdinal", "leaderLabel": true},
        },
        "status": {
            "observedGeneration": 2, "transitions": 7, "votes": "3/3", "queuePosition": 0, "fencingToken": 1_795_284_168_033_i64,
            "acquiredAt": "2026-01-01T00:00:00.000Z", "renewedAt": "2026-01-01T00:00:31.250Z",
            "validUntil": "2026-01-01T00:00:36.148Z",
            "holder": {"identity": "scheduler-0", "podName": "scheduler-0", "podUID": "u", "containerID": "containerd://c",
                "containerStartedAt": "2026-01-01T00:00:00.000Z", "nodeName": "n", "nonce": "ab"},
            "ending": {"since": "2026-01-01T00:00:31.250Z", "reason": "Suspended", "until": "2026-01-01T00:00:36.250Z"},
            "history": [{"identity": "scheduler-1", "fencingToken": 1, "from": "2026-01-01T00:00:00.000Z",
                "to": "2026-01-01T00:00:01.000Z", "reason": "Released"}],
        },
    });
    let lock: DistributedLock = serde_json::from_value(manifest.clone()).unwrap();
    assert_eq!(lock.spec.ttl, GoDuration::from_secs(5));
    assert_eq!(serde_json::to_value(&lock).unwrap(), manifest);
}

#[test]
fn a_short_manifest_gets_the_defaults() {
    let quorum: RedisQuorumSpec = serde_json::from_value(json!({"members": 5})).unwrap();
    assert_eq!(quorum, RedisQuorumSpec { members: 5, ..RedisQuorumSpec::default() });
    let lock: DistributedLockSpec = serde_json::from_value(json!({"key": "a", "claim": {"identity": "b"}})).unwrap();
    let claim = Some(Claim { identity: Some("b".into()), ..Claim::default() });
    assert_eq!(lock, DistributedLockSpec { key: Some("a".into()), claim, ..DistributedLockSpec::default() });
}

#[test]
fn an_election_without_key_uses_its_name() {
    let lock = |spec| DistributedLock::new("scheduler", serde_json::from_value(spec).unwrap());
    assert_eq!(lock(json!({"election": {"selector": {"matchLabels": {"app": "a"}}}})).key(), "scheduler");
    assert_eq!(lock(json!({"key": "k", "claim": {"identity": "a"}})).key(), "k");
}

/// The API server shows the expression of a pattern, and the message of a rule.
#[test]
fn a_specification_has_rules_with_messages_and_no_patterns() {
    fn patterns(path: &str, schema: &Value, found: &mut Vec<String>) {
        let is_quantity = schema.get("x-kubernetes-int-or-string").is_some();
        if schema["pattern"].is_string() && !is_quantity {
            found.push(path.to_owned());
        }
        match schema {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| patterns(&format!("{path}.{name}"), value, found))
            }
            Value::Array(items) => items.iter().for_each(|value| patterns(path, value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for crd in [DistributedLock::crd(), RedisQuorum::crd()] {
        let crd = serde_json::to_value(crd).unwrap();
        patterns("spec", &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}
