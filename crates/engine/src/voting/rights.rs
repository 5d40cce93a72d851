//! The permissions of a connection's Redis user, and the scripts that they allow.

use super::guard::Guard;
use super::scripts::{DIRECT, GUARDED, SCRIPTS, Scripts};

/// The permissions of a connection on its member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rights {
    /// All commands of the scripts, INFO and TIME included.
    #[default]
    Full,
    /// The same on an external master, where the record checks each vote.
    Guarded(Guard),
    /// The permissions of clients of an operator: neither INFO nor TIME, and only INCR on the counter.
    Direct,
    /// The permissions of readers: GET, PTTL and PING.
    Reader,
}

impl Rights {
    pub(super) fn scripts(&self) -> &'static Scripts {
        match self {
            Self::Full => &SCRIPTS,
            Self::Guarded(_) => &GUARDED,
            Self::Direct | Self::Reader => &DIRECT,
        }
    }

    pub(super) const fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Guarded(guard) => Some(guard),
            Self::Full | Self::Direct | Self::Reader => None,
        }
    }

    /// Returns true if a vote can be plain commands.
    ///
    /// Only a script can check the record.
    pub(super) const fn allow_plain_votes(&self) -> bool {
        !matches!(self, Self::Guarded(_))
    }

    /// Returns true if the user has permission for INFO, which has the `run_id`, and for TIME.
    pub(super) const fn allow_info(&self) -> bool {
        !matches!(self, Self::Direct | Self::Reader)
    }
}
