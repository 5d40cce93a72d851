use super::*;

fn at(millis: u64) -> Boottime {
    Boottime::new(Duration::from_millis(millis))
}

fn hold(token: i64, until: u64) -> Hold {
    Hold::new(token, "pod-a".into(), true, at(until), Duration::from_millis(200))
}

fn leads(book: &mut Book, now: u64) -> Option<(i64, Boottime)> {
    match book.word(Who::Served, at(now)) {
        Word::Leads { token, deadline, .. } => Some((token, deadline)),
        _ => None,
    }
}

fn no(book: &mut Book, who: Who, now: u64) -> No {
    match book.word(who, at(now)) {
        Word::DoesNot { no, .. } => no,
        word => panic!("{word:?}"),
    }
}

#[test]
fn nothing_is_known_before_the_first_answer() {
    assert!(matches!(Book::new().word(Who::Served, at(0)), Word::Unknown { .. }));
    assert_eq!(Book::new().name(at(0)), None);
}

#[test]
fn the_instance_leads_until_the_deadline_and_not_beyond_it() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert_eq!(leads(&mut book, 2_799), Some((7, at(2_800))));
    assert!(matches!(book.word(Who::Served, at(2_800)), Word::Unknown { .. }));
    assert_eq!(book.name(at(2_800)), None, "nobody is named whose validity has passed");
}

#[test]
fn a_hold_whose_deadline_has_passed_once_does_not_come_back() {
    let mut asked = Book::new();
    asked.learns_hold(&hold(7, 3_000), at(0));
    assert_eq!(leads(&mut asked, 2_900), None);
    // This one was not asked in between, and the renewal is late.
    let mut silent = Book::new();
    silent.learns_hold(&hold(7, 3_000), at(0));
    for mut book in [asked, silent] {
        book.learns_hold(&hold(7, 6_000), at(2_950));
        assert_eq!(leads(&mut book, 2_960), None);
        book.learns_hold(&hold(8, 6_000), at(2_970));
        assert_eq!(leads(&mut book, 2_980), Some((8, at(5_800))));
    }
}

#[test]
fn a_renewal_extends_the_deadline_and_an_earlier_one_does_not_shorten_it() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    book.learns_hold(&hold(7, 5_000), at(1_000));
    book.learns_hold(&hold(7, 4_000), at(1_100));
    assert_eq!(leads(&mut book, 1_200), Some((7, at(4_800))));
}

#[test]
fn an_instance_is_not_told_of_a_token_from_before_its_registration() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert!(leads(&mut book, 1).is_some());
    book.register(false);
    assert_eq!(no(&mut book, Who::Served, 2), No::HeldBefore);
    assert_eq!(book.name(at(2)), None, "nor by the name");
    book.learns_hold(&hold(7, 9_000), at(3));
    assert_eq!(no(&mut book, Who::Served, 4), No::HeldBefore, "a renewal changes nothing");
    book.learns_hold(&hold(8, 9_000), at(5));
    assert_eq!(leads(&mut book, 6), Some((8, at(8_800))));
    assert_eq!(no(&mut book, Who::Other, 6), No::NotServed);
    assert_eq!(no(&mut book, Who::Unnamed, 6), No::NotRegistered);
}

#[test]
fn what_was_granted_before_the_registration_and_is_heard_of_later_does_not_count() {
    let mut book = Book::new();
    book.register(true);
    assert!(matches!(book.word(Who::Served, at(0)), Word::Unknown { .. }));
    book.learns_hold(&hold(7, 3_000), at(0));
    assert!(matches!(book.word(Who::Served, at(1)), Word::Unknown { .. }), "it may be either's");
    assert_eq!(book.releasable(at(1)), None, "it may yet be this instance's");
    book.has_read();
    assert_eq!(no(&mut book, Who::Served, 1), No::HeldBefore);
    assert_eq!(book.releasable(at(1)), Some(7));
    // A late event about a hold that is older still.
    book.learns_hold(&hold(6, 9_000), at(1));
    assert_eq!(no(&mut book, Who::Served, 2), No::HeldBefore);
    book.learns_hold(&hold(8, 9_000), at(3));
    assert!(leads(&mut book, 4).is_some());
    // What was known is certainly not the next one's, read or not.
    book.register(true);
    assert_eq!(no(&mut book, Who::Served, 5), No::HeldBefore);
}

#[test]
fn a_hold_is_relied_on_until_the_last_promise_has_passed() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert!(book.is_out_of_use(at(0)), "nobody was told yet");
    assert!(leads(&mut book, 10).is_some());
    book.register(false);
    book.learns_hold(&hold(7, 5_000), at(20));
    assert_eq!(leads(&mut book, 30), None);
    assert!(!book.serves(at(30)) && !book.is_out_of_use(at(2_799)));
    assert!(book.is_out_of_use(at(2_800)), "the renewal was not told");
    assert_eq!((book.releasable(at(2_799)), book.releasable(at(2_800))), (None, Some(7)));
}

#[test]
fn a_hold_that_is_given_back_is_not_told_again() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert!(leads(&mut book, 10).is_some());
    assert!(!book.gives_back(6, at(20)), "another token");
    assert!(book.gives_back(7, at(20)));
    book.learns_hold(&hold(7, 6_000), at(30));
    assert_eq!(no(&mut book, Who::Served, 40), No::NotHeld);
    assert_eq!(book.releasable(at(40)), Some(7), "the application said that it has stopped");
    book.is_released(7);
    assert_eq!(book.releasable(at(50)), None);
}

#[test]
fn a_name_is_a_promise_too() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert_eq!(book.name(at(1)).as_deref(), Some("pod-a"));
    assert!(!book.is_out_of_use(at(2_799)));
}

#[test]
fn another_leader_is_named_and_the_instance_does_not_lead() {
    let mut book = Book::new();
    let other = Hold::new(7, "pod-b".into(), false, at(3_000), Duration::ZERO);
    book.learns_hold(&other, at(0));
    assert_eq!(no(&mut book, Who::Served, 1), No::HeldByOther);
    assert_eq!(book.name(at(1)).as_deref(), Some("pod-b"));
    book.register(false);
    assert_eq!(book.name(at(1)).as_deref(), Some("pod-b"), "this is no instance's of this pod");
    assert!(book.is_out_of_use(at(1)), "who leads elsewhere hears it elsewhere");
    assert_eq!(book.name(at(3_000)), None);
    let renewed = Hold::new(7, "pod-b".into(), false, at(5_000), Duration::ZERO);
    book.learns_hold(&renewed, at(3_500));
    assert_eq!(book.name(at(3_600)).as_deref(), Some("pod-b"), "a late word about another pod is true again");
}

#[test]
fn a_lost_hold_is_lost_at_once() {
    let mut book = Book::new();
    book.learns_hold(&hold(7, 3_000), at(0));
    assert!(leads(&mut book, 1).is_some());
    let before = book.sequence();
    book.learns_not_held("by alice (Broken)");
    assert!(book.sequence() > before);
    assert_eq!(no(&mut book, Who::Served, 2), No::NotHeld);
    assert!(!book.is_out_of_use(at(2)), "the promise stands");
    book.learns_hold(&hold(7, 9_000), at(3));
    assert_eq!(no(&mut book, Who::Served, 4), No::NotHeld, "a late word does not bring it back");
}
