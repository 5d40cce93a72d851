use super::*;
use crate::time::timers_now;

const MOMENT: Duration = Duration::from_millis(1);
/// The first ticket of this client, and one of another client.
const OWN: i64 = 2;
const OTHER: i64 = 14;

fn waiters() -> (Instant, Waiters) {
    let now = timers_now();
    (now, Waiters::new(now))
}

#[test]
fn a_majority_confirms_a_release_and_its_sender_ignores_it() {
    let (now, mut waiters) = waiters();
    let notify = |waiters: &mut Waiters, number| {
        waiters.on_message(Message::Released(number), 2, now).then(|| waiters.take_hint())
    };
    assert_eq!(notify(&mut waiters, 7), None, "no caller waits");
    waiters.subscribe(1);
    for number in [15, 17, 0, 0, 19] {
        assert_eq!(notify(&mut waiters, number), Some(Some(Hint::RetrySoon)), "{number}");
        assert_eq!(notify(&mut waiters, number), Some(Some(Hint::Retry)), "{number}");
        if number > 1 {
            assert_eq!(notify(&mut waiters, number), None, "a third member delivers the same message");
        }
    }
    let own = waiters.release(ANNOUNCE_INTERVAL, 9, now).unwrap();
    assert!((0..5).all(|_| !waiters.on_message(own, 2, now)));
    assert!((0..5).any(|_| waiters.on_message(Message::Released(21), 1, now)), "with one member");
    assert_eq!(waiters.take_hint(), Some(Hint::Retry));
}

#[test]
fn an_own_release_is_a_hint_for_the_own_caller() {
    let (now, mut waiters) = waiters();
    waiters.release(MOMENT, 1, now);
    assert_eq!(waiters.take_hint(), None, "no caller waits");
    waiters.subscribe(1);
    assert!(waiters.release(MOMENT, 1, now).is_some());
    assert_eq!(waiters.take_hint(), Some(Hint::Retry));
    waiters.set_listeners(0);
    assert!(waiters.release(MOMENT, 1, now).is_none());
    assert_eq!(waiters.take_hint(), Some(Hint::Retry), "also without an announcement");
    waiters.on_message(Message::Waiting(OTHER), 1, now);
    assert_eq!(waiters.release(MOMENT, 1, now), Some(Message::Next(OTHER)));
    assert_eq!(waiters.take_hint(), Some(Hint::OtherFirst), "another client has waited too");
}

#[test]
fn a_release_is_announced_where_other_clients_can_wait() {
    let (now, mut waiters) = waiters();
    let is_announced = |waiters: &mut Waiters, held_for, at| waiters.release(held_for, 1, at).is_some();
    assert!(!is_announced(&mut waiters, MOMENT, now), "it is perhaps the only client");
    assert!(is_announced(&mut waiters, ANNOUNCE_INTERVAL, now), "another client has perhaps begun to wait since");
    assert!(!is_announced(&mut waiters, MOMENT, now));
    assert!(
        is_announced(&mut waiters, MOMENT, now + ANNOUNCE_INTERVAL),
        "so a client that is never refused hears of others"
    );
    waiters.set_listeners(1);
    assert!(is_announced(&mut waiters, MOMENT, now + ANNOUNCE_INTERVAL));
    waiters.set_listeners(0);
    assert!(!is_announced(&mut waiters, MOMENT, now + ANNOUNCE_INTERVAL));
}

