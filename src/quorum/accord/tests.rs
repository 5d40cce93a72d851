use super::*;

mod histories;

const LIST: &str = "a:1 b:1 c:1";
const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(1_000 + seconds))
}

fn claim(fence: u64) -> Claim {
    Claim {
        uid: "ours".into(),
        name: "locks/ours".into(),
        list: LIST.into(),
        newest: false,
        epoch: 1,
        phase: 3,
        generation: 1,
        fence: Duration::from_secs(fence),
        used: Duration::from_secs(fence),
        lives: Duration::from_secs(70),
        joined: false,
    }
}

fn other(list: &str, fence: u64, uses: u64) -> OtherClaim {
    OtherClaim {
        uid: "theirs".into(),
        name: "shop/theirs".into(),
        list: list.into(),
        newest: false,
        fence: Duration::from_secs(fence),
        uses: Duration::from_secs(uses),
        left: Duration::from_secs(60),
    }
}

fn name(member: &str) -> MemberName {
    MemberName::from(member)
}

fn run(process: &str) -> RunId {
    RunId::new(process)
}

/// A member `a` runs the process `a1`, then `a2`.
fn process(member: &str) -> RunId {
    run(&format!("{member}1"))
}

fn look(kept: Option<u64>, stood: bool, others: &[OtherClaim]) -> RecordLook {
    let kept = kept.map(Duration::from_secs);
    RecordLook { kept, stood, others: others.to_vec(), epoch: 1, list: LIST.into(), newest: false }
}

fn accord(fence: u64) -> Accord {
    let mut accord = Accord::new(["a", "b", "c"].map(name));
    accord.set_claim(Some(claim(fence)));
    accord
}

/// All members admitted, and our claim on all of them.
fn joined(fence: u64) -> Accord {
    let mut accord = accord(fence);
    for member in ["a", "b", "c"] {
        accord.admitted(&name(member), Some(process(member)));
        accord.saw(&name(member), &process(member), &look(Some(fence), false, &[]), at(0));
    }
    assert!(accord.may_vote(at(0)));
    accord
}

fn asks(accord: &Accord, member: &str, run_id: &RunId, now: u64) -> Option<u64> {
    accord.question(&name(member), run_id, at(now)).unwrap().1.map(|uses| uses.as_secs())
}

#[test]
fn a_quorum_without_external_members_shares_nothing() {
    let mut accord = Accord::new([]);
    accord.set_claim(Some(claim(30)));
    assert!(accord.may_vote(at(0)) && accord.counts(&name("main-0"), &run("x"), at(0)));
    assert_eq!(accord.standing(at(0)), Standing::NotShared);
}

#[test]
fn a_newcomer_claims_only_after_its_wait_and_votes_only_when_its_claim_stands_everywhere() {
    let mut accord = accord(30);
    for member in ["a", "b", "c"] {
        assert_eq!(asks(&accord, member, &process(member), 0), None, "not admitted yet");
        accord.saw(&name(member), &process(member), &look(None, false, &[]), at(0));
        accord.admitted(&name(member), Some(process(member)));
    }
    assert_eq!(asks(&accord, "a", &process("a"), 1), Some(30));
    assert_eq!(asks(&accord, "a", &run("a2"), 1), None, "another process waits first");
    for member in ["a", "b", "a"] {
        assert!(!accord.question(&name(member), &process(member), at(1)).unwrap().0.joined);
        accord.saw(&name(member), &process(member), &look(Some(30), false, &[]), at(1));
    }
    assert_eq!(accord.standing(at(1)), Standing::Joining(vec![name("c")]));
    assert!(!accord.may_vote(at(1)) && accord.settled(at(1)).is_none());
    assert!(accord.saw(&name("c"), &process("c"), &look(Some(30), false, &[]), at(2)), "news");
    assert!(accord.may_vote(at(2)));
    assert_eq!(accord.settled(at(2)), Some(30 * SECOND));
    assert_eq!(accord.standing(at(2)), Standing::Agreed(vec![]));
    assert!(!accord.saw(&name("c"), &process("c"), &look(Some(30), true, &[]), at(3)), "no news");
    assert!(accord.question(&name("c"), &process("c"), at(3)).unwrap().0.joined);
}

#[test]
fn nobody_claims_before_every_member_was_asked() {
    let mut accord = accord(30);
    accord.admitted(&name("a"), Some(process("a")));
    assert_eq!(asks(&accord, "a", &process("a"), 0), None);
    accord.missed(&name("b"), "connection refused");
    accord.missed(&name("c"), "connection refused");
    assert_eq!(asks(&accord, "a", &process("a"), 0), Some(30));
    assert_eq!(accord.trouble(&name("b")), Some("connection refused"));
}

#[test]
fn the_loss_of_a_member_does_not_stop_those_who_have_joined() {
    let mut accord = joined(30);
    for second in 1..200 {
        for member in ["a", "b"] {
            accord.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(second));
        }
    }
    assert!(accord.may_vote(at(200)) && accord.counts(&name("a"), &process("a"), at(200)));
    assert!(!accord.counts(&name("c"), &process("c"), at(200)));
    assert_eq!(accord.settled(at(200)), None, "nothing longer comes into force meanwhile");
    // Back with another process: it claims there at once, and its votes count only then.
    assert_eq!(asks(&accord, "c", &run("c2"), 200), Some(30));
    accord.admitted(&name("c"), Some(run("c2")));
    assert!(!accord.counts(&name("c"), &run("c2"), at(200)));
    accord.saw(&name("c"), &run("c2"), &look(Some(30), false, &[]), at(201));
    assert!(accord.counts(&name("c"), &run("c2"), at(201)) && !accord.counts(&name("c"), &process("c"), at(201)));
}

