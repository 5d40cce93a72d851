//! The handle of `run` to its guard: starts it, and kills the descendants if it dies.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitIdOptions, getpgrp, getpid, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep, timeout};

use super::SELF;
use super::guard_protocol::{GuardCommand, GuardEvent, line};
use super::{process_tree, terminal};
use crate::hold::ENTRY_PREFIX;

/// Time for the guard to start.
const START: Duration = Duration::from_secs(5);
/// Time for the guard to exit after its last event.
const LEAVE: Duration = Duration::from_secs(2);
const SEND: Duration = Duration::from_millis(20);
/// Pause between two checks of ending processes.
const PAUSE: Duration = Duration::from_millis(1);

/// The command, and the signal that requests its end.
#[derive(Clone, Debug)]
pub(super) struct GuardTask {
    pub(super) command: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, OsString)>,
    pub(super) signal: i32,
    pub(super) grace: Duration,
}

/// Whether a variable can have the members' passwords. The command does not get such a variable.
fn holds_passwords(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == "REDLOCK_MEMBERS" || name.strip_prefix(ENTRY_PREFIX).is_some_and(|entry| entry != "SECRET")
}

/// A running guard.
pub(super) struct GuardHandle {
    events: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
    process: Pid,
    command: Option<Pid>,
    has_terminal: bool,
}

impl GuardHandle {
    /// Starts the guard. The guard starts the command when it receives the first deadline.
    pub(super) async fn start(task: &GuardTask) -> io::Result<Self> {
        process_tree::adopt_orphans()?;
        let name = format!("redlock-run-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let has_terminal = terminal::is_ours();
        let mut guard = Command::new(SELF);
        guard.arg0("redlock").args(["guard", "--control", &name]);
        guard.args(["--parent", &getpid().as_raw_nonzero().to_string()]);
        guard.args(["--signal", &task.signal.to_string(), "--grace", &task.grace.as_millis().to_string()]);
        if has_terminal {
            guard.args(["--terminal", &getpgrp().as_raw_nonzero().to_string()]);
        }
        if terminal::is_of_another_group() {
            // The command is in a session of its own, so the kernel would not protect the shell's input from it.
            guard.stdin(Stdio::null());
        }
        for (name, _) in std::env::vars_os().filter(|(name, _)| holds_passwords(name)) {
            guard.env_remove(name);
        }
        guard.envs(task.environment.iter().map(|(name, value)| (name, value)));
        // Only `run` must get the signals for its process group, because it forwards them.
        let child = guard.arg("--").args(&task.command).process_group(0).spawn()?;
        let process = Pid::from_child(&child);
        let connection = async {
            loop {
                let (stream, _) = listener.accept().await?;
                // Every process of this machine can connect, so this accepts only the guard.
                if stream.peer_cred()?.pid() == Some(process.as_raw_nonzero().get()) {
                    return io::Result::Ok(stream);
                }
            }
        };
        let stream = timeout(START, connection).await.map_err(|_| io::Error::other("the guard does not start"))??;
        let (events, commands) = stream.into_split();
        Ok(Self { events: BufReader::new(events).lines(), commands, process, command: None, has_terminal })
    }

    /// Waits for the next event. `None` if the guard ended, and its last event was not [`GuardEvent::Empty`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<GuardEvent> {
        let line = self.events.next_line().await.ok()??;
        let event = serde_json::from_str(&line).ok()?;
        if let GuardEvent::Started(pid) = event {
            self.command = Pid::from_raw(pid);
            if let (true, Some(command)) = (self.has_terminal, self.command) {
                // If this fails, the kernel stops the command when it reads from the terminal.
                let _ = terminal::give(command);
            }
        }
        Some(event)
    }

    /// Sends a command to the guard. It ignores errors, because [`Self::next`] reports the guard's end.
    pub(super) async fn send(&mut self, command: GuardCommand) {
        // A stopped guard reads nothing. `run` then takes over and kills the command after the deadline.
        let _ = timeout(SEND, self.commands.write_all(&line(&command))).await;
    }

    /// Reaps ended orphans if this is the first process of a container.
    ///
    /// Elsewhere another part of this process can wait for its children. For example, the Kubernetes client waits for a credential plugin.
    pub(super) fn reap_orphans(&self) {
        if getpid().is_init() {
            let _ = process_tree::reap(Some(self.process));
        }
    }

    /// Kills a guard that does not react. The kernel then kills the command.
    pub(super) fn kill(&self) {
        let _ = kill_process(self.process, Signal::KILL);
    }

    /// Waits for the exit of a guard after all processes of the command ended.
    pub(super) async fn await_exit(self) {
        let gone = async {
            while !matches!(process_tree::end_of(self.process, WaitIdOptions::empty()), Ok(Some(_)) | Err(_)) {
                sleep(PAUSE).await;
            }
        };
        let _ = timeout(LEAVE, gone).await;
    }

    /// Kills all descendants after the death of the guard, with this time left before the deadline.
    pub(super) async fn kill_descendants(self, left: Duration) {
        let _ = process_tree::signal_children(Signal::KILL);
        if let (true, Some(command)) = (self.has_terminal, self.command) {
            terminal::take_back(command, getpgrp().as_raw_nonzero().get(), left);
        }
        loop {
            let _ = process_tree::signal_children(Signal::KILL);
            if matches!(process_tree::reap(None), Ok(false)) {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}
