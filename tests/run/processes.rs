//! A `redlock run`, and the processes below it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::Duration,
};

use redlock_operator::time::{Boottime, Clock, SystemClock};

use crate::servers::Servers;

/// The limit of a wait, which is long because the machine can be busy.
const LONG: Duration = Duration::from_secs(20);
/// All processes of one test have this variable.
const MARK: &str = "REDLOCK_TEST_RUN";
pub(crate) const LOCK: &str = "shop/reindex";
/// Long enough for a busy machine to renew in time.
pub(crate) const TTL: &str = "3s";

/// A script that works without an end.
pub(crate) const WORKS: &str = "touch ready; while :; do sleep 0.05; done";
/// A script that works without an end, and ignores SIGTERM.
pub(crate) const IGNORES_TERM: &str = "trap '' TERM; touch ready; while :; do sleep 0.05; done";
/// A script that works until the file `end` exists.
pub(crate) const WORKS_UNTIL_END: &str = "touch ready; while [ ! -e end ]; do sleep 0.01; done";

pub(crate) fn now() -> Boottime {
    SystemClock.boottime()
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = now();
    while !condition() {
        assert!(now().since(begun) < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success(), "kill -{name} {pid}");
}

/// The standard error of a command that must have ended with this exit code.
#[track_caller]
pub(crate) fn errors_of(output: &Output, code: i32) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    errors
}

/// A folder for the files of commands, and the mark of their processes.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    mark: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("redlock-run-test-{mark}"));
        fs::create_dir_all(&folder).unwrap();
        Self { folder, mark }
    }

    /// `redlock run` with these options, against these members.
    pub(crate) fn command(&self, servers: &Servers, options: &[&str], command: &[&str]) -> Command {
        let urls = servers.urls();
        let mut run =
            self.redlock(&["run", "--direct", "--admit-at-once", "--members", &urls, "--lock", LOCK, "--ttl", TTL]);
        run.args(options).arg("--").args(command).stdin(Stdio::null());
        run
    }

    /// `redlock`, whose processes have the mark.
    pub(crate) fn redlock(&self, arguments: &[&str]) -> Command {
        let mut redlock = Command::new(env!("CARGO_BIN_EXE_redlock"));
        redlock.args(arguments).env(MARK, &self.mark).current_dir(&self.folder);
        for variable in ["REDLOCK_LOCK", "REDLOCK_SOCKET", "REDLOCK_HELD"] {
            redlock.env_remove(variable);
        }
        redlock
    }

    pub(crate) fn output(&self, servers: &Servers, options: &[&str], command: &[&str]) -> Output {
        self.command(servers, options, command).output().unwrap()
    }

    /// Starts a shell script under the lock, and waits until it has written the file `ready`.
    pub(crate) fn start(&self, servers: &Servers, options: &[&str], script: &str) -> Running<'_> {
        self.started(self.command(servers, options, &["sh", "-c", script]))
    }

    /// Starts this `redlock run`, and waits until its command has written the file `ready`.
    pub(crate) fn started(&self, mut command: Command) -> Running<'_> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = Running { place: self, child };
        until("the command is ready", || self.folder.join("ready").exists());
        running
    }

    /// A file that the command has written.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_default().trim().to_owned()
    }

    /// The processes of commands, in all sessions.
    pub(crate) fn alive(&self) -> Vec<u32> {
        self.marked().into_iter().filter(|pid| !is_guard(*pid)).collect()
    }

    pub(crate) fn guard(&self) -> u32 {
        self.marked().into_iter().find(|pid| is_guard(*pid)).expect("a guard")
    }

    /// The commands and guards with the mark.
    fn marked(&self) -> Vec<u32> {
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| self.has_mark(*pid).unwrap_or(false)).collect()
    }

    fn has_mark(&self, pid: u32) -> Option<bool> {
        // A zombie has no environment.
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mark = format!("{MARK}={}", self.mark);
        let has = |wanted: &dyn Fn(&[u8]) -> bool| environment.split(|byte| *byte == 0).any(wanted);
        Some(has(&|entry| entry == mark.as_bytes()) && has(&|entry| entry.starts_with(b"REDLOCK_SOCKET=")))
    }

    /// Checks that no process is left at this time, without a request to the members.
    ///
    /// A check that began before this time passes, even if it ends later.
    pub(crate) fn ends_before(&self, end: Boottime) {
        until("the command has ended", || {
            let looked = now();
            let alive = self.alive();
            assert!(alive.is_empty() || looked < end, "{alive:?} run {:?} after the lock", looked.since(end));
            alive.is_empty()
        });
    }

    /// Waits until no process of the command is left, and checks that the members have the lock until then.
    pub(crate) fn ends_before_the_lock(&self, servers: &Servers) {
        until("the command has ended", || {
            let is_held = servers.have_majority(LOCK);
            let alive = self.alive();
            assert!(is_held || alive.is_empty(), "{alive:?} run without a lock");
            alive.is_empty()
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.marked() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_guard(pid: u32) -> bool {
    let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    words.next() == Some(b"redlock") && words.next() == Some(b"guard")
}

/// A `redlock run` whose command is ready.
pub(crate) struct Running<'a> {
    place: &'a Place,
    child: Child,
}

impl Running<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn guard(&self) -> u32 {
        self.place.guard()
    }

    /// Waits for its end with this exit code, and returns its standard error.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> String {
        let (ended, errors) = self.end();
        assert_eq!(ended, Some(code), "{errors}");
        errors
    }

    /// Waits for its end, and returns its exit code and standard error.
    ///
    /// A process that keeps the pipe open would block this.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        until("redlock run has ended", || self.child.try_wait().unwrap().is_some());
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        (code, said)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
