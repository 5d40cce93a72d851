use redlock_api::test_util::parsed;
use serde_json::json;

use super::*;
use crate::cluster::objects::fake::{condition, held, lock, now, quorum, waiting};
use crate::output::{Answer as _, Paint};

fn found(states: [&str; 3]) -> QuorumState {
    QuorumState::Found(Box::new(quorum(states)))
}

fn explained(meant: &[LockObject], others: &[LockObject], quorum: &QuorumState) -> Explanation {
    explain("shop/reindex", meant, others, quorum, now())
}

fn link<'a>(explanation: &'a Explanation, about: &str) -> &'a Link {
    explanation.links.iter().find(|link| link.about == about).unwrap_or_else(|| panic!("no {about}: {explanation:#?}"))
}

#[test]
fn the_explanation_of_a_held_lock_names_holder_and_queue() {
    let all = [held("a"), waiting("b", "Queued", "a has the key", Some(1)), waiting("c", "Queued", "far back", None)];
    let held = explained(&all, &[], &found(["Admitted"; 3]));
    assert!(held.held);
    assert_eq!(held.summary, "shop/reindex is held by \"a\" with token 42, at least until 12:00:08 UTC (in 8.2s).");
    assert_eq!(
        link(&held, "quorum").lines,
        ["RedisQuorum redlock-system/main: 3 of 3 members vote, and 2 are needed."]
    );
    assert_eq!(
        link(&held, "queue").lines,
        ["2 locks wait for the key.", "1. dlock/b (\"b\", priority 0)", "Without a place: dlock/c (Queued)."]
    );
    assert!(held.links.iter().all(|link| link.state == State::Fine));
    assert_eq!(held.to_do(), None);
}

#[test]
fn the_explanation_of_a_waiting_claim_names_the_holder() {
    let waits = explained(&[waiting("b", "Queued", "a has the key", Some(1))], &[held("a")], &found(["Admitted"; 3]));
    assert!(!waits.held);
    assert_eq!(waits.summary, "shop/reindex is not held by dlock/b: \"a\" has the key.");
    let claim = link(&waits, "claim");
    assert_eq!(
        claim.lines,
        [
            "dlock/b is not held (Queued): a has the key.",
            "Automatic: the lock gets its turn.",
            "\"a\" has the key by dlock/a since 11:59:00 UTC (60s ago). It is renewed, now until 12:00:08 UTC (in 8.2s)."
        ]
    );
    assert_eq!((claim.state, waits.to_do()), (State::Waits, Some("Wait, or set a higher priority.")));
}

#[test]
fn a_quorum_without_a_majority_names_members_that_are_out() {
    let lock = waiting("b", "NoQuorum", "no majority answered", Some(1));
    let stuck = explained(&[lock], &[], &found(["Admitted", "Unreachable", "Fenced"]));
    assert_eq!(
        link(&stuck, "quorum").lines,
        [
            "RedisQuorum redlock-system/main: 1 of 3 members votes, and 2 are needed.",
            "Member main-1 is Unreachable: does not answer.",
            "Member main-2 is Fenced (Restarted) and votes from 12:00:12 UTC (in 12s).",
            "The operator reports: main-2 votes from 12:00:12."
        ]
    );
    assert_eq!(link(&stuck, "quorum").state, State::Waits);
    assert_eq!(stuck.summary, "shop/reindex is not held: no majority of the members answered in time.");
    // One member without a vote does not stop a lock.
    let one_out = explained(&[held("a")], &[], &found(["Admitted", "Admitted", "Fenced"]));
    assert_eq!(link(&one_out, "quorum").state, State::Fine);
    assert_eq!(link(&one_out, "quorum").lines.len(), 2);
}

#[test]
fn reasons_that_stop_come_before_reasons_that_wait() {
    let mut lock = waiting("b", "NotAccepted", "see Accepted", None);
    lock.status.conditions[0] = condition("Accepted", "False", "TTLTooLong", "ttl 1h is longer than maxTTL 30s.");
    assert_eq!(lock.reason(), "TTLTooLong");
    let refused = explained(&[lock], &[], &found(["Admitted", "Admitted", "Fenced"]));
    assert_eq!(
        link(&refused, "accepted").lines,
        ["The operator cannot serve the lock (TTLTooLong): ttl 1h is longer than maxTTL 30s."]
    );
    assert_eq!(refused.to_do(), Some("Set a shorter ttl or lockDelay."));
    let summary = "shop/reindex is not held: ttl, or ttl with lockDelay, is longer than the quorum's maxTTL.";
    assert_eq!(refused.summary, summary);
}

#[test]
fn a_held_lock_that_is_served_with_a_fault_names_it() {
    let refused = condition("Accepted", "True", "LabelRefused", "labels of pods are final");
    let unhealthy = condition("Ready", "False", "HolderUnhealthy", "each of the last 3 holds");
    for (fault, step) in [(refused, "policy"), (unhealthy, "")] {
        let expected = format!("The operator serves the lock with a fault ({}): {}.", fault.reason, fault.message);
        let mut lock = held("b");
        lock.status.conditions.retain(|condition| condition.type_ != fault.type_);
        lock.status.conditions.push(fault);
        assert!(lock_row::is_troubled(&lock, now()), "redlock doctor names it: {expected}");
        let explained = explained(&[lock], &[], &found(["Admitted"; 3]));
        assert_eq!(link(&explained, "accepted").lines[0], expected);
        assert!(explained.to_do().unwrap_or_default().contains(step), "{explained:#?}");
    }
}

