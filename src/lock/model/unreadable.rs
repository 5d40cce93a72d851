//! A lock that this version of the operator cannot read. Pure: the one next step.
//!
//! What its status names is written down as ending, so that every replica stops renewing it, also one that can read it. After the longest time that
//! members remember a hold the status names no holder any more. Nothing else of the object is touched, and no other object is harmed.

mod patches;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::api::conditions::{AcceptedReason, HeldReason};
use crate::api::{GoDuration, HeldQuorum, LOCK_FINALIZER};
use crate::redlock::{LockKey, Nonce};
use crate::runtime::cache::Unreadable;
use crate::time::Boottime;

pub use self::patches::{condition, ended, ending, told};

/// Why a lock is not handled like others.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
pub enum Trouble {
    /// This version of the operator cannot read the object: {0}. It does not grant the lock, and lets a hold run out.
    /// Change what the message names, or delete the object
    Unreadable(String),
}

impl Trouble {
    /// For the condition Accepted.
    #[must_use]
    pub const fn accepted(&self) -> AcceptedReason {
        AcceptedReason::Unreadable
    }

    /// For the condition Held.
    #[must_use]
    pub const fn held(&self) -> HeldReason {
        HeldReason::Unreadable
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

    /// Where its hold lives, if the status says so.
    #[must_use]
    pub fn place(&self) -> Option<(HeldQuorum, LockKey, Nonce)> {
        let holder = self.field("/status/holder")?;
        let quorum = serde_json::from_value(holder.get("quorum")?.clone()).ok()?;
        let key = LockKey::new(holder.get("key")?.as_str()?.to_owned());
        Some((quorum, key, holder.get("nonce")?.as_str()?.parse().ok()?))
    }

    /// For how long the members remember its hold, by the record of the hold.
    #[must_use]
    pub fn rejoin_delay(&self) -> Option<Duration> {
        self.text("/status/holder/rejoinDelay")?.parse().ok().map(|delay: GoDuration| delay.get())
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
    /// When this replica first saw the hold ending.
    pub ending: Option<Boottime>,
    /// When this leader first saw the object being deleted.
    pub deleting: Option<Boottime>,
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
    /// No holder any more.
    Free,
    /// Let the object go.
    RemoveFinalizer,
    /// Say in the condition what is wrong.
    Tell,
    /// Seal the key of a hold that ends, if it is known.
    Wait,
}

/// Decides.
#[must_use]
pub fn decide(raw: &Raw, view: &View) -> Step {
    let has_passed = |since: Option<Boottime>| since.is_some_and(|since| view.now.since(since) >= view.delay);
    match () {
        // Nothing that was promised by then can still be valid.
        () if raw.has_finalizer() && has_passed(view.deleting) => Step::RemoveFinalizer,
        () if !raw.is_held() && view.told => Step::Wait,
        () if !raw.is_held() => Step::Tell,
        () if !raw.is_ending() => Step::End,
        () if has_passed(view.ending) => Step::Free,
        () => Step::Wait,
    }
}

#[cfg(test)]
mod tests;
