//! One lock as a row of a table, and as a value for programs.

use serde_json::{Value, json};

use crate::cluster::objects::LockObject;
use crate::output::format::{between, millis, span};
use crate::output::{Cell, Tone};
use kube::ResourceExt as _;
use redlock_api::conditions::{HeldReason, LockCondition};
use redlock_api::{LockHolder, MilliTime};

/// Reasons of a wait that ends automatically.
const WAITING: [&str; 8] =
    ["Queued", "HeldByOther", "LockDelay", "Pending", "NoCandidate", "Ending", "SteppedDown", "Suspended"];
/// Reasons of a requested end.
const ENDED: [&str; 1] = ["Released"];

/// The titles of a table of locks.
#[must_use]
pub fn titles(wide: bool) -> Vec<&'static str> {
    let mut titles = vec!["LOCK", "OBJECT", "HOLDER", "STATUS", "VALID", "TOKEN", "VOTES", "QUEUE"];
    if wide {
        titles.extend(["KIND", "NODE", "QUORUM", "TRANSITIONS", "AGE"]);
    }
    titles
}

/// The cells of one lock.
#[must_use]
pub fn cells(lock: &LockObject, now: MilliTime, wide: bool) -> Vec<Cell> {
    let status = &lock.status;
    let text = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
    let mut cells = vec![
        lock.lock().into(),
        lock.name_any().into(),
        holder(lock).into(),
        Cell::toned(tone(lock), state(lock)),
        validity(lock, now).into(),
        text(status.fencing_token.filter(|_| lock.is_held())).into(),
        status.votes.clone().filter(|_| lock.is_held()).unwrap_or_default().into(),
        text(status.queue_position.filter(|position| *position > 0).map(i64::from)).into(),
    ];
    if wide {
        let node = status.holder.as_ref().and_then(|holder| holder.node_name.clone()).unwrap_or_default();
        let quorum = lock.quorum().map_or("(default)".to_owned(), |(namespace, name)| format!("{namespace}/{name}"));
        let age = lock.created().map(|created| span(between(created, now))).unwrap_or_default();
        let transitions = status.transitions.to_string();
        let wider = [lock.kind_of_lock().to_owned(), node, quorum, transitions, age];
        cells.extend(wider.into_iter().map(Cell::from));
    }
    cells
}

fn holder(lock: &LockObject) -> String {
    lock.status.holder.as_ref().map(|holder| holder.identity.clone()).unwrap_or_default()
}

/// The reason of the condition Held, or `Ending`, with `,Deleting` if the object is being deleted.
#[must_use]
pub fn state(lock: &LockObject) -> String {
    let reason = if lock.is_held() && lock.status.ending.is_some() { "Ending" } else { lock.reason() };
    if lock.metadata.deletion_timestamp.is_some() { format!("{reason},Deleting") } else { reason.to_owned() }
}

/// The tone of the state.
#[must_use]
pub fn tone(lock: &LockObject) -> Tone {
    let reason = lock.reason();
    match reason {
        _ if lock.is_held() && lock.status.ending.is_none() => Tone::Good,
        _ if lock.is_held() || WAITING.contains(&reason) => Tone::Waiting,
        _ if ENDED.contains(&reason) => Tone::Dim,
        _ => Tone::Bad,
    }
}

/// An election without a candidate is in trouble after this number of ttls.
const TTLS_WITHOUT_CANDIDATE: i64 = 3;

/// Whether the lock needs attention.
///
/// The lock needs attention in each of these cases:
///
/// - Its reason does not end automatically.
/// - For three ttls it has had no candidate, or no accepted write.
/// - The operator serves it with a fault.
#[must_use]
pub fn is_troubled(lock: &LockObject, now: MilliTime) -> bool {
    let ttl = millis(lock.spec.ttl.get());
    let lasts = |type_: LockCondition, reason: HeldReason| {
        lock.condition(type_).is_some_and(|condition| {
            let since = MilliTime::from(condition.last_transition_time.0);
            condition.reason == reason.as_str() && between(since, now) > ttl.saturating_mul(TTLS_WITHOUT_CANDIDATE)
        })
    };
    let is_orphaned = lasts(LockCondition::Held, HeldReason::NoCandidate);
    let is_orphaned = is_orphaned || lasts(LockCondition::Ready, HeldReason::Pending);
    !lock.is_finished() && (tone(lock) == Tone::Bad || is_orphaned || lock.fault().is_some())
}

/// The remaining validity.
fn validity(lock: &LockObject, now: MilliTime) -> String {
    match lock.valid_until() {
        Some(until) => span(between(now, until).max(0)),
        None if lock.is_held() && lock.status.ending.is_none() => "renewed".into(),
        None => String::new(),
    }
}

