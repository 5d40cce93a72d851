//! Compares the state machine with a real `redis-server`. Replies must be equal, except for times.
//!
//! Needs `redis-server` 7.0 in the PATH (or its path in `REDIS_SERVER`).

mod chance;
mod compare;
#[path = "../../../../tests/support/port.rs"]
mod port;
mod real;

use super::{Config, ConnectionId, Server};
use chance::Chance;
use compare::{Read, differ, read};
use real::Real;
use redlock_operator::redis_member::Secret;
use redlock_operator::redis_member::acl::{KeyPrefix, UserRule, users_acl};
use redlock_operator::time::{Clock, SystemClock};

type Arguments = Vec<Vec<u8>>;

fn password() -> Secret {
    Secret::new("horse")
}

fn locker() -> UserRule {
    UserRule::locker(7, &password())
}

fn client() -> UserRule {
    UserRule::client("billing", 7, &KeyPrefix::parse("shop/").unwrap(), &password())
}

fn acl() -> String {
    users_acl(&[password()], &[locker(), client()])
}

fn to_arguments<T: AsRef<[u8]>>(arguments: impl IntoIterator<Item = T>) -> Arguments {
    arguments.into_iter().map(|word| word.as_ref().to_vec()).collect()
}

fn printed(request: &[Vec<u8>]) -> String {
    // The end of a script identifies it.
    let word = |word: &Vec<u8>| String::from_utf8_lossy(&word[word.len().saturating_sub(60)..]).replace('\n', " ");
    request.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn now() -> i64 {
    SystemClock.wall().0 * 1_000
}

/// Both servers, with the same connections.
struct Pair {
    real: Real,
    model: Server,
    connections: Vec<ConnectionId>,
    log: Vec<String>,
}

impl Pair {
    fn start(connections: usize) -> Self {
        let config = Config { acl: Some(acl()), port: 6379, seed: 1 };
        let mut model = Server::new(config, now()).unwrap();
        let real = Real::start(&acl(), connections);
        let connections = (0..connections).map(|_| model.connect(now())).collect();
        Self { real, model, connections, log: Vec::new() }
    }

    /// Sends all requests to both servers in one write, and compares each reply.
    fn ask(&mut self, connection: usize, requests: &[Arguments]) -> Vec<Read> {
        let mut bytes = Vec::new();
        for request in requests {
            self.log.push(format!("{connection}: {}", printed(request)));
            bytes.extend(format!("*{}\r\n", request.len()).bytes());
            for word in request {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
        }
        let real = self.real.ask(connection, &bytes, requests.len());
        let id = self.connections[connection];
        self.model.feed(id, &bytes, now());
        let output = self.model.take_output(id);
        let mut output = output.as_slice();
        let mut model: Vec<Read> = Vec::new();
        while model.len() < requests.len() && model.last() != Some(&Read::Closed) {
            model.push(read(&mut output));
        }
        for ((request, real), model) in requests.iter().zip(&real).zip(&model) {
            if let Some(why) = differ(request, real, model) {
                let recent = self.log[self.log.len().saturating_sub(30)..].join("\n");
                panic!("{recent}\n\n{}\nreal:  {real}\nmodel: {model}\n{why}", printed(request));
            }
        }
        assert_eq!(real.len(), model.len(), "{:?}: {real:?} {model:?}", self.log.last());
        if model.last() == Some(&Read::Closed) {
            self.log.push(format!("{connection}: reconnects"));
            self.real.reconnect(connection);
            self.connections[connection] = self.model.connect(now());
        }
        model
    }

    fn one<T: AsRef<[u8]>>(&mut self, connection: usize, request: impl IntoIterator<Item = T>) -> Read {
        self.ask(connection, &[to_arguments(request)]).pop().unwrap()
    }

    /// Logs in.
    ///
    /// Connection 0 has all permissions, 1 is the locker, 2 a client, 3 the operator, 4 is not authenticated.
    fn log_in(&mut self, connection: usize) -> Read {
        let users = ["tester", "locker-e7", "billing-e7", "operator", "anybody"];
        self.one(connection, ["AUTH", users[connection], "horse"])
    }

    fn prepare(&mut self) {
        self.log_in(3);
        self.one(3, ["ACL", "SETUSER", "tester", "on", ">horse", "~*", "&*", "+@all"]);
        for rule in [locker(), client()] {
            let request = to_arguments(["ACL", "SETUSER"].into_iter().map(str::to_owned).chain(rule.set_user(true)));
            self.ask(3, &[request]);
        }
        for connection in [0, 1, 2, 4] {
            self.log_in(connection);
        }
        for script in chance::SCRIPTS {
            self.one(0, ["SCRIPT", "LOAD", script]);
        }
    }
}

/// Splits a text at spaces.
///
/// An argument in backquotes can contain spaces.
fn parse(line: &str) -> Arguments {
    let mut found = Vec::new();
    for (number, part) in line.split('`').enumerate() {
        if number % 2 == 1 {
            found.push(part.replace("\\n", "\n").replace("\\r", "\r").into_bytes());
        } else {
            found.extend(part.split_whitespace().map(|word| word.as_bytes().to_vec()));
        }
    }
    found
}

#[test]
fn listed_requests_are_answered_as_by_redis() {
    let mut pair = Pair::start(5);
    pair.prepare();
    for line in include_str!("differential/known.txt").lines() {
        if line.is_empty() || line.starts_with("--") {
            continue;
        }
        if line == "pause" {
            std::thread::sleep(std::time::Duration::from_millis(15));
            continue;
        }
        let (connection, request) = line.split_once(' ').unwrap();
        pair.ask(connection.parse().unwrap(), &[parse(request)]);
    }
    assert!(pair.model.not_modelled().is_empty(), "{:?}", pair.model.not_modelled());
}

#[test]
fn random_requests_are_answered_as_by_redis() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let requests = std::env::var("REQUESTS").map_or(4_000, |requests| requests.parse().unwrap());
    let mut pair = Pair::start(5);
    pair.prepare();
    let mut chance = Chance::new(seed);
    let mut sent = 0;
    while sent < requests {
        let connection = chance.below(5);
        let burst: Vec<Arguments> = (0..chance.burst()).map(|_| chance.request(connection)).collect();
        sent += burst.len();
        let short = burst.iter().any(|request| chance::ends_soon(request));
        let answers = pair.ask(connection, &burst);
        if short {
            // The key has expired on both before the next request.
            std::thread::sleep(std::time::Duration::from_millis(12));
        }
        if answers.last() == Some(&Read::Closed) {
            pair.log_in(connection);
        }
    }
    assert!(pair.model.not_modelled().is_empty(), "{:?}", pair.model.not_modelled());
}
