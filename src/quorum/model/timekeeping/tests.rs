use std::time::Duration;

use super::*;
use crate::time::{Boottime, UnixMicros};

mod histories;

const MS: i64 = 1_000;
const S: i64 = 1_000_000;
const HOUR: i64 = 3_600 * S;
const PPM: u32 = 10_000;

/// A clock that is known exactly, up to `error` in both directions.
fn offset(micros: i64, error: i64) -> ClockOffset {
    let received = Duration::from_micros(u64::try_from(2 * error).unwrap());
    ClockOffset::of_reading(
        UnixMicros(micros + error),
        Duration::ZERO,
        Boottime::default(),
        Boottime::default() + received,
    )
}

/// A process whose own clock is `ahead` of ours, with this recorded.
fn process(name: &str, ahead: i64, recorded: Option<i64>) -> Testimony {
    Testimony { run_id: RunId::new(name), reading: offset(ahead, 0), recorded, news: false }
}

/// Processes that tell these clocks, whatever their own clocks show.
fn telling(clocks: &[i64]) -> Vec<Testimony> {
    let own = |index: usize| i64::try_from(index).unwrap() * HOUR;
    clocks
        .iter()
        .enumerate()
        .map(|(index, clock)| process(&format!("p{index}"), own(index), Some(clock - own(index))))
        .collect()
}

fn clock(told: &[i64], known: Option<i64>, api: Option<i64>) -> Option<i64> {
    reckon(&telling(told), known, api)
}

#[test]
fn the_clock_is_the_median_of_what_the_processes_tell_whatever_their_own_clocks_show() {
    for (told, expected) in [
        (vec![5 * S], 5 * S),
        (vec![5 * S, 5 * S + 200 * MS], 5 * S + 100 * MS),
        (vec![5 * S + 2 * MS, 5 * S, 5 * S + MS], 5 * S + MS),
        (vec![HOUR, 5 * S, 5 * S + MS], 5 * S + MS),
        (vec![-HOUR, 5 * S, HOUR, 5 * S + 2 * MS], 5 * S + MS),
    ] {
        assert_eq!(clock(&told, None, None), Some(expected), "{told:?}");
    }
}

#[test]
fn it_is_carried_on_when_nobody_answers_and_unknown_until_then() {
    assert_eq!(clock(&[], None, Some(7 * S)), None);
    assert_eq!(clock(&[], Some(5 * S), Some(7 * S)), Some(5 * S));
    // An older version has recorded nothing of this one.
    let told = [process("p0", 0, None)];
    assert_eq!((reckon(&told, None, Some(S)), reckon(&told, Some(S), None)), (None, Some(S)));
}

#[test]
fn a_process_that_stands_alone_against_what_is_known_is_not_followed() {
    assert_eq!(clock(&[HOUR], Some(5 * S), Some(HOUR)), Some(5 * S), "stepped before this replica looked");
    assert_eq!(clock(&[5 * S + 300 * MS], Some(5 * S), None), Some(5 * S + 300 * MS));
    assert_eq!(clock(&[HOUR], None, Some(5 * S)), Some(5 * S), "nobody watched it");
    assert_eq!(clock(&[HOUR, HOUR], None, Some(5 * S)), Some(HOUR), "two were not stepped alike");
    // Unless a leader has said so meanwhile: all others have forgotten everything, or there are none.
    let told = telling(&[HOUR]).into_iter().map(|process| Testimony { news: true, ..process });
    assert_eq!(reckon(&told.collect::<Vec<_>>(), Some(5 * S), Some(5 * S)), Some(HOUR));
}

#[test]
fn of_two_that_contradict_each_other_the_one_counts_that_what_is_known_speaks_for() {
    assert_eq!(clock(&[HOUR, 5 * S], Some(6 * S), Some(HOUR)), Some(5 * S));
    assert_eq!(clock(&[HOUR, 5 * S], None, Some(6 * S)), Some(5 * S));
    assert_eq!(clock(&[HOUR, 5 * S], None, None), Some(5 * S), "the earlier one promises less");
}

