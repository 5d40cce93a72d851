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
    RecordLook { kept, stood, others: others.to_vec(), epoch: 1, list: LIST.into(), newest: false, since: 1 }
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
    assert!(accord.may_vote(at(59)) && !accord.may_vote(at(60)), "and then it may have lapsed");
}

#[test]
fn another_replica_goes_on_with_a_claim_that_stands() {
    let mut accord = accord(30);
    accord.admitted(&name("a"), Some(process("a")));
    for member in ["b", "c"] {
        accord.missed(&name(member), "connection refused");
    }
    accord.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(0));
    assert!(!accord.may_vote(at(0)), "one of three is nobody's word");
    accord.admitted(&name("b"), Some(process("b")));
    assert!(accord.saw(&name("b"), &process("b"), &look(Some(30), true, &[]), at(1)));
    assert!(accord.may_vote(at(1)), "without c");
    let mut lapsed = self::accord(30);
    lapsed.saw(&name("a"), &process("a"), &look(None, false, &[]), at(0));
    assert!(!lapsed.may_vote(at(0)));
}

#[test]
fn what_nothing_of_is_in_force_is_not_agreed_yet() {
    let mut accord = accord(30);
    accord.set_claim(Some(Claim { used: SECOND, ..claim(30) }));
    for member in ["a", "b"] {
        accord.admitted(&name(member), Some(process(member)));
        accord.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(0));
    }
    assert!(accord.may_vote(at(0)), "another replica has joined");
    assert_eq!(accord.standing(at(0)), Standing::Joining(vec![name("c")]));
    accord.saw(&name("c"), &process("c"), &look(Some(30), true, &[]), at(0));
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
    assert_eq!(asks(&accord, "a", &process("a"), 60), None, "59 s after it was seen");
    // Ours was not renewed either.
    for (member, run_id) in [("a", process("a")), ("b", run("b2")), ("c", process("c"))] {
        assert_eq!(asks(&accord, member, &process(member), 61), Some(30));
        accord.saw(&name(member), &run_id, &look(Some(30), false, &[]), at(61));
    }
    assert!(accord.may_vote(at(61)));
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

const NEXT: &str = "a:1 b:1 d:1";

/// What a record says in the middle of a change: that both lists count, or the newest alone.
fn says(list: &str, newest: bool, others: &[OtherClaim]) -> RecordLook {
    RecordLook { list: list.into(), newest, epoch: 2, ..look(Some(30), true, others) }
}

/// Our claim in the second epoch.
fn changing(list: &str, newest: bool, phase: i64) -> Claim {
    Claim { list: list.into(), newest, epoch: 2, phase, ..claim(30) }
}

#[test]
fn whoever_shares_a_list_agrees_and_a_claim_goes_on_through_a_change() {
    let mut accord = joined(30);
    let both = format!("{NEXT}|{LIST}");
    let ahead = other(&both, 30, 30);
    accord.saw(&name("a"), &process("a"), &look(Some(30), true, std::slice::from_ref(&ahead)), at(1));
    assert!(accord.may_vote(at(1)));
    for (list, newest, phase) in [(LIST, false, 0), (&both, false, 1), (&both, true, 2), (NEXT, false, 3)] {
        accord.set_claim(Some(changing(list, newest, phase)));
        assert!(accord.may_vote(at(1)), "{list}");
    }
    let stranger = other(LIST, 30, 30);
    accord.saw(&name("a"), &process("a"), &look(None, true, &[stranger]), at(2));
    assert!(matches!(accord.standing(at(2)), Standing::Conflict(Conflict::List(_))));
}

#[test]
fn a_list_is_given_up_when_nobody_counts_it_alone_and_the_records_say_so() {
    let mut accord = joined(30);
    let both = format!("{NEXT}|{LIST}");
    accord.set_claim(Some(changing(&both, false, 1)));
    let told = |accord: &Accord, member: &str| accord.is_told(&name(member), &process(member), at(2));
    assert!(!told(&accord, "a"), "its record is of the epoch before");
    accord.saw(&name("a"), &process("a"), &says(&both, false, &[other(LIST, 30, 30)]), at(1));
    assert!(told(&accord, "a") && !accord.is_told(&name("a"), &run("a2"), at(2)));
    let behind = |accord: &Accord| accord.behind(at(2)).len();
    assert_eq!(behind(&accord), 1);
    let back = OtherClaim { newest: true, ..other(&format!("{LIST}|{NEXT}"), 30, 30) };
    accord.saw(&name("a"), &process("a"), &says(&both, false, &[back]), at(1));
    assert_eq!(behind(&accord), 1, "it is about to give ours up");
    for theirs in [NEXT, &format!("{LIST}|{NEXT}"), &both] {
        accord.saw(&name("a"), &process("a"), &says(&both, false, &[other(theirs, 30, 30)]), at(1));
        assert_eq!(behind(&accord), 0, "{theirs}");
    }
    accord.set_claim(Some(changing(&both, true, 2)));
    assert!(!told(&accord, "a"));
    accord.saw(&name("a"), &process("a"), &says(&both, true, &[]), at(2));
    assert!(told(&accord, "a"));
}

