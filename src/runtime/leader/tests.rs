mod world;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use self::world::{Replica, Server, millis};
use super::*;
use crate::time::{ClockOffset, TokioClock, UnixMicros};

const Q: &[(&str, bool)] = &[("ns/q", true)];
const NO_Q: &[(&str, bool)] = &[("ns/q", false)];

fn epoch(replica: &Replica) -> i64 {
    replica.term().unwrap().epoch
}

fn record(server: &Server) -> Value {
    let notes = server.lease()["metadata"]["annotations"][hand_over::ANNOTATION].clone();
    let record: Value = serde_json::from_str(notes.as_str().unwrap_or("{}")).unwrap();
    record["count"].clone()
}

/// Waits for a condition, and returns how long that took.
async fn until(what: impl Fn() -> bool, limit: Duration) -> Duration {
    let mut waited = Duration::ZERO;
    while !what() {
        assert!(waited < limit, "not within {limit:?}");
        sleep(millis(10)).await;
        waited += millis(10);
    }
    waited
}

/// Starts a replica with this reachability, and waits until it leads.
async fn leader(sees: &[(&str, bool)]) -> (Server, TokioClock, Replica) {
    let (server, clock) = (Server::default(), TokioClock::new());
    let a = Replica::start(&server, "a", clock, sees);
    until(|| a.leads(), millis(1_000)).await;
    (server, clock, a)
}

