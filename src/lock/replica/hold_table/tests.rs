use serde_json::json;

use super::*;
use crate::api::HeldQuorum;
use crate::api::test_util::{lock, parsed};
use crate::lock::model::end::End;
use crate::lock::model::hold::Terms;
use crate::redlock::{Extend, LockKey, Votes};

fn at(millis: u64) -> Boottime {
    Boottime::new(Duration::from_millis(millis))
}

pub(in crate::lock::replica) fn hold(byte: u8, due: u64, valid_until: u64) -> Hold {
    let terms = Terms {
        lock: ObjectRef::new("lock").within("ns"),
        uid: "u".into(),
        quorum: HeldQuorum { namespace: "ns".into(), name: "main".into(), uid: "q".into() },
        key: LockKey::new("ns/key"),
        nonce: nonce(byte),
        ttl: Duration::from_secs(9),
        renew_interval: Duration::from_secs(3),
    };
    Hold::new(terms, at(valid_until), at(due))
}

fn renewed(started: u64, valid_until: u64) -> RenewalOutcome {
    let votes = Votes { yes: 3, of: 3 };
    let (missing, others) = (Vec::new(), Vec::new());
    round(Extend::Renewed { started: at(started), valid_until: at(valid_until), votes, missing, others })
}

fn round(round: Extend) -> RenewalOutcome {
    RenewalOutcome::Round(round)
}

fn silent() -> End {
    End::HeartbeatSilent { silent: Duration::from_secs(9).into() }
}

fn nonce(byte: u8) -> Nonce {
    Nonce::from_bytes([byte; 10])
}

/// A table with this hold.
fn table(hold: Hold, published: bool) -> Holds {
    let holds = Holds::default();
    holds.adopt(hold, published);
    holds
}

/// Renews the hold with nonce 1 at 3 s, if it is due. The renewal ends at `now`.
fn renew(holds: &Holds, outcome: RenewalOutcome, now: u64) {
    holds.take_due(at(3_000));
    holds.apply_outcome("u", &nonce(1), outcome, at(now));
}

#[test]
fn a_hold_is_taken_when_it_is_due_and_only_once() {
    let holds = table(hold(1, 3_000, 9_000), false);
    assert!(holds.take_due(at(2_900)).is_empty());
    assert_eq!(holds.take_due(at(2_996)).len(), 1, "within the batch window");
    assert!(holds.take_due(at(3_100)).is_empty(), "already in flight");
    assert_eq!(holds.next_due(), None, "a renewal in flight is not due");
}

#[test]
fn a_renewal_moves_validity_and_next_renewal_from_its_start() {
    let holds = table(hold(1, 3_000, 9_000).granted(Votes { yes: 3, of: 3 }, at(0)), false);
    renew(&holds, renewed(3_000, 11_800), 3_010);
    assert_eq!(holds.get("u", &nonce(1)).unwrap().valid_until, at(11_800));
    assert_eq!(holds.next_due(), Some(at(6_000)));
}

#[test]
fn the_first_round_gives_an_adopted_hold_its_validity() {
    let holds = table(Hold::named(hold(1, 3_000, 0).terms, at(3_000), at(3_000)), true);
    assert_eq!(holds.get("u", &nonce(1)).unwrap().valid_until, at(12_000));
    renew(&holds, renewed(3_000, 11_800), 3_010);
    assert_eq!(holds.get("u", &nonce(1)).unwrap().valid_until, at(11_800));
}

#[test]
fn a_round_without_a_majority_is_repeated_and_keeps_validity() {
    let holds = table(hold(1, 3_000, 9_000), false);
    renew(&holds, round(Extend::NoQuorum { failures: vec![] }), 3_050);
    let hold = holds.get("u", &nonce(1)).unwrap();
    assert!(hold.is_valid(at(8_999)));
    assert!(hold.trouble.is_some_and(|trouble| trouble.contains("neither a yes nor a refusal")));
    assert_eq!(holds.next_due(), Some(at(3_300)));
}

#[test]
fn a_replica_continues_its_hold_when_the_members_answer_again() {
    let holds = table(hold(1, 3_000, 9_000), true);
    renew(&holds, round(Extend::NoQuorum { failures: vec![] }), 9_050);
    assert!(!holds.get("u", &nonce(1)).unwrap().is_valid(at(9_050)));
    assert_eq!(holds.next_due(), Some(at(12_050)), "no validity is left, so the retry comes after the interval");
    assert_eq!(holds.take_due(at(12_050)).len(), 1);
    holds.apply_outcome("u", &nonce(1), renewed(12_050, 21_000), at(12_060));
    assert!(holds.get("u", &nonce(1)).unwrap().is_valid(at(20_999)));
}

