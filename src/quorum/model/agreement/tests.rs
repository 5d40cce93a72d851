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

fn agreement(fence: u64) -> Agreement {
    let mut agreement = Agreement::new(["a", "b", "c"].map(name));
    agreement.set_claim(Some(claim(fence)));
    agreement
}

/// All members admitted, and our claim on all of them.
fn joined(fence: u64) -> Agreement {
    let mut agreement = agreement(fence);
    for member in ["a", "b", "c"] {
        agreement.admitted(&name(member), Some(process(member)));
        agreement.saw(&name(member), &process(member), &look(Some(fence), false, &[]), at(0));
    }
    assert!(agreement.may_vote(at(0)));
    agreement
}

fn asks(agreement: &Agreement, member: &str, run_id: &RunId, now: u64) -> Option<u64> {
    agreement.question(&name(member), run_id, at(now)).unwrap().1.map(|uses| uses.as_secs())
}

#[test]
fn a_quorum_without_external_members_shares_nothing() {
    let mut agreement = Agreement::new([]);
    agreement.set_claim(Some(claim(30)));
    assert!(agreement.may_vote(at(0)) && agreement.counts(&name("main-0"), &run("x"), at(0)));
    assert_eq!(agreement.sharing(at(0)), Sharing::NotShared);
}

#[test]
fn a_newcomer_claims_only_after_its_wait_and_votes_only_when_its_claim_stands_everywhere() {
    let mut agreement = agreement(30);
    for member in ["a", "b", "c"] {
        assert_eq!(asks(&agreement, member, &process(member), 0), None, "not admitted yet");
        agreement.saw(&name(member), &process(member), &look(None, false, &[]), at(0));
        agreement.admitted(&name(member), Some(process(member)));
    }
    assert_eq!(asks(&agreement, "a", &process("a"), 1), Some(30));
    assert_eq!(asks(&agreement, "a", &run("a2"), 1), None, "another process waits first");
    for member in ["a", "b", "a"] {
        assert!(!agreement.question(&name(member), &process(member), at(1)).unwrap().0.joined);
        agreement.saw(&name(member), &process(member), &look(Some(30), false, &[]), at(1));
    }
    assert_eq!(agreement.sharing(at(1)), Sharing::Joining(vec![name("c")]));
    assert!(!agreement.may_vote(at(1)) && agreement.settled(at(1)).is_none());
    assert!(agreement.saw(&name("c"), &process("c"), &look(Some(30), false, &[]), at(2)), "news");
    assert!(agreement.may_vote(at(2)));
    assert_eq!(agreement.settled(at(2)), Some(30 * SECOND));
    assert_eq!(agreement.sharing(at(2)), Sharing::Agreed(vec![]));
    assert!(!agreement.saw(&name("c"), &process("c"), &look(Some(30), true, &[]), at(3)), "no news");
    assert!(agreement.question(&name("c"), &process("c"), at(3)).unwrap().0.joined);
}

#[test]
fn nobody_claims_before_every_member_was_asked() {
    let mut agreement = agreement(30);
    agreement.admitted(&name("a"), Some(process("a")));
    assert_eq!(asks(&agreement, "a", &process("a"), 0), None);
    agreement.missed(&name("b"), "connection refused");
    agreement.missed(&name("c"), "connection refused");
    assert_eq!(asks(&agreement, "a", &process("a"), 0), Some(30));
    assert_eq!(agreement.trouble(&name("b")), Some("connection refused"));
}

#[test]
fn the_loss_of_a_member_does_not_stop_those_who_have_joined() {
    let mut agreement = joined(30);
    for second in 1..200 {
        for member in ["a", "b"] {
            agreement.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(second));
        }
    }
    assert!(agreement.may_vote(at(200)) && agreement.counts(&name("a"), &process("a"), at(200)));
    assert!(!agreement.counts(&name("c"), &process("c"), at(200)));
    assert_eq!(agreement.settled(at(200)), None, "nothing longer comes into force meanwhile");
    // Back with another process: it claims there at once, and its votes count only then.
    assert_eq!(asks(&agreement, "c", &run("c2"), 200), Some(30));
    agreement.admitted(&name("c"), Some(run("c2")));
    assert!(!agreement.counts(&name("c"), &run("c2"), at(200)));
    agreement.saw(&name("c"), &run("c2"), &look(Some(30), false, &[]), at(201));
    assert!(agreement.counts(&name("c"), &run("c2"), at(201)) && !agreement.counts(&name("c"), &process("c"), at(201)));
}

