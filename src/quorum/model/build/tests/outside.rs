//! Objects for who comes from outside: clients that only read, and peers that are let in by network.

use super::*;

/// The objects of a quorum with `expose`.
fn exposed(expose: Value) -> (Vec<Value>, Value) {
    let plan = plan(json!({"tls": {"mode": "Managed"}, "expose": expose,
        "clients": [{"name": "b", "namespace": "s", "keyPrefix": "s/"}]}));
    let objects = build(&plan, &auth());
    let services = objects.services[3..].iter().map(|service| serde_json::to_value(&service.spec).unwrap()).collect();
    (services, serde_json::to_value(objects.network_policy).unwrap()["spec"]["ingress"].clone())
}

#[test]
fn only_peers_of_the_source_ranges_can_connect() {
    let ranges = json!(["192.0.2.0/24", "2001:db8::/32"]);
    for (type_, at_the_balancer) in [("LoadBalancer", ranges.clone()), ("NodePort", Value::Null)] {
        let (services, ingress) = exposed(json!({"type": type_, "sourceRanges": ranges}));
        assert_eq!(services.len(), 3);
        for service in services {
            assert_eq!(service["externalTrafficPolicy"], "Local", "members get the addresses of clients");
            assert_eq!(service["loadBalancerSourceRanges"], at_the_balancer, "{type_}");
        }
        let from = ingress[0]["from"].as_array().unwrap();
        assert_eq!((ingress.as_array().unwrap().len(), from.len()), (1, 4), "operator, clients and two networks");
        assert!(from[..2].iter().all(|peer| peer.get("namespaceSelector").is_some()));
        let networks = ["192.0.2.0/24", "2001:db8::/32"].map(|cidr| json!({"ipBlock": {"cidr": cidr}}));
        assert_eq!(from[2..], networks);
        assert_eq!(ingress[0]["ports"], json!([{"port": 6379, "protocol": "TCP"}]));
    }
}

#[test]
fn without_source_ranges_every_peer_can_connect() {
    for type_ in ["LoadBalancer", "NodePort"] {
        let (services, ingress) = exposed(json!({"type": type_}));
        assert_eq!(ingress, json!([{"ports": [{"port": 6379, "protocol": "TCP"}]}]));
        for service in services {
            assert_eq!(service["externalTrafficPolicy"], Value::Null);
            assert_eq!(service["loadBalancerSourceRanges"], Value::Null);
        }
    }
}

/// The library uses the values in force, whose promises end before the fence.
#[test]
fn a_clients_secret_has_the_rules_that_are_in_force() {
    let spec = json!({"maxTTL": "60s", "nodeTimeout": "100ms", "clockDrift": {"ppm": 5000, "floor": "3ms"},
        "clients": [{"name": "b", "namespace": "s", "keyPrefix": "s/"}]});
    let rules = |status: Value| {
        let plan = validate(&quorum_with(spec.clone(), status)).unwrap();
        let secret = build(&plan, &auth()).clients[0].clone();
        ["maxTTL", "clockDrift", "nodeTimeout", "quorum", "fenced"].map(|name| text(&secret, name))
    };
    assert_eq!(rules(json!({})), ["1m", "5000ppm 3ms", "100ms", "2", "true"]);
    let raised = json!({"maxTTLInForce": "30s"});
    assert_eq!(rules(raised), ["30s", "5000ppm 3ms", "100ms", "2", "true"], "before fences wait for more");
    let lowered = json!({"maxTTLInForce": "2m"});
    assert_eq!(rules(lowered), ["1m", "5000ppm 3ms", "100ms", "2", "true"], "shorter locks");
}

#[test]
fn the_library_takes_the_secret_as_it_is() {
    let plan = plan(json!({"clients": [{"name": "b", "namespace": "s", "keyPrefix": "s/"}]}));
    let secret = build(&plan, &auth()).clients[0].clone();
    let data = secret.data.unwrap().into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
    assert!(redlock_client::Client::from_secret(&data).is_ok());
}

/// Three members become five.
///
/// The test checks the Secret and the rights of a client that only reads, in each phase of that change.
#[test]
fn a_read_only_client_keeps_access_while_the_members_change() {
    let client = json!({"name": "look", "namespace": "shop", "keyPrefix": "shop/", "access": "Read"});
    let [before, learning, joint, after] = super::updates::from_three_to_five(&client);
    let names = |rules: Vec<crate::redis_member::acl::UserRule>| -> Vec<String> {
        rules.iter().map(|rule| rule.name().to_owned()).collect()
    };
    let hosts = |secret: &Secret, key: &str| -> Option<usize> {
        let data = secret.data.as_ref().unwrap();
        data.contains_key(key).then(|| text(secret, key).lines().count())
    };
    let mut passwords = Vec::new();
    for (plan, urls, former) in [(&before, 3, None), (&learning, 3, None), (&joint, 5, Some(3)), (&after, 5, None)] {
        let secret = &build(plan, &auth()).clients[0];
        assert_eq!((hosts(secret, "urls"), hosts(secret, "formerUrls")), (Some(urls), former));
        assert_eq!(text(secret, "username"), "look-read");
        passwords.push(text(secret, "urls").lines().next().unwrap().to_owned());
        assert!(names(plan.open_rules(&auth(), "blue-0")).contains(&"look-read".to_owned()), "without a gap");
        assert!(names(plan.closing_rules(&auth(), "blue-0", 7)).contains(&"look-read".to_owned()));
        assert!(!names(plan.former_rules(1)).contains(&"look-read".to_owned()));
        assert!(users_acl(plan, &auth(), &plan.members[0]).contains("user look-read on #"));
    }
    passwords.dedup();
    assert_eq!(passwords.len(), 1, "the users of no epoch keep their passwords: {passwords:?}");
    let spec = json!({"clients": [client, {"name": "b", "namespace": "shop", "keyPrefix": "shop/"}]});
    let published = quorum_with(spec, json!({"membershipEpoch": 7, "voters": ["blue-0", "blue-1", "blue-2"]}));
    let asked = crate::quorum::model::users::voting_users(&published, "blue-0");
    assert_eq!(asked, ["locker-e7", "b-e7", "look-read", "locker-e8", "probe"]);
}

