//! Members for one test.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use redlock_operator::time::Boottime;

use crate::processes::{now, signal, until};

/// For an answer that waits for nothing.
const ANSWER: Duration = Duration::from_secs(1);

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Majority {
    /// A majority has this value, until then.
    Holds { value: String, until: Boottime },
    /// No value is on a majority.
    DoesNot,
    /// Too few members answer.
    Unknown,
}

/// As the operator sets or renews a key.
pub(crate) fn set(ports: &[u16], key: &str, value: &str, millis: u64) {
    for port in ports {
        ask(*port, &format!("SET {key} {value} PX {millis}")).unwrap();
    }
}

pub(crate) fn urls(ports: &[u16]) -> String {
    let urls: Vec<_> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    urls.join(",")
}

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

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|(_, port)| *port).collect()
    }

    pub(crate) fn urls(&self) -> String {
        urls(&self.ports())
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

    /// What a majority of the members shows now.
    pub(crate) fn majority(&self, key: &str) -> Majority {
        let script = "EVAL \"return {redis.call('GET',KEYS[1]),redis.call('PTTL',KEYS[1])}\" 1";
        let look = |port: u16| {
            let said =
                ask_for(port, &format!("{script} {key}"), |said| said.lines().any(|line| line.starts_with(':')))?;
            let lines: Vec<_> = said.lines().collect();
            let left = lines.iter().find_map(|line| line.strip_prefix(':')?.parse::<i64>().ok());
            let until = now() + Duration::from_millis(u64::try_from(left.unwrap_or(0)).unwrap_or(0));
            Some(lines.get(2).filter(|line| !line.starts_with(':')).map(|value| ((*value).to_owned(), until)))
        };
        // All at once: while one that is frozen is waited for, the key may end on the others.
        let seen: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> = self.0.iter().map(|(_, port)| scope.spawn(|| look(*port))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        let majority = seen.len() / 2 + 1;
        for (value, _) in seen.iter().flatten().flatten() {
            let with = seen.iter().flatten().flatten().filter(|(other, _)| other == value);
            let mut ends: Vec<_> = with.map(|(_, until)| *until).collect();
            ends.sort_unstable_by(|one, other| other.cmp(one));
            if let Some(until) = ends.get(majority - 1) {
                return Majority::Holds { value: value.clone(), until: *until };
            }
        }
        // A value on as many as do not answer, and on one that does, may be on a majority.
        let answers = seen.iter().flatten().count();
        if answers >= majority { Majority::DoesNot } else { Majority::Unknown }
    }

    /// Until when a majority has the key. From that moment on no member does anything: nothing is renewed any more.
    pub(crate) fn silence(&self, key: &str) -> Boottime {
        let end = |port: u16| {
            // Both are executed before anything that others have sent meanwhile.
            let said = ask(port, &format!("PTTL {key}\r\nCLIENT PAUSE 60000 ALL"))?;
            let left: i64 = said.strip_prefix(':')?.parse().ok()?;
            Some(now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)))
        };
        let mut ends: Vec<_> = self.0.iter().filter_map(|(_, port)| end(*port)).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        ends.get(self.0.len() / 2).copied().unwrap_or_else(now)
    }

    /// As the operator sets or renews a key.
    pub(crate) fn set(&self, key: &str, value: &str, millis: u64) {
        set(&self.ports(), key, value, millis);
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
    let said = ask_for(port, command, |said| said.contains("\r\n"))?;
    said.lines().next().map(str::to_owned)
}

/// The answer, as soon as it is whole.
fn ask_for(port: u16, command: &str, is_whole: impl Fn(&str) -> bool) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut said = String::new();
    let mut bytes = [0; 256];
    while !is_whole(&said) {
        let read = stream.read(&mut bytes).ok().filter(|read| *read > 0)?;
        said.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    Some(said)
}
