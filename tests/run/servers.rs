//! Members for one test.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use redlock_operator::time::Boottime;

use crate::processes::{now, signal, until};

/// For an answer that waits for nothing.
const ANSWER: Duration = Duration::from_secs(1);

pub(crate) struct Servers(Vec<(Child, u16)>);

impl Servers {
    pub(crate) fn start(count: usize) -> Self {
        // All are reserved before the first one is given away, so that no two are the same.
        let reserved: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> = reserved.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(reserved);
        let servers = Self(ports.into_iter().map(start).collect());
        for (_, port) in &servers.0 {
            until("redis-server answers", || ask(*port, "PING").as_deref() == Some("+PONG"));
        }
        servers
    }

    pub(crate) fn urls(&self) -> String {
        let urls: Vec<_> = self.0.iter().map(|(_, port)| format!("redis://127.0.0.1:{port}")).collect();
        urls.join(",")
    }

    /// On how many members a key is.
    pub(crate) fn with(&self, key: &str) -> usize {
        let has = |port: u16| ask(port, &format!("EXISTS {key}")).as_deref() == Some(":1");
        self.0.iter().filter(|(_, port)| has(*port)).count()
    }

    pub(crate) fn have_majority(&self, key: &str) -> bool {
        self.with(key) > self.0.len() / 2
    }

    /// The milliseconds after which a key is on no member any more.
    pub(crate) fn longest_left(&self, key: &str) -> u64 {
        let left = |port: u16| ask(port, &format!("PTTL {key}"))?.strip_prefix(':')?.parse().ok();
        self.0.iter().filter_map(|(_, port)| left(*port)).max().unwrap_or(0)
    }

    /// Until when a majority has the key, as things are now.
    pub(crate) fn end(&self, key: &str) -> Boottime {
        self.end_after(key, "")
    }

    /// The same, and from that moment on no member does anything: nothing is renewed any more.
    pub(crate) fn silence(&self, key: &str) -> Boottime {
        self.end_after(key, "CLIENT PAUSE 60000 ALL\r\n")
    }

    fn end_after(&self, key: &str, then: &str) -> Boottime {
        let end = |port: u16| {
            // Both are executed before anything that others have sent meanwhile.
            let said = ask(port, &format!("PTTL {key}\r\n{then}"))?;
            let left: i64 = said.strip_prefix(':')?.parse().ok()?;
            Some(now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)))
        };
        let mut ends: Vec<_> = self.0.iter().filter_map(|(_, port)| end(*port)).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        ends.get(self.0.len() / 2).copied().unwrap_or_else(now)
    }

    /// As the operator sets or renews a key.
    pub(crate) fn set(&self, key: &str, value: &str, millis: u64) {
        for (_, port) in &self.0 {
            ask(*port, &format!("SET {key} {value} PX {millis}")).unwrap();
        }
    }

    pub(crate) fn delete(&self, key: &str) {
        for (_, port) in &self.0 {
            ask(*port, &format!("DEL {key}")).unwrap();
        }
    }

    pub(crate) fn freeze(&self) {
        self.freeze_some(self.0.len());
    }

    pub(crate) fn freeze_some(&self, count: usize) {
        for (child, _) in self.0.iter().take(count) {
            signal(child.id(), "STOP");
        }
    }

    pub(crate) fn thaw(&self) {
        for (child, _) in &self.0 {
            signal(child.id(), "CONT");
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(port: u16) -> (Child, u16) {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(program);
    command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port.to_string()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-server is needed");
    (child, port)
}

/// The first line of the answer to an inline command; `None` from a member that is frozen.
fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut answer = [0; 256];
    let read = stream.read(&mut answer).ok()?;
    String::from_utf8_lossy(&answer[..read]).lines().next().map(str::to_owned)
}