#[test]
fn votes_stop_counting_when_the_claim_is_not_renewed() {
    let agreement = joined(30);
    assert!(agreement.counts(&name("a"), &process("a"), at(5)));
    assert!(!agreement.counts(&name("a"), &process("a"), at(6)));
    assert!(agreement.may_vote(at(59)) && !agreement.may_vote(at(60)), "and then it may have lapsed");
}

#[test]
fn another_replica_goes_on_with_a_claim_that_stands() {
    let mut agreement = agreement(30);
    agreement.admitted(&name("a"), Some(process("a")));
    for member in ["b", "c"] {
        agreement.missed(&name(member), "connection refused");
    }
    agreement.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(0));
    assert!(!agreement.may_vote(at(0)), "one of three is nobody's word");
    agreement.admitted(&name("b"), Some(process("b")));
    assert!(agreement.saw(&name("b"), &process("b"), &look(Some(30), true, &[]), at(1)));
    assert!(agreement.may_vote(at(1)), "without c");
    let mut lapsed = self::agreement(30);
    lapsed.saw(&name("a"), &process("a"), &look(None, false, &[]), at(0));
    assert!(!lapsed.may_vote(at(0)));
}

#[test]
fn what_nothing_of_is_in_force_is_not_agreed_yet() {
    let mut agreement = agreement(30);
    agreement.set_claim(Some(Claim { used: SECOND, ..claim(30) }));
    for member in ["a", "b"] {
        agreement.admitted(&name(member), Some(process(member)));
        agreement.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(0));
    }
    assert!(agreement.may_vote(at(0)), "another replica has joined");
    assert_eq!(agreement.sharing(at(0)), Sharing::Joining(vec![name("c")]));
    agreement.saw(&name("c"), &process("c"), &look(Some(30), true, &[]), at(0));
    assert_eq!((agreement.sharing(at(0)), agreement.settled(at(0))), (Sharing::Agreed(vec![]), Some(30 * SECOND)));
}

#[test]
fn one_other_list_stops_everything_until_it_is_gone() {
    let mut agreement = joined(30);
    let theirs = other("a:1 b:1 d:1", 30, 30);
    assert!(agreement.saw(&name("b"), &process("b"), &look(None, true, std::slice::from_ref(&theirs)), at(1)));
    assert!(!agreement.may_vote(at(1)));
    assert!(
        matches!(agreement.sharing(at(1)), Sharing::Conflict(Conflict::List(other)) if other.name == "shop/theirs")
    );
    assert_eq!(asks(&agreement, "a", &process("a"), 1), None, "and nothing is written anywhere");
    // The process that held it has forgotten it, we have not.
    agreement.saw(&name("b"), &run("b2"), &look(None, false, &[]), at(2));
    assert!(!agreement.may_vote(at(60)));
    assert_eq!(asks(&agreement, "a", &process("a"), 60), None, "59 s after it was seen");
    // Ours was not renewed either.
    for (member, run_id) in [("a", process("a")), ("b", run("b2")), ("c", process("c"))] {
        assert_eq!(asks(&agreement, member, &process(member), 61), Some(30));
        agreement.saw(&name(member), &run_id, &look(Some(30), false, &[]), at(61));
    }
    assert!(agreement.may_vote(at(61)));
    // Withdrawn while its process lives.
    agreement.saw(&name("b"), &run("b2"), &look(None, false, std::slice::from_ref(&theirs)), at(62));
    assert!(!agreement.may_vote(at(62)));
    agreement.saw(&name("b"), &run("b2"), &look(None, false, &[]), at(63));
    assert!(agreement.may_vote(at(63)));
}

#[test]
fn a_fence_that_does_not_wait_for_what_somebody_uses_does_not_vote() {
    let mut agreement = joined(10);
    agreement.saw(&name("a"), &process("a"), &look(None, true, &[other(LIST, 30, 30)]), at(1));
    assert!(matches!(agreement.sharing(at(1)), Sharing::Conflict(Conflict::Longer(_))));
    // They may wait for more than they use.
    agreement.saw(&name("a"), &process("a"), &look(Some(10), true, &[other(LIST, 30, 10)]), at(2));
    assert!(agreement.may_vote(at(2)));
}

