//! An agent, and an application that asks it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redlock_operator::time::Boottime;
use serde_json::Value;

use crate::processes::{LOCK, Place, TTL, now, signal, until};
use crate::servers::Servers;

/// The timeout of an answer.
const ANSWER: Duration = Duration::from_secs(90);

/// An answer of the agent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// The time before the request.
    asked: Boottime,
}

impl Reply {
    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn token(&self) -> i64 {
        self.body["fencingToken"].as_i64().unwrap()
    }

    /// The deadline for an application that adds `validForMs` to the time before its request.
    pub(crate) fn end(&self) -> Boottime {
        self.asked + Duration::from_millis(self.body["validForMs"].as_u64().unwrap())
    }
}

pub(crate) struct Agent {
    child: Child,
    port: u16,
}

impl Agent {
    /// Starts an agent that takes the lock of these tests from the members.
    pub(crate) fn direct(place: &Place, servers: &Servers, options: &[&str]) -> Self {
        let urls = servers.urls();
        let direct = ["--direct", "--admit-at-once", "--members", &urls, "--lock", LOCK, "--ttl", TTL];
        Self::start(&mut place.redlock(&[&["agent", "--identity", "me"][..], &direct, options].concat()))
    }

    /// Registers a new instance, and waits until it leads.
    pub(crate) fn register_leader(&self) -> (String, Reply) {
        let instance = self.register();
        let first = self.until_leads(&instance);
        (instance, first)
    }

    /// `redlock run --agent` with a shell script.
    pub(crate) fn run(&self, place: &Place, options: &[&str], script: &str) -> Command {
        let listens = self.url().replace("http://", "");
        let lock = ["run", "--agent", &listens, "--lock", LOCK, "--ttl", TTL];
        let mut run = place.redlock(&[&lock[..], options, &["--", "sh", "-c", script]].concat());
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        let port = loop {
            assert!(said.read_line(&mut text).unwrap() > 0, "the agent has ended: {text}");
            if let Some((_, port)) = text.split_once("http://127.0.0.1:") {
                break port.trim().parse().unwrap();
            }
        };
        // Reading the pipe keeps the agent from blocking on it.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
        Self { child, port }
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        ask(self.stream(), "GET", path, "Host: localhost\r\n")
    }

    pub(crate) fn post(&self, path: &str) -> Reply {
        ask(self.stream(), "POST", path, "Host: localhost\r\nX-Redlock: 1\r\n")
    }

    /// A request with these headers.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> Reply {
        ask(self.stream(), method, path, headers)
    }

    /// Registers a new instance, which the agent serves from now on.
    pub(crate) fn register(&self) -> String {
        let said = self.post("/register");
        assert_eq!(said.status, 201, "{said:?}");
        said.body["instance"].as_str().unwrap().to_owned()
    }

    pub(crate) fn leader(&self, instance: &str) -> Reply {
        self.get(&format!("/leader?instance={instance}"))
    }

    /// The agent's answer, or `None` if the agent has ended or ends during the request.
    pub(crate) fn try_leader(&self, instance: &str) -> Option<Reply> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        try_ask(stream, "GET", &format!("/leader?instance={instance}"), "Host: localhost\r\n")
    }

    /// The name that programs of leader-elector read.
    pub(crate) fn name(&self) -> String {
        self.get("/").body["name"].as_str().unwrap().to_owned()
    }

    /// Waits for the first answer by which this instance leads.
    pub(crate) fn until_leads(&self, instance: &str) -> Reply {
        let mut last = None;
        until("the instance leads", || {
            last = Some(self.leader(instance)).filter(|said| said.status == 200);
            last.is_some()
        });
        last.unwrap()
    }

    /// The lines of a stream of events.
    pub(crate) fn events(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = self.stream();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        BufReader::new(stream).lines().map_while(Result::ok)
    }

    /// Its URL for programs.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        until("the agent has ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three members, a place, and an agent that takes the lock of these tests from the members.
pub(crate) fn direct(options: &[&str]) -> (Servers, Place, Agent) {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, options);
    (servers, place, agent)
}

/// Sends a request over a socket file.
pub(crate) fn get_unix(path: &Path, target: &str) -> Reply {
    ask(UnixStream::connect(path).unwrap(), "GET", target, "Host: anything\r\n")
}

fn ask(stream: impl Read + Write, method: &str, target: &str, headers: &str) -> Reply {
    try_ask(stream, method, target, headers).unwrap_or_else(|| panic!("{method} {target}: no answer"))
}

fn try_ask(mut stream: impl Read + Write, method: &str, target: &str, headers: &str) -> Option<Reply> {
    let asked = now();
    let request = format!("{method} {target} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some(Reply { status, body: serde_json::from_str(body).unwrap_or_default(), asked })
}
