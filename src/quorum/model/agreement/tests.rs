use super::*;

mod histories;
mod mixed;

const LIST: &str = "a:1 b:1 c:1";
const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(1_000 + seconds))
}

pub(crate) fn claim(ttl: u64) -> Claim {
    Claim {
        uid: "ours".into(),
        name: "locks/ours".into(),
        list: LIST.into(),
        ttl: Duration::from_secs(ttl),
        epoch: 2,
        ended: true,
        generation: 1,
        lives: Duration::from_secs(70),
        joined: false,
    }
}

pub(crate) fn other(list: &str, ttl: u64) -> OtherClaim {
    OtherClaim {
        uid: "theirs".into(),
        name: "shop/theirs".into(),
        list: list.into(),
        ttl: Duration::from_secs(ttl),
        left: Duration::from_secs(60),
    }
}

fn name(member: &str) -> MemberName {
    MemberName::from(member)
}

fn run(process: &str) -> RunId {
    RunId::new(process)
}

/// The first process of a member: `a1` for member `a`. The next one is `a2`.
fn process(member: &str) -> RunId {
    run(&format!("{member}1"))
}

fn state(kept: bool, stood: bool, others: &[OtherClaim]) -> RecordState {
    RecordState { kept, stood, others: others.to_vec(), epoch: 2, since: 1 }
}

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn of(members: &[&str]) -> Agreement {
    let mut agreement = Agreement::default();
    agreement.set_members(members.iter().map(|member| name(member)).collect(), MEMBERS.map(name), false);
    agreement
}

fn agreement(ttl: u64) -> Agreement {
    let mut agreement = of(&MEMBERS);
    agreement.set_claim(Some(claim(ttl)));
    agreement
}

/// Reads the record for the current claim.
fn reads(agreement: &mut Agreement, member: &str, run_id: &RunId, state: &RecordState, now: u64) -> bool {
    let claim = agreement.claim().unwrap().clone();
    agreement.read(&name(member), run_id, &claim, state, at(now))
}

/// An agreement in which all members are admitted and hold our claim.
fn joined(ttl: u64) -> Agreement {
    let mut agreement = agreement(ttl);
    for member in MEMBERS {
        agreement.admitted(&name(member), Some(process(member)));
        reads(&mut agreement, member, &process(member), &state(true, false, &[]), 0);
    }
    assert!(agreement.allows_votes(at(0)));
    agreement
}

fn asks(agreement: &Agreement, member: &str, run_id: &RunId, now: u64) -> bool {
    agreement.question(&name(member), run_id, at(now)).unwrap().1
}

#[test]
fn a_quorum_without_external_members_shares_nothing() {
    let mut agreement = Agreement::default();
    agreement.set_claim(Some(claim(30)));
    assert!(agreement.allows_votes(at(0)) && agreement.counts(&name("main-0"), &run("x"), at(0)));
    assert_eq!(agreement.sharing(at(0)), Sharing::NotShared);
}

#[test]
fn a_newcomer_waits_and_votes_when_its_claim_is_on_all_members() {
    let mut agreement = agreement(30);
    for member in ["a", "b", "c"] {
        assert!(!asks(&agreement, member, &process(member), 0), "not admitted yet");
        reads(&mut agreement, member, &process(member), &state(false, false, &[]), 0);
        agreement.admitted(&name(member), Some(process(member)));
    }
    assert!(asks(&agreement, "a", &process("a"), 1));
    assert!(!asks(&agreement, "a", &run("a2"), 1), "another process waits first");
    for member in ["a", "b", "a"] {
        assert!(!agreement.question(&name(member), &process(member), at(1)).unwrap().0.joined);
        reads(&mut agreement, member, &process(member), &state(true, false, &[]), 1);
    }
    assert_eq!(agreement.sharing(at(1)), Sharing::Joining(vec![name("c")]));
    assert!(!agreement.allows_votes(at(1)) && agreement.agreed_ttl(at(1)).is_none());
    assert!(reads(&mut agreement, "c", &process("c"), &state(true, false, &[]), 2), "news");
    assert!(agreement.allows_votes(at(2)));
    assert_eq!(agreement.agreed_ttl(at(2)), Some(30 * SECOND));
    assert_eq!(agreement.sharing(at(2)), Sharing::Agreed(vec![]));
    assert!(!reads(&mut agreement, "c", &process("c"), &state(true, true, &[]), 3), "no news");
    assert!(agreement.question(&name("c"), &process("c"), at(3)).unwrap().0.joined);
}

