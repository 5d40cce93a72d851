//! Reports to the user why a lock is not held yet.

use std::io::{IsTerminal, Write, stderr};

use super::arguments::LockName;

/// A function that gets each reason, and whether it is certain that the lock is not held.
type Listener = Box<dyn Fn(&str, bool) + Send>;

/// The line on the error output. A new reason replaces it on a terminal, and adds a line elsewhere.
pub(crate) struct Progress {
    lock: String,
    last: String,
    is_terminal: bool,
    listener: Option<Listener>,
}

/// Moves to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

impl Progress {
    pub(crate) fn new(lock: &LockName) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: stderr().is_terminal(), listener: None }
    }

    /// A progress that also sends the reasons to a listener.
    #[cfg(target_os = "linux")]
    pub(crate) fn reported(lock: &LockName, listener: impl Fn(&str, bool) + Send + 'static) -> Self {
        Self { lock: lock.to_string(), last: String::new(), is_terminal: false, listener: Some(Box::new(listener)) }
    }

    /// Reports why the lock is not held yet. It is certain only if another holder has the lock, or comes first.
    pub(crate) fn report(&mut self, why: &str, is_certain: bool) {
        if !self.notify(why, is_certain) {
            return;
        }
        let line = format!("waiting for lock {}: {why}", self.lock);
        // A closed error output does not stop the command.
        let _ = if self.is_terminal {
            write!(stderr(), "{CLEAR_LINE}{line}")
        } else {
            writeln!(stderr(), "redlock: {line}")
        };
    }

    /// Sends a new reason to the listener, without a line. Returns whether the reason is new.
    pub(crate) fn notify(&mut self, why: &str, is_certain: bool) -> bool {
        if why == self.last {
            return false;
        }
        why.clone_into(&mut self.last);
        if let Some(listener) = &self.listener {
            listener(why, is_certain);
        }
        true
    }
}

impl Drop for Progress {
    /// Clears the line for the next output.
    fn drop(&mut self) {
        if self.is_terminal && !self.last.is_empty() {
            let _ = write!(stderr(), "{CLEAR_LINE}");
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// A progress, and its reasons.
    pub(in crate::hold) fn recorded(lock: &LockName) -> (Progress, UnboundedReceiver<(String, bool)>) {
        let (sender, reasons) = unbounded_channel();
        let listener = move |why: &str, is_certain| drop(sender.send((why.to_owned(), is_certain)));
        (Progress::reported(lock, listener), reasons)
    }
}
