use super::super::reach::Sight;
use super::*;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

fn at(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(seconds))
}

fn reach(quorums: &[(&str, bool)], since: Boottime) -> Reach {
    let sights = quorums.iter().map(|(quorum, is_reached)| Sight { quorum: (*quorum).into(), is_reached: *is_reached });
    let mut reach = Reach::default();
    reach.look(sights.collect(), since);
    reach
}

fn says(not: Option<&[&str]>, reaches: &[&str]) -> Standby {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Standby { not: not.map(names), reaches: names(reaches) }
}

fn notes(standbys: &[(&str, Standby)]) -> Notes {
    let standbys = standbys.iter().map(|(name, standby)| ((*name).to_owned(), standby.clone())).collect();
    Notes { standbys, ..Notes::default() }
}

fn prospect(notes: &Notes, reach: &Reach, urgent: bool) -> Prospect {
    let memory = Memory::default();
    Holder { notes, reach, memory: &memory, now: at(100), api_now: NOW }.prospect("ns/q", urgent)
}

#[test]
fn a_holder_that_reaches_nothing_hands_over_to_whoever_answers() {
    let lost = reach(&[("ns/q", false)], at(0));
    let to = |who: &str| Prospect::To(vec![who.to_owned()]);
    assert_eq!(prospect(&notes(&[]), &lost, true), Prospect::Unanswered);
    let silent = notes(&[("a", says(Some(&["ns/q"]), &[])), ("b", says(None, &[]))]);
    assert_eq!(prospect(&silent, &lost, true), Prospect::Unanswered, "nobody reaches it, so nobody is better");
    let before = notes(&[("a", says(Some(&["ns/q"]), &[])), ("b", says(Some(&[]), &[]))]);
    assert_eq!(prospect(&before, &lost, true), to("b"), "known before there was any trouble");
    assert_eq!(
        prospect(&before, &lost, false),
        Prospect::Unanswered,
        "perhaps it has not noticed that the quorum is down"
    );
    let answered = notes(&[("a", says(None, &["ns/q"])), ("b", says(Some(&[]), &[]))]);
    assert_eq!(prospect(&answered, &lost, false), to("a"));
}

#[test]
fn a_quorum_that_is_gone_is_no_reason() {
    let answered = notes(&[("a", says(Some(&[]), &["ns/q"]))]);
    let others = reach(&[("ns/another", true)], at(0));
    assert_eq!(prospect(&answered, &others, true), Prospect::Gone);
    let memory = Memory::default();
    let holder = Holder { notes: &answered, reach: &others, memory: &memory, now: at(100), api_now: NOW };
    assert!(holder.missing(["ns/q"].into_iter()).is_empty());
}

#[test]
fn the_first_hand_over_is_free_and_later_ones_are_rare_only_while_others_pay() {
    let pauses = |others_pay| [0, 1, 2, 3, 7, 8, 40].map(|count| pause(count, others_pay).as_secs());
    assert_eq!(pauses(true), [0, 10, 20, 40, 600, 600, 600]);
    assert_eq!(pauses(false), [0, 10, 10, 10, 10, 10, 10]);
}

#[test]
fn hand_overs_are_counted_through_all_terms_until_a_calm_time() {
    let alone = reach(&[("ns/q", false)], at(0));
    let among_others = reach(&[("ns/q", false), ("ns/another", true)], at(0));
    let answered = notes(&[("b", says(Some(&[]), &["ns/q"]))]);
    let mut notes = answered.handed_over("ns/q", vec!["b".into()], NOW);
    assert_eq!(notes.successors, ["b"]);
    notes = notes.for_new_term();
    assert_eq!((&notes.missing, &notes.successors, notes.standbys.len()), (&vec![], &vec![], 0));
    notes = notes.handed_over("ns/q", vec!["a".into()], NOW).for_new_term();
    notes.standbys.insert("b".into(), says(Some(&[]), &["ns/q"]));
    let mut memory = Memory::default();
    memory.look(&mut notes, at(100), NOW);
    let prospect =
        |reach, now, api_now| Holder { notes: &notes, reach, memory: &memory, now, api_now }.prospect("ns/q", true);
    assert_eq!(prospect(&alone, at(109), NOW), Prospect::TooSoon);
    assert_eq!(prospect(&alone, at(110), NOW), Prospect::To(vec!["b".into()]));
    assert_eq!(prospect(&among_others, at(119), NOW), Prospect::TooSoon, "others would pay for the third");
    assert_eq!(prospect(&among_others, at(120), NOW), Prospect::To(vec!["b".into()]));
    let later = UnixMillis(NOW.0 + 20_000);
    assert_eq!(
        prospect(&among_others, at(101), later),
        Prospect::To(vec!["b".into()]),
        "a replica that has just started"
    );
    memory.look(&mut notes, at(699), NOW);
    assert_eq!(notes.records["ns/q"].count, 2);
    memory.look(&mut notes, at(700), NOW);
    assert!(notes.records.is_empty(), "ten calm minutes");
}

