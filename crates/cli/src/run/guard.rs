//! The guard: a process between `run` and the command that enforces a deadline.
//!
//! It is a separate process, so that the command ends in time even if `run` is killed or stopped. It has one thread and no runtime. It
//! starts the command itself, so that the kernel sends SIGKILL to the command when the guard ends. The command's other processes then
//! become children of `run`, because `run` is a child subreaper. Only SIGKILL ends the guard early, so the command has its grace when each
//! process of a cgroup gets SIGTERM.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, kill_process_group, pidfd_open,
    waitid,
};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::SELF;
use super::guard_protocol::{GuardEvent, line};
use super::guard_state::{Action, GuardState, Input};
use super::{command_env, process_tree, terminal};
use crate::console;
use crate::hold::{Signals, block_on, exit};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// Pause between two rounds of SIGKILL.
const KILL_PAUSE: Duration = Duration::from_millis(2);
/// Pause between two rounds that reap orphans.
const TICK: Duration = Duration::from_millis(250);

/// Runs a command, and ends all of it at a deadline that its parent gives.
#[derive(Clone, Debug, clap::Args)]
pub struct GuardArgs {
    /// The abstract socket on which `run` waits.
    #[arg(long)]
    control: String,
    /// The process ID of `run`.
    #[arg(long)]
    parent: i32,
    /// The process group of `run` if the command gets the terminal.
    #[arg(long)]
    terminal: Option<i32>,
    /// The signal that asks the command to end.
    #[arg(long)]
    signal: i32,
    /// Milliseconds that the command has to end.
    #[arg(long)]
    grace: u64,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Guards a command until all its processes ended.
pub fn run(args: &GuardArgs) -> ExitCode {
    let failed = |error: &io::Error| exit::failed(format_args!("the guard has failed: {error}"));
    // The handlers stay when the runtime ends, and replace the default action. In the command an exec restores that.
    let handlers = block_on(async { Signals::new() });
    match handlers.and_then(|_| Guard::new(args)) {
        Ok(mut guard) => match guard.watch() {
            Ok(()) => ExitCode::SUCCESS,
            // The connection stays open until the report is written, because `run` kills a guard that closed it.
            Err(error) => failed(&error),
        },
        Err(error) => failed(&error),
    }
}

struct Guard<'a> {
    args: &'a GuardArgs,
    state: GuardState,
    control: UnixStream,
    /// The received part of an incomplete command of `run`.
    read: Vec<u8>,
    timer: OwnedFd,
    /// The process of the command, and its pidfd if the system supports one.
    ///
    /// The pidfd wakes the guard immediately when the command ends.
    command: Option<(Pid, Option<OwnedFd>)>,
    has_started: bool,
    /// `run` ended or closed the connection.
    is_run_gone: bool,
}

