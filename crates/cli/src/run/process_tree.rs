//! The descendants of this process, as the kernel lists them.
//!
//! Only children get a signal. A child keeps its process ID until this process reaps it, so the signal never reaches another process.
//! When a child dies, its children become children of this process, because it is a child subreaper. If this process kills all its
//! children until there are none, it kills every descendant, in any session and any process group.

use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process, set_child_subreaper, waitid};

use crate::hold::exit::CommandStatus;

/// Makes orphans below this process its children.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The children of this process.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        match fs::read_to_string(task?.path().join("children")) {
            Ok(list) => found.extend(list.split_whitespace().filter_map(pid)),
            // This kernel does not list children.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return all_with_this_parent(),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn all_with_this_parent() -> io::Result<Vec<Pid>> {
    let entries = fs::read_dir("/proc")?.collect::<io::Result<Vec<_>>>()?;
    let processes = entries.iter().filter_map(|entry| pid(entry.file_name().to_str()?));
    Ok(processes.filter(|process| parent_of(*process) == Some(getpid())).collect())
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name of the program is in parentheses and can contain any character.
    pid(stat.rsplit(')').next()?.split_whitespace().nth(1)?)
}

/// Whether a process is below this one. A process that ended counts until it is reaped.
pub(super) fn is_descendant(process: Pid) -> bool {
    std::iter::successors(parent_of(process), |parent| parent_of(*parent)).any(|parent| parent == getpid())
}

/// Whether a child of this process is in this process group.
pub(super) fn has_child_in(group: Pid) -> bool {
    let is_in_group = |child: Pid| getpgid(Some(child)).is_ok_and(|of| of == group);
    children().is_ok_and(|children| children.into_iter().any(is_in_group))
}

/// Sends a signal to each child.
pub(super) fn signal_children(signal: Signal) -> io::Result<()> {
    for child in children()? {
        // The child can have ended, or belong to another user. SIGKILL is repeated until it is gone.
        let _ = kill_process(child, signal);
    }
    Ok(())
}

/// Reaps ended children, except one. Returns whether any child is left, including that one.
pub(super) fn reap(but: Option<Pid>) -> io::Result<bool> {
    for child in children()? {
        if Some(child) != but {
            end_of(child, WaitIdOptions::empty())?;
        }
    }
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::All, any) {
        Ok(_) | Err(Errno::INTR) => Ok(true),
        Err(Errno::CHILD) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How a child ended, if it ended. Without `NOWAIT` this reaps it.
pub(super) fn end_of(child: Pid, options: WaitIdOptions) -> io::Result<Option<CommandStatus>> {
    match waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | options) {
        Ok(status) => Ok(status.and_then(|status| {
            status
                .exit_status()
                .map(CommandStatus::Code)
                .or_else(|| status.terminating_signal().map(CommandStatus::Signal))
        })),
        Err(Errno::CHILD | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
