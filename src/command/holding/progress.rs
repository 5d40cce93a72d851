//! What a person reads while waiting.

use std::io::{IsTerminal, Write, stderr};

use tokio::sync::watch;

use super::arguments::LockName;

/// Why a program waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::command) struct Reason {
    pub(in crate::command) why: String,
    /// Whether it is certain that the lock is not held.
    pub(in crate::command) is_known: bool,
}

/// One line on the error output: replaced on a terminal, repeated elsewhere when it changes.
#[derive(Debug)]
pub(in crate::command) struct Progress {
    lock: String,
    last: String,
    is_terminal: bool,
    /// Who else wants to know.
    told: Option<watch::Sender<Reason>>,
}

/// Moves to the start of the line and clears it.
const AGAIN: &str = "\r\x1b[K";

impl Progress {
    pub(in crate::command) fn new(lock: &LockName) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: stderr().is_terminal(), told: None }
    }

    /// The same for a program, which hears it, too.
    pub(in crate::command) fn heard_by(lock: &LockName, told: watch::Sender<Reason>) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: false, told: Some(told) }
    }

    /// Says why the lock is waited for.
    pub(in crate::command) fn say(&mut self, why: &str) {
        self.say_as(why, true);
    }

    /// Says why it is not known whether the lock is taken.
    pub(in crate::command) fn say_unknown(&mut self, why: &str) {
        self.say_as(why, false);
    }

    fn say_as(&mut self, why: &str, is_known: bool) {
        if why == self.last {
            return;
        }
        why.clone_into(&mut self.last);
        if let Some(told) = &self.told {
            told.send_replace(Reason { why: why.to_owned(), is_known });
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
