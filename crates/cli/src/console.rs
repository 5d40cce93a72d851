//! The one writer for standard output and standard error.
//!
//! The macros of the standard library panic when a stream is closed or its disk is full. A panic in the middle of a hold would end
//! the task that renews or releases it, so clippy refuses them outside of this file.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes one line for users to standard error. The line begins with the name of the program.
///
/// A closed or full stream stops no command, so a failure is not reported.
pub fn report(line: impl Display) {
    write_error(&format!("redlock: {line}\n"));
}

/// Writes text to standard error as it is. A failure is not reported.
pub fn write_error(text: &str) {
    let mut stream = io::stderr().lock();
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.flush();
}

/// Writes one line to standard output.
///
/// # Errors
/// If the stream is closed or full. Standard output has the result of a command, so the caller decides whether that is a failure.
pub fn print(line: impl Display) -> io::Result<()> {
    let mut stream = io::stdout().lock();
    stream.write_all(format!("{line}\n").as_bytes())?;
    stream.flush()
}