#[test]
fn votes_stop_counting_when_the_claim_is_not_renewed() {
    let accord = joined(30);
    assert!(accord.counts(&name("a"), &process("a"), at(5)));
    assert!(!accord.counts(&name("a"), &process("a"), at(6)));
    assert!(accord.may_vote(at(69)) && !accord.may_vote(at(70)), "and then it has lapsed");
}

#[test]
fn another_replica_goes_on_with_a_claim_that_stands() {
    let mut accord = accord(30);
    accord.admitted(&name("a"), Some(process("a")));
    for member in ["b", "c"] {
        accord.missed(&name(member), "connection refused");
    }
    assert!(accord.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(0)));
    assert!(accord.may_vote(at(0)), "without b and c");
    let mut lapsed = self::accord(30);
    lapsed.saw(&name("a"), &process("a"), &look(None, false, &[]), at(0));
    assert!(!lapsed.may_vote(at(0)));
}

#[test]
fn what_nothing_of_is_in_force_is_not_agreed_yet() {
    let mut accord = accord(30);
    accord.set_claim(Some(Claim { used: SECOND, ..claim(30) }));
    accord.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(0));
    assert!(accord.may_vote(at(0)), "another replica has joined");
    assert_eq!(accord.standing(at(0)), Standing::Joining(vec![name("b"), name("c")]));
    for member in ["b", "c"] {
        accord.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(0));
    }
    assert_eq!((accord.standing(at(0)), accord.settled(at(0))), (Standing::Agreed(vec![]), Some(30 * SECOND)));
}

#[test]
fn one_other_list_stops_everything_until_it_is_gone() {
    let mut accord = joined(30);
    let theirs = other("a:1 b:1 d:1", 30, 30);
    assert!(accord.saw(&name("b"), &process("b"), &look(None, true, std::slice::from_ref(&theirs)), at(1)));
    assert!(!accord.may_vote(at(1)));
    assert!(matches!(accord.standing(at(1)), Standing::Conflict(Conflict::List(other)) if other.name == "shop/theirs"));
    assert_eq!(asks(&accord, "a", &process("a"), 1), None, "and nothing is written anywhere");
    // The process that held it has forgotten it, we have not.
    accord.saw(&name("b"), &run("b2"), &look(None, false, &[]), at(2));
    assert!(!accord.may_vote(at(60)));
    accord.saw(&name("a"), &process("a"), &look(None, true, &[]), at(60));
    assert!(accord.may_vote(at(61)), "60 s after it was seen");
    // Withdrawn while its process lives.
    accord.saw(&name("b"), &run("b2"), &look(None, false, std::slice::from_ref(&theirs)), at(62));
    assert!(!accord.may_vote(at(62)));
    accord.saw(&name("b"), &run("b2"), &look(None, false, &[]), at(63));
    assert!(accord.may_vote(at(63)));
}

#[test]
fn a_fence_that_does_not_wait_for_what_somebody_uses_does_not_vote() {
    let mut accord = joined(10);
    accord.saw(&name("a"), &process("a"), &look(None, true, &[other(LIST, 30, 30)]), at(1));
    assert!(matches!(accord.standing(at(1)), Standing::Conflict(Conflict::Longer(_))));
    // They may wait for more than they use.
    accord.saw(&name("a"), &process("a"), &look(Some(10), true, &[other(LIST, 30, 10)]), at(2));
    assert!(accord.may_vote(at(2)));
}

#[test]
fn a_longer_time_to_live_is_in_force_only_when_all_fences_wait_for_it_and_every_member_says_so() {
    let mut accord = joined(10);
    let mut theirs = other(LIST, 10, 10);
    accord.saw(&name("a"), &process("a"), &look(Some(10), true, std::slice::from_ref(&theirs)), at(1));
    accord.set_claim(Some(claim(30)));
    assert_eq!(asks(&accord, "a", &process("a"), 1), Some(10), "their fences wait for 10 s");
    assert_eq!(accord.settled(at(1)), Some(10 * SECOND));
    theirs.fence = 30 * SECOND;
    accord.saw(&name("a"), &process("a"), &look(Some(10), true, &[theirs]), at(2));
    assert_eq!(asks(&accord, "b", &process("b"), 2), Some(30));
    for (member, settled) in [("a", 10), ("b", 10), ("c", 30)] {
        accord.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(3));
        assert_eq!(accord.settled(at(3)), Some(settled * SECOND), "{member}");
    }
}

#[test]
fn a_changed_list_joins_anew() {
    let mut accord = joined(30);
    accord.set_claim(Some(Claim { generation: 2, ..claim(30) }));
    assert!(accord.may_vote(at(1)));
    accord.set_claim(Some(Claim { list: "a:1 b:1 d:1".into(), ..claim(30) }));
    assert!(!accord.may_vote(at(1)));
}

#[test]
fn a_claim_outlives_what_was_promised_under_it() {
    let delay = Duration::from_secs(31);
    assert!(lives(delay) > FRESH + delay);
    assert_eq!(lives(Duration::MAX), Duration::MAX);
}
