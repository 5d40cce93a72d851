use super::*;

#[test]
fn pods_meet_pod_security_restricted() {
    for set in build(&plan(json!({})), &auth()).stateful_sets {
        let pod = pod_spec(&set);
        let context = pod.security_context.clone().unwrap();
        assert_eq!((context.run_as_non_root, context.run_as_user), (Some(true), Some(999)));
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert_eq!((pod.automount_service_account_token, pod.enable_service_links), (Some(false), Some(false)));
        assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
        for container in &pod.containers {
            let context = container.security_context.clone().unwrap();
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            assert_eq!(context.capabilities.unwrap().drop, Some(vec!["ALL".into()]));
            assert!(container.ports.iter().flatten().all(|port| port.host_port.is_none()));
        }
        assert!(pod.volumes.unwrap().iter().all(|volume| volume.host_path.is_none()));
    }
}

#[test]
fn each_member_mounts_its_own_acl_file_read_only() {
    let plan = plan(json!({"tls": {"mode": "Disabled"}}));
    let objects = build(&plan, &auth());
    for (index, set) in objects.stateful_sets.iter().enumerate() {
        let pod = pod_spec(set);
        let volumes = pod.volumes.clone().unwrap();
        let secret = volumes.iter().find_map(|volume| volume.secret.clone()).unwrap();
        assert_eq!(secret.secret_name.as_deref(), Some("blue-config"));
        let items: Vec<_> = secret.items.unwrap().into_iter().map(|item| (item.key, item.path)).collect();
        let acl = format!("users-{index}.acl");
        let readiness = format!("readiness-{index}");
        let expected = [("redis.conf", "redis.conf"), (&acl, "users.acl"), (&readiness, "readiness")];
        assert_eq!(items, expected.map(|(key, path)| (key.to_owned(), path.to_owned())));
        for (key, _) in items {
            assert!(objects.config.data.as_ref().unwrap().contains_key(&key), "{key}");
        }
        let redis = &pod.containers[0];
        assert_eq!((redis.name.as_str(), pod.containers.len()), (REDIS_CONTAINER, 1));
        assert_eq!(redis.command.clone().unwrap()[..2], ["redis-server", "/etc/redis/redis.conf"]);
        let mount =
            redis.volume_mounts.as_ref().unwrap().iter().find(|mount| mount.mount_path == "/etc/redis").unwrap();
        assert_eq!(mount.read_only, Some(true));
    }
}

#[test]
fn the_acl_file_of_every_member_is_closed_and_its_own() {
    let plan = plan(json!({"clients": [{"name": "billing", "namespace": "shop", "keyPrefix": "shop/"}]}));
    let config = build(&plan, &auth()).config;
    let files: Vec<String> = (0..3).map(|index| text(&config, &format!("users-{index}.acl"))).collect();
    for file in &files {
        for user in ["locker-e1", "billing-e1"] {
            let line = file.lines().find(|line| line.starts_with(&format!("user {user} "))).unwrap();
            assert!(line.ends_with("-@all +ping"), "{line}");
        }
    }
    assert!(files[0] != files[1] && files[1] != files[2], "passwords are each member's own");
    assert!(!text(&config, "redis.conf").contains("uid"));
}

#[test]
fn a_new_quorum_uses_tls() {
    assert_eq!(plan(json!({})).tls, plan(json!({"tls": {"mode": "Managed"}})).tls);
    let crds = serde_json::to_value(crate::api::crds()).unwrap();
    let crd = crds.as_array().unwrap().iter().find(|crd| crd["spec"]["names"]["kind"] == "RedisQuorum").unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    assert_eq!(spec["tls"]["default"], json!({"mode": "Managed"}));
    assert_eq!(plan(json!({"tls": {"mode": "Disabled"}})).tls, None);
}

/// TLS changes only the labels and one volume.
///
/// Without TLS the template is the same as before TLS existed.
#[test]
fn tls_is_another_pod_template_and_another_configuration() {
    let tls =
        plan(json!({"tls": {"mode": "Managed"}, "clients": [{"name": "b", "namespace": "s", "keyPrefix": "s/"}]}));
    let transport =
        Transport { tls: vec![true, false, true], authorities: Some("authorities".into()), addresses: Vec::new() };
    let objects = super::super::build(&tls, &auth(), NetworkPolicyPeer::default(), &transport);
    let pod = pod_spec(&objects.stateful_sets[1]);
    let volumes = pod.volumes.clone().unwrap();
    let secret = |name: &str| volumes.iter().find(|volume| volume.name == name).and_then(|v| v.secret.clone()).unwrap();
    let items: Vec<_> = secret("config").items.unwrap().into_iter().map(|item| (item.key, item.path)).collect();
    assert_eq!(items[0], ("redis-tls.conf".into(), "redis.conf".into()));
    assert_eq!(secret(TLS_VOLUME).secret_name.as_deref(), Some("blue-tls"));
    assert!(secret(TLS_VOLUME).items.unwrap().iter().all(|item| item.key != "ca.key"));
    let ready = pod.containers[0].readiness_probe.clone().unwrap().exec.unwrap().command.unwrap();
    assert!(ready[2].contains("redis-cli --tls --insecure --user probe"), "{ready:?}");

    let (plain, secure) = (text(&objects.config, "redis.conf"), text(&objects.config, "redis-tls.conf"));
    assert!(plain.contains("\nport 6379\n") && !plain.contains("tls"));
    for line in ["port 0", "tls-port 6379", "tls-cert-file /etc/redis-tls/tls.crt", "tls-auth-clients no"] {
        assert!(secure.lines().any(|found| found == line), "{line} is not in\n{secure}");
    }
    assert_eq!(text(&objects.config, "ca.crt"), "authorities");
    assert_eq!(text(&objects.clients[0], "ca.crt"), "authorities");
    let urls = text(&objects.clients[0], "urls");
    let schemes: Vec<_> = urls.lines().map(|url| url.split(':').next().unwrap()).collect();
    assert_eq!(schemes, ["rediss", "redis", "rediss"], "a client reaches every member in the middle of an update");

    let given = plan(json!({"tls": {"mode": "Secret", "secretRef": {"name": "cert"}}}));
    assert_eq!(given.tls, Some(crate::quorum::model::plan::TlsPlan { secret: "cert".into(), managed: false }));
    assert_eq!(given.server_names(), ["blue-0.vault.svc", "blue-1.vault.svc", "blue-2.vault.svc"]);
}
