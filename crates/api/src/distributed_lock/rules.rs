//! The rules by which the API server refuses a DistributedLock. Each message names a valid value.

use kube::core::Rule;
use schemars::Schema;
use serde_json::Value;

use crate::schema::{add_rules, between, if_set, matching, rule};

/// Adds the rules of `spec`.
pub(super) fn spec(schema: &mut Schema) {
    let holder = [
        rule(
            ".claim",
            "has(self.claim) != has(self.election)",
            "set exactly one of claim (names the holder) and election (names candidate pods)",
        ),
        rule(".key", "!has(self.claim) || has(self.key)", "set the key that the claims compete for, e.g. key: reindex"),
    ];
    let rules = holder.into_iter().chain(immutable()).chain(times()).chain([heartbeat()]).chain(lease());
    add_rules(schema, rules);
}

/// Rules of `spec.key`.
pub(super) fn key() -> Value {
    matching("^[A-Za-z0-9._:/-]{1,200}$", "write the key in letters, digits and the signs . _ : / -, e.g. shop/reindex")
}

/// Rules of `spec.election.lease.name`.
pub(super) fn lease_name() -> Value {
    matching(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "write the name of the Lease in lower-case letters, digits, dashes and dots, e.g. controller.example.com",
    )
}

/// A candidate reads `validUntil` through its Lease, so what is published must last for more than half of `ttl`.
fn lease() -> [Rule; 4] {
    const NONE: &str = "!has(self.election) || !has(self.election.lease)";
    [
        rule(
            ".election",
            "!has(self.election) || !has(oldSelf.election) || has(self.election.lease) == has(oldSelf.election.lease) && \
             (!has(self.election.lease) || self.election.lease == oldSelf.election.lease)",
            "election.lease cannot be changed, added or removed: create another DistributedLock",
        ),
        rule(
            ".validity",
            &format!("{NONE} || self.validity == 'Published'"),
            "an election with a lease needs validity: Published",
        ),
        rule(
            ".slots",
            &format!("{NONE} || self.slots == 1"),
            "a Lease names one holder: set slots: 1, or remove election.lease",
        ),
        rule(
            ".renewInterval",
            &format!(
                "{NONE} || !has(self.renewInterval) || duration(self.renewInterval) + duration(self.renewInterval) + \
                 duration(self.renewInterval) <= duration(self.ttl)"
            ),
            "with election.lease set a renewInterval of at most a third of ttl, or remove it (a third of ttl)",
        ),
    ]
}

/// Fields that cannot change, and cannot be added or removed later.
fn immutable() -> [Rule; 4] {
    [
        rule(
            ".claim",
            "has(self.claim) == has(oldSelf.claim) && has(self.election) == has(oldSelf.election)",
            "a claim cannot become an election, nor the reverse: create another DistributedLock",
        ),
        rule(
            ".key",
            "has(self.key) == has(oldSelf.key) && (!has(self.key) || self.key == oldSelf.key)",
            "key cannot be changed, added or removed: create another DistributedLock",
        ),
        rule(
            ".quorumRef",
            "has(self.quorumRef) == has(oldSelf.quorumRef) && (!has(self.quorumRef) || self.quorumRef == oldSelf.quorumRef)",
            "quorumRef cannot be changed, added or removed: create another DistributedLock",
        ),
        rule(".slots", "self.slots == oldSelf.slots", "slots cannot be changed: create another DistributedLock"),
    ]
}

/// With a slower heartbeat, one late renewal of the Lease could end the hold.
fn heartbeat() -> Rule {
    rule(
        ".claim",
        "!has(self.claim) || !has(self.claim.heartbeat) || duration(self.claim.heartbeat) <= duration('1s') || \
         duration(self.claim.heartbeat) + duration(self.claim.heartbeat) <= duration(self.ttl)",
        "set a heartbeat of at most half of ttl (1s is always allowed)",
    )
}

/// CEL adds durations, and does not multiply them.
const TENTH: &str = concat!(
    "!has(self.renewInterval) || ",
    "duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) + ",
    "duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) + duration(self.renewInterval) >= duration(self.ttl)"
);