/// The renewing task sleeps until the next renewal is due.
///
/// While the only hold is being renewed, no renewal is due. Its end must therefore wake the task.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_renewal_wakes_the_task_that_renews() {
    let holds = Holds::default();
    let is_woken = async || tokio::time::timeout(BATCH_WINDOW * 2, holds.changed()).await.is_ok();
    let renew = async |from: u64| {
        assert_eq!(holds.take_due(at(from)).len(), 1);
        assert_eq!(holds.next_due(), None);
        assert!(!is_woken().await);
    };
    holds.adopt(hold(1, 3_000, 9_000), true);
    assert!(is_woken().await);
    renew(3_000).await;
    holds.apply_outcome("u", &nonce(1), renewed(3_000, 12_000), at(3_010));
    assert!(is_woken().await);
    renew(6_000).await;
    holds.apply_outcome("u", &nonce(1), RenewalOutcome::Postponed(at(6_100)), at(6_000));
    assert!(is_woken().await);
    renew(6_100).await;
    holds.apply_outcome("u", &nonce(1), RenewalOutcome::Unhealthy(silent()), at(6_200));
    assert!(is_woken().await);
}

/// The task reads the whole table each time. With 20,000 holds and a wake for each change, a new leader needs 40 s.
#[tokio::test(start_paused = true)]
async fn changes_in_quick_succession_wake_the_task_once() {
    let holds = Holds::default();
    let mut wakes = 0;
    let woken = async {
        loop {
            holds.changed().await;
            wakes += 1;
        }
    };
    let changed = async {
        for number in 0..100 {
            holds.adopt(hold(number, 3_000, 9_000), true);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = woken => {}
        () = changed => {}
    }
    assert!((1..=5).contains(&wakes), "{wakes} wakes");
}

#[test]
fn a_round_that_was_answered_too_late_is_repeated() {
    let holds = table(hold(1, 3_000, 9_000), true);
    renew(&holds, round(Extend::TooLate), 12_100);
    assert_eq!(holds.take_due(at(15_100)).len(), 1);
}

#[test]
fn adopting_a_published_hold_keeps_the_newer_validity() {
    let holds = table(hold(1, 3_000, 9_000), false);
    renew(&holds, renewed(3_000, 11_800), 3_010);
    holds.adopt(hold(1, 3_000, 9_000), true);
    let hold = holds.get("u", &nonce(1)).unwrap();
    assert_eq!((hold.valid_until, hold.published), (at(11_800), true));
}

#[test]
fn a_hold_that_a_majority_refused_is_not_adopted_again() {
    let holds = table(hold(1, 3_000, 9_000), true);
    holds.apply_outcome("u", &nonce(1), round(Extend::Refused { refusals: 2 }), at(3_010));
    holds.adopt(hold(1, 12_000, 15_000), true);
    assert!(holds.get("u", &nonce(1)).unwrap().refused);
    assert!(holds.take_due(at(12_000)).is_empty());
}

#[test]
fn a_grant_being_published_survives_a_cache_that_lags() {
    let holds = table(hold(1, 3_000, 9_000), false);
    holds.forget_ended("u", Some(8));
    assert!(holds.get("u", &nonce(1)).is_some());
    holds.forget_unwritten();
    assert!(holds.get("u", &nonce(1)).is_none());
}

#[test]
fn a_written_grant_outlives_the_term_until_a_newer_version() {
    let holds = table(hold(1, 3_000, 9_000), false);
    holds.written("u", &nonce(1), &Arc::new(parsed(json!({"metadata": {"resourceVersion": "9"}, "spec": {}}))));
    holds.forget_unwritten();
    holds.forget_ended("u", Some(8));
    assert!(holds.get("u", &nonce(1)).is_some(), "the watch reports a version from before the grant");
    holds.forget_ended("u", Some(10));
    assert!(holds.get("u", &nonce(1)).is_none());
}

#[test]
fn a_failed_holder_is_checked_again_with_the_next_renewal() {
    let holds = table(hold(1, 3_000, 9_000), true);
    renew(&holds, RenewalOutcome::Unhealthy(silent()), 3_300);
    assert_eq!(holds.next_due(), Some(at(6_300)));
    assert_eq!(holds.take_due(at(6_300)).len(), 1);
    holds.checked("u", &nonce(1), None);
    assert_eq!(holds.get("u", &nonce(1)).unwrap().unhealthy_since(at(0)), None);
}

#[test]
fn a_new_leader_ignores_failed_checks_from_before_its_term() {
    let holds = table(hold(1, 3_000, 9_000), true);
    holds.apply_outcome("u", &nonce(1), RenewalOutcome::Unhealthy(silent()), at(3_300));
    let hold = holds.get("u", &nonce(1)).unwrap();
    assert_eq!(hold.unhealthy_since(at(3_300)), Some(&silent()));
    assert_eq!(hold.unhealthy_since(at(3_301)), None);
}

#[test]
fn a_check_that_is_due_before_the_next_renewal_hastens_it() {
    let holds = table(hold(1, 3_000, 9_000).granted(Votes { yes: 3, of: 3 }, at(0)), true);
    let renew = |from, check_by| {
        assert_eq!(holds.take_due(at(from)).len(), 1);
        holds.checked("u", &nonce(1), check_by);
        holds.apply_outcome("u", &nonce(1), renewed(from, from + 9_000), at(from + 10));
        holds.next_due()
    };
    assert_eq!(renew(3_000, Some(at(5_500))), Some(at(5_500)));
    assert_eq!(renew(5_500, Some(at(9_000))), Some(at(8_500)), "the interval ends first");
    assert_eq!(renew(8_500, None), Some(at(11_500)), "the time of an earlier check does not apply");
}

#[test]
fn a_renewal_without_all_votes_is_due_when_a_member_votes_again() {
    let next_due = |yes, quorum: &str, is_under_way| {
        let holds = table(hold(1, 3_000, 9_000).granted(Votes { yes, of: 3 }, at(0)), true);
        if is_under_way {
            holds.take_due(at(3_000));
            holds.hasten(quorum, at(3_005));
            holds.apply_outcome("u", &nonce(1), renewed(3_000, 11_800), at(3_010));
        } else {
            holds.hasten(quorum, at(1_000));
        }
        holds.next_due()
    };
    assert_eq!(next_due(2, "q", false), Some(at(1_000)));
    assert_eq!(next_due(3, "q", false), Some(at(3_000)), "no member lacks its key");
    assert_eq!(next_due(2, "other", false), Some(at(3_000)));
    assert_eq!(next_due(2, "q", true), Some(at(3_005)), "the member possibly missed the round that was under way");
}

/// A lock whose status names the hold with this nonce.
fn naming(byte: u8) -> DistributedLock {
    let holder = json!({"identity": "a", "nonce": nonce(byte).to_string()});
    lock(json!({"key": "key"}), json!({"transitions": 1, "holder": holder}))
}

#[test]
fn a_refusal_of_an_earlier_hold_does_not_end_the_present_one() {
    let holds = table(hold(1, 3_000, 9_000), true);
    holds.apply_outcome("u", &nonce(1), round(Extend::Refused { refusals: 2 }), at(3_010));
    assert!(holds.of(&naming(1)).unwrap().refused);
    assert_eq!(holds.of(&naming(2)), None);
    holds.adopt(hold(2, 12_000, 15_000), true);
    holds.apply_outcome("u", &nonce(1), round(Extend::Refused { refusals: 2 }), at(12_010));
    assert!(!holds.of(&naming(2)).unwrap().refused, "the watch omitted the first one's end and reported the next hold");
    assert_eq!(holds.of(&naming(1)), None);
}

#[test]
fn votes_are_valid_until_a_restarted_member_could_vote_again() {
    let holds = table(hold(1, 3_000, 9_000), true);
    let votes = |now| holds.get("u", &nonce(1)).unwrap().votes_of(at(now));
    assert_eq!(votes(1_000), None, "another replica renewed it");
    renew(&holds, renewed(3_000, 11_800), 3_010);
    assert_eq!(votes(11_999), Some(Votes { yes: 3, of: 3 }));
    assert_eq!(votes(12_000), None, "the processes that voted have possibly ended");
}

#[test]
fn renewals_that_began_together_are_spread_over_the_interval() {
    let dues = |prepare: fn(&Holds, u8)| {
        let due = |byte| {
            let holds = table(hold(byte, 3_000, 9_000), true);
            prepare(&holds, byte);
            holds.apply_outcome("u", &nonce(byte), renewed(6_000, 14_800), at(6_010));
            holds.next_due().unwrap()
        };
        [0, 63, 127, 191, 255].map(due)
    };
    let spread = [6_011.719, 6_750.0, 7_500.0, 8_250.0, 9_000.0]
        .map(|due| Boottime::new(Duration::from_secs_f64(due / 1_000.0)));
    let apart = |dues: [Boottime; 5]| {
        dues.iter()
            .zip(spread)
            .all(|(due, wanted)| due.since(wanted).max(wanted.since(*due)) < Duration::from_millis(1))
    };
    assert!(apart(dues(|_, _| ())), "a replica that starts renews all holds at once");
    let renewed_before =
        |holds: &Holds, byte| holds.apply_outcome("u", &nonce(byte), renewed(3_000, 11_800), at(3_010));
    assert_eq!(dues(renewed_before), [at(9_000); 5]);
    let silent_before = |holds: &Holds, byte| {
        holds.apply_outcome("u", &nonce(byte), renewed(3_000, 11_800), at(3_010));
        holds.apply_outcome("u", &nonce(byte), round(Extend::NoQuorum { failures: vec![] }), at(5_900));
    };
    assert!(apart(dues(silent_before)), "it renews all holds at once when the members answer again");
    let hastened_before = |holds: &Holds, byte| {
        let votes = Votes { yes: 2, of: 3 };
        let (started, valid_until, missing, others) = (at(3_000), at(11_800), Vec::new(), Vec::new());
        let incomplete = Extend::Renewed { started, valid_until, votes, missing, others };
        holds.apply_outcome("u", &nonce(byte), round(incomplete), at(3_010));
        holds.hasten("q", at(5_990));
    };
    assert!(apart(dues(hastened_before)), "it renews all holds at once when a member votes again");
}