#[test]
fn the_explanation_names_a_lock_that_is_not_reconciled_yet() {
    let new = explained(&[lock("b", "{spec: {key: reindex}}")], &[], &QuorumState::Unknown);
    assert_eq!(link(&new, "operator").lines, ["The operator has not reconciled DistributedLock b yet."]);
    assert_eq!(link(&new, "quorum").state, State::Unknown);
    assert!(new.to_do().is_some_and(|text| text.contains("redlock doctor")));
    let mut changed = held("a");
    changed.metadata.generation = Some(2);
    let changed = explained(&[changed], &[], &QuorumState::Hidden("x/y".into()));
    assert!(link(&changed, "operator").lines[0].contains("newest version"));
    assert_eq!(link(&changed, "quorum").lines[0], "You cannot read RedisQuorum x/y.");
}

#[test]
fn a_quorum_that_does_not_exist_or_is_new_stops_the_lock() {
    let lock = || waiting("b", "NotAccepted", "x", None);
    let absent = explained(&[lock()], &[], &QuorumState::Absent("shop/q".into()));
    let of_quorum_link = link(&absent, "quorum");
    assert_eq!((of_quorum_link.state, absent.to_do()), (State::Stops, of_quorum_link.to_do.as_deref()));
    let unmarked = explained(&[lock()], &[], &QuorumState::Defaults(Vec::new()));
    assert!(link(&unmarked, "quorum").lines[0].contains("none is marked as the default"));
    let two = explained(&[lock()], &[], &QuorumState::Defaults(vec!["a/q".into(), "b/q".into()]));
    assert!(link(&two, "quorum").lines[0].ends_with("These are marked as a default: a/q and b/q."));
    let mut new = quorum(["Starting"; 3]);
    new.status = crate::cluster::objects::QuorumObjectStatus::default();
    let new = of_quorum(&new, now());
    assert_eq!(new.lines, ["RedisQuorum redlock-system/main has no members yet: the operator has not reconciled it."]);
}

#[test]
fn the_explanation_names_when_an_ending_lock_is_free() {
    let mut ending = held("a");
    ending.status.ending = parsed(json!({"since": "2026-01-01T12:00:00.000Z", "reason": "SteppedDown",
        "until": "2026-01-01T12:00:08.000Z", "message": "asked."}));
    let ending = explained(&[ending], &[], &found(["Admitted"; 3]));
    let lines = &link(&ending, "holder").lines;
    assert_eq!(lines[1], "The operator no longer renews it (SteppedDown): asked.");
    assert_eq!(lines[2], "The lock is free at 12:00:08 UTC (in 8.0s) at the latest.");
    let ended = explained(&[], &[], &QuorumState::Unknown);
    assert_eq!(ended.summary, "shop/reindex is not held: every claim on it has ended.");
}

#[test]
fn a_validity_that_is_not_renewed_points_at_the_operator() {
    let mut stale = held("a");
    stale.status.valid_until = "2026-01-01T11:59:00.000Z".parse().ok();
    let stale = explained(&[stale], &[], &found(["Admitted"; 3]));
    assert_eq!(stale.summary, "shop/reindex is held by \"a\" with token 42.");
    assert_eq!(link(&stale, "holder").state, State::Stops);
    assert!(stale.to_do().is_some_and(|text| text.contains("redlock doctor")));
}

#[test]
fn the_explanation_of_a_finished_lock_begins_with_its_end() {
    let finished = |name: &str, reason: &str, message: &str| {
        let mut lock = lock(name, "{spec: {key: reindex}, status: {observedGeneration: 1}}");
        lock.status.conditions = vec![condition("Finished", "True", reason, message)];
        lock
    };
    let third = finished("third", "WaitTimeout", "waited for 1m");
    let ended = explain("dlock/third", &[third], &[held("a")], &found(["Admitted"; 3]), now());
    assert_eq!(ended.summary, "dlock/third ended with reason WaitTimeout. \"a\" has the key now.");
    assert_eq!(ended.links[0].lines, ["dlock/third ended at 11:00:00 UTC (60m00s ago) (WaitTimeout): waited for 1m."]);
    assert_eq!(ended.to_do(), Some("Create another claim."));
    let both = [finished("x", "Broken", "ann broke it"), finished("y", "Released", "")];
    let broken = explained(&both, &[], &QuorumState::Unknown);
    assert_eq!(broken.summary, "shop/reindex is not held: every claim on it has ended.");
    assert!(broken.links[0].lines[0].contains("(Broken): ann broke it."), "{broken:#?}");
    assert!(broken.to_do().is_some());
    let released = explained(&[finished("y", "Released", "")], &[held("a")], &found(["Admitted"; 3]));
    assert_eq!((released.links[0].state, released.to_do()), (State::Fine, None));
    // The explanation of a key is about the waiting claim, not about the ended one.
    let both = [waiting("b", "Queued", "a has it", Some(1)), finished("x", "Broken", "")];
    let waits = explained(&both, &[], &found(["Admitted"; 3]));
    assert!(waits.links.iter().all(|link| link.about != "end"), "{waits:#?}");
}

#[test]
fn a_lock_that_min_hold_keeps_has_its_message() {
    let message = "The holder's container has terminated. minHold keeps the lock until 12:05, and the operator frees it then. To free it now: \
         redlock break --force";
    let mut kept = held("a");
    kept.status.conditions[1].message = message.into();
    let kept = explained(&[kept], &[], &found(["Admitted"; 3]));
    assert_eq!(link(&kept, "holder").lines.last(), Some(&format!("{message}.")));
    assert!(kept.text(Paint::PLAIN, false).ends_with("redlock break --force.\n"), "{kept:#?}");
    let usual = explained(&[held("a")], &[], &found(["Admitted"; 3]));
    assert!(usual.text(Paint::PLAIN, false).ends_with("\nThere is nothing to do.\n"), "{usual:#?}");
}