fn times() -> [Rule; 15] {
    [
        rule(
            ".liveness",
            "!has(self.liveness) || has(self.election) || has(self.claim.podName)",
            "liveness needs a pod: set it with an election or with claim.podName, or remove it",
        ),
        rule(
            ".claim",
            "!has(self.claim) || !has(self.claim.heartbeat) || duration(self.claim.heartbeat) >= duration('1s')",
            "set a heartbeat of at least 1s, e.g. 5s",
        ),
        between("ttl", "1s", "1h", "set a ttl from 1s to the quorum's maxTTL, e.g. 10s"),
        rule(
            ".renewInterval",
            "!has(self.renewInterval) || duration(self.renewInterval) + duration(self.renewInterval) <= duration(self.ttl)",
            "set a renewInterval of at most half of ttl, or remove it (a third of ttl)",
        ),
        // Ten renewals in each ttl are enough, because each renewal is a request from every replica to every member.
        rule(".renewInterval", TENTH, "set a renewInterval of at least a tenth of ttl, or remove it (a third of ttl)"),
        if_set("maxHold", "duration(self.maxHold) > duration('0s')", "set a maxHold above 0s, or remove it (no limit)"),
        at_most_a_year("maxHold", "set a maxHold of at most 8760h (a year), or remove it (no limit)"),
        at_most_a_year("waitTimeout", "set a waitTimeout of at most 8760h (a year), or remove it (no limit)"),
        at_most_a_year(
            "ttlAfterFinished",
            "set a ttlAfterFinished of at most 8760h (a year), or remove it (finished claims stay)",
        ),
        if_set(
            "minHold",
            "!has(self.maxHold) || duration(self.minHold) <= duration(self.maxHold)",
            "set a minHold that is not larger than maxHold",
        ),
        if_set(
            "minHold",
            "(has(self.claim) && duration(self.minHold) <= duration('24h'))",
            "set a minHold of at most 24h, and only with a claim: in an election the next candidate leads as soon as the leader has ended",
        ),
        rule(
            ".waitTimeout",
            "!has(self.waitTimeout) || (has(self.claim) && duration(self.waitTimeout) > duration('0s'))",
            "set a waitTimeout above 0s, and only with a claim: an election waits without a limit",
        ),
        if_set("lockDelay", "duration(self.lockDelay) <= duration('1h')", "set a lockDelay of at most 1h"),
        rule(
            ".retry",
            "duration(self.retry.delay) >= duration('10ms') && duration(self.retry.delay) <= duration('1m') && \
             duration(self.retry.jitter) <= duration(self.retry.delay)",
            "set a retry.delay from 10ms to 1m and a retry.jitter that is not larger",
        ),
        if_set(
            "ttlAfterFinished",
            "has(self.claim)",
            "an election never finishes: remove ttlAfterFinished, or use a claim",
        ),
    ]
}

fn at_most_a_year(field: &str, message: &str) -> Rule {
    if_set(field, &format!("duration(self.{field}) <= duration('8760h')"), message)
}

/// Adds the rules of `spec.claim`.
pub(super) fn claim(schema: &mut Schema) {
    let rules = [
        rule(
            ".identity",
            "[has(self.identity), has(self.podName), has(self.jobName)].exists_one(given, given)",
            "set exactly one of identity (free text), podName (a pod in this namespace) and jobName (a suspended Job in this namespace)",
        ),
        rule(
            ".identity",
            "has(self.identity) == has(oldSelf.identity) && (!has(self.identity) || self.identity == oldSelf.identity) && \
             has(self.podName) == has(oldSelf.podName) && (!has(self.podName) || self.podName == oldSelf.podName) && \
             has(self.jobName) == has(oldSelf.jobName) && (!has(self.jobName) || self.jobName == oldSelf.jobName)",
            "the holder that a claim names cannot be changed: create another DistributedLock with the same key",
        ),
        rule(
            ".jobUID",
            "has(self.jobName) || !has(self.jobUID)",
            "jobUID needs jobName: set jobName, or remove jobUID",
        ),
        rule(
            ".jobUID",
            "has(self.jobUID) == has(oldSelf.jobUID) && (!has(self.jobUID) || self.jobUID == oldSelf.jobUID)",
            "jobUID cannot be changed: create another DistributedLock with the same key",
        ),
        rule(
            ".heartbeat",
            "!has(self.heartbeat) || !has(self.jobName)",
            "a Job needs no heartbeat, because the operator watches its pods: remove heartbeat",
        ),
        rule(
            ".podUID",
            "has(self.podName) || (!has(self.podUID) && !has(self.container))",
            "podUID and container need podName: set podName, or remove them",
        ),
        rule(
            ".podUID",
            "has(self.podUID) == has(oldSelf.podUID) && (!has(self.podUID) || self.podUID == oldSelf.podUID) && \
             has(self.container) == has(oldSelf.container) && (!has(self.container) || self.container == oldSelf.container)",
            "podUID and container cannot be changed: create another DistributedLock with the same key",
        ),
    ];
    add_rules(schema, rules);
}