#[test]
fn votes_count_where_the_record_tells_no_more_than_is_so() {
    let mut accord = joined(30);
    let both = format!("{NEXT}|{LIST}");
    for (member, newest) in [("a", true), ("b", false)] {
        accord.saw(&name(member), &process(member), &says(&both, newest, &[]), at(1));
    }
    let counts = |accord: &Accord| ["a", "b"].map(|member| accord.counts(&name(member), &process(member), at(2)));
    accord.set_claim(Some(changing(&both, true, 2)));
    assert_eq!(counts(&accord), [true, true]);
    accord.set_claim(Some(changing(NEXT, false, 3)));
    assert_eq!(counts(&accord), [true, false], "others rely on the old list there");
}

#[test]
fn a_member_that_shall_vote_holds_our_claim_first_and_stops_nobody() {
    let mut accord = joined(30);
    let lists = vec![["a", "b", "c"].map(name).to_vec()];
    let seats =
        |d| [("a", Role::Voter), ("b", Role::Voter), ("c", Role::Voter), ("d", d)].map(|(n, role)| (name(n), role));
    accord.set_members(seats(Role::Learner), lists.clone());
    assert!(accord.may_vote(at(1)) && accord.counts(&name("a"), &process("a"), at(1)), "what is known is kept");
    let stranger = other("d:1 e:1 f:1", 30, 30);
    accord.saw(&name("d"), &process("d"), &look(None, false, std::slice::from_ref(&stranger)), at(1));
    assert!(accord.may_vote(at(1)));
    assert_eq!(accord.refused_by(&name("d"), at(1)).map(|other| &other.list), Some(&stranger.list));
    assert!(!accord.counts(&name("d"), &process("d"), at(1)));
    accord.saw(&name("d"), &process("d"), &look(None, false, &[]), at(2));
    assert_eq!(asks(&accord, "d", &process("d"), 2), None, "whoever was there before comes first");
    accord.admitted(&name("d"), Some(process("d")));
    assert_eq!(asks(&accord, "d", &process("d"), 2), Some(30));
    accord.saw(&name("d"), &process("d"), &look(Some(30), false, &[]), at(2));
    assert!(accord.counts(&name("d"), &process("d"), at(2)) && accord.refused_by(&name("d"), at(2)).is_none());
    accord.set_members(seats(Role::Leaver), lists);
    assert_eq!(accord.question(&name("d"), &process("d"), at(3)), None, "our claim there runs out");
}

#[test]
fn our_own_members_become_external_ones() {
    let own = vec![["main-0", "main-1", "main-2"].map(name).to_vec()];
    let mut accord = Accord::new([]);
    accord.set_claim(Some(claim(30)));
    let seats = |role| ["a", "b", "c"].map(|member| (name(member), role));
    accord.set_members(seats(Role::Learner), own.clone());
    for member in ["a", "b", "c"] {
        assert!(accord.may_vote(at(0)) && !accord.is_shared());
        assert_eq!(asks(&accord, member, &process(member), 0), None, "it has not waited");
        accord.admitted(&name(member), Some(process(member)));
        accord.saw(&name(member), &process(member), &look(Some(30), false, &[]), at(0));
    }
    accord.set_members(seats(Role::Voter), [own, vec![["a", "b", "c"].map(name).to_vec()]].concat());
    assert!(accord.is_shared() && accord.may_vote(at(0)));
}

/// Of three members one is out of reach for as long as a claim counts, and one has restarted: what was said there is forgotten.
#[test]
fn who_sees_its_claim_on_no_majority_joins_anew() {
    let mut accord = joined(30);
    // The last look at c counts for five seconds.
    for second in 1..70 {
        assert_eq!(accord.may_vote(at(second)), second < 65, "{second}");
        accord.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(second));
        // Its process waits.
        accord.saw(&name("b"), &run("b2"), &look(Some(30), false, &[]), at(second));
    }
    accord.admitted(&name("b"), Some(run("b2")));
    accord.saw(&name("b"), &run("b2"), &look(Some(30), false, &[]), at(70));
    assert!(!accord.may_vote(at(70)));
    assert_eq!(accord.standing(at(70)), Standing::Joining(vec![name("c")]));
}

#[test]
fn a_record_that_knows_a_later_epoch_is_told() {
    let mut accord = joined(30);
    let later = RecordLook { epoch: 3, list: String::new(), ..look(None, false, &[]) };
    assert!(accord.saw(&name("a"), &process("a"), &later, at(1)));
    assert!(accord.trouble(&name("a")).unwrap().contains("epoch 3, here 1"));
    assert_eq!(accord.epoch_at(&name("a"), &process("a")), Some(3));
    assert_eq!(accord.epoch_at(&name("a"), &run("a2")), None);
    assert!(!accord.counts(&name("a"), &process("a"), at(1)));
}
