//! The library that shifts the wall clock of a program. The C compiler `cc` makes it from tests/redis/shifted_clock.c.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the library, which is built once.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/shifted_clock.c");
        let library = std::env::temp_dir().join(format!("redlock-shifted-clock-{}.so", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
        assert!(cc.status().expect("cc is installed").success());
        library
    })
}
