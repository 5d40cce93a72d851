use crate::quorum::{LEADER, Quorum};
use crate::server::{PREFIX, Server, are_refused, client, connect, endpoint, locker, probe, run, wait_until};
use redis::aio::MultiplexedConnection;
use redlock_operator::redis_member::acl::{OPERATOR_USER, PROBE_USER};
use redlock_operator::redis_member::{AdminConnection, Endpoint, Link, RedisMember, Secret};
use redlock_operator::redlock::{LockMember, MemberError};
use redlock_operator::time::SystemClock;
use std::sync::Arc;
use std::time::Duration;

async fn code(connection: &mut MultiplexedConnection, command: &str) -> String {
    match run(connection, command).await {
        Ok(_) => "OK".to_owned(),
        Err(error) => error.code().unwrap_or("?").to_owned(),
    }
}

/// Sends commands that the user has the right to run, with "; " between them.
async fn are_allowed(connection: &mut MultiplexedConnection, commands: &str) {
    for command in commands.split("; ") {
        assert_eq!(code(connection, command).await, "OK", "{command}");
    }
}

#[tokio::test]
async fn no_user_can_persist_an_open_state_or_delete_all_data() {
    let quorum = Quorum::of(1).await;
    // The operator grants itself CONFIG SET only for the reload. It must lose this right even if the reload fails.
    let _ = quorum.servers[0].admin().await.reload_certificate("/nowhere", "/nowhere").await;
    for user in [OPERATOR_USER, PROBE_USER, locker().name(), client().name()] {
        let mut connection = quorum.servers[0].connect_as(user).await;
        let forbidden = "ACL SAVE; ACL LOAD; ACL LIST; CONFIG REWRITE; CONFIG SET save 1; CONFIG GET *; FLUSHALL; FLUSHDB; \
            REPLICAOF 127.0.0.1 1; SWAPDB 0 1; SCRIPT FLUSH; CLIENT PAUSE 1000; SHUTDOWN NOSAVE; KEYS *; SAVE";
        for forbidden in forbidden.split("; ") {
            assert_eq!(code(&mut connection, forbidden).await, "NOPERM", "{user}: {forbidden}");
        }
    }
}

#[tokio::test]
async fn a_lock_client_reaches_no_key_or_channel_outside_its_prefix() {
    let quorum = Quorum::of(1).await;
    let mut connection = quorum.servers[0].connect_as(client().name()).await;
    let own = format!("{PREFIX}job");
    for key in ["other/job", "shop", "#token", "#epoch", "redlock:shop/job", "redisson_lock_token:{shop/job}"] {
        let commands = "SET KEY v; SET KEY v NX PX 1000; GET KEY; DEL KEY; EXISTS KEY; PTTL KEY; PEXPIRE KEY 1; \
            EXPIRE KEY 1; HEXISTS KEY f; HINCRBY KEY f 1; WATCH KEY; EVAL return(1) 1 KEY; \
            EVALSHA 0000000000000000000000000000000000000000 1 KEY; SUBSCRIBE KEY; PUBLISH KEY v";
        // A script can neither declare a foreign key nor use an undeclared one.
        are_refused(&mut connection, &commands.replace("KEY", key)).await;
        for call in ["get", "del"] {
            let mut eval = redis::cmd("EVAL");
            eval.arg(format!("return redis.call('{call}', ARGV[1])")).arg(1).arg(&own).arg(key);
            let refused = eval.query_async::<redis::Value>(&mut connection).await.unwrap_err();
            let text = if quorum.servers[0].is_redis_7_0().await { "can't access" } else { "No permissions" };
            assert!(refused.to_string().contains(text), "{call} {key}: {refused}");
        }
    }
    // The client can use Redisson's commands on its own keys.
    let commands = "HINCRBY shop/hash f 1; HEXISTS shop/hash f; EXPIRE shop/hash 1; \
        PUBLISH redisson_lock__channel:{shop/hash} 0; SET redisson_unlock_latch:{shop/hash}:1 1 PX 1000";
    are_allowed(&mut connection, commands).await;
}

#[tokio::test]
async fn a_lock_client_runs_only_the_commands_of_lock_clients() {
    let quorum = Quorum::of(1).await;
    let mut connection = quorum.servers[0].connect_as(client().name()).await;
    let commands = "CONFIG GET *; CONFIG SET maxmemory 1; CONFIG REWRITE; FLUSHALL; FLUSHDB; ACL LIST; ACL WHOAMI; \
        ACL SETUSER billing-e7 +@all; SHUTDOWN NOSAVE; REPLICAOF 127.0.0.1 1; SLAVEOF NO ONE; FAILOVER; DEBUG SLEEP 1; \
        DEBUG OBJECT shop/job; KEYS *; SCAN 0; RANDOMKEY; DBSIZE; CLIENT LIST; CLIENT KILL TYPE normal; \
        CLIENT PAUSE 1000; CLIENT ID; SCRIPT FLUSH; SCRIPT KILL; PSUBSCRIBE *; MONITOR; SYNC; PSYNC ? -1; SAVE; BGSAVE; \
        BGREWRITEAOF; SELECT 1; SWAPDB 0 1; MOVE shop/job 1; INFO; TIME; COMMAND; MODULE LIST; FUNCTION LIST; \
        OBJECT ENCODING shop/job; DUMP shop/job; RESTORE shop/job 0 x; PERSIST shop/job; RENAME shop/job shop/other; \
        COPY shop/job shop/other; HSET shop/job f v; INCR shop/job; LATENCY RESET; MEMORY USAGE shop/job; SLOWLOG GET; \
        CLUSTER NODES; ECHO x";
    for command in commands.split("; ") {
        // Redis refuses DEBUG before it checks permissions.
        let refused = if command.starts_with("DEBUG") { "ERR" } else { "NOPERM" };
        assert_eq!(code(&mut connection, command).await, refused, "{command}");
        let words: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
        let mut eval = redis::cmd("EVAL");
        eval.arg(format!("return redis.call({})", words.join(","))).arg(0);
        let refused = eval.query_async::<redis::Value>(&mut connection).await;
        assert!(refused.is_err(), "{command} by a script: {refused:?}");
    }
}

