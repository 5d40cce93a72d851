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
fn without_any_one_rule_tokens_fall() {
    let unchecked = Tokens { checks_value: false, same_set: false, ..without_restarts(2) };
    let few = Tokens { rule: Rule::MajorityThLargest, ..without_restarts(2) };
    let refused = Tokens { refused_count_for_nothing: false, ..without_restarts(2) };
    let fenced = Tokens { reads_admitted: false, restarts: 2, ..counters_only() };
    each_violated([
        ("tokens are not written back", Tokens { write_back: false, others: 2, ..three() }),
        ("a write-back does not check the value", unchecked),
        ("the token is the majority-th largest of any votes", few),
        ("the number of a refused SET counts as stored", refused),
        ("a number is taken before its SET", Tokens { counts_behind_set: false, ..without_restarts(0) }),
        ("votes count after their keys have ended", Tokens { deadline: false, ..without_restarts(0) }),
        ("the leader levels by plain SET", Tokens { level_raises: false, levels: 2, ..without_restarts(1) }),
        ("counters are not restored", Tokens { restore: false, ..three() }),
        ("counters are restored before the wait", Tokens { restore_late: false, ..counters_only() }),
        ("the floor is read before the wait", Tokens { restore_late: false, needed: 9, ..three() }),
        ("counters are restored from N - majority others", Tokens { needed: 1, ..counters_only() }),
        ("counters are restored from fenced members", fenced),
    ]);
}
