//! Sends a signal to the application when its leadership begins or ends.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::console;
use crate::run::SignalName;

/// A signal, and the file with the number of the process that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hook {
    signal: SignalName,
    pid_file: PathBuf,
}

impl FromStr for Hook {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "use signal:<name>:<path of a pid file>, for example signal:TERM:/shared/app.pid";
        let (name, path) = text.strip_prefix("signal:").and_then(|rest| rest.split_once(':')).ok_or(WRONG)?;
        let signal = name.parse().map_err(|_| WRONG)?;
        if path.starts_with('/') { Ok(Self { signal, pid_file: path.into() }) } else { Err(WRONG) }
    }
}

/// The signals of the two moments.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct HookArgs {
    /// Sent when the application begins to lead, as signal:USR1:/shared/app.pid.
    ///
    /// The process whose number the application has written into that file gets it.
    #[arg(long, value_name = "SIGNAL")]
    on_elected: Option<Hook>,
    /// Sent when the application ceases to lead.
    #[arg(long, value_name = "SIGNAL")]
    on_lost: Option<Hook>,
}

impl HookArgs {
    pub(super) const fn is_empty(&self) -> bool {
        self.on_elected.is_none() && self.on_lost.is_none()
    }

    pub(super) fn elected(&self, lock: &str) {
        call(self.on_elected.as_ref(), "--on-elected", lock);
    }

    pub(super) fn lost(&self, lock: &str) {
        call(self.on_lost.as_ref(), "--on-lost", lock);
    }
}

/// Sends the signal of a hook. A failure is only reported, because a request of the application gets the same answer.
fn call(hook: Option<&Hook>, option: &str, lock: &str) {
    if let Some(Hook { signal, pid_file }) = hook
        && let Err(error) = send(*signal, pid_file)
    {
        console::report(format_args!("lock {lock}: {option} failed: {error:#}"));
    }
}

/// Sends a signal. It reads the file each time, because a restarted application has another process ID.
fn send(signal: SignalName, path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let number: Option<i32> = text.trim().parse().ok().filter(|number| *number > 1);
    let pid =
        number.and_then(Pid::from_raw).with_context(|| format!("{} has no number of a process", path.display()))?;
    let signal = Signal::from_named_raw(signal.0).context("the signal cannot be sent")?;
    kill_process(pid, signal).with_context(|| format!("process {pid:?} cannot be signalled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_a_signal_and_a_file_with_a_number() {
        let wanted = Hook { signal: "TERM".parse().unwrap(), pid_file: "/run/a.pid".into() };
        assert_eq!("signal:TERM:/run/a.pid".parse(), Ok(wanted));
        for wrong in
            ["signal:TERM", "signal:TERM:a.pid", "signal:WHAT:/run/a.pid", "http://127.0.0.1:80/a", "/bin/true"]
        {
            assert!(wrong.parse::<Hook>().is_err(), "{wrong}");
        }
    }
}