#[tokio::test]
async fn users_reach_only_the_keys_and_commands_that_they_need() {
    let quorum = Quorum::of(1).await;
    let server = &quorum.servers[0];
    let mut connection = server.connect_as(client().name()).await;
    are_allowed(&mut connection, "SET shop/job v; GET shop/job; PTTL shop/job; EXISTS shop/job").await;
    for key in ["other/job", "#token"] {
        are_refused(&mut connection, &"SET KEY v; GET KEY; PTTL KEY; EXISTS KEY".replace("KEY", key)).await;
    }
    // Only INCR is allowed on the counter.
    are_allowed(&mut connection, "INCR #token").await;
    let commands = "INCRBY #token 5; DECR #token; DEL #token; PEXPIRE #token 1; INCR #operator-epoch; INCR shop/job; \
        INFO server";
    are_refused(&mut connection, commands).await;
    are_allowed(&mut connection, "DEL shop/job").await;
    let mut connection = server.connect_as(OPERATOR_USER).await;
    // The operator's user cannot lock.
    are_refused(&mut connection, "SET shop/job v; GET shop/job; PTTL shop/job").await;
    let mut connection = server.connect_as(PROBE_USER).await;
    are_allowed(&mut connection, "PING").await;
    // Every member starts closed.
    are_refused(&mut connection, "ECHO votes").await;
    let mut admin = server.admin().await;
    assert_eq!(admin.open(LEADER, &[probe()]).await, Ok(()));
    are_allowed(&mut connection, "ECHO votes").await;
    are_refused(&mut connection, "GET k").await;
    assert_eq!(admin.close(LEADER, &[probe()]).await, Ok(()));
    are_refused(&mut connection, "ECHO votes").await;
    let url = format!("redis://{}/", server.address());
    let mut nobody = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    assert_eq!(code(&mut nobody, "PING").await, "NOAUTH", "the default user is disabled");
}

#[tokio::test]
async fn a_script_that_never_ends_is_ended() {
    let quorum = Quorum::of(1).await;
    let mut foreign = quorum.servers[0].connect_as(client().name()).await;
    let mut admin = quorum.servers[0].admin().await;
    assert_eq!(admin.script_kill().await, Err(MemberError::Other("NOTBUSY".to_owned())));
    let endless = tokio::spawn(async move {
        let mut eval = redis::cmd("EVAL");
        eval.arg("while true do end").arg(0);
        eval.query_async::<redis::Value>(&mut foreign).await
    });
    wait_until("the member is busy", async || admin.observe(&[]).await.map(drop) == Err(MemberError::Busy)).await;
    let endpoint = endpoint(&quorum.servers[0].address(), OPERATOR_USER);
    let clock = Arc::new(SystemClock);
    let killed = AdminConnection::kill_busy_script(&endpoint, clock, Duration::from_secs(5)).await;
    assert_eq!(killed, Ok(()));
    assert!(endless.await.unwrap().is_err());
    assert_eq!(admin.observe(&[]).await.map(drop), Ok(()));
}

#[tokio::test]
async fn a_wrong_password_never_connects_and_is_never_printed() {
    let server = Server::start().await;
    let endpoint = Endpoint {
        address: server.address(),
        username: locker().name().to_owned(),
        password: Secret::new("wrong horse"),
        tls: None,
    };
    let member = RedisMember::new("m0".into(), endpoint.clone(), Arc::new(SystemClock));
    let mut link = member.link();
    let refused = Link::Down(MemberError::Refused);
    link.wait_for(|link| *link == refused).await.unwrap();
    assert!(matches!(member.send(Vec::new()).await, Err(MemberError::Refused)));
    let admin = connect(&endpoint).await;
    let text = format!("{admin:?} {member:?} {endpoint:?} {:?}", locker());
    assert!(!text.contains("horse") && text.contains("Refused"), "{text}");
    // It connects with the correct password, and is fenced because the process was not opened.
    member.set_endpoint(crate::server::endpoint(&server.address(), locker().name()));
    link.wait_for(|link| *link == Link::Unidentified(MemberError::Fenced)).await.unwrap();
}