#[test]
fn no_claim_is_made_before_every_member_was_tried() {
    let mut agreement = agreement(30);
    agreement.admitted(&name("a"), Some(process("a")));
    assert!(!asks(&agreement, "a", &process("a"), 0));
    agreement.missed(&name("b"), "connection refused");
    agreement.missed(&name("c"), "connection refused");
    assert!(asks(&agreement, "a", &process("a"), 0));
    assert_eq!(agreement.trouble(&name("b")), Some("connection refused"));
}

#[test]
fn the_loss_of_a_member_does_not_stop_joined_operators() {
    let mut agreement = joined(30);
    for second in 1..200 {
        for member in ["a", "b"] {
            reads(&mut agreement, member, &process(member), &state(true, true, &[]), second);
        }
    }
    assert!(agreement.allows_votes(at(200)) && agreement.counts(&name("a"), &process("a"), at(200)));
    assert!(!agreement.counts(&name("c"), &process("c"), at(200)));
    assert_eq!(agreement.agreed_ttl(at(200)), None, "a longer ttl does not come into force then");
    // It is back with another process. The operator claims there immediately, and its votes count only after that.
    assert!(asks(&agreement, "c", &run("c2"), 200));
    agreement.admitted(&name("c"), Some(run("c2")));
    assert!(!agreement.counts(&name("c"), &run("c2"), at(200)));
    reads(&mut agreement, "c", &run("c2"), &state(true, false, &[]), 201);
    assert!(agreement.counts(&name("c"), &run("c2"), at(201)) && !agreement.counts(&name("c"), &process("c"), at(201)));
}

#[test]
fn votes_become_invalid_when_the_claim_is_not_renewed() {
    let agreement = joined(30);
    assert!(agreement.counts(&name("a"), &process("a"), at(5)));
    assert!(!agreement.counts(&name("a"), &process("a"), at(6)));
    assert!(agreement.allows_votes(at(59)) && !agreement.allows_votes(at(60)), "the claim has possibly lapsed by then");
}

#[test]
fn another_replica_continues_a_claim_that_is_in_force() {
    let mut agreement = agreement(30);
    agreement.admitted(&name("a"), Some(process("a")));
    for member in ["b", "c"] {
        agreement.missed(&name(member), "connection refused");
    }
    reads(&mut agreement, "a", &process("a"), &state(true, true, &[]), 0);
    assert!(!agreement.allows_votes(at(0)), "one of three is no majority");
    agreement.admitted(&name("b"), Some(process("b")));
    assert!(reads(&mut agreement, "b", &process("b"), &state(true, true, &[]), 1));
    assert!(agreement.allows_votes(at(1)), "without c");
    let mut lapsed = self::agreement(30);
    reads(&mut lapsed, "a", &process("a"), &state(false, false, &[]), 0);
    assert!(!lapsed.allows_votes(at(0)));
}

#[test]
fn another_list_stops_everything_until_it_is_gone() {
    let mut agreement = joined(30);
    let theirs = other("a:1 b:1 d:1", 30);
    assert!(reads(&mut agreement, "b", &process("b"), &state(false, true, std::slice::from_ref(&theirs)), 1));
    assert!(!agreement.allows_votes(at(1)));
    assert_eq!(agreement.sharing(at(1)), Sharing::Conflict(OtherClaim { left: Duration::ZERO, ..theirs.clone() }));
    assert!(!asks(&agreement, "a", &process("a"), 1), "and no claim is written");
    // The process with the conflicting claim has forgotten it, but this operator has not.
    reads(&mut agreement, "b", &run("b2"), &state(false, false, &[]), 2);
    assert!(!agreement.allows_votes(at(60)));
    assert!(!asks(&agreement, "a", &process("a"), 60), "59 s after its observation");
    // Our claim was not renewed either.
    for (member, run_id) in [("a", process("a")), ("b", run("b2")), ("c", process("c"))] {
        assert!(asks(&agreement, member, &process(member), 61));
        reads(&mut agreement, member, &run_id, &state(true, false, &[]), 61);
    }
    assert!(agreement.allows_votes(at(61)));
    // The other operator withdraws its claim while the process lives.
    reads(&mut agreement, "b", &run("b2"), &state(false, false, std::slice::from_ref(&theirs)), 62);
    assert!(!agreement.allows_votes(at(62)));
    reads(&mut agreement, "b", &run("b2"), &state(false, false, &[]), 63);
    assert!(agreement.allows_votes(at(63)));
}

#[test]
fn a_claim_outlives_the_promises_under_it() {
    let delay = Duration::from_secs(31);
    assert!(lives(delay) > FRESH + delay);
    assert_eq!(lives(Duration::MAX), Duration::MAX);
}

