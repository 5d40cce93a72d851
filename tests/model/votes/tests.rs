//! The configurations: all rules on, then each of them off.

use super::*;

fn base() -> Base {
    Base::new(3, 2)
}

fn three() -> Votes {
    Votes::new(base())
}

#[test]
fn with_all_rules_no_two_clients_hold_the_lock() {
    holds("exclusion, 3 members, ttl 2", three());
    holds("exclusion, 1 member, ttl 4", Votes::new(Base::new(1, 4)));
    if large() {
        holds("exclusion, 3 members, ttl 3", Votes::new(Base::new(3, 3)));
        holds("exclusion, 3 members, ttl 4", Votes::new(Base::new(3, 4)));
        holds("exclusion, 5 members, ttl 2", Votes::new(Base::new(5, 2)));
    }
}

#[test]
fn a_member_that_lost_its_data_votes_again() {
    holds("exclusion, 3 members, ttl 2, restarts remembered", Votes { track: true, ..three() });
}

#[test]
fn abandoned_requests_do_no_harm() {
    holds("exclusion, 3 members, ttl 2, abandoned requests", Votes { ghosts: true, ..three() });
    if large() {
        holds("exclusion, 3 members, ttl 3, abandoned requests", Votes { ghosts: true, ..Votes::new(Base::new(3, 3)) });
    }
}

#[test]
fn extensions_with_different_ttls_do_no_harm() {
    holds("exclusion, 3 members, ttl 2 and 1", Votes::new(Base { short_ttl: Some(1), ..base() }));
    if large() {
        holds("exclusion, 3 members, ttl 3 and 1", Votes::new(Base { short_ttl: Some(1), ..Base::new(3, 3) }));
    }
}

#[test]
fn unclosable_members_do_no_harm_to_clients_with_the_run_id() {
    let most_out = if large() { 3 } else { 1 };
    holds("exclusion, 3 members without closed users", Votes { external: true, most_out, ..three() });
}

#[test]
fn a_stepped_clock_does_no_harm_if_votes_have_the_time() {
    let most_out = if large() { 3 } else { 1 };
    holds("exclusion, clocks stepped, votes carry the time", Votes { clock_steps: true, most_out, ..three() });
}

#[test]
fn without_any_one_rule_two_clients_hold_the_lock() {
    let too_short = Delay::new(rejoin_ticks(2) - 1);
    each_violated([
        ("no fence", Votes { fence: false, ..three() }),
        ("the fence is one tick short", Votes::new(Base { delay: too_short, ..base() })),
        ("uptime is taken as evidence", Votes { first_observation: false, ..three() }),
        ("votes are not bound to run_id", Votes { external: true, bound_to_run_id: false, ..three() }),
        ("a repair counts as a vote", Votes { repair_uncounted: false, ..three() }),
        ("a repair replaces keys", Votes { repair_nx: false, ..three() }),
        ("extensions may shorten (no GT)", Votes::new(Base { extend_gt: false, short_ttl: Some(1), ..base() })),
        ("an extension counts after the validity ended", Votes::new(Base { continuity: false, ..base() })),
        ("attempts share a value", Votes { fresh_value: false, ..three() }),
        ("a stepped clock goes unnoticed", Votes { clock_steps: true, clock_watch: false, ..three() }),
    ]);
}
