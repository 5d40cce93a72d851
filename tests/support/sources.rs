//! The Rust files of a folder, for tests that read the code.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// All Rust files below `folder`, in no order.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}
