//! Members for one test.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redlock_operator::time::Boottime;

use crate::port::free_port;
use crate::processes::{now, signal, until};

/// The timeout of an immediate answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The value of a key on one member, and the time at which it expires.
pub(crate) type KeyReading = Option<(String, Boottime)>;

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Majority {
    /// A majority has this value until this time.
    Holds { value: String, until: Boottime },
    /// No value is on a majority of the members.
    DoesNot,
    /// A member does not answer.
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
        let servers = Self((0..count).map(|_| start(free_port())).collect());
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

    /// The beginning of a command in a shell that takes a lock from these members.
    pub(crate) fn run(&self) -> String {
        format!("{} run --direct --admit-at-once --members {}", env!("CARGO_BIN_EXE_redlock"), self.urls())
    }

    /// The number of members with this key.
    pub(crate) fn with(&self, key: &str) -> usize {
        let has = |port: u16| ask(port, &format!("EXISTS {key}")).as_deref() == Some(":1");
        self.0.iter().filter(|(_, port)| has(*port)).count()
    }

    /// The number of connections of other programs to the first member.
    pub(crate) fn clients(&self) -> usize {
        let is_whole = |said: &str| said.ends_with("\r\n") && said.contains(" cmd=client");
        let listed = ask_for(self.0[0].1, "CLIENT LIST", is_whole).unwrap_or_default();
        listed.matches(" cmd=").count().saturating_sub(1)
    }

    pub(crate) fn have_majority(&self, key: &str) -> bool {
        self.with(key) > self.0.len() / 2
    }

    /// The milliseconds until the key has expired on all members.
    pub(crate) fn longest_left(&self, key: &str) -> u64 {
        let left = |port: u16| ask(port, &format!("PTTL {key}"))?.strip_prefix(':')?.parse().ok();
        self.0.iter().filter_map(|(_, port)| left(*port)).max().unwrap_or(0)
    }

    /// The current state of a key.
    ///
    /// A silenced member has the key of its last reading, until that expires.
    pub(crate) fn majority(&self, key: &str, silenced: Option<&KeyReading>) -> Majority {
        let silenced = silenced.map(|sight| Some(sight.clone().filter(|(_, until)| *until > now())));
        let asked = self.0.iter().skip(usize::from(silenced.is_some())).map(|(_, port)| read_key(*port, key, ""));
        let seen: Vec<_> = silenced.into_iter().chain(asked).collect();
        let majority = seen.len() / 2 + 1;
        for (value, _) in seen.iter().flatten().flatten() {
            let with = seen.iter().flatten().flatten().filter(|(other, _)| other == value);
            let mut ends: Vec<_> = with.map(|(_, until)| *until).collect();
            ends.sort_unstable_by(|one, other| other.cmp(one));
            if let Some(until) = ends.get(majority - 1) {
                return Majority::Holds { value: value.clone(), until: *until };
            }
        }
        // The value can be on a majority that includes the silent member.
        if seen.iter().all(Option::is_some) { Majority::DoesNot } else { Majority::Unknown }
    }

    /// Pauses the first `count` members, and returns the last reading of the key on each of them.
    ///
    /// No request can renew the key there.
    pub(crate) fn silence(&self, count: usize, key: &str) -> Vec<KeyReading> {
        let silent = self.0.iter().take(count);
        silent.map(|(_, port)| read_key(*port, key, "CLIENT PAUSE 60000 ALL\r\n").expect("it answers")).collect()
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

    /// Sends a command to every member.
    pub(crate) fn send_all(&self, command: &str) {
        for (_, port) in &self.0 {
            let _ = ask(*port, command);
        }
    }

    pub(crate) fn freeze(&self) {
        for (child, _) in &self.0 {
            signal(child.id(), "STOP");
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

/// Reads a key on one member, and then runs the commands `then`.
///
/// Returns `None` if the member does not answer.
fn read_key(port: u16, key: &str, then: &str) -> Option<KeyReading> {
    let script = "EVAL \"return {redis.call('GET',KEYS[1]),redis.call('PTTL',KEYS[1])}\" 1";
    // Redis executes the commands of one write without requests of other clients between them.
    let is_whole = |said: &str| said.lines().any(|line| line.starts_with(':')) && said.ends_with("\r\n");
    let said = ask_for(port, &format!("{script} {key}\r\n{then}"), is_whole)?;
    let lines: Vec<_> = said.lines().collect();
    let left = lines.iter().find_map(|line| line.strip_prefix(':')?.parse::<i64>().ok());
    let until = now() + Duration::from_millis(u64::try_from(left.unwrap_or(0)).unwrap_or(0));
    Some(lines.get(2).filter(|line| !line.starts_with(':')).map(|value| ((*value).to_owned(), until)))
}

/// The first line of the answer to an inline command, or `None` if the member is frozen.
fn ask(port: u16, command: &str) -> Option<String> {
    let said = ask_for(port, command, |said| said.contains("\r\n"))?;
    said.lines().next().map(str::to_owned)
}

/// Sends a command, and returns the answer as soon as it is complete.
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
