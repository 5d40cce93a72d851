//! The wall clock of one program and of what it starts, which a test can set. It preloads tests/redis/shifted_clock.c, which the
//! C compiler `cc` builds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/shifted_clock.c");
        let library = std::env::temp_dir().join(format!("redlock-run-shifted-clock-{}.so", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        assert!(cc.status().expect("cc is installed").success());
        library
    })
}

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
