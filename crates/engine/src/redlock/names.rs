//! The names of keys, members and processes.

use std::fmt;
use std::sync::Arc;

// Cheap to clone: a batch of extensions names every key once per member.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<&String> for $name {
            fn from(text: &String) -> Self {
                Self::new(text.as_str())
            }
        }

        impl From<&$name> for $name {
            fn from(name: &$name) -> Self {
                name.clone()
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name! {
    /// The Redis key of a lock.
    ///
    /// Keys of users contain no `#`. Keys of the operator contain one (`#token`, slots `<key>#<i>`).
    LockKey
}

name! {
    /// The `run_id` of one Redis process: 40 hex characters, new at every start (`INFO server`).
    ///
    /// Each `run_id` has one vote.
    RunId
}

name! {
    /// The name of a member in its quorum's member list.
    MemberName
}

/// The key of one slot of a lock.
#[must_use]
pub fn slot_key(key: &LockKey, slot: impl fmt::Display) -> LockKey {
    LockKey::new(format!("{key}#{slot}"))
}

/// The members' counter of fencing tokens.
///
/// No key of a user contains `#`.
pub const TOKEN_KEY: &str = "#token";

/// The beginning of the name of a key's channel.
///
/// Redisson uses the same name, so users with the permissions for Redisson can publish and subscribe.
const CHANNEL: &str = "redisson_lock__channel:{";

impl LockKey {
    /// The channel on which clients exchange messages about this key.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("{CHANNEL}{self}}}")
    }

    /// The key of a channel.
    #[must_use]
    pub fn of_channel(channel: &str) -> Option<Self> {
        channel.strip_prefix(CHANNEL)?.strip_suffix('}').map(Self::from)
    }
}
