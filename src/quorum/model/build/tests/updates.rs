//! Objects while the members change, or their secrets.

use super::*;
use crate::redis_member::acl::UserRule;

const THREE: [&str; 3] = ["blue-0", "blue-1", "blue-2"];
const FIVE: [&str; 5] = ["blue-0", "blue-1", "blue-2", "blue-3", "blue-4"];

/// The plan for this number of members in the specification, one client, and this status.
fn plan_at(members: i32, client: &Value, status: Value) -> Plan {
    validate(&quorum_with(json!({"members": members, "clients": [client]}), status)).unwrap()
}

/// Before the change, while the new members learn, while both lists are in force, and afterwards.
pub(super) fn from_three_to_five(client: &Value) -> [Plan; 4] {
    [
        plan_at(3, client, json!({"membershipEpoch": 7, "voters": THREE})),
        plan_at(5, client, json!({"membershipEpoch": 7, "voters": THREE})),
        plan_at(5, client, json!({"membershipEpoch": 8, "voters": FIVE, "formerVoters": THREE})),
        plan_at(5, client, json!({"membershipEpoch": 8, "voters": FIVE})),
    ]
}

/// Three members of epoch 7, two more that join it, and the objects at each part of that change.
#[test]
fn a_change_of_members_creates_objects_and_keeps_templates() {
    let client = json!({"name": "billing", "namespace": "shop", "keyPrefix": "shop/"});
    let [before, learning, joint, after] = from_three_to_five(&client);
    let back = plan_at(3, &client, json!({"membershipEpoch": 8, "voters": FIVE}));
    let template = |plan: &Plan, index: usize| {
        serde_json::to_string(&build(plan, &auth()).stateful_sets[index].spec.as_ref().unwrap().template).unwrap()
    };
    let budget = |plan: &Plan| {
        let selector = build(plan, &auth()).disruption_budget.unwrap().spec.unwrap().selector.unwrap();
        selector.match_expressions.unwrap()[0].values.clone().unwrap().len()
    };
    let open = |plan: &Plan, member: &str| {
        plan.open_rules(&auth(), member).iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>()
    };
    for (plan, sets, urls, user, budgeted) in [
        (&before, 3, 3, "billing-e7", 3),
        (&learning, 5, 3, "billing-e7", 3),
        (&joint, 5, 5, "billing-e8", 5),
        (&after, 5, 5, "billing-e8", 5),
        (&back, 5, 5, "billing-e8", 5),
    ] {
        let objects = build(plan, &auth());
        assert_eq!((objects.stateful_sets.len(), objects.services.len()), (sets, sets));
        let client = client_secret(plan, &auth(), &Transport::default(), &plan.clients[0], "vault");
        assert_eq!((text(&client, "urls").lines().count(), text(&client, "username").as_str()), (urls, user));
        assert_eq!(budget(plan), budgeted);
        assert_eq!(template(plan, 0), template(&before, 0));
        assert!(objects.config.data.unwrap().contains_key(&format!("users-{}.acl", sets - 1)));
    }
    assert_eq!(open(&learning, "blue-0"), ["locker-e7", "billing-e7", "probe"]);
    assert_eq!(open(&learning, "blue-4"), ["locker-e7", "probe"], "clients do not know of it");
    assert_eq!(open(&joint, "blue-0"), ["locker-e8", "probe"], "clients know one list only");
    assert_eq!(open(&after, "blue-4"), ["locker-e8", "billing-e8", "probe"]);
    let closing: Vec<_> = joint.closing_rules(&auth(), "blue-0", 7).iter().map(|rule| rule.name().to_owned()).collect();
    assert_eq!(closing, ["locker-e7", "billing-e7", "locker-e8", "billing-e8", "locker-e9", "probe"]);
    let former = joint.former_rules(7);
    assert_eq!(former.iter().map(UserRule::name).collect::<Vec<_>>(), ["locker-e7", "billing-e7"]);
    assert!(former.iter().all(UserRule::is_removed), "they are deleted, so that the list of users does not grow");
}

#[test]
fn the_template_names_only_replacements_of_lost_secrets() {
    let (plan, replacement) = (plan(json!({})), Auth::replacement(crate::time::UnixMillis(1)));
    let template = |auth: &Auth| build(&plan, auth).stateful_sets[1].spec.clone().unwrap().template;
    assert_eq!(template(&auth()), template(&Auth::random()));
    assert_eq!(template(&auth()), template(&auth().begin("t").advance().advance().advance()));
    assert_eq!(template(&replacement), template(&replacement.begin("t").advance().advance().advance()));
    assert_ne!(template(&replacement), template(&auth()));
    assert_ne!(template(&replacement), template(&Auth::replacement(crate::time::UnixMillis(2))), "lost again");
    for auth in [&auth(), &replacement] {
        let pod = k8s_openapi::api::core::v1::Pod { spec: template(auth).spec, ..Default::default() };
        let key = mounted_acl_key(auth, &plan.members[1]);
        assert_eq!(crate::quorum::model::facts::acl_key(&pod), Some(key.as_str()));
        let config = build(&plan, auth).config;
        let file = text(&config, &key);
        assert_eq!(file, users_acl(&plan, auth, &plan.members[1]));
        // Earlier pods, whose process can restart, read this key. It also records which clients have rights.
        assert_eq!(text(&config, "users-1.acl"), file);
    }
    assert_eq!(crate::quorum::model::facts::acl_key(&Default::default()), None);
}