#[test]
fn a_longer_time_to_live_is_in_force_only_when_all_fences_wait_for_it_and_every_member_says_so() {
    let mut agreement = joined(10);
    let mut theirs = other(LIST, 10, 10);
    agreement.saw(&name("a"), &process("a"), &look(Some(10), true, std::slice::from_ref(&theirs)), at(1));
    agreement.set_claim(Some(claim(30)));
    assert_eq!(asks(&agreement, "a", &process("a"), 1), Some(10), "their fences wait for 10 s");
    assert_eq!(agreement.settled(at(1)), Some(10 * SECOND));
    theirs.fence = 30 * SECOND;
    agreement.saw(&name("a"), &process("a"), &look(Some(10), true, &[theirs]), at(2));
    assert_eq!(asks(&agreement, "b", &process("b"), 2), Some(30));
    for (member, settled) in [("a", 10), ("b", 10), ("c", 30)] {
        agreement.saw(&name(member), &process(member), &look(Some(30), true, &[]), at(3));
        assert_eq!(agreement.settled(at(3)), Some(settled * SECOND), "{member}");
    }
}

#[test]
fn a_changed_list_joins_anew() {
    let mut agreement = joined(30);
    agreement.set_claim(Some(Claim { generation: 2, ..claim(30) }));
    assert!(agreement.may_vote(at(1)));
    agreement.set_claim(Some(Claim { list: "a:1 b:1 d:1".into(), ..claim(30) }));
    assert!(!agreement.may_vote(at(1)));
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
    let mut agreement = joined(30);
    let both = format!("{NEXT}|{LIST}");
    let ahead = other(&both, 30, 30);
    agreement.saw(&name("a"), &process("a"), &look(Some(30), true, std::slice::from_ref(&ahead)), at(1));
    assert!(agreement.may_vote(at(1)));
    for (list, newest, phase) in [(LIST, false, 0), (&both, false, 1), (&both, true, 2), (NEXT, false, 3)] {
        agreement.set_claim(Some(changing(list, newest, phase)));
        assert!(agreement.may_vote(at(1)), "{list}");
    }
    let stranger = other(LIST, 30, 30);
    agreement.saw(&name("a"), &process("a"), &look(None, true, &[stranger]), at(2));
    assert!(matches!(agreement.sharing(at(2)), Sharing::Conflict(Conflict::List(_))));
}

#[test]
fn a_list_is_given_up_when_nobody_counts_it_alone_and_the_records_say_so() {
    let mut agreement = joined(30);
    let both = format!("{NEXT}|{LIST}");
    agreement.set_claim(Some(changing(&both, false, 1)));
    let told = |agreement: &Agreement, member: &str| agreement.is_told(&name(member), &process(member), at(2));
    assert!(!told(&agreement, "a"), "its record is of the epoch before");
    agreement.saw(&name("a"), &process("a"), &says(&both, false, &[other(LIST, 30, 30)]), at(1));
    assert!(told(&agreement, "a") && !agreement.is_told(&name("a"), &run("a2"), at(2)));
    let behind = |agreement: &Agreement| agreement.behind(at(2)).len();
    assert_eq!(behind(&agreement), 1);
    let back = OtherClaim { newest: true, ..other(&format!("{LIST}|{NEXT}"), 30, 30) };
    agreement.saw(&name("a"), &process("a"), &says(&both, false, &[back]), at(1));
    assert_eq!(behind(&agreement), 1, "it is about to give ours up");
    for theirs in [NEXT, &format!("{LIST}|{NEXT}"), &both] {
        agreement.saw(&name("a"), &process("a"), &says(&both, false, &[other(theirs, 30, 30)]), at(1));
        assert_eq!(behind(&agreement), 0, "{theirs}");
    }
    agreement.set_claim(Some(changing(&both, true, 2)));
    assert!(!told(&agreement, "a"));
    agreement.saw(&name("a"), &process("a"), &says(&both, true, &[]), at(2));
    assert!(told(&agreement, "a"));
}

#[test]
fn votes_count_where_the_record_tells_no_more_than_is_so() {
    let mut agreement = joined(30);
    let both = format!("{NEXT}|{LIST}");
    for (member, newest) in [("a", true), ("b", false)] {
        agreement.saw(&name(member), &process(member), &says(&both, newest, &[]), at(1));
    }
    let counts =
        |agreement: &Agreement| ["a", "b"].map(|member| agreement.counts(&name(member), &process(member), at(2)));
    agreement.set_claim(Some(changing(&both, true, 2)));
    assert_eq!(counts(&agreement), [true, true]);
    agreement.set_claim(Some(changing(NEXT, false, 3)));
    assert_eq!(counts(&agreement), [true, false], "others rely on the old list there");
}

