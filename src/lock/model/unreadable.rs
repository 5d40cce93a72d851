//! A lock that this leader cannot read, or whose handling fails again and again. Pure: what is known of it, and the one
//! next step.
//!
//! It is worked on by its raw JSON: what its status names is written down as ending, so that every replica stops renewing it, also one
//! that can read it. Then it runs out like any other hold. Nothing else of the object is touched, and no other object is harmed.

mod patches;
mod place;

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::decide::Sealing;
use crate::api::conditions::{AcceptedReason, HeldReason};
use crate::api::{DistributedLock, LOCK_FINALIZER};
use crate::runtime::cache::Unreadable;
use crate::time::Boottime;

pub use self::patches::{condition, ended, ending, told};
pub use self::place::{Place, locate};

/// So many panics in a row are enough: nothing says that the next attempt would end better.
const PANICS: u32 = 3;
/// Before the first attempt after that; the pauses double.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Why a lock is not handled like others.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
pub enum Trouble {
    /// This version of the operator cannot read the object: {0}. It does not grant the lock, and lets a hold run out.
    /// Change what the message names, or delete the object
    Unreadable(String),
    /// The operator panicked {0} times in a row while it handled this object, which is a fault of the operator. It does
    /// not grant the lock, and lets a hold run out. It tries again when the object changes, or after at most 10
    /// minutes. Report it with the operator's log
    Panics(u32),
}

impl Trouble {
    /// For the condition Accepted.
    #[must_use]
    pub const fn accepted(&self) -> AcceptedReason {
        match self {
            Self::Unreadable(_) => AcceptedReason::Unreadable,
            Self::Panics(_) => AcceptedReason::OperatorFault,
        }
    }

    /// For the condition Held.
    #[must_use]
    pub const fn held(&self) -> HeldReason {
        match self {
            Self::Unreadable(_) => HeldReason::Unreadable,
            Self::Panics(_) => HeldReason::OperatorFault,
        }
    }
}

/// A lock as JSON.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// All of it.
    pub object: Value,
    /// Why it is not handled like others.
    pub trouble: Trouble,
}

impl Raw {
    /// One that cannot be read.
    #[must_use]
    pub fn unreadable(raw: &Unreadable) -> Self {
        let trouble = Trouble::Unreadable(raw.error.clone());
        Self { metadata: raw.metadata.clone(), object: raw.object.clone(), trouble }
    }

    /// One whose handling panicked so many times.
    #[must_use]
    pub fn failing(lock: &DistributedLock, panics: u32) -> Self {
        let object = serde_json::to_value(lock).unwrap_or_default();
        Self { metadata: lock.metadata.clone(), object, trouble: Trouble::Panics(panics) }
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{}/{}", part(&self.metadata.namespace), part(&self.metadata.name))
    }

    /// A field, by its JSON pointer; what is null is not there.
    #[must_use]
    pub fn field(&self, pointer: &str) -> Option<&Value> {
        self.object.pointer(pointer).filter(|value| !value.is_null())
    }

    /// A text field.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.field(pointer)?.as_str()
    }

    /// Whether its status names a holder.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.field("/status/holder").is_some()
    }

    /// Whether its status says that the hold ends.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.field("/status/ending").is_some()
    }

    fn has_finalizer(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == LOCK_FINALIZER)
    }
}

/// What else a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// For how long the members may remember the hold.
    pub delay: Duration,
    /// The quorum of the hold still exists, and it is known which keys are meant.
    pub reachable: bool,
    /// What the members said about its end.
    pub sealing: Sealing,
    /// When this replica first saw the hold ending.
    pub ending: Option<Boottime>,
    /// When this leader first saw the object being deleted.
    pub deleting: Option<Boottime>,
    /// The API server refuses to write this object's status.
    pub refused: bool,
    /// The condition says already what is wrong.
    pub told: bool,
    /// The clock of all of these.
    pub now: Boottime,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write down that the hold ends.
    End,
    /// Seal its keys (again).
    Seal,
    /// No holder any more: by the members' word, or without it.
    Free {
        /// A majority of the members has confirmed the end.
        confirmed: bool,
    },
    /// Let the object go.
    RemoveFinalizer,
    /// Say in the condition what is wrong.
    Tell,
    /// Nothing, for so long.
    Wait(Duration),
}

/// The longest that nothing is looked at.
pub(in crate::lock) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Decides.
#[must_use]
pub fn decide(raw: &Raw, view: &View) -> Step {
    let left =
        |since: Option<Boottime>| view.delay.saturating_sub(since.map_or(Duration::ZERO, |at| view.now.since(at)));
    if raw.metadata.deletion_timestamp.is_some() && raw.has_finalizer() && left(view.deleting).is_zero() {
        // Nothing that was promised by then can still be valid. A hold that could be written down as ending ends first.
        if !raw.is_held() || view.refused {
            return Step::RemoveFinalizer;
        }
    }
    if raw.is_held() {
        return match () {
            () if view.refused => Step::Wait(LOOK_AGAIN),
            () if !raw.is_ending() => Step::End,
            () => decide_ending(view, left(view.ending)),
        };
    }
    if raw.metadata.deletion_timestamp.is_some() {
        return Step::Wait(left(view.deleting).min(LOOK_AGAIN));
    }
    if view.told || view.refused { Step::Wait(LOOK_AGAIN) } else { Step::Tell }
}

fn decide_ending(view: &View, left: Duration) -> Step {
    match view.sealing {
        Sealing::Unconfirmed if left.is_zero() => Step::Free { confirmed: false },
        Sealing::Unconfirmed if view.reachable => Step::Seal,
        Sealing::Unconfirmed => Step::Wait(left.min(LOOK_AGAIN)),
        Sealing::RunsOut(until) if until > view.now => Step::Wait(until.since(view.now)),
        Sealing::RunsOut(_) | Sealing::Gone => Step::Free { confirmed: true },
    }
}

/// Panics in a row while one lock was handled, and when it is tried again.
#[derive(Clone, Debug, Default)]
pub struct Panics {
    count: u32,
    /// Until then the lock is worked on as JSON only.
    until: Option<Boottime>,
    pause: Duration,
    /// The versions of the object that were tried, or that this leader wrote meanwhile. Another one comes from another hand.
    versions: HashSet<String>,
}

impl Panics {
    /// One more.
    pub fn add(&mut self, versions: [Option<String>; 2], now: Boottime) {
        self.count = self.count.saturating_add(1);
        self.versions.extend(versions.into_iter().flatten());
        if self.count >= PANICS {
            self.pause = if self.pause.is_zero() { FIRST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
            self.until = Some(now + self.pause);
        }
    }

    /// How many there were.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// This leader wrote this version of the object.
    pub fn wrote(&mut self, version: Option<String>) {
        self.versions.extend(version);
    }

    /// For how long this version of the object is worked on as JSON only.
    #[must_use]
    pub fn left(&self, version: Option<&str>, now: Boottime) -> Option<Duration> {
        let is_known = version.is_some_and(|version| self.versions.contains(version));
        self.until.filter(|until| is_known && *until > now).map(|until| until.since(now))
    }
}

#[cfg(test)]
mod tests;