#[test]
fn waiters_go_in_the_order_of_their_announcements() {
    let (now, mut holder) = waiters();
    for ticket in [OTHER, 20, OTHER, 16] {
        assert!(!holder.on_message(Message::Waiting(ticket), 1, now));
    }
    let mut next = |at| holder.release(MOMENT, 1, at).unwrap();
    assert_eq!((next(now), next(now)), (Message::Next(OTHER), Message::Next(20)));
    assert_eq!(next(now + LINGER), Message::released(1), "a waiter without announcements has left");
    // Waiting clients have the same order.
    let mut one = Waiters::new(now);
    one.subscribe(1);
    let mut wait = |at| one.announce_wait(7, at);
    assert_eq!((wait(now), wait(now)), (Some(Message::Waiting(OWN)), None), "once per interval");
    assert!(wait(now + ANNOUNCE_AGAIN).is_some());
    one.on_message(Message::Waiting(OWN), 1, now);
    one.on_message(Message::Waiting(OTHER), 1, now);
    assert!(one.on_message(Message::Next(OTHER), 1, now));
    assert_eq!(one.take_hint(), Some(Hint::OtherFirst));
    one.on_message(Message::Waiting(OTHER), 1, now);
    assert!(one.on_message(Message::Next(OWN), 1, now));
    assert_eq!(one.take_hint(), Some(Hint::Retry));
    assert_eq!(one.announce_wait(7, now), Some(Message::Waiting(OTHER)), "its attempt failed, so it waits again");
    assert!(one.on_message(Message::Next(OTHER), 1, now));
    assert_eq!(one.unsubscribe(now), None, "all clients have its release");
    assert_eq!(one.release(MOMENT, 1, now), Some(Message::released(1)), "a late message does not restore a waiter");
}

#[test]
fn a_departed_waiter_is_not_next() {
    let (now, mut departed) = waiters();
    departed.subscribe(1);
    assert_eq!(departed.unsubscribe(now), None, "no client has its announcement");
    departed.subscribe(1);
    let waits = departed.announce_wait(7, now).unwrap();
    let (mut holder, departure) = (Waiters::new(now), departed.unsubscribe(now).unwrap());
    for message in [Message::Waiting(OTHER), waits, departure, waits] {
        holder.on_message(message, 1, now);
    }
    let next = [(); 2].map(|()| holder.release(ANNOUNCE_INTERVAL, 9, now).unwrap());
    assert_eq!(next, [Message::Next(OTHER), Message::released(9)]);
    for number in 0..1_000 {
        holder.on_message(Message::Departed(number), 1, now);
    }
    assert_eq!(holder.departed.len(), MAX_DEPARTED);
}

#[test]
fn a_client_lets_waiters_go_first_after_its_release() {
    let (now, mut waiters) = waiters();
    waiters.release(MOMENT, 1, now);
    assert!(!waiters.yields(), "no client waits");
    waiters.on_message(Message::Waiting(OTHER), 1, now);
    waiters.release(MOMENT, 1, now);
    assert!(waiters.yields() && !waiters.yields(), "once for each release");
    waiters.release(MOMENT, 1, now);
    waiters.on_message(Message::Released(9), 1, now);
    assert!(!waiters.yields(), "another client has had the key since");
}

#[test]
fn a_subscriber_without_announcements_goes_first_rarely() {
    let (now, mut waiters) = waiters();
    waiters.set_listeners(1);
    assert!(waiters.release(MOMENT, 1, now).is_some() && waiters.yields());
    waiters.on_unused_yield();
    assert!(waiters.release(MOMENT, 1, now).is_none() && !waiters.yields());
    assert!(waiters.release(MOMENT, 1, now + ANNOUNCE_INTERVAL).is_some(), "it is announced again");
    waiters.on_message(Message::Waiting(OTHER), 1, now);
    waiters.on_unused_yield();
    assert!(waiters.release(MOMENT, 1, now).is_some() && !waiters.queue.iter().any(|(ticket, _)| *ticket == OTHER));
    waiters.subscribe(1);
    waiters.on_unused_yield();
    waiters.announce_wait(1, now);
    waiters.release(MOMENT, 1, now);
    assert!(waiters.yields(), "it was refused, so another client has the key");
}

#[test]
fn a_queue_has_an_end() {
    let (now, mut waiters) = waiters();
    for ticket in 1..2_000 {
        waiters.on_message(Message::Waiting(2 * ticket), 1, now);
    }
    assert_eq!(waiters.queue.len(), MAX_QUEUE);
    assert!(!waiters.is_used(now + LINGER) && !waiters.has_subscriber);
}
