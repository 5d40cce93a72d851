//! Lock clients in other languages.
//!
//! They are the programs of tests/clients, each a process of its own. tests/e2e/libraries.rs describes their input and
//! output.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::callers::LONGEST;
use crate::measure::{Measured, Meter, Times};
use crate::servers::Servers;

const NAMES: [&str; 4] = ["redsync", "node-redlock", "pottery", "redisson"];
/// Time in which a JVM starts, connects, and compiles its hot code.
const WARM_UP: Duration = Duration::from_secs(2);
const LONGEST_WARM_UP: Duration = Duration::from_secs(60);

pub(crate) struct Rival {
    pub(crate) name: &'static str,
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Rival {
    fn start(name: &'static str, servers: &Servers) -> io::Result<Self> {
        let mut command = Command::new(directory().join(name).join("run"));
        command.env("REDLOCK_URLS", servers.urls().join(" "));
        // The end-to-end tests use only the first compiler, because they take few locks.
        command.env("_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let missing = || io::Error::other("a child without stdin and stdout");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let (sender, answers) = channel();
        // The thread ends with the program.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { name, child, stdin, answers })
    }

    fn ask(&mut self, workers: usize, time: Duration, longest: Duration) -> io::Result<Answer> {
        writeln!(self.stdin, "cycles {workers} {}", time.as_millis())?;
        let answer = self.answers.recv_timeout(longest).map_err(|error| {
            // Otherwise a late answer would arrive in the middle of the next cell.
            let _ = self.child.kill();
            io::Error::other(error)
        })?;
        Answer::parse(&answer).ok_or_else(|| io::Error::other(answer))
    }

    /// Measures a cell.
    ///
    /// A program that does not answer in time is no longer measured.
    pub(crate) fn run(&mut self, servers: &Servers, workers: usize, time: Duration) -> io::Result<Measured> {
        let meter = Meter::of(servers, self.child.id().to_string());
        let Answer { cycles, failed, times } = self.ask(workers, time, LONGEST)?;
        Ok(meter.stop(Measured { cycles, failed, times: Some(times), ..Measured::default() }))
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    cycles: u64,
    failed: u64,
    times: Times,
}

impl Answer {
    /// `cycles COUNT FAILED ACQUIRE50 ACQUIRE99 RELEASE50 RELEASE99`
    fn parse(line: &str) -> Option<Self> {
        let numbers: Result<Vec<u64>, _> = line.strip_prefix("cycles ")?.split(' ').map(str::parse).collect();
        match numbers.ok()?[..] {
            [cycles, failed, acquire50, acquire99, release50, release99] => {
                let times = [acquire50, acquire99, release50, release99].map(|micros| micros as f64);
                Some(Self { cycles, failed, times })
            }
            _ => None,
        }
    }
}

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.local/clients"))
}

/// Starts the installed programs, and warms them up.
pub(crate) fn start(servers: &Servers) -> Vec<Rival> {
    let (installed, missing): (Vec<_>, Vec<_>) =
        NAMES.into_iter().partition(|name| directory().join(name).join("run").exists());
    if !missing.is_empty() {
        println!("not installed: {}; `dev/clients.sh {}` installs them", missing.join(", "), missing.join(" "));
    }
    let ready = |name: &'static str| {
        let started = Rival::start(name, servers).and_then(|mut rival| {
            rival.ask(64, WARM_UP, LONGEST_WARM_UP)?;
            Ok(rival)
        });
        started.inspect_err(|error| println!("{name} is left out: {error}")).ok()
    };
    installed.into_iter().filter_map(ready).collect()
}
