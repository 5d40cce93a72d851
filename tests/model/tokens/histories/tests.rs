//! The configurations.

use super::*;

const OPERATED: &[Who] = &[Who::Operator, Who::Direct];
const ALONE: &[Who] = &[Who::Library];

#[test]
fn tokens_rise_at_full_speed_and_after_the_loss_of_all_members() {
    holds("tokens at full speed, with an operator", Histories::of(OPERATED));
    holds("tokens at full speed, without an operator", Histories::of(ALONE));
}

#[test]
fn without_an_operator_tokens_rise_while_enough_members_live() {
    let behind =
        Histories { clock_behind: 3 * 3_600 * SECOND, alive: NEEDED, answering: NEEDED, ..Histories::of(ALONE) };
    holds("without an operator, a clock three hours behind", behind.clone());
    holds("without an operator, a clock three hours behind, old snapshots", Histories { snapshots: true, ..behind });
}

#[test]
fn without_an_operator_a_majority_and_a_near_clock_suffice() {
    let behind = Histories { clock_behind: 1_800 * SECOND, ..Histories::of(ALONE) };
    holds("without an operator, a clock half an hour behind", behind.clone());
    holds("without an operator, a clock half an hour behind, old snapshots", Histories { snapshots: true, ..behind });
}

/// Few grants, so that only a restore makes counters differ.
fn slow() -> Histories {
    Histories { rate: 10, denies: true, alive: 1, ..Histories::of(OPERATED) }
}

#[test]
fn a_client_with_only_incr_is_denied_no_token_after_a_restore() {
    holds("clients that only INCR, levelled", slow());
}

#[test]
fn without_any_one_rule_tokens_fall_over_days() {
    const HOURS: i64 = 3 * 3_600 * SECOND;
    let alone = || Histories { clock_behind: HOURS, alive: NEEDED, ..Histories::of(ALONE) };
    let low_floor = Histories { clock_behind: HOURS, levels: false, ..Histories::of(OPERATED) };
    each_violated([
        ("a floor below the tokens of clients", low_floor),
        ("two million grants a second", Histories { rate: 2 * SECOND, ..Histories::of(ALONE) }),
        ("without an operator, too few counters and a clock three hours behind", alone()),
        ("a client restores by its own clock alone", Histories { reads: false, ..alone() }),
        ("nobody levels", Histories { levels: false, ..slow() }),
    ]);
}
