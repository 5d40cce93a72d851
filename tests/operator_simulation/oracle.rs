//! What must never be seen, by somebody who sees everything and knows the true time.

use std::collections::{BTreeMap, BTreeSet};

use redlock_operator::api::{DistributedLock, MilliTime};
use serde::Serialize;

use crate::kube::api::{Change, Entry, Kind};
use crate::time::At;
use crate::world::World;

/// What a contender says of itself.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// It believes in this value on this key for so many microseconds of its own clock.
    Holds {
        key: String,
        value: String,
        left: u64,
    },
    GivesUp {
        value: String,
    },
}

/// Somebody who may believe.
#[derive(Clone, Debug)]
struct Belief {
    who: String,
    key: String,
    from: At,
    until: At,
}

/// What happened, in figures: a run in which nothing is ever granted proves nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) takeovers: u64,
    pub(crate) outside: u64,
    pub(crate) terms: u64,
    pub(crate) admissions: u64,
    pub(crate) released: u64,
    pub(crate) faults: u64,
    pub(crate) lost: u64,
}

#[derive(Default)]
pub(crate) struct Oracle {
    /// By what is written on the members: the nonce, or the contender's value.
    beliefs: BTreeMap<String, Belief>,
    /// The highest token of each key, and whose it was.
    tokens: BTreeMap<String, (i64, String)>,
    /// Locks whose holders have given their word that they are done.
    done: BTreeSet<String>,
    leader: String,
    admitted: BTreeSet<String>,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
}

impl Oracle {
    fn violated(&mut self, what: String) {
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    /// Somebody believes in a key until then. Nobody else may.
    fn believes(&mut self, id: &str, belief: Belief) {
        let other = self
            .beliefs
            .iter()
            .find(|(other, held)| other.as_str() != id && held.key == belief.key && held.until > belief.from);
        if let Some((_, other)) = other {
            let (key, from) = (&belief.key, belief.from);
            let what = format!(
                "two holders of {key}: {} from {from} until {}, while {} believes from {} until {}",
                belief.who, belief.until, other.who, other.from, other.until
            );
            self.violated(what);
        }
        match self.beliefs.get_mut(id) {
            Some(known) => known.until = known.until.max(belief.until),
            None => drop(self.beliefs.insert(id.to_owned(), belief)),
        }
    }

    /// It stops to believe.
    fn ends(&mut self, id: &str, now: At) {
        if let Some(belief) = self.beliefs.get_mut(id) {
            belief.until = belief.until.min(now);
        }
    }

    /// The holder of a lock gives its word that it is done, whatever the status will say.
    pub(crate) fn gives_up(&mut self, lock: &str, nonce: Option<&str>, now: At) {
        self.done.insert(lock.to_owned());
        nonce.into_iter().for_each(|nonce| self.ends(nonce, now));
    }

    fn token(&mut self, key: &str, nonce: &str, token: i64, now: At) {
        let highest = self.tokens.get(key).cloned();
        match highest {
            Some((highest, of)) if token <= highest && of != nonce => {
                self.violated(format!("token {token} of {key} at {now} is not above {highest}"));
            }
            _ => drop(self.tokens.insert(key.to_owned(), (token, nonce.to_owned()))),
        }
    }
}

fn micros(time: &MilliTime) -> i64 {
    time.as_millis() * 1_000
}

impl World {
    /// A contender tells.
    pub(crate) fn heard(&mut self, at: At, process: usize, word: Word) {
        let name = self.processes[process].name.clone();
        self.trace.add(at, format_args!("{name} {word:?}"));
        match word {
            Word::Holds { key, value, left } => {
                self.oracle.counts.outside += 1;
                // A fast clock runs through it sooner.
                let left = (left as i64 - left as i64 * self.processes[process].drift / 1_000_000) as u64;
                self.oracle.believes(&value, Belief { who: value.clone(), key, from: at, until: at + left });
            }
            Word::GivesUp { value } => self.oracle.ends(&value, at),
        }
    }

    /// An object was written.
    pub(crate) fn saw(&mut self, entry: &Entry) {
        self.cluster_saw(entry);
        self.people_saw(entry);
        match entry.kind {
            Kind::DistributedLock => self.saw_lock(entry),
            Kind::RedisQuorum => self.saw_quorum(entry),
            Kind::Lease => {
                let holder = entry.object.value["spec"]["holderIdentity"].as_str().unwrap_or_default();
                if !holder.is_empty() && holder != self.oracle.leader {
                    holder.clone_into(&mut self.oracle.leader);
                    self.oracle.counts.terms += 1;
                    self.note(format_args!("{holder} leads"));
                }
            }
            _ => {}
        }
    }

    fn saw_lock(&mut self, entry: &Entry) {
        let lock: DistributedLock = match serde_json::from_value(entry.object.value.clone()) {
            Ok(lock) => lock,
            Err(error) => return self.oracle.violated(format!("an unreadable lock was stored: {error}")),
        };
        let (name, uid) = (entry.object.name().to_owned(), entry.object.uid().to_owned());
        let status = lock.status.clone().unwrap_or_default();
        let held = status.conditions.iter().find(|condition| condition.type_ == "Held");
        let reason = held.map(|held| held.reason.clone()).unwrap_or_default();
        let holder = status.holder.as_ref().and_then(|holder| holder.nonce.clone());
        let valid = status.valid_until.as_ref().map(|until| micros(until) - At::default().unix_micros());
        let until = At(valid.unwrap_or(0).max(0) as u64);
        self.note(format_args!(
            "lock {name} {:?} {reason} holder {holder:?} token {:?} until {until} ending {:?}",
            entry.change,
            status.fencing_token,
            status.ending.as_ref().map(|ending| &ending.reason),
        ));
        let Some(nonce) = holder.filter(|_| entry.change != Change::Deleted) else { return };
        let key = format!("{}/{}", entry.object.namespace(), lock.key());
        let now = self.now;
        if let Some(token) = status.fencing_token {
            self.oracle.token(&key, &nonce, token, now);
        }
        if self.oracle.done.contains(&uid) {
            return;
        }
        match self.oracle.beliefs.contains_key(&nonce) {
            true => self.oracle.counts.renewals += 1,
            false => self.oracle.counts.grants += 1,
        }
        // By the API server's clock.
        let until =
            At(until.0.saturating_sub((self.api.wrong * 1_000).max(0) as u64)
                + (-self.api.wrong * 1_000).max(0) as u64);
        if until > now {
            self.oracle.believes(&nonce, Belief { who: format!("{name} ({nonce})"), key, from: now, until });
        }
    }

    fn saw_quorum(&mut self, entry: &Entry) {
        let members = entry.object.value["status"]["members"].as_array().cloned().unwrap_or_default();
        let mut line = String::new();
        for member in &members {
            let text = |field: &str| member[field].as_str().unwrap_or_default().to_owned();
            line.push_str(&format!(" {}={}", text("name"), text("state")));
            if text("state") == "Admitted" && self.oracle.admitted.insert(text("runID")) {
                self.oracle.counts.admissions += 1;
            }
        }
        self.note(format_args!("quorum {} {:?}{line}", entry.object.name(), entry.change));
    }
}