fn recorded(told: &[Testimony], clock: Option<i64>, api: ClockOffset, passed: i64) -> Vec<(String, i64)> {
    corrections(told, clock, api, passed, PPM).into_iter().map(|(run_id, to)| (run_id.to_string(), to)).collect()
}

#[test]
fn a_process_without_a_record_gets_one_by_the_clock_that_is_known_and_else_by_the_api_servers() {
    let told = [process("old", 100 * S, None), process("p1", -HOUR, Some(HOUR + 5 * S))];
    assert_eq!(recorded(&told, Some(5 * S), offset(7 * S, 0), 0), [("old".to_owned(), -95 * S)]);
    let told = [process("a", 100 * S, None), process("b", 0, None)];
    assert_eq!(
        recorded(&told, None, offset(7 * S, 0), 0),
        [("a".to_owned(), -93 * S), ("b".to_owned(), 7 * S)],
        "after an upgrade"
    );
}

#[test]
fn a_process_that_strays_is_set_right_where_two_others_agree_or_nobody_else_answers() {
    assert_eq!(recorded(&telling(&[HOUR]), Some(5 * S), offset(5 * S, 0), 0), [("p0".to_owned(), 5 * S)]);
    let told = telling(&[HOUR, 5 * S, 5 * S + MS]);
    assert_eq!(recorded(&told, Some(5 * S + MS), offset(5 * S, 0), 0), [("p0".to_owned(), 5 * S + MS)]);
    assert!(recorded(&telling(&[HOUR, 5 * S]), Some(5 * S), offset(5 * S, 0), 0).is_empty());
}

#[test]
fn the_clock_follows_the_api_servers_slowly_and_in_one_write_for_all() {
    let told = telling(&[5 * S, 5 * S + 4 * MS, 5 * S - 30 * MS]);
    let (clock, later) = (Some(5 * S), offset(9 * S, 0));
    let second = 2 * S;
    assert!(recorded(&told, clock, later, second - 100).is_empty(), "1 % of it is less than one step");
    let by = |name: &str, was: i64, by: i64| (name.to_owned(), was + by);
    let moved = [
        by("p0", 5 * S, 20 * MS),
        by("p1", 5 * S + 4 * MS - HOUR, 20 * MS),
        by("p2", 5 * S - 30 * MS - 2 * HOUR, 20 * MS),
    ];
    assert_eq!(recorded(&told, clock, later, second), moved);
    assert_eq!(recorded(&told, clock, later, HOUR), moved, "no jump, however long nothing was moved");
    // Towards the API server's time, and no farther.
    let near = offset(5 * S + MS, 0);
    let moved =
        [by("p0", 5 * S, MS), by("p1", 5 * S + 4 * MS - HOUR, -3 * MS), by("p2", 5 * S - 30 * MS - 2 * HOUR, 20 * MS)];
    assert_eq!(recorded(&told, clock, near, second), moved);
    assert!(recorded(&telling(&[5 * S, 5 * S + 4 * MS]), clock, near, second).is_empty(), "near enough");
}

#[test]
fn a_process_that_strays_is_not_moved_while_it_is_not_settled_which_clock_is_wrong() {
    let moved = recorded(&telling(&[-24 * HOUR, 5 * S]), Some(5 * S), offset(9 * S, 0), 2 * S);
    assert_eq!(moved, [("p1".to_owned(), 5 * S - HOUR + 20 * MS)]);
}

#[test]
fn nothing_is_moved_by_what_is_not_known_exactly() {
    let told = telling(&[5 * S, 5 * S, 5 * S]);
    assert!(recorded(&told, Some(5 * S), offset(5 * S + 400 * MS, 500 * MS), HOUR).is_empty());
    let mut vague = told.clone();
    for process in &mut vague {
        process.reading = offset(process.reading.middle(), 100 * MS);
    }
    let api = offset(5 * S + 60 * MS, 0);
    assert!(recorded(&vague, Some(5 * S), api, HOUR).is_empty());
    assert_eq!(recorded(&told, Some(5 * S), api, HOUR).len(), 3);
}
