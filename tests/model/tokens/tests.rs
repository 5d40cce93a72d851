//! The configurations.

use super::*;

fn three() -> Tokens {
    Tokens::new(3)
}

/// Uses only counters, because the floor would hide their errors.
fn counters_only() -> Tokens {
    Tokens { floor: false, ..three() }
}

/// Has no restarts, and this number of other keys that take a number.
fn without_restarts(others: u8) -> Tokens {
    Tokens { restarts: 0, others, ..three() }
}

#[test]
fn with_all_rules_tokens_rise() {
    holds("tokens, 3 members, 1 restart", three());
    holds("tokens, 3 members, levelled", Tokens { levels: 2, ..without_restarts(1) });
    holds("tokens, 3 members, 2 restarts, counters only", Tokens { restarts: 2, others: 0, ..counters_only() });
    holds(
        "tokens, 3 members, 3 restarts, floor only",
        Tokens { restarts: 3, others: 0, most_counter: 3, needed: 9, ..three() },
    );
    if large() {
        holds("tokens, 3 members, 2 restarts, counters to 5", Tokens { restarts: 2, most_counter: 5, ..three() });
        holds("tokens, 5 members, 1 restart, counters only", Tokens { floor: false, others: 0, ..Tokens::new(5) });
    }
}

#[test]
fn without_a_write_back() {
    violated("tokens are not written back", Tokens { write_back: false, others: 2, ..three() });
}

#[test]
fn with_a_write_back_that_does_not_check_the_value() {
    violated(
        "a write-back does not check the value",
        Tokens { checks_value: false, same_set: false, ..without_restarts(2) },
    );
}

#[test]
fn with_the_majority_th_largest_of_any_votes() {
    violated(
        "the token is the majority-th largest of any votes",
        Tokens { rule: Rule::MajorityThLargest, ..without_restarts(2) },
    );
}

#[test]
fn with_a_refused_number_that_counts_as_stored() {
    violated(
        "the number of a refused SET counts as stored",
        Tokens { refused_count_for_nothing: false, ..without_restarts(2) },
    );
}

#[test]
fn with_a_number_taken_before_its_set() {
    violated("a number is taken before its SET", Tokens { counts_behind_set: false, ..without_restarts(0) });
}

#[test]
fn with_votes_decided_on_after_their_keys_have_ended() {
    violated("votes count after their keys have ended", Tokens { deadline: false, ..without_restarts(0) });
}

#[test]
fn with_a_leader_that_levels_by_plain_set() {
    violated("the leader levels by plain SET", Tokens { level_raises: false, levels: 2, ..without_restarts(1) });
}

#[test]
fn without_a_restored_counter() {
    violated("counters are not restored", Tokens { restore: false, ..three() });
}

#[test]
fn with_a_counter_restored_before_the_wait() {
    violated("counters are restored before the wait", Tokens { restore_late: false, ..counters_only() });
}

#[test]
fn with_a_floor_read_before_the_wait() {
    violated("the floor is read before the wait", Tokens { restore_late: false, needed: 9, ..three() });
}

#[test]
fn with_a_counter_restored_from_too_few() {
    violated("counters are restored from N - majority others", Tokens { needed: 1, ..counters_only() });
}

#[test]
fn with_a_counter_restored_from_fenced_members() {
    violated(
        "counters are restored from fenced members",
        Tokens { reads_admitted: false, restarts: 2, ..counters_only() },
    );
}
