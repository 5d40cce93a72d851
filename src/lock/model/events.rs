//! Pure: the Events of a lock.

use kube::runtime::events::EventType;

use crate::redlock::FencingToken;

/// Events of a DistributedLock.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[ignore_extra_doc_attributes]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum LockEvent {
    /// {holder} holds key {key} with fencing token {token}
    ///
    /// To do: nothing.
    Acquired { holder: String, key: String, token: FencingToken },
    /// {why}. The lock is free
    ///
    /// To do: nothing.
    Released { why: String },
    /// {why}. The lock is free
    ///
    /// To do: make sure that the former holder has stopped.
    Broken { why: String },
    /// {why}. No majority of the members answered until the hold must have run out, so the lock counts as free
    ///
    /// To do: look at the RedisQuorum. The operator grants the lock again when a majority answers.
    LetGo { why: String },
    /// {why}. The operator no longer renews the hold, which runs out within one ttl
    ///
    /// To do: wait.
    Ending { why: String },
    /// {why}. The operator no longer renews the hold, which runs out within one ttl
    ///
    /// To do: do what the message says.
    Breaking { why: String },
    /// {why}. The holder has lost the lock
    ///
    /// To do: stop what the holder still does, unless a resource checks its token. Look at the members that the message
    /// names.
    Lost { why: String },
    /// The operator removed the annotation redlock-operator.io/release and released nothing: its value is not the token of
    /// this hold. The holder releases the lock with the value {token}
    ///
    /// To do: release with the token that the message names, if the present holder has ended its work.
    ReleaseRefused { token: i64 },
    /// {message}
    ///
    /// To do: see the same reason on the page of conditions.
    Refused { accepted: String, message: String },
}

impl LockEvent {
    /// The reason of the Event.
    pub fn reason(&self) -> &str {
        match self {
            Self::Acquired { .. } => "LockAcquired",
            Self::Released { .. } | Self::Broken { .. } | Self::LetGo { .. } => "LockReleased",
            Self::Ending { .. } | Self::Breaking { .. } => "LockEnding",
            Self::Lost { .. } => "LockLost",
            Self::ReleaseRefused { .. } => "ReleaseRefused",
            Self::Refused { accepted, .. } => accepted,
        }
    }

    /// The type of the Event.
    pub const fn kind(&self) -> EventType {
        match self {
            Self::Acquired { .. } | Self::Released { .. } | Self::Ending { .. } => EventType::Normal,
            Self::Broken { .. } | Self::LetGo { .. } | Self::Breaking { .. } | Self::Lost { .. } => EventType::Warning,
            Self::ReleaseRefused { .. } | Self::Refused { .. } => EventType::Warning,
        }
    }
}