/// The leader `a` and another replica, both with a quorum that they reach.
async fn leader_and_another() -> (TokioClock, Replica, Replica) {
    let (server, clock, a) = leader(Q).await;
    let b = Replica::start(&server, "b", clock, Q);
    sleep(millis(6_000)).await;
    (clock, a, b)
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_before_the_next_one_despite_slow_answers() {
    for phase in 0..10 {
        let (server, clock) = (Server::default(), TokioClock::new());
        let a = Replica::start(&server, "a", clock, &[]);
        sleep(millis(5_000 + phase * 50)).await;
        let b = Replica::start(&server, "b", clock, &[]);
        sleep(millis(5_000)).await;
        assert!(a.leads() && !b.leads());
        // The answer to one renewal comes late, and then the connection is cut.
        a.slow(millis(900));
        sleep(millis(1_000)).await;
        a.cut(true);
        let mut both = 0;
        for _ in 0..1_000 {
            sleep(millis(10)).await;
            both += u32::from(a.leads() && b.leads());
        }
        assert_eq!((a.leads(), b.leads(), both), (false, true, 0), "phase {phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_keeps_its_term_beside_a_slow_api_server() {
    let (server, _clock, a) = leader(&[]).await;
    let before = a.term().unwrap();
    a.way.lock().unwrap().slow_requests = millis(600);
    sleep(millis(30_000)).await;
    assert!(!before.over.is_cancelled());
    // Another client edits the Lease. The next renewal reads it.
    a.way.lock().unwrap().slow_requests = millis(300);
    server.edit(|lease| lease.as_mut().unwrap()["metadata"]["labels"] = json!({"team": "a"}));
    sleep(millis(10_000)).await;
    assert!(!before.over.is_cancelled());
    assert_eq!(server.lease()["metadata"]["labels"]["team"], "a");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_reads_the_default_quorum_from_the_lease() {
    let (server, clock, a) = leader(&[]).await;
    assert_eq!(a.term().unwrap().recorded_default(), None);
    a.term().unwrap().record_default("ns/main".to_owned()).await;
    assert_eq!(server.lease()["metadata"]["annotations"]["redlock-operator.io/default-in-force"], "ns/main");
    let b = Replica::start(&server, "b", clock, &[]);
    a.shutdown.cancel();
    until(|| b.leads(), millis(2_000)).await;
    assert_eq!(b.term().unwrap().recorded_default(), Some("ns/main".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_and_released_in_between_begins_a_new_term() {
    let (server, _clock, a) = leader(&[]).await;
    for holder in [Value::Null, json!("a")] {
        let before = a.term().unwrap();
        server.edit(|lease| {
            let spec = &mut lease.as_mut().unwrap()["spec"];
            spec["holderIdentity"] = holder.clone();
            spec["leaseTransitions"] = json!(before.epoch + 3);
        });
        until(|| before.over.is_cancelled(), millis(1_500)).await;
        until(|| a.leads(), millis(1_000)).await;
        assert!(epoch(&a) > before.epoch + 3, "{holder}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_replica_leads_at_the_last_epoch_until_the_lease_is_lower() {
    let (server, clock) = (Server::default(), TokioClock::new());
    let (a, b) = (Replica::start(&server, "a", clock, &[]), Replica::start(&server, "b", clock, &[]));
    until(|| a.leads() || b.leads(), millis(2_000)).await;
    let first = if a.leads() { epoch(&a) } else { epoch(&b) };
    let set = |transitions: i32| {
        server.edit(|lease| lease.as_mut().unwrap()["spec"]["leaseTransitions"] = json!(transitions))
    };
    set(i32::MAX);
    until(|| !a.leads() && !b.leads() && (a.refuses() || b.refuses()), millis(5_000)).await;
    sleep(millis(10_000)).await;
    assert!(!a.leads() && !b.leads() && a.refuses() && b.refuses());
    assert_eq!(
        server.lease()["spec"]["leaseTransitions"],
        json!(i32::MAX),
        "no replica writes an epoch that was used before"
    );
    set(0);
    until(|| a.leads() || b.leads(), millis(5_000)).await;
    let leader = if a.leads() { &a } else { &b };
    assert!(epoch(leader) >= first && !leader.refuses());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_begins_a_new_term_with_a_higher_epoch() {
    let (server, _clock, a) = leader(&[]).await;
    // Simulate an earlier leader whose clock was ahead.
    let ahead = epoch(&a) + 5_000;
    server.edit(|lease| lease.as_mut().unwrap()["spec"]["leaseTransitions"] = json!(ahead));
    until(|| a.leads() && epoch(&a) > ahead, millis(3_000)).await;
    let before = a.term().unwrap();
    server.edit(|lease| *lease = None);
    until(|| before.over.is_cancelled() && a.leads(), millis(2_000)).await;
    assert!(epoch(&a) > before.epoch);
    assert_eq!(server.lease()["spec"]["leaseTransitions"], json!(epoch(&a)));
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_above_the_epoch_that_a_member_obeys() {
    let (_server, _clock, a) = leader(&[]).await;
    let before = a.term().unwrap();
    assert!(before.outdated(before.epoch + 3_600));
    until(|| before.over.is_cancelled() && a.leads(), millis(1_500)).await;
    assert!(epoch(&a) > before.epoch + 3_600);
    // The leader ignores an epoch that a user wrote by hand, because a higher one would use up all epochs.
    sleep(RAISE_PERIOD).await;
    let term = a.term().unwrap();
    assert!(term.outdated(i64::from(i32::MAX)));
    sleep(millis(20_000)).await;
    assert_eq!(a.term().unwrap().epoch, term.epoch);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_quorum_hands_over_to_a_better_replica() {
    let (server, clock, a) = leader(Q).await;
    let (b, c) = (Replica::start(&server, "b", clock, NO_Q), Replica::start(&server, "c", clock, Q));
    sleep(millis(10_000)).await;
    a.set_reachable(NO_Q);
    let waited = until(|| c.leads(), millis(6_000)).await;
    assert!(waited > reach::STEADY, "{waited:?}");
    assert!(!a.leads() && !b.leads());
    assert_eq!(record(&server), json!(1));
    sleep(millis(30_000)).await;
    assert!(c.leads(), "leadership stays there");
}

#[tokio::test(start_paused = true)]
async fn a_requested_hand_over_happens_at_once() {
    let (clock, a, b) = leader_and_another().await;
    let term = a.term().unwrap();
    assert!(term.request_hand_over("ns/q", clock.boottime()));
    let waited = until(|| b.leads(), millis(2_000)).await;
    assert!(waited <= millis(550), "{waited:?}");
    assert!(term.over.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn without_any_reachable_quorum_hand_overs_become_rarer() {
    let (_clock, a, b) = leader_and_another().await;
    a.set_reachable(NO_Q);
    b.set_reachable(NO_Q);
    let (mut terms, mut without, mut last) = (0, 0, None);
    for _ in 0..60_000 {
        sleep(millis(10)).await;
        let leading = a.term().or_else(|| b.term()).map(|term| term.epoch);
        without += u32::from(leading.is_none());
        terms += u32::from(leading.is_some() && leading != last);
        last = leading.or(last);
    }
    // The first leader, one after three seconds, and five after 10, 20, 40, 80 and 160 s.
    assert_eq!(terms, 7, "in ten minutes");
    assert!(without < 1_500, "{without}0 ms without a leader");
    // Only one replica reaches the members again.
    b.set_reachable(Q);
    until(|| b.leads(), millis(620_000)).await;
    sleep(millis(1_300_000)).await;
    assert!(b.leads() && !a.leads(), "the leadership stays there");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_cannot_hand_over_for_some_seconds() {
    let (clock, a, b) = leader_and_another().await;
    let term = a.term().unwrap();
    assert!(term.can_hand_over("ns/q", clock.boottime()));
    term.request_hand_over("ns/q", clock.boottime());
    until(|| b.leads(), millis(2_000)).await;
    assert!(!b.term().unwrap().can_hand_over("ns/q", clock.boottime()));
    sleep(millis(12_000)).await;
    assert!(b.term().unwrap().can_hand_over("ns/q", clock.boottime()));
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_is_gone_ends_no_term() {
    let (clock, a, b) = leader_and_another().await;
    a.set_reachable(&[]);
    let term = a.term().unwrap();
    sleep(millis(1_500)).await;
    term.request_hand_over("ns/q", clock.boottime());
    sleep(millis(2_500)).await;
    assert!(!term.can_hand_over("ns/q", clock.boottime()), "holds on that quorum are lost");
    sleep(millis(20_000)).await;
    assert!(!term.over.is_cancelled() && !b.leads());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_shuts_down_releases_the_lease() {
    let (server, clock, a) = leader(Q).await;
    let b = Replica::start(&server, "b", clock, NO_Q);
    sleep(millis(2_000)).await;
    a.shutdown.cancel();
    assert!(until(|| b.leads(), millis(2_000)).await <= millis(550));
}

#[test]
fn reads_of_the_lease_give_the_api_clock_to_milliseconds() {
    // The API server's clock runs 0.4 % slow, and shows 1,800,000,000.3 s when this machine boots.
    let shows = |at: Boottime| {
        let micros = i64::try_from(at.since_boot().as_micros()).unwrap();
        UnixMicros(1_800_000_000_300_000 + micros - micros / 250)
    };
    for period in [RENEW_PERIOD, RETRY_PERIOD] {
        let mut now = Boottime::default();
        let mut known: Option<ClockOffset> = None;
        for _look in 0..20 {
            let (sent, served, received) = (now, now + millis(3), now + millis(7));
            let date = UnixMicros(shows(served).0.div_euclid(1_000_000) * 1_000_000);
            let reading = ClockOffset::of_reading(date, Duration::from_secs(1), sent, received);
            let narrowed = known.map_or(reading, |known| known.narrowed_by(reading, 10_000)).aged(received, 10_000);
            now = received + until_next(period, narrowed.middle(received).floor());
            known = Some(narrowed);
        }
        let clock = known.unwrap().aged(now, 10_000);
        let (earliest, truth, latest) = (clock.earliest(now).0, shows(now).0, clock.latest(now).0);
        assert!(earliest <= truth && truth <= latest && latest - earliest < 60_000, "{earliest} {truth} {latest}");
    }
}
