//! Handing the Lease over to a replica that reaches a quorum which its holder does not reach. Pure; the notes stand in the Lease.
//!
//! - A standby says, whenever it changes, which quorums it has not reached steadily (`not`): so the holder knows at once who could go on
//!   with a hold that it cannot renew.
//! - The holder names what it does not reach (`missing`). A standby that has reached such a quorum steadily answers (`reaches`): its word is
//!   newer than the trouble.
//! - The holder hands over to those who said so (`successors`); others leave the Lease to them for a moment.
//! - Number and time of the hand-overs of each quorum stay in the Lease, and bound how often that may be.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::reach::Reach;
use crate::time::{Boottime, UnixMillis};

/// Where the notes stand in the Lease.
pub(super) const ANNOTATION: &str = "redlock-operator.io/hand-over";

/// How many quorums are named at once.
/// The numbers of quorums, standbys and records are bounded, so that the notes stay small whatever cannot be reached.
const NAMED: usize = 8;
const LISTED: usize = 16;
const STANDBYS: usize = 8;
const RECORDS: usize = 16;

/// Between two hand-overs for one quorum, from the second on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause, and how long without a hand-over makes the earlier ones forgotten.
const CALM: Duration = Duration::from_secs(600);
/// A standby writes no more often than this, unless it answers.
const STANDBY_PAUSE: Duration = Duration::from_secs(2);

/// What stands in the Lease beside its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Notes {
    /// What the holder does not reach, or cannot renew holds of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) standbys: BTreeMap<String, Standby>,
    /// To whom the Lease was handed over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) successors: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) records: BTreeMap<String, Record>,
}

/// What one standby says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Standby {
    /// The quorums that it does not reach steadily; it reaches all others. Left out: they are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not: Option<Vec<String>>,
    /// Of those that the holder names, the ones that it reaches steadily.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reaches: Vec<String>,
}

/// The hand-overs for one quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// How many there were without a calm time in between.
    pub(super) count: u32,
    /// When the last one was, in the API server's time: milliseconds since the epoch.
    pub(super) at: i64,
}

