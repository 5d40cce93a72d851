//! A list of own members and external masters.

use super::*;

/// An agreement of a list with two own members, one external master and our claim.
fn own_majority() -> Agreement {
    let mut agreement = Agreement::default();
    agreement.set_members(["main-0", "main-1", "a"].map(name).to_vec(), [name("a")], false);
    agreement.set_claim(Some(claim(30)));
    agreement
}

#[test]
fn a_majority_of_own_members_votes_without_external_masters() {
    let mut agreement = own_majority();
    assert!(!agreement.allows_votes(at(0)), "the record can have another list");
    agreement.missed(&name("a"), "connection refused");
    assert!(agreement.allows_votes(at(0)) && !agreement.counts(&name("a"), &process("a"), at(0)));
    let mut agreement = own_majority();
    agreement.admitted(&name("a"), Some(process("a")));
    reads(&mut agreement, "a", &process("a"), &state(true, false, &[]), 0);
    assert_eq!(agreement.sharing(at(0)), Sharing::Agreed(vec![]));
    assert!(agreement.allows_votes(at(70)), "the master is silent");
    reads(&mut agreement, "a", &process("a"), &state(false, true, &[other(LIST, 10)]), 71);
    assert!(!agreement.allows_votes(at(71)));
    let mut half = of(&["main-0", "b", "a"]);
    half.set_claim(Some(claim(30)));
    for member in ["a", "b"] {
        half.missed(&name(member), "connection refused");
    }
    assert!(!half.allows_votes(at(0)));
}

#[test]
fn own_members_alone_are_no_record_of_the_quorum() {
    let mut agreement = own_majority();
    reads(&mut agreement, "a", &process("a"), &state(false, false, &[]), 0);
    assert!(!asks(&agreement, "a", &process("a"), 0), "the master has not waited for its admission");
    assert_eq!(agreement.sharing(at(0)), Sharing::Joining(vec![name("a")]));
    reads(&mut agreement, "a", &process("a"), &state(false, true, &[]), 1);
    assert_eq!(agreement.sharing(at(1)), Sharing::Joining(vec![name("a")]));
    agreement.admitted(&name("a"), Some(process("a")));
    reads(&mut agreement, "a", &process("a"), &state(false, true, &[]), 2);
    assert_eq!(agreement.sharing(at(2)), Sharing::Agreed(vec![]), "another replica has recorded it");
}

#[test]
fn own_members_of_one_name_in_two_clusters_are_a_conflict() {
    let of_cluster = |uid: &str| {
        let external = ["x", "y"].map(|name| serde_json::json!({"name": name, "address": format!("{name}.example:1")}));
        let spec = serde_json::from_value(serde_json::json!({"members": 1, "external": external})).unwrap();
        let mut quorum = RedisQuorum::new("main", spec);
        (quorum.metadata.namespace, quorum.metadata.uid) = (Some("locks".into()), Some(uid.into()));
        effective::publish(quorum.status.get_or_insert_default(), 30 * SECOND);
        claim_of(&quorum).unwrap()
    };
    let (ours, theirs) = (of_cluster("ours"), of_cluster("theirs"));
    let mut agreement = Agreement::default();
    agreement.set_members(["main-0", "x", "y"].map(name).to_vec(), ["x", "y"].map(name), false);
    agreement.set_claim(Some(ours));
    let theirs = OtherClaim { list: theirs.list, ttl: theirs.ttl, ..other(LIST, 30) };
    reads(&mut agreement, "x", &run("x1"), &state(true, false, &[theirs]), 0);
    assert!(matches!(agreement.sharing(at(0)), Sharing::Conflict(_)));
}
