//! The wall clock of one program and of what it starts, which a test can set.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shifted_clock::library;

pub(crate) struct WallClock(PathBuf);

impl WallClock {
    /// A clock that is correct until the test sets it.
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.join("clock"))
    }

    /// Gives the program this clock.
    pub(crate) fn of(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("CLOCK_OFFSET_FILE", &self.0);
    }

    pub(crate) fn set_by(&self, seconds: i64) {
        // The rename is atomic, so that no reader gets half a number.
        let new = self.0.with_extension("new");
        fs::write(&new, (seconds * 1_000).to_string()).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}