#[test]
fn a_member_that_shall_vote_holds_our_claim_first_and_stops_nobody() {
    let mut agreement = joined(30);
    let lists = vec![["a", "b", "c"].map(name).to_vec()];
    let masters =
        |d| [("a", Role::Voter), ("b", Role::Voter), ("c", Role::Voter), ("d", d)].map(|(n, role)| (name(n), role));
    agreement.set_members(masters(Role::Learner), lists.clone());
    assert!(agreement.may_vote(at(1)) && agreement.counts(&name("a"), &process("a"), at(1)), "what is known is kept");
    let stranger = other("d:1 e:1 f:1", 30, 30);
    agreement.saw(&name("d"), &process("d"), &look(None, false, std::slice::from_ref(&stranger)), at(1));
    assert!(agreement.may_vote(at(1)));
    assert_eq!(agreement.refused_by(&name("d"), at(1)).map(|other| &other.list), Some(&stranger.list));
    assert!(!agreement.counts(&name("d"), &process("d"), at(1)));
    agreement.saw(&name("d"), &process("d"), &look(None, false, &[]), at(2));
    assert_eq!(asks(&agreement, "d", &process("d"), 2), None, "whoever was there before comes first");
    agreement.admitted(&name("d"), Some(process("d")));
    assert_eq!(asks(&agreement, "d", &process("d"), 2), Some(30));
    agreement.saw(&name("d"), &process("d"), &look(Some(30), false, &[]), at(2));
    assert!(agreement.counts(&name("d"), &process("d"), at(2)) && agreement.refused_by(&name("d"), at(2)).is_none());
    agreement.set_members(masters(Role::Leaver), lists);
    assert_eq!(agreement.question(&name("d"), &process("d"), at(3)), None, "our claim there runs out");
}

#[test]
fn our_own_members_become_external_ones() {
    let own = vec![["main-0", "main-1", "main-2"].map(name).to_vec()];
    let mut agreement = Agreement::new([]);
    agreement.set_claim(Some(claim(30)));
    let masters = |role| ["a", "b", "c"].map(|member| (name(member), role));
    agreement.set_members(masters(Role::Learner), own.clone());
    for member in ["a", "b", "c"] {
        assert!(agreement.may_vote(at(0)) && !agreement.is_shared());
        assert_eq!(asks(&agreement, member, &process(member), 0), None, "it has not waited");
        agreement.admitted(&name(member), Some(process(member)));
        agreement.saw(&name(member), &process(member), &look(Some(30), false, &[]), at(0));
    }
    agreement.set_members(masters(Role::Voter), [own, vec![["a", "b", "c"].map(name).to_vec()]].concat());
    assert!(agreement.is_shared() && agreement.may_vote(at(0)));
}

/// Of three members one cannot be reached for as long as a claim counts, and one has restarted.
///
/// What was said on these two is forgotten.
#[test]
fn who_sees_its_claim_on_no_majority_joins_anew() {
    let mut agreement = joined(30);
    // The last look at c counts for five seconds.
    for second in 1..70 {
        assert_eq!(agreement.may_vote(at(second)), second < 65, "{second}");
        agreement.saw(&name("a"), &process("a"), &look(Some(30), true, &[]), at(second));
        // Its process waits.
        agreement.saw(&name("b"), &run("b2"), &look(Some(30), false, &[]), at(second));
    }
    agreement.admitted(&name("b"), Some(run("b2")));
    agreement.saw(&name("b"), &run("b2"), &look(Some(30), false, &[]), at(70));
    assert!(!agreement.may_vote(at(70)));
    assert_eq!(agreement.sharing(at(70)), Sharing::Joining(vec![name("c")]));
}

#[test]
fn a_record_that_knows_a_later_epoch_is_told() {
    let mut agreement = joined(30);
    let later = RecordLook { epoch: 3, list: String::new(), ..look(None, false, &[]) };
    assert!(agreement.saw(&name("a"), &process("a"), &later, at(1)));
    assert!(agreement.trouble(&name("a")).unwrap().contains("epoch 3, here 1"));
    assert_eq!(agreement.epoch_at(&name("a"), &process("a")), Some(3));
    assert_eq!(agreement.epoch_at(&name("a"), &run("a2")), None);
    assert!(!agreement.counts(&name("a"), &process("a"), at(1)));
}