#[test]
fn another_max_ttl_stops_votes_and_claims() {
    for ttl in [10, 60] {
        let mut agreement = joined(30);
        reads(&mut agreement, "a", &process("a"), &state(false, true, &[other(LIST, ttl)]), 1);
        assert!(!agreement.allows_votes(at(1)) && !asks(&agreement, "b", &process("b"), 1));
        assert!(matches!(agreement.sharing(at(1)), Sharing::Conflict(_)));
        reads(&mut agreement, "a", &process("a"), &state(true, true, &[other(LIST, 30)]), 2);
        assert!(agreement.allows_votes(at(2)));
    }
}

#[test]
fn a_longer_ttl_is_in_force_only_when_every_member_holds_it() {
    let mut agreement = joined(10);
    agreement.set_claim(Some(claim(30)));
    assert!(agreement.allows_votes(at(1)) && !agreement.counts(&name("a"), &process("a"), at(1)));
    for (member, agreed) in [("a", None), ("b", None), ("c", Some(30 * SECOND))] {
        let stale = claim(10);
        assert!(!agreement.read(&name(member), &process(member), &stale, &state(true, true, &[]), at(1)));
        reads(&mut agreement, member, &process(member), &state(true, true, &[]), 1);
        assert!(agreement.counts(&name(member), &process(member), at(1)));
        assert_eq!(agreement.agreed_ttl(at(1)), agreed, "{member}");
    }
}

#[test]
fn no_vote_is_valid_while_the_list_changes() {
    let mut agreement = joined(30);
    agreement.set_claim(Some(Claim { generation: 2, ..claim(30) }));
    assert!(agreement.allows_votes(at(1)));
    let next = ["a", "b", "d"];
    agreement.set_members(MEMBERS.map(name).to_vec(), ["a", "b", "c", "d"].map(name), true);
    agreement.set_claim(Some(Claim { epoch: 3, ended: false, ..claim(30) }));
    for member in MEMBERS {
        assert!(asks(&agreement, member, &process(member), 1), "the claim of the former list is renewed");
        reads(&mut agreement, member, &process(member), &RecordState { epoch: 3, ..state(true, true, &[]) }, 1);
        assert_eq!(agreement.epoch_at(&name(member), &process(member)), Some(3));
    }
    assert_eq!((agreement.allows_votes(at(1)), agreement.sharing(at(1))), (false, Sharing::Paused));
    assert!(agreement.question(&name("d"), &process("d"), at(1)).is_none());
    agreement.set_members(next.map(name).to_vec(), next.map(name), false);
    agreement.set_claim(Some(Claim { list: "a:1 b:1 d:1".into(), epoch: 4, ..claim(30) }));
    agreement.admitted(&name("d"), Some(process("d")));
    for member in next {
        assert!(!agreement.allows_votes(at(2)));
        reads(&mut agreement, member, &process(member), &RecordState { epoch: 4, ..state(true, false, &[]) }, 2);
    }
    assert!(agreement.allows_votes(at(2)));
}

#[test]
fn a_change_from_own_to_external_members_has_a_pause() {
    let own = ["main-0", "main-1", "main-2"];
    let mut agreement = Agreement::default();
    agreement.set_members(own.map(name).to_vec(), MEMBERS.map(name), true);
    assert!(!agreement.allows_votes(at(0)) && !agreement.is_shared());
    agreement = of(&own);
    assert!(agreement.allows_votes(at(0)), "until it begins");
}

/// One of three members is out of reach until the claim has expired, and another one restarts.
///
/// The claims on these two are lost.
#[test]
fn an_operator_without_a_majority_of_claims_joins_again() {
    let mut agreement = joined(30);
    // The last reading of c counts for five seconds.
    for second in 1..70 {
        assert_eq!(agreement.allows_votes(at(second)), second < 65, "{second}");
        reads(&mut agreement, "a", &process("a"), &state(true, true, &[]), second);
        // The process of b waits for its admission.
        reads(&mut agreement, "b", &run("b2"), &state(true, false, &[]), second);
    }
    agreement.admitted(&name("b"), Some(run("b2")));
    reads(&mut agreement, "b", &run("b2"), &state(true, false, &[]), 70);
    assert!(!agreement.allows_votes(at(70)));
    assert_eq!(agreement.sharing(at(70)), Sharing::Joining(vec![name("c")]));
}

#[test]
fn a_record_with_a_later_epoch_is_reported() {
    let mut agreement = joined(30);
    let later = RecordState { epoch: 4, ..state(false, false, &[]) };
    assert!(reads(&mut agreement, "a", &process("a"), &later, 1));
    assert!(agreement.trouble(&name("a")).unwrap().contains("a later change"));
    assert_eq!(agreement.epoch_at(&name("a"), &process("a")), Some(4));
    assert_eq!(agreement.epoch_at(&name("a"), &run("a2")), None);
    assert!(!agreement.counts(&name("a"), &process("a"), at(1)));
}
