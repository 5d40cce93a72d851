//! The reason of a wait, for people.

use std::io::{IsTerminal, Write, stderr};

use super::arguments::LockName;

/// Gets each reason, and whether it is certain that the lock is not held.
type Listener = Box<dyn Fn(&str, bool) + Send>;

/// One line on the error output: replaced on a terminal, repeated elsewhere when it changes.
pub(crate) struct Progress {
    lock: String,
    last: String,
    is_terminal: bool,
    listener: Option<Listener>,
}

/// Moves to the start of the line and clears it.
const AGAIN: &str = "\r\x1b[K";

impl Progress {
    pub(crate) fn new(lock: &LockName) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: stderr().is_terminal(), listener: None }
    }

    /// For a program, which gets the reasons, too.
    #[cfg(target_os = "linux")]
    pub(crate) fn reported(lock: &LockName, listener: impl Fn(&str, bool) + Send + 'static) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: false, listener: Some(Box::new(listener)) }
    }

    /// Says why the lock is waited for.
    pub(crate) fn report(&mut self, why: &str) {
        self.write_line(why, true);
    }

    /// Says why it is not known whether the lock is taken.
    pub(crate) fn report_unknown(&mut self, why: &str) {
        self.write_line(why, false);
    }

    fn write_line(&mut self, why: &str, is_certain: bool) {
        if why == self.last {
            return;
        }
        why.clone_into(&mut self.last);
        if let Some(listener) = &self.listener {
            listener(why, is_certain);
        }
        let line = format!("waiting for lock {}: {why}", self.lock);
        // A closed error output stops nothing.
        let _ =
            if self.is_terminal { write!(stderr(), "{AGAIN}{line}") } else { writeln!(stderr(), "redlock: {line}") };
    }
}

impl Drop for Progress {
    /// What follows begins on a clean line.
    fn drop(&mut self) {
        if self.is_terminal && !self.last.is_empty() {
            let _ = write!(stderr(), "{AGAIN}");
        }
    }
}
