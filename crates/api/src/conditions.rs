//! Conditions: their types, their reasons, and the one way to set them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use redlock_engine::time::UnixMillis;

/// Defines an enum whose variants are written as their names.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $comment:literal])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $comment])* $variant),+ }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name as it appears in the status.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }

            /// The value of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }

            /// Its comment: the meaning, the automatic action of the operator, and the task of the user.
            #[must_use]
            pub const fn comment(self) -> &'static str {
                match self { $(Self::$variant => concat!($($comment, "\n"),*)),+ }
            }
        }

        impl From<$name> for &'static str {
            fn from(name: $name) -> Self {
                name.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

mod quorum_reasons;
mod reasons;

pub use quorum_reasons::{CommonReason, QuorumCondition};
pub use reasons::{AcceptedReason, HeldReason, KEY_NEVER_EXPIRES, LockCondition, Status};

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The condition of that type, if it has been set.
#[must_use]
pub fn find_condition(conditions: &[Condition], type_: impl Into<&'static str>) -> Option<&Condition> {
    let type_ = type_.into();
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The time of the last change of a condition's status.
#[must_use]
pub fn transition_time(condition: &Condition) -> UnixMillis {
    UnixMillis(condition.last_transition_time.0.as_millisecond())
}

/// Whether the condition of that type has been set and is true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: impl Into<&'static str>) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Whether a condition is false. A missing or unknown one is not.
#[must_use]
pub fn is_false(conditions: &[Condition], type_: impl Into<&'static str>) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| condition.status == Status::False.as_str())
}

/// Maximum characters of a message.
///
/// Parts of it come from users and from members, and it is written for every waiting lock.
const LONGEST_MESSAGE: usize = 1_024;

/// The beginning of a message that is not too long.
pub fn cut(message: String) -> String {
    let kept = beginning(&message, LONGEST_MESSAGE);
    if kept.len() < message.len() { kept.to_owned() } else { message }
}

/// The beginning of a text, of at most this number of characters.
#[must_use]
pub fn beginning(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// Sets the condition `type_` for a generation of the specification, at a time.
///
/// Only a new status changes its `lastTransitionTime`.
///
/// Times of conditions are written in whole seconds, so `now` is cut to seconds: what was set equals what is read back.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: impl Into<&'static str>,
    status: impl Into<Status>,
    reason: impl Into<&'static str>,
    message: impl Into<String>,
    (generation, now): (Option<i64>, Timestamp),
) {
    let (type_, status) = (type_.into(), status.into().as_str());
    let new = Condition {
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        message: cut(message.into()),
        observed_generation: generation,
        reason: reason.into().to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) if old.status == status => {
            *old = Condition { last_transition_time: old.last_transition_time.clone(), ..new };
        }
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests;