#[test]
fn a_reader_has_both_passwords_during_a_rotation() {
    let plan =
        plan(json!({"clients": [{"name": "look", "namespace": "shop", "keyPrefix": "shop/", "access": "Read"}]}));
    let hashes = |auth: &Auth| {
        let file = users_acl(&plan, auth, &plan.members[0]);
        let line = file.lines().find(|line| line.starts_with("user look-read ")).unwrap().to_owned();
        assert!(line.contains(" %R~shop/* ") && line.ends_with(" -@all +ping"), "{line}");
        line.split(' ').filter(|rule| rule.starts_with('#')).count()
    };
    let adding = auth().begin("t");
    let switched = adding.advance();
    let counts = [&auth(), &adding, &switched, &switched.advance(), &switched.advance().advance()].map(hashes);
    assert_eq!(counts, [1, 2, 2, 1, 1]);
}

#[test]
fn only_the_operator_and_the_clients_namespaces_reach_redis() {
    let client = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace, "keyPrefix": format!("{namespace}/")});
    let plan = plan(json!({"clients": [client("a", "shop"), client("b", "shop"), client("c", "bank")]}));
    let policy = serde_json::to_value(build(&plan, &auth()).network_policy.unwrap()).unwrap();
    let namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let operator = json!({"namespaceSelector": namespace("control"),
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "redlock"}}});
    let from =
        [operator, json!({"namespaceSelector": namespace("bank")}), json!({"namespaceSelector": namespace("shop")})];
    let expected = json!({
        "podSelector": {"matchLabels": {"redlock-operator.io/quorum": "blue"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": from, "ports": [{"port": 6379, "protocol": "TCP"}]}],
    });
    assert_eq!(policy["spec"], expected);
}

#[test]
fn an_operator_whose_labels_are_unknown_is_not_shut_out() {
    let operators = operator_pods("control", &BTreeMap::new());
    let objects = super::super::build(&plan(json!({})), &auth(), operators, &Transport::default());
    let peer = &serde_json::to_value(objects.network_policy).unwrap()["spec"]["ingress"][0]["from"];
    assert_eq!(*peer, json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "control"}}}]));
}

#[test]
fn external_masters_vote_and_get_no_objects() {
    let vm = |name: &str| json!({"name": name, "address": format!("{name}.example:6379")});
    let mixed = plan(json!({"members": 2, "external": [vm("vm")]}));
    assert_eq!((mixed.lists.voters.len(), mixed.lists.majority()), (3, 2));
    let objects = build(&mixed, &auth());
    assert_eq!((objects.stateful_sets.len(), objects.services.len()), (2, 2));
    assert!(objects.disruption_budget.is_some());
    let alone = plan(json!({"members": 0, "external": [vm("a"), vm("b"), vm("c")]}));
    assert_eq!((mixed.tls.is_some(), alone.tls.is_some()), (true, false), "no own member needs a certificate");
    let spec = json!({"members": 0, "external": [vm("a"), vm("b"), vm("c")]});
    let left = quorum_with(spec, json!({"voters": ["a", "b", "c"], "members": [{"name": "blue-0"}]}));
    assert!(validate(&left).unwrap().tls.is_some(), "blue-0 still has its certificate");
    let objects = build(&alone, &auth());
    assert!(objects.stateful_sets.is_empty() && objects.services.is_empty());
    assert!(objects.disruption_budget.is_none() && objects.network_policy.is_none());
}

#[test]
fn operators_that_share_members_compare_them_by_address() {
    let vm = |name: &str, address: &str| json!({"name": name, "address": address});
    let list =
        |external: Value| crate::quorum::model::plan::shared_list(&quorum(json!({"members": 1, "external": external})));
    let one = list(json!([vm("a", "[2001:db8::1]:7000"), vm("b", "b.example:6379")]));
    assert_eq!(one, list(json!([vm("x", "b.example:6379"), vm("y", "[2001:db8::1]:7000")])));
    assert_eq!(one, "[2001:db8::1]:7000 b.example:6379 blue-0.vault.svc:6379/uid-1");
}

#[test]
fn external_members_have_names_and_addresses_of_their_own() {
    use crate::quorum::model::invalid::Invalid;
    use crate::quorum::model::plan::validate;
    let vm = |name: &str, address: &str| json!({"name": name, "address": address});
    let refused = |spec| matches!(validate(&quorum(spec)), Err(Invalid::External(..)));
    assert!(refused(json!({"members": 1, "external": [vm("a", "x:1"), vm("b", "x:1")]})));
    assert!(refused(json!({"members": 1, "external": [vm("a", "x:1"), vm("a", "y:1")]})));
    assert!(refused(json!({"members": 2, "external": [vm("blue-0", "x:1")]})));
    assert!(!refused(json!({"members": 2, "external": [vm("blue-vm", "x:1")]})));
    let clients = json!([{"name": "b", "namespace": "shop", "keyPrefix": "shop/"}]);
    let both = json!({"members": 2, "external": [vm("vm", "x:1")], "clients": clients});
    assert_eq!(validate(&quorum(both)), Err(Invalid::ClientsOfExternal));
    assert_eq!(validate(&quorum(json!({"members": 2}))), Err(Invalid::Members(2)));
}
