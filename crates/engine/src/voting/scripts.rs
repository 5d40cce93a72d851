//! The Lua scripts, and their digests.

use std::sync::LazyLock;

/// One script, called by its digest.
pub(super) struct Script {
    pub(super) code: &'static str,
    pub(super) sha1: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, sha1: digest(code) }
    }
}

/// One script per [`crate::redlock::Command`], and one for many releases.
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) raise_counter: Script,
    pub(super) extend: Script,
    pub(super) repair: Script,
    pub(super) seal: Script,
    pub(super) release: Script,
    pub(super) release_all: Script,
    pub(super) inspect: Script,
    pub(super) restore: Script,
}

/// Sets the counter of a member that has lost it to a number that no issued token exceeds.
pub const RESTORE_COUNTER: &str = include_str!("scripts/restore_counter.lua");

/// The files of the scripts.
///
/// A fake master recognises a script by them: each script that a client loads ends with one of them.
pub const CODE: [(&str, &str); 10] = [
    ("acquire", include_str!("scripts/acquire.lua")),
    ("extend", include_str!("scripts/extend.lua")),
    ("extend_as_client", include_str!("scripts/extend_as_client.lua")),
    ("inspect", include_str!("scripts/inspect.lua")),
    ("raise_counter", include_str!("scripts/raise_counter.lua")),
    ("release", include_str!("scripts/release.lua")),
    ("release_all", include_str!("scripts/release_all.lua")),
    ("repair", include_str!("scripts/repair.lua")),
    ("restore_counter", include_str!("scripts/restore_counter.lua")),
    ("seal", include_str!("scripts/seal.lua")),
];

/// The digest of a script.
#[must_use]
pub fn digest(code: &str) -> String {
    sha1_smol::Sha1::from(code).digest().to_string()
}

macro_rules! with_holder {
    ($($file:literal),+) => {
        concat!(include_str!("scripts/holder.lua"), $(include_str!($file)),+)
    };
}

/// Scripts for the operator's own members.
///
/// Their ACL closes the users of an ended epoch.
pub(super) static SCRIPTS: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::new(with_holder!("scripts/acquire.lua"), with_holder!("scripts/extend.lua")));

/// Scripts for external masters.
pub(super) static GUARDED: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(
        with_holder!("scripts/guard.lua", "scripts/acquire.lua"),
        with_holder!("scripts/guard.lua", "scripts/extend.lua"),
    )
});

/// Scripts for clients of an operator.
///
/// Their user has only the permission to read the value of a key.
pub(super) static DIRECT: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::new(with_holder!("scripts/acquire.lua"), include_str!("scripts/extend_as_client.lua")));

impl Scripts {
    fn new(acquire: &'static str, extend: &'static str) -> Self {
        Self {
            acquire: Script::new(acquire),
            raise_counter: Script::new(include_str!("scripts/raise_counter.lua")),
            extend: Script::new(extend),
            repair: Script::new(include_str!("scripts/repair.lua")),
            seal: Script::new(include_str!("scripts/seal.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            release_all: Script::new(include_str!("scripts/release_all.lua")),
            inspect: Script::new(with_holder!("scripts/inspect.lua")),
            restore: Script::new(RESTORE_COUNTER),
        }
    }

    /// The scripts that a client of an operator has the permission to run.
    pub(super) fn of_clients(&self) -> [&Script; 3] {
        [&self.extend, &self.release, &self.release_all]
    }

    pub(super) fn all(&self) -> [&Script; 9] {
        [
            &self.acquire,
            &self.raise_counter,
            &self.extend,
            &self.repair,
            &self.seal,
            &self.release,
            &self.release_all,
            &self.inspect,
            &self.restore,
        ]
    }
}