impl<'a> Guard<'a> {
    fn new(args: &'a GuardArgs) -> io::Result<Self> {
        process_tree::adopt_orphans()?;
        let control = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&args.control)?)?;
        control.set_nonblocking(true)?;
        let parent = Pid::from_raw(args.parent);
        let peer = rustix::net::sockopt::socket_peercred(&control)?.pid;
        if getppid() != parent || Some(peer) != parent {
            return Err(io::Error::other("redlock run has ended"));
        }
        Ok(Self {
            args,
            state: GuardState::new(args.signal, Duration::from_millis(args.grace)),
            control,
            read: Vec::new(),
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?,
            command: None,
            has_started: false,
            is_run_gone: false,
        })
    }

    /// Guards until all processes of the command ended.
    fn watch(&mut self) -> io::Result<()> {
        loop {
            self.observe_end()?;
            let is_any_left = process_tree::reap(self.command.as_ref().map(|(pid, _)| *pid))?;
            if (self.has_started || self.state.is_killing()) && !is_any_left {
                self.send(GuardEvent::Empty);
                if self.is_run_gone {
                    command_env::remove_directory();
                }
                return Ok(());
            }
            if self.state.is_killing() {
                process_tree::signal_children(Signal::KILL)?;
            }
            self.sleep()?;
            self.read_commands()?;
            self.handle(Input::Tick)?;
        }
    }

    /// Handles the end of the command itself.
    ///
    /// It reaps the command last, so that the command's process group exists until then.
    fn observe_end(&mut self) -> io::Result<()> {
        let Some(pid) = self.command.as_ref().map(|(pid, _)| *pid) else { return Ok(()) };
        let Some(status) = process_tree::end_of(pid, WaitIdOptions::NOWAIT)? else {
            return self.continue_after_stop(pid);
        };
        if let Some(run_group) = self.args.terminal {
            if self.state.is_killing() {
                // A job of an interactive shell outlives the shell, and the terminal takes time.
                process_tree::signal_children(Signal::KILL)?;
            }
            let left = self.state.wakes_at().unwrap_or_default().since(now());
            terminal::take_back(pid, run_group, left);
        }
        self.send(GuardEvent::Ended(status));
        self.handle(Input::CommandEnded)?;
        process_tree::end_of(pid, WaitIdOptions::empty())?;
        self.command = None;
        Ok(())
    }

    /// Continues a command that was stopped at the keyboard, because its lock is still renewed.
    fn continue_after_stop(&self, pid: Pid) -> io::Result<()> {
        if self.args.terminal.is_none() {
            return Ok(());
        }
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stopped = match waitid(WaitId::Pid(pid), options) {
            Ok(status) => status.and_then(|status| status.stopping_signal()),
            Err(Errno::CHILD | Errno::INTR) => None,
            Err(error) => return Err(error.into()),
        };
        if stopped == Some(Signal::TSTP.as_raw()) {
            console::report(format_args!("a command under a lock cannot be suspended and continues"));
            let _ = kill_process_group(pid, Signal::CONT);
        }
        Ok(())
    }

    fn sleep(&self) -> io::Result<()> {
        let wakes_at = self.state.wakes_at().unwrap_or_default().since_boot();
        let it_value = Timespec {
            tv_sec: i64::try_from(wakes_at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wakes_at.subsec_nanos()),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of zero turns the timer off.
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        let mut waits = vec![PollFd::new(&self.timer, PollFlags::IN)];
        let mut longest = KILL_PAUSE;
        if !self.state.is_killing() {
            longest = TICK;
            waits.extend((!self.is_run_gone).then(|| PollFd::new(&self.control, PollFlags::IN)));
            waits.extend(self.command.iter().flat_map(|(_, end)| end).map(|end| PollFd::new(end, PollFlags::IN)));
        }
        let longest = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        match poll(&mut waits, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the commands of `run`.
    fn read_commands(&mut self) -> io::Result<()> {
        if self.state.is_killing() || self.is_run_gone {
            return Ok(());
        }
        let mut buffer = [0; 1024];
        loop {
            match self.control.read(&mut buffer) {
                Ok(0) => return self.lose_run(),
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.lose_run(),
            }
        }
        while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.read.drain(..=end).collect();
            self.handle(Input::Command(serde_json::from_slice(&line)?))?;
        }
        Ok(())
    }

    fn lose_run(&mut self) -> io::Result<()> {
        self.is_run_gone = true;
        self.handle(Input::RunGone)
    }

    fn handle(&mut self, event: Input) -> io::Result<()> {
        for action in self.state.on(event, now()) {
            match action {
                Action::Start => self.start()?,
                Action::Forward(signal) => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        self.forward(signal);
                    }
                }
                Action::Signal(signal) => {
                    self.request_end(Signal::from_named_raw(signal).unwrap_or(Signal::TERM))?;
                }
                Action::ReportEnding => self.send(GuardEvent::Ending),
            }
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let mut exec = Command::new(SELF);
        exec.arg0("redlock").args(["become", "--guard", &getpid().as_raw_nonzero().to_string()]);
        if self.args.terminal.is_some() {
            exec.arg("--terminal").process_group(0);
        }
        let child = exec.arg("--").args(&self.args.command).spawn()?;
        let pid = Pid::from_child(&child);
        self.has_started = true;
        // Old kernels and some sandboxes refuse a pidfd, so each tick checks the command as well.
        self.command = Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()));
        self.send(GuardEvent::Started(pid.as_raw_nonzero().get()));
        Ok(())
    }

    /// Sends a signal to the command's process group. Returns whether it was sent.
    ///
    /// The process creates its group before it becomes the command. Until then the signal goes to the process alone.
    fn forward(&self, signal: Signal) -> bool {
        let Some((pid, _)) = &self.command else { return false };
        kill_process_group(*pid, signal).is_ok() || kill_process(*pid, signal).is_ok()
    }

    /// Sends the end signal to the command's process group, and to daemons that the guard adopted.
    fn request_end(&self, signal: Signal) -> io::Result<()> {
        let was_sent = self.forward(signal);
        let group = self.command.as_ref().map(|(pid, _)| *pid);
        for child in process_tree::children()? {
            let is_in_group = rustix::process::getpgid(Some(child)).is_ok_and(|of| Some(of) == group);
            if !(was_sent && is_in_group) {
                let _ = kill_process(child, signal);
            }
            // A stopped process can end only when it continues.
            let _ = kill_process(child, Signal::CONT);
        }
        Ok(())
    }

    /// Sends an event without a wait, because a stopped `run` reads nothing.
    fn send(&mut self, report: GuardEvent) {
        let _ = self.control.write_all(&line(&report));
    }
}

fn now() -> Boottime {
    SystemClock.boottime()
}
