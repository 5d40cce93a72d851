//! Settings of users for the members' pods.

use super::*;

fn first(spec: Value) -> StatefulSet {
    build(&plan(spec), &auth()).stateful_sets.remove(0)
}

#[test]
fn labels_are_added_and_those_of_the_operator_win() {
    let spec = json!({"pod": {"labels": {"team": "a", MEMBER_LABEL: "other"}, "annotations": {"mesh": "off"}}});
    let set = first(spec);
    let template = set.spec.unwrap().template.metadata.unwrap();
    let labels = template.labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels[MEMBER_LABEL].as_str()), ("a", "blue-0"));
    assert_eq!(template.annotations.unwrap()["mesh"], "off");
    // The StatefulSet's own labels and its selector stay unchanged. The selector is immutable, and no user set the
    // labels.
    assert_eq!(set.metadata.labels, first(json!({})).metadata.labels);
    assert_eq!(first(json!({})).spec.unwrap().template.metadata.unwrap().annotations, None);
}

#[test]
fn the_platform_chooses_the_user_if_the_owner_sets_none() {
    let ids = |spec: Value| {
        let context = pod_spec(&first(spec)).security_context.unwrap();
        assert_eq!(context.run_as_non_root, Some(true));
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        (context.run_as_user, context.run_as_group, context.fs_group)
    };
    assert_eq!(ids(json!({})), (Some(999), Some(999), Some(999)));
    assert_eq!(ids(json!({"pod": {"securityContext": {}}})), (None, None, None));
    let chosen = json!({"pod": {"securityContext": {"runAsUser": 1_000_680_000, "fsGroup": 7}}});
    assert_eq!(ids(chosen), (Some(1_000_680_000), None, Some(7)));
}

#[test]
fn extra_containers_have_the_restrictions_but_no_volumes() {
    let agent = json!({"name": "agent", "image": "agent:1", "command": ["/agent"], "args": ["-v"], "env": {"LEVEL": "info"},
        "ports": {"metrics": 9121}, "resources": {"limits": {"memory": "16Mi"}}});
    let pod = pod_spec(&first(json!({"pod": {"extraContainers": [agent], "runtimeClassName": "sandbox"}})));
    let [redis, agent] = &pod.containers[..] else { panic!("{:?}", pod.containers) };
    assert_eq!((redis.name.as_str(), agent.name.as_str()), (REDIS_CONTAINER, "agent"));
    assert_eq!(agent.security_context, redis.security_context);
    assert_eq!((&agent.volume_mounts, &agent.env_from), (&None, &None));
    assert_eq!(agent.env.as_ref().unwrap()[0].value.as_deref(), Some("info"));
    assert_eq!(agent.ports.as_ref().unwrap()[0].container_port, 9121);
    assert_eq!(pod.service_account_name, None, "the account `default`");
    assert_eq!(
        (pod.runtime_class_name.as_deref(), pod.automount_service_account_token),
        (Some("sandbox"), Some(false))
    );
}

/// The pod of a voting member is not ready while an extra container is not ready.
#[test]
fn extra_containers_keep_unready_members_in_the_budget() {
    let policy = |spec: Value| {
        let budget = build(&plan(spec), &auth()).disruption_budget.unwrap();
        budget.spec.unwrap().unhealthy_pod_eviction_policy.unwrap()
    };
    assert_eq!(policy(json!({})), "AlwaysAllow");
    let agent = json!({"name": "agent", "image": "agent:1"});
    assert_eq!(policy(json!({"pod": {"extraContainers": [agent]}})), "IfHealthyBudget");
}
