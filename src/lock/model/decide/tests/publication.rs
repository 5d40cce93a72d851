use super::*;

#[test]
fn a_renewal_is_published_if_the_next_would_be_too_late() {
    // The published validity ends in 7 s. The next renewal comes in 3 s, and a quarter of the 9 s must be left then.
    let lock = held_lock(json!({}));
    let early = keep(&lock, hold(WALL.0 + 1_749, 8_000));
    assert_eq!(early.status.renewed_at, lock.status.as_ref().unwrap().renewed_at);
    let rest = keep(&lock, hold(WALL.0 + 1_750, 8_000));
    assert_eq!(rest.status.renewed_at.unwrap().as_millis(), WALL.0 + 1_750);
    assert_eq!(rest.wake, Some(Duration::from_secs(8)), "it wakes at the end of the validity");
}

#[test]
fn with_a_lease_each_renewal_is_published_without_the_label() {
    let mut lock = held_lock(json!({}));
    (lock.spec.claim, lock.spec.election) = (None, Some(with_lease()));
    // An admission policy can refuse to set the label.
    let rest = keep(&lock, hold(WALL.0 - 1_999, 8_000));
    assert_eq!(rest.status.renewed_at.unwrap().as_millis(), WALL.0 - 1_999, "it is published although 7 s are left");
    assert_eq!(Correction::of(&lock).unwrap().fields, format!("label {LEASE_LABEL}"));
    lock.metadata.labels = Some([(LEASE_LABEL.to_owned(), "true".to_owned())].into());
    assert_eq!(Correction::of(&lock), None);
}

#[test]
fn the_published_validity_of_a_short_lock_never_runs_out() {
    // The ttl is 1 s. Each renewal, every 333 ms, must be published before the validity of the last one ends.
    let lock = held_lock(
        json!({"status": {"renewedAt": "2026-01-01T00:00:59.600Z", "validUntil": "2026-01-01T00:01:00.580Z"}}),
    );
    let renewed = |at: i64| {
        let mut hold = hold(WALL.0 + at, 900);
        (hold.terms.ttl, hold.terms.renew_interval) = (Duration::from_secs(1), Duration::from_millis(333));
        keep(&lock, hold).status.renewed_at.map(|at| at.as_millis() - WALL.0)
    };
    assert_eq!(renewed(-67), Some(-67));
    assert_eq!(renewed(-400), Some(-400), "the published renewal is unchanged");
}

#[test]
fn a_validity_is_published_by_the_earliest_clock_reading() {
    let lock = held_lock(json!({"spec": {"maxHold": "12s", "minHold": "11s"}}));
    let read = |clock| {
        let held = HoldInput { clock, ..held(Verdict::Keep, Some(hold(WALL.0 + 2_000, 8_900))) };
        let rest = kept(&LockInput { held: Some(held), ..input(&lock) });
        (rest.status.valid_until.unwrap().as_millis() - WALL.0, rest.publish_by.is_some(), rest.wake.unwrap())
    };
    let (published, millis) = (7_000, Duration::from_millis);
    assert_eq!(read(None), (published, false, millis(8_900)));
    // The lock has been held for 10 s.
    assert_eq!(read(Some(clock())), (8_900, true, millis(1_000)));
    let wide = ClockOffset::of_reading(UnixMicros((WALL.0 - 700) * 1_000), millis(1_000), NOW, NOW);
    assert_eq!(
        read(Some(wide)),
        (8_200, true, millis(1_700)),
        "minHold uses the lower bound, and maxHold the upper bound"
    );
}

#[test]
fn a_better_reading_of_the_clock_is_no_renewal() {
    let lock = held_lock(json!({"spec": {"ttl": "9s", "renewInterval": "4500ms"}}));
    let is_written = |better: i64| {
        let mut hold = hold(WALL.0 - 100, u64::try_from(7_000 + better).unwrap());
        hold.terms.renew_interval = Duration::from_millis(4_900);
        keep(&lock, hold).publish_by.is_some()
    };
    assert!(!is_written(450) && is_written(451));
}

#[test]
fn with_transitions_a_renewal_is_not_published() {
    let lock = held_lock(json!({"spec": {"validity": "Transitions"}}));
    let rest = keep(&lock, hold(WALL.0 - 1_000, 8_000));
    assert_eq!(rest.status.valid_until, lock.status.as_ref().unwrap().valid_until);
}

#[test]
fn nothing_is_published_before_a_round_of_this_replica() {
    let wrong = json!({"status": {"validUntil": "2026-01-01T01:00:00Z"}});
    for (spec, trouble) in [("Published", None), ("Transitions", None), ("Published", Some("silent"))] {
        let mut lock = held_lock(wrong.clone());
        lock.spec.validity = serde_json::from_value(json!(spec)).unwrap();
        let earned = hold(WALL.0 - 1_000, 9_000);
        let mut named = Hold::named(earned.terms.clone(), NOW, NOW);
        named.trouble = trouble.map(str::to_owned);
        assert_eq!(keep(&lock, named).status.valid_until, lock.status.as_ref().unwrap().valid_until);
        assert_eq!(keep(&lock, earned).status.valid_until.unwrap().as_millis(), WALL.0 + 9_000);
    }
}

#[test]
fn a_change_of_votes_is_written_with_the_next_write() {
    let lock = held_lock(json!({}));
    let votes = |renewed_after: i64| {
        let hold = Hold { votes: Some(Votes { yes: 2, of: 3 }), ..hold(WALL.0 + renewed_after, 8_000) };
        let rest = keep(&lock, hold);
        (rest.status.votes, rest.publish_by.is_some())
    };
    assert_eq!(votes(1_749), (Some("3/3".to_owned()), false));
    assert_eq!(votes(1_750), (Some("2/3".to_owned()), true), "votes are published with a renewal that is due");
}

#[test]
fn a_published_validity_that_no_renewal_earned_is_taken_back() {
    let lock = held_lock(json!({"status": {"validUntil": "2026-01-01T02:00:00.000Z"}}));
    let rest = keep(&lock, hold(WALL.0 - 2_000, 8_000));
    assert_eq!(rest.status.valid_until.unwrap().as_millis(), WALL.0 + 8_000);
}
