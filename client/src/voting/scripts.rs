//! The scripts, and the digests that they are called by.

use std::sync::LazyLock;

/// One script, called by its digest.
pub(super) struct Script {
    pub(super) code: &'static str,
    pub(super) sha1: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, sha1: redis::Script::new(code).get_hash().to_owned() }
    }
}

/// One script per [`crate::redlock::Command`].
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) raise_counter: Script,
    pub(super) extend: Script,
    pub(super) repair: Script,
    pub(super) seal: Script,
    pub(super) release: Script,
    pub(super) inspect: Script,
}

macro_rules! with_holder {
    ($($file:literal),+) => {
        concat!(include_str!("scripts/holder.lua"), $(include_str!($file)),+)
    };
}

/// For the operator's own members, where the users of an epoch that is over are closed.
pub(super) static SCRIPTS: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::new(with_holder!("scripts/acquire.lua"), with_holder!("scripts/extend.lua")));

/// For masters that others run.
pub(super) static GUARDED: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(
        with_holder!("scripts/guard.lua", "scripts/acquire.lua"),
        with_holder!("scripts/guard.lua", "scripts/extend.lua"),
    )
});

impl Scripts {
    fn new(acquire: &'static str, extend: &'static str) -> Self {
        Self {
            acquire: Script::new(acquire),
            raise_counter: Script::new(include_str!("scripts/raise_counter.lua")),
            extend: Script::new(extend),
            repair: Script::new(include_str!("scripts/repair.lua")),
            seal: Script::new(include_str!("scripts/seal.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            inspect: Script::new(with_holder!("scripts/inspect.lua")),
        }
    }

    pub(super) fn all(&self) -> [&Script; 7] {
        [&self.acquire, &self.raise_counter, &self.extend, &self.repair, &self.seal, &self.release, &self.inspect]
    }
}
