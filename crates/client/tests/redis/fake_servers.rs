//! The fake masters of the feature `test-util` answer as `redis-server` does.

use redlock_client::test_util::FakeMembers;
use redlock_engine::voting::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::Server;

macro_rules! scripts {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../engine/src/voting/scripts/", $file))),+)
    };
}

const ACQUIRE: &str = scripts!("holder.lua", "acquire.lua");
const EXTEND: &str = scripts!("holder.lua", "extend.lua");
const EXTEND_AS_CLIENT: &str = scripts!("extend_as_client.lua");
const INSPECT: &str = scripts!("holder.lua", "inspect.lua");
const RAISE: &str = scripts!("raise_counter.lua");
const RELEASE: &str = scripts!("release.lua");
const RELEASE_ALL: &str = scripts!("release_all.lua");
const REPAIR: &str = scripts!("repair.lua");
const RESTORE: &str = scripts!("restore_counter.lua");
const SEAL: &str = scripts!("seal.lua");

/// A moment that never comes, in microseconds.
const FAR: &str = "4102444800000000";
const REPAIRS: &[&[&str]] =
    &[&["1", "r", "v", "60000", FAR, FAR], &["1", "r", "v", "60000", FAR, FAR], &["1", "q", "v", "60000", FAR, "1"]];
const SEALS: &[&[&str]] =
    &[&["1", "k", "v", "s", "1000", "1"], &["1", "k", "v", "s", "1000", "1"], &["1", "r", "w", "s", "1000", "1"]];

/// A connection to a real or a fake server.
struct Line(BufReader<Box<dyn Stream>>);

impl Line {
    /// The elements of the reply to one command.
    async fn ask(&mut self, arguments: &[&str]) -> Vec<String> {
        let mut command = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            command.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        self.0.write_all(command.as_bytes()).await.unwrap();
        let (mut elements, mut missing) = (Vec::new(), 1);
        while missing > 0 {
            missing -= 1;
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            let line = line.trim_end();
            match (&line[..1], line[1..].parse::<i64>()) {
                ("*", Ok(count)) => missing += count,
                ("$", Ok(length)) if length >= 0 => {
                    let mut text = vec![0; usize::try_from(length).unwrap() + 2];
                    self.0.read_exact(&mut text).await.unwrap();
                    elements.push(String::from_utf8_lossy(&text).trim_end().to_owned());
                }
                // Clients read only the code of an error.
                ("-", _) => elements.push(line.split(' ').next().unwrap().to_owned()),
                _ => elements.push(line.to_owned()),
            }
        }
        elements
    }
}

/// Returns true if both are equal, or are times to live that were read shortly after each other.
fn is_alike(one: &str, other: &str) -> bool {
    let left = |text: &str| text.strip_prefix(':').and_then(|number| number.parse::<i64>().ok());
    match (left(one), left(other)) {
        (Some(one), Some(other)) if one > 50_000 => (one - other).abs() < 10_000,
        _ => one == other,
    }
}

#[tokio::test]
async fn fake_masters_answer_as_redis_does() {
    let (server, fakes) = (Server::start().await, FakeMembers::start(1));
    let real = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let url = fakes.urls().remove(0);
    let fake = fakes.machine().network.connect(url.trim_start_matches("redis://")).await.unwrap();
    let mut lines = [Line(BufReader::new(Box::new(real))), Line(BufReader::new(fake))];

    // Sends a command. The last `times` elements of the reply are the member's time.
    let call = async |lines: &mut [Line; 2], arguments: &[&str], times: usize| {
        let mut replies = Vec::new();
        for line in lines {
            let mut reply = line.ask(arguments).await;
            reply.truncate(reply.len() - times.min(reply.len()));
            replies.push(reply);
        }
        let alike = replies[0].len() == replies[1].len()
            && replies[0].iter().zip(&replies[1]).all(|(one, other)| is_alike(one, other));
        assert!(alike, "{arguments:?}: redis-server says {:?}, the fake {:?}", replies[0], replies[1]);
        replies.remove(0)
    };

    for arguments in [
        &["PING"][..],
        &["GET", "k"],
        &["PTTL", "k"],
        &["SET", "k", "v", "NX", "PX", "60000"],
        &["SET", "k", "w", "NX", "PX", "60000"],
        &["SET", "l", "w", "NX", "PX", "0"],
        &["GET", "k"],
        &["PTTL", "k"],
        &["INCR", "#token"],
        &["INCR", "#token"],
        &["PTTL", "#token"],
        &["INCR", "k"],
        &["DEL", "k"],
        &["DEL", "k"],
        &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
        &["WHAT"],
    ] {
        call(&mut lines, arguments, 0).await;
    }

    // Calls each script for a free key, our key, and another client's key, and reads the time to live.
    for (script, asked, times) in [
        (RELEASE, &[&["1", "k", "v"][..]][..], 0),
        (ACQUIRE, &[&["2", "k", "#token", "v", "60000", FAR], &["2", "k", "#token", "w", "60000", FAR]], 2),
        (INSPECT, &[&["1", "k"], &["1", "none"], &["1", "#token"]], 0),
        (EXTEND, &[&["1", "k", "v", "90000"], &["1", "k", "w", "90000"], &["1", "none", "v", "90000"]], 2),
        (EXTEND_AS_CLIENT, &[&["1", "k", "v", "95000"], &["1", "k", "w", "90000"]], 0),
        (RAISE, &[&["2", "k", "#token", "v", "100"], &["2", "k", "#token", "w", "200"]], 0),
        (RESTORE, &[&["1", "#token", "150"], &["1", "#token", "120"]], 0),
        (REPAIR, REPAIRS, 0),
        (SEAL, SEALS, 0),
        (RELEASE, &[&["1", "k", "v"], &["1", "k", "s"], &["1", "k", "s"]], 0),
        (RELEASE_ALL, &[&["3", "k", "r", "none", "s", "v", "v"], &["0"]], 0),
    ] {
        let digest = call(&mut lines, &["SCRIPT", "LOAD", script], 0).await.remove(0);
        for arguments in asked {
            call(&mut lines, &[&["EVALSHA", &digest], *arguments].concat(), times).await;
        }
    }
    for key in ["k", "r", "q", "#token"] {
        call(&mut lines, &["GET", key], 0).await;
        call(&mut lines, &["PTTL", key], 0).await;
    }
}
