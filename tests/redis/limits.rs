//! Limits of hostile peers on a member with the product's own settings: buffers, memory, connections.
//!
//! The peers have logged in as a client of the quorum. Without a login Redis gives them less.

use crate::{
    quorum::{LEADER, Quorum, fresh_value},
    server::{PREFIX, Server, client, password, wait_until},
};
use redlock_operator::{
    api::RedisQuorum,
    quorum::model::build::{memory_settings, redis_conf},
    quorum::model::plan::validate,
    redis_member::acl::OPERATOR_USER,
    redlock::MemberError,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A member of the default size.
async fn member() -> Quorum {
    let mut quorum = RedisQuorum::new("blue", serde_json::from_value(json!({})).unwrap());
    (quorum.metadata.namespace, quorum.metadata.uid) = (Some("vault".into()), Some("uid".into()));
    let mut conf = redis_conf(false);
    for (name, value) in memory_settings(&validate(&quorum).unwrap()) {
        conf.push_str(&format!("{name} {value}\n"));
    }
    Quorum::configured(1, &conf).await
}

/// A command in the wire protocol.
fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>()).into_bytes()
}

/// A logged-in peer.
async fn peer(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(&command(&["AUTH", client().name(), password().expose()])).await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    stream
}

/// The output of the server until it closes the connection.
async fn rest_of_output(mut stream: TcpStream) -> String {
    let mut words = Vec::new();
    let _ = stream.read_to_end(&mut words).await;
    String::from_utf8_lossy(&words).into_owned()
}

/// The server's used memory in bytes, from INFO.
async fn used_memory(server: &Server) -> u64 {
    let mut connection = server.connect_as(OPERATOR_USER).await;
    let info: String = redis::cmd("INFO").arg("memory").query_async(&mut connection).await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_length_that_is_only_announced_takes_no_memory() {
    let quorum = member().await;
    let server = &quorum.servers[0];
    let mut stream = peer(server).await;
    stream.write_all(b"*2\r\n$4\r\nPING\r\n$500000000\r\n").await.unwrap();
    assert_eq!(rest_of_output(stream).await, "-ERR Protocol error: invalid bulk length\r\n");
    assert!(used_memory(server).await < 16 << 20);
}

#[tokio::test]
async fn buffers_of_many_peers_cost_no_vote() {
    let quorum = member().await;
    let server = &quorum.servers[0];
    let mut peers = Vec::new();
    for _ in 0..200 {
        let mut stream = peer(server).await;
        // Redis allocates the announced length, and frees the buffer of an idle peer after two seconds.
        stream.write_all(format!("*2\r\n$4\r\nPING\r\n$1000000\r\n{}", "x".repeat(40_000)).as_bytes()).await.unwrap();
        peers.push(stream);
        assert!(used_memory(server).await < 48 << 20, "{} peers", peers.len());
    }
    quorum.granted("job", &fresh_value()).await;
    server.admin().await.observe(&[]).await.unwrap();
    assert_eq!(quorum.servers.len(), 1);
}

#[tokio::test]
async fn unread_answers_are_discarded() {
    let quorum = member().await;
    let server = &quorum.servers[0];
    let (key, value) = (format!("{PREFIX}big"), "v".repeat(900_000));
    let mut stream = peer(server).await;
    stream.write_all(&command(&["SET", &key, &value])).await.unwrap();
    wait_until("the value is there", async || !server.keys().await.is_empty()).await;
    let mut unread = Vec::new();
    for _ in 0..20 {
        let mut stream = peer(server).await;
        stream.write_all(&command(&["GET", &key]).repeat(8)).await.unwrap();
        unread.push(stream);
    }
    wait_until("little memory is used", async || used_memory(server).await < 16 << 20).await;
    quorum.granted("job", &fresh_value()).await;
}

#[tokio::test]
async fn a_full_member_is_detected_and_closed_when_memory_is_free() {
    let quorum = member().await;
    let server = &quorum.servers[0];
    let mut stream = peer(server).await;
    let (mut written, mut size, mut refused) = (0, 1_000_000, false);
    // Continues until the member refuses even small values. A large value needs twice its size while it is received.
    loop {
        let key = format!("{PREFIX}{written}");
        stream.write_all(&command(&["SET", &key, &"v".repeat(size), "PX", "6000"])).await.unwrap();
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).await.unwrap();
        while answer != *b"\n" {
            refused |= answer == *b"-";
            stream.read_exact(&mut answer).await.unwrap();
        }
        if std::mem::take(&mut refused) {
            if size == 1_000 {
                break;
            }
            size = 1_000;
        }
        written += 1;
    }
    let mut admin = server.admin().await;
    let observed = admin.observe(&[]).await.unwrap();
    assert!(observed.is_full, "{observed:?}");
    // A transaction of Redis 7.0 needs memory, and later servers run it. Extending and releasing the locks of other clients need none.
    if server.is_redis_7_0().await {
        assert_eq!(admin.close(LEADER, &[client()]).await, Err(MemberError::OutOfMemory.into()));
    }
    let mut other = server.connect_as(client().name()).await;
    let key = format!("{PREFIX}0");
    assert_eq!(redis::cmd("PEXPIRE").arg(&key).arg(6_000).query_async::<i64>(&mut other).await, Ok(1));
    assert_eq!(redis::cmd("DEL").arg(&key).query_async::<i64>(&mut other).await, Ok(1));
    drop(stream);
    let mut admin = server.admin().await;
    // The values expire after 6 s, and the closed connection writes no more.
    wait_until("there is room again", async || !admin.observe(&[]).await.unwrap().is_full).await;
    assert_eq!(admin.close(LEADER, &[client()]).await, Ok(()));
}