impl Notes {
    /// What cannot be read says nothing.
    pub(super) fn of(lease: &Lease) -> Self {
        let text = lease.annotations().get(ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    pub(super) fn write_to(&self, lease: &mut Lease) {
        if *self == Self::default() {
            lease.annotations_mut().remove(ANNOTATION);
        } else if let Ok(text) = serde_json::to_string(self) {
            lease.annotations_mut().insert(ANNOTATION.to_owned(), text);
        }
    }

    /// For a new holder: what was said to or of the one before counts no more.
    pub(super) fn for_new_term(self) -> Self {
        Self { records: self.records, ..Self::default() }
    }

    /// What this standby should say, if it is not what stands there. `spoke`: when it last wrote.
    pub(super) fn to_say(&self, me: &str, reach: &Reach, spoke: Option<Boottime>, now: Boottime) -> Option<Standby> {
        let said = self.standbys.get(me);
        if said.is_none() && self.standbys.len() >= STANDBYS {
            return None;
        }
        let unsteady: Vec<_> = reach.unsteady(now).take(LISTED + 1).map(str::to_owned).collect();
        let steady = |quorum: &&String| reach.is_steady(quorum, now);
        let wanted = Standby {
            not: Some(unsteady).filter(|unsteady| unsteady.len() <= LISTED),
            reaches: self.missing.iter().take(NAMED).filter(steady).cloned().collect(),
        };
        let answers = said.map_or(!wanted.reaches.is_empty(), |said| said.reaches != wanted.reaches);
        let may_write = answers || spoke.is_none_or(|spoke| now.since(spoke) >= STANDBY_PAUSE);
        (may_write && said != Some(&wanted)).then_some(wanted)
    }

    /// The standbys that can go on with this quorum. In a hurry also those who said so before there was any trouble.
    fn who_reaches(&self, quorum: &str, urgent: bool) -> Vec<String> {
        let named = |names: &[String]| names.iter().any(|name| name == quorum);
        let can = |standby: &Standby| {
            named(&standby.reaches) || urgent && standby.not.as_deref().is_some_and(|not| !named(not))
        };
        self.standbys.iter().filter(|(_, standby)| can(standby)).map(|(name, _)| name.clone()).collect()
    }

    /// With one more hand-over for this quorum, to these.
    pub(super) fn handed_over(mut self, quorum: &str, successors: Vec<String>, now: UnixMillis) -> Self {
        let count = self.records.get(quorum).map_or(0, |record| record.count).saturating_add(1);
        if self.records.len() >= RECORDS && !self.records.contains_key(quorum) {
            let oldest = self.records.iter().min_by_key(|(_, record)| record.at).map(|(quorum, _)| quorum.clone());
            oldest.map(|oldest| self.records.remove(&oldest));
        }
        self.records.insert(quorum.to_owned(), Record { count, at: now.0 });
        Self { successors, ..self }
    }
}

/// Since when this replica has known of each record.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(BTreeMap<String, (Record, Boottime)>);

impl Memory {
    /// Takes a look at the records. Those after a calm time are taken out.
    pub(super) fn look(&mut self, notes: &mut Notes, now: Boottime, api_now: UnixMillis) {
        let mut known = std::mem::take(&mut self.0);
        for (quorum, record) in &notes.records {
            let since = known.remove(quorum).filter(|(known, _)| known == record).map_or(now, |(_, since)| since);
            self.0.insert(quorum.clone(), (*record, since));
        }
        notes.records.retain(|quorum, _| self.age(quorum, now, api_now).is_some_and(|age| age < CALM));
    }

    /// How long ago the last hand-over was.
    ///
    /// It is the longer of two: by the time that the hand-over wrote, or since it was first seen here. A wrong time in
    /// the Lease only makes the next one come sooner.
    fn age(&self, quorum: &str, now: Boottime, api_now: UnixMillis) -> Option<Duration> {
        let (record, since) = self.0.get(quorum)?;
        let written = u64::try_from(api_now.0.saturating_sub(record.at)).map_or(Duration::ZERO, Duration::from_millis);
        Some(written.max(now.since(*since)))
    }
}

/// How long after the last of `count` hand-overs the next one may be. Others only pay if this replica serves other quorums.
fn pause(count: u32, others_pay: bool) -> Duration {
    match count {
        0 => Duration::ZERO,
        count if others_pay => FIRST_PAUSE.saturating_mul(1 << (count - 1).min(10)).min(CALM),
        _ => FIRST_PAUSE,
    }
}

/// What the holder knows.
pub(super) struct Holder<'a> {
    pub(super) notes: &'a Notes,
    pub(super) reach: &'a Reach,
    pub(super) memory: &'a Memory,
    pub(super) now: Boottime,
    pub(super) api_now: UnixMillis,
}

/// What becomes of one quorum that the holder would hand over for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// These replicas reach it: hand over.
    To(Vec<String>),
    /// No standby has said so, yet.
    Unanswered,
    /// The last hand-over for it was too short a time ago.
    TooSoon,
    /// It is gone, or is being deleted: no reason for anything.
    Gone,
}

impl Holder<'_> {
    /// What the holder is to name, most pressing first.
    ///
    /// It names what it wishes to hand over for, and what it has not reached for a while.
    pub(super) fn missing<'a>(&'a self, wishes: impl Iterator<Item = &'a str>) -> Vec<String> {
        let wished = wishes.filter(|quorum| self.reach.knows(quorum));
        let mut missing: Vec<String> = Vec::new();
        for quorum in wished.chain(self.reach.missing(self.now)) {
            if missing.len() < NAMED && missing.iter().all(|named| named != quorum) {
                missing.push(quorum.to_owned());
            }
        }
        missing
    }

    /// Whether to hand over for the sake of this quorum.
    pub(super) fn prospect(&self, quorum: &str, urgent: bool) -> Prospect {
        if !self.reach.knows(quorum) {
            return Prospect::Gone;
        }
        let count = self.notes.records.get(quorum).map_or(0, |record| record.count);
        let age = self.memory.age(quorum, self.now, self.api_now).unwrap_or(Duration::MAX);
        if age < pause(count, self.reach.reaches_another(quorum)) {
            return Prospect::TooSoon;
        }
        let who = self.notes.who_reaches(quorum, urgent);
        if who.is_empty() { Prospect::Unanswered } else { Prospect::To(who) }
    }
}

#[cfg(test)]
mod tests;