/// The lock as a value for programs.
#[must_use]
pub fn value(lock: &LockObject, now: MilliTime) -> Value {
    let status = &lock.status;
    let held = lock.condition(LockCondition::Held);
    let valid_for = lock.valid_until().map(|until| between(now, until).max(0));
    let quorum = lock.quorum().map(|(namespace, name)| json!({"namespace": namespace, "name": name}));
    without_nulls(json!({
        "lock": lock.lock(), "namespace": lock.namespace(), "name": lock.name_any(), "key": lock.key(),
        "kind": lock.kind_of_lock(), "quorum": quorum, "held": lock.is_held(), "finished": lock.is_finished(),
        "reason": lock.reason(), "message": held.map(|held| &held.message),
        "holder": status.holder.as_ref().map(holder_value),
        "fencingToken": status.fencing_token.filter(|_| lock.is_held()),
        "votes": status.votes.as_ref().filter(|_| lock.is_held()),
        "acquiredAt": status.acquired_at.filter(|_| lock.is_held()),
        "validUntil": lock.valid_until(), "validForMs": valid_for, "ending": status.ending,
        "queuePosition": status.queue_position, "transitions": status.transitions,
        "createdAt": lock.created(), "deleting": lock.metadata.deletion_timestamp.is_some(),
    }))
}

/// The fields of a holder in the output for programs.
fn holder_value(holder: &LockHolder) -> Value {
    without_nulls(json!({
        "identity": holder.identity, "podName": holder.pod_name, "jobName": holder.job_name, "podUID": holder.pod_uid,
        "containerID": holder.container_id, "nodeName": holder.node_name, "jobUID": holder.job_uid,
    }))
}

/// The object without its fields that have no value.
fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, field| !field.is_null());
    }
    object
}

/// Sorts locks: first holders, then the queue in its order, then ended locks.
pub fn sort(locks: &mut [LockObject]) {
    locks.sort_by_cached_key(|lock| {
        let place = lock.status.queue_position.unwrap_or(i32::MAX);
        let turn = (!lock.is_held(), lock.is_finished(), place, std::cmp::Reverse(lock.spec.priority), lock.created());
        (lock.namespace(), lock.key(), turn, lock.name_any())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, now, waiting};
    use crate::output::{Paint, Table};

    #[test]
    fn a_row_has_the_holder_the_validity_and_the_queue_position() {
        let mut table = Table::new(titles(false));
        let mut locks = [waiting("b", "Queued", "waits", Some(1)), held("a"), waiting("c", "NoQuorum", "", None)];
        sort(&mut locks);
        locks.iter().for_each(|lock| table.push(cells(lock, now(), false)));
        assert_eq!(
            table.render(Paint::PLAIN),
            "LOCK           OBJECT   HOLDER   STATUS     VALID   TOKEN   VOTES   QUEUE\n\
             shop/reindex   a        a        Held       8.2s    42      3/3     -\n\
             shop/reindex   b        -        Queued     -       -       -       1\n\
             shop/reindex   c        -        NoQuorum   -       -       -       -\n"
        );
        assert_eq!(locks.each_ref().map(tone), [Tone::Good, Tone::Waiting, Tone::Bad]);
    }

    #[test]
    fn programs_get_the_names_of_the_api() {
        let value = value(&held("a"), now());
        assert_eq!(value["lock"], "shop/reindex");
        assert_eq!(value["fencingToken"], 42);
        assert_eq!(value["validForMs"], 8_200);
        assert_eq!(value["validUntil"], "2026-01-01T12:00:08.200Z");
        assert_eq!(value["holder"], json!({"identity": "a"}));
        assert_eq!(value["quorum"], json!({"namespace": "redlock-system", "name": "main"}));
        let waits = super::value(&waiting("b", "Queued", "waits", Some(1)), now());
        assert_eq!(
            (&waits["held"], &waits["queuePosition"], waits.get("validForMs")),
            (&json!(false), &json!(1), None)
        );
    }

    #[test]
    fn an_ending_lock_has_the_state_ending() {
        let mut lock = held("a");
        lock.status.ending =
            serde_json::from_value(json!({"since": "2026-01-01T12:00:00.000Z", "reason": "Broken"})).unwrap();
        assert_eq!((state(&lock).as_str(), tone(&lock)), ("Ending", Tone::Waiting));
        lock.metadata.deletion_timestamp = lock.metadata.creation_timestamp.clone();
        assert_eq!(state(&lock), "Ending,Deleting");
        lock.spec.validity = redlock_api::Validity::Transitions;
        assert_eq!(validity(&lock, now()), "", "the operator no longer renews it");
    }
}