#[test]
fn a_time_in_the_future_does_not_stop_hand_overs() {
    let mut notes = Notes::default().handed_over("ns/q", vec![], UnixMillis(NOW.0 + 86_400_000));
    let mut memory = Memory::default();
    memory.look(&mut notes, at(0), NOW);
    assert_eq!(memory.age("ns/q", at(30), NOW), Some(Duration::from_secs(30)));
}

#[test]
fn a_standby_says_what_it_does_not_reach_and_answers_at_once() {
    let mut notes = Notes::default();
    let reach = reach(&[("ns/q", true), ("ns/broken", false)], at(0));
    assert_eq!(notes.to_say("b", &reach, None, at(5)), Some(says(Some(&["ns/broken"]), &[])));
    notes.standbys.insert("b".into(), says(Some(&["ns/broken"]), &[]));
    assert_eq!(notes.to_say("b", &reach, None, at(9)), None, "nothing has changed");
    notes.missing = vec!["ns/q".into(), "ns/broken".into()];
    let answer = says(Some(&["ns/broken"]), &["ns/q"]);
    assert_eq!(notes.to_say("b", &reach, Some(at(9)), at(9)), Some(answer.clone()));
    notes.standbys.insert("b".into(), answer);
    assert_eq!(notes.to_say("b", &reach, Some(at(9)), at(9)), None);
}

#[test]
fn a_standby_whose_links_come_and_go_does_not_write_all_the_time() {
    let mut notes = Notes::default();
    notes.standbys.insert("b".into(), says(Some(&[]), &[]));
    let reach = reach(&[("ns/q", false)], at(10));
    assert_eq!(notes.to_say("b", &reach, Some(at(9)), at(10)), None);
    assert_eq!(notes.to_say("b", &reach, Some(at(9)), at(11)), Some(says(Some(&["ns/q"]), &[])));
}

#[test]
fn the_notes_stay_small_whatever_is_out_of_reach() {
    let name = |number: usize| format!("{:063}/{number:063}", 0);
    let many: Vec<_> = (0..1_000).map(|number| Sight { quorum: name(number), is_reached: false }).collect();
    let mut nothing = Reach::default();
    nothing.look(many, at(0));
    let mut notes = Notes::default();
    for standby in 0..50 {
        if let Some(says) = notes.to_say(&format!("{standby:063}"), &nothing, None, at(9)) {
            notes.standbys.insert(format!("{standby:063}"), says);
        }
    }
    assert_eq!(notes.standbys.values().next(), Some(&says(None, &[])), "too many to be listed");
    for number in 0..1_000 {
        notes = notes.handed_over(&name(number), vec!["b".into()], UnixMillis(NOW.0 + i64::try_from(number).unwrap()));
    }
    assert!(notes.records.contains_key(&name(999)), "the newest are kept");
    let memory = Memory::default();
    let holder = Holder { notes: &notes, reach: &nothing, memory: &memory, now: at(100), api_now: NOW };
    notes.missing = holder.missing(std::iter::empty());
    let full = Standby { not: Some((0..LISTED).map(name).collect()), reaches: notes.missing.clone() };
    notes.standbys.values_mut().for_each(|standby| *standby = full.clone());
    assert!(serde_json::to_string(&notes).unwrap().len() < 40_000);
}

#[test]
fn the_notes_stand_in_the_lease_and_what_cannot_be_read_says_nothing() {
    let mut lease = Lease::default();
    let notes = notes(&[("b", says(Some(&["ns/broken"]), &["ns/q"]))]).handed_over("ns/q", vec!["b".into()], NOW);
    notes.write_to(&mut lease);
    assert_eq!(Notes::of(&lease), notes);
    lease.annotations_mut().insert(ANNOTATION.into(), "{".into());
    assert_eq!(Notes::of(&lease), Notes::default());
    Notes::default().write_to(&mut lease);
    assert!(lease.annotations().is_empty());
}
