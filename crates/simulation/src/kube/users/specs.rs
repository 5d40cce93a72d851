//! Specifications of locks.

use serde_json::{Value, json};

use super::super::chance::{Chance, Seeded};
use super::Surroundings;

/// A longer maxTTL belongs to a run of hours, in milliseconds.
const HOURS: u64 = 600_000;

fn millis(number: u64) -> Value {
    json!(format!("{number}ms"))
}

/// A time to live: usually a valid one, sometimes more than the quorum allows.
fn ttl(around: &Surroundings, chance: &mut Seeded) -> u64 {
    let most = around.max_ttl.max(1_000);
    let least = if around.habits.long { most * 2 / 3 } else { 0 };
    if chance.percent(4) { most + 1_000 } else { chance.between(least.max(1_000), most) }
}

/// The fields that claims and elections share.
fn common(around: &Surroundings, chance: &mut Seeded) -> Value {
    let ttl = ttl(around, chance);
    let (wide, longest) = (around.habits.wide, if around.habits.wide { 2 } else { 6 });
    let mut spec = json!({"ttl": millis(ttl)});
    let mut with = |share: u64, field: &str, value: &dyn Fn(&mut Seeded) -> Value| {
        if chance.percent(share) {
            spec[field] = value(chance);
        }
    };
    with(25, "renewInterval", &|chance| millis(chance.between(ttl / 10 + 1, ttl / 2)));
    with(if wide { 30 } else { 15 }, "maxHold", &|chance| millis(chance.between(ttl, ttl * longest)));
    with(if wide { 35 } else { 12 }, "lockDelay", &|chance| {
        millis(chance.between(0, around.max_ttl.saturating_sub(ttl).max(1)))
    });
    with(around.habits.transitions, "validity", &|_| json!("Transitions"));
    with(around.habits.priority, "priority", &|chance| json!(chance.below(4)));
    with(20, "retry", &|chance| json!({"delay": millis(chance.between(50, 600)), "jitter": "50ms"}));
    with(around.habits.named, "quorumRef", &|chance| {
        let (namespace, name) = chance.pick(&around.quorums).cloned().unwrap_or_default();
        json!({"namespace": namespace, "name": name})
    });
    spec
}

/// A claim.
///
/// `holder` is its field `claim`.
pub(super) fn claim(around: &Surroundings, chance: &mut Seeded, holder: Value) -> Value {
    let mut spec = common(around, chance);
    spec["key"] = json!(chance.pick(&around.keys).cloned().unwrap_or_default());
    if chance.percent(around.habits.own_keys) {
        spec["key"] = json!(format!("x/own-{}", chance.below(6)));
    }
    spec["claim"] = holder;
    if chance.percent(around.habits.slots) {
        spec["slots"] = if around.habits.wide { json!(chance.between(2, 5)) } else { json!(2) };
    }
    if around.habits.wide && spec["claim"]["podName"].is_string() && chance.percent(50) {
        spec["liveness"] = liveness(chance);
    }
    if chance.percent(around.habits.minimum) && spec["maxHold"].is_null() {
        spec["minHold"] = millis(chance.between(500, around.max_ttl));
    }
    // In runs of hours these terms are as long as those of the locks.
    let term = |usual: u64| if around.max_ttl > HOURS { around.max_ttl * 2 } else { usual };
    if chance.percent(if around.habits.wide { 35 } else { 12 }) {
        spec["waitTimeout"] = millis(chance.between(1_000, term(40_000)));
    }
    if chance.percent(30) {
        spec["ttlAfterFinished"] = millis(chance.between(0, term(20_000)));
    }
    spec
}

/// A free identity, sometimes with a heartbeat.
pub(super) fn identity(around: &Surroundings, chance: &mut Seeded, name: &str) -> Value {
    let mut claim = json!({"identity": name});
    if chance.percent(around.habits.heartbeats) {
        claim["heartbeat"] = millis(chance.between(1_000, (around.max_ttl / 2).max(1_000)));
    }
    claim
}

/// An election among pods with this label.
pub(super) fn election(around: &Surroundings, chance: &mut Seeded, app: &str) -> Value {
    let mut spec = common(around, chance);
    let preferences = if around.habits.wide {
        &["Oldest", "LowestOrdinal", "Priority", "Newest"][..]
    } else {
        &["Oldest", "LowestOrdinal", "Priority"]
    };
    spec["election"] = json!({
        "selector": {"matchLabels": {"app": app}},
        "preference": chance.pick(preferences),
        "leaderLabel": chance.percent(85),
    });
    if chance.percent(50) {
        spec["key"] = json!(chance.pick(&around.keys).cloned().unwrap_or_default());
    }
    if around.habits.wide && chance.percent(50) {
        spec["liveness"] = liveness(chance);
    }
    if around.habits.wide && chance.percent(50) {
        spec["election"]["selector"]["matchExpressions"] = json!([{"key": "app", "operator": "Exists"}]);
        spec["election"]["container"] = json!("app");
    }
    spec
}

/// A liveness check of a holder.
fn liveness(chance: &mut Seeded) -> Value {
    let mut liveness = json!({"failureThreshold": chance.between(1, 3)});
    if chance.percent(50) {
        liveness["tcpSocket"] = json!({"port": 8080});
    } else {
        liveness["httpGet"] = json!({"path": "/healthz", "port": 8080});
    }
    liveness
}

/// One field of a lock's specification, as a user edits it.
pub(super) fn edit(around: &Surroundings, chance: &mut Seeded) -> Value {
    let ttl = ttl(around, chance);
    match chance.below(10) {
        0 => json!({"ttl": millis(ttl), "renewInterval": null}),
        1 => json!({"renewInterval": millis(chance.between(100, 600))}),
        2 => json!({"maxHold": millis(chance.between(1_000, around.max_ttl * 3))}),
        3 => json!({"minHold": millis(chance.between(0, around.max_ttl))}),
        4 => json!({"waitTimeout": millis(chance.between(1_000, 30_000))}),
        5 => json!({"lockDelay": millis(chance.between(0, around.max_ttl))}),
        6 => json!({"priority": chance.below(6)}),
        7 => json!({"validity": if chance.percent(50) { "Published" } else { "Transitions" }}),
        8 => json!({"ttlAfterFinished": millis(chance.between(0, 10_000))}),
        _ => json!({"maxHold": null, "minHold": null, "lockDelay": null}),
    }
}
