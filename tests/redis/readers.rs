//! A read-only client: its permissions, and its connection while other clients are added and removed.

use crate::quorum::{LEADER, Quorum, TTL, fresh_value};
use crate::server::{PREFIX, Server, USERS, are_refused, as_text, client, locker, password, reader, run};
use redis::aio::MultiplexedConnection;
use redlock_operator::redis_member::acl::{OPERATOR_USER, UserRule};
use redlock_operator::redis_member::{EPOCH_KEY, Secret};
use redlock_operator::redlock::TOKEN_KEY;

/// Opens the reader on the server, and connects it.
async fn looking(server: &Server) -> MultiplexedConnection {
    let mut admin = server.admin().await;
    assert_eq!(admin.open(LEADER, &[reader()]).await, Ok(()));
    server.connect_as(reader().name()).await
}

async fn send(connection: &mut MultiplexedConnection, command: &str) -> String {
    as_text(run(connection, command).await)
}

#[tokio::test]
async fn a_reader_reads_only_values_and_times_below_its_prefix() {
    let quorum = Quorum::of(1).await;
    let (own, value) = (format!("{PREFIX}job"), fresh_value());
    quorum.granted(&own, &value).await;
    quorum.granted("other/job", &fresh_value()).await;
    let mut connection = looking(&quorum.servers[0]).await;
    assert_eq!(send(&mut connection, &format!("GET {own}")).await, value.expose());
    let left: u128 = send(&mut connection, &format!("PTTL {own}")).await.parse().unwrap();
    assert!((1..=TTL.as_millis()).contains(&left), "{left} ms left");
    assert_eq!(send(&mut connection, &format!("GET {PREFIX}nothing")).await, "nil");
    assert_eq!(send(&mut connection, "PING").await, "PONG");
    for key in ["other/job", "shop", TOKEN_KEY, EPOCH_KEY, "*"] {
        are_refused(&mut connection, &format!("GET {key}; PTTL {key}")).await;
    }
    let commands = "SET @ v; SET @ v NX PX 9; DEL @; PEXPIRE @ 1; EXPIRE @ 1; EXISTS @; WATCH @; GETDEL @; GETEX @ PX 1; \
        EVAL return(redis.call('get',KEYS[1])) 1 @; EVAL return(1) 0; SCRIPT LOAD return(1); PUBLISH @ v; SUBSCRIBE @; \
        HINCRBY @ f 1; MULTI; SCAN 0; KEYS *; INFO; TIME; CLIENT LIST; ACL LIST; CONFIG GET *; FLUSHALL; ECHO v";
    are_refused(&mut connection, &commands.replace('@', &own)).await;
    assert_eq!(send(&mut connection, &format!("GET {own}")).await, value.expose(), "the lock changed");
}

#[tokio::test]
async fn a_reader_stays_through_epochs_of_operators_and_members() {
    let quorum = Quorum::of(1).await;
    let (own, value) = (format!("{PREFIX}job"), fresh_value());
    quorum.granted(&own, &value).await;
    let mut connection = looking(&quorum.servers[0]).await;
    let mut admin = quorum.servers[0].admin().await;
    assert_eq!(admin.raise_epoch(LEADER + 1).await, Ok(()));
    let get = format!("GET {own}");
    assert_eq!(send(&mut connection, &get).await, value.expose(), "a new leader closed the connection");
    // At a change of the members the operator opens the users of the next epoch, and closes those of this one.
    let next = [UserRule::locker(USERS + 1, &password())];
    assert_eq!(admin.open(LEADER + 1, &next).await, Ok(()));
    assert_eq!(admin.close(LEADER + 1, &[locker(), client()]).await, Ok(()));
    assert_eq!(send(&mut connection, &get).await, value.expose(), "a new epoch closed the connection");
    let names = [locker().name().to_owned(), client().name().to_owned(), reader().name().to_owned()];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(admin.observe(&names).await.unwrap().open_users, [reader().name()]);
    assert_eq!(admin.users().await.unwrap().highest_epoch(), Some(USERS + 1), "a reader has no epoch");
    // The operator closes and opens the reader with the member, because the member can have lost locks.
    assert_eq!(admin.close(LEADER + 1, &[reader()]).await, Ok(()));
    assert_eq!(send(&mut connection, &get).await, "NOPERM");
    assert_eq!(send(&mut connection, "PING").await, "PONG");
    assert_eq!(admin.open(LEADER + 1, &[reader()]).await, Ok(()));
    assert_eq!(send(&mut connection, &get).await, value.expose());
}

#[tokio::test]
async fn a_removed_reader_is_cut_and_a_writer_is_another_user() {
    let quorum = Quorum::of(1).await;
    let server = &quorum.servers[0];
    let own = format!("GET {PREFIX}job");
    let mut connection = looking(server).await;
    assert_eq!(send(&mut connection, &own).await, "nil");
    let mut admin = server.admin().await;
    assert_eq!(admin.close(LEADER, &[UserRule::removed(reader().name())]).await, Ok(()));
    assert_eq!(send(&mut connection, &own).await, "cut");
    assert!(server.log_in(reader().name(), &password()).await.is_err());
    // The client with the same name and write access is another user.
    let mut writer = server.connect_as(client().name()).await;
    assert_eq!(send(&mut writer, &format!("SET {PREFIX}job v")).await, "OK");
}

#[tokio::test]
async fn a_reader_keeps_its_connection_while_passwords_are_rotated() {
    let quorum = Quorum::of(1).await;
    let server = &quorum.servers[0];
    let own = format!("GET {PREFIX}job");
    let mut connection = looking(server).await;
    let new = Secret::new("new");
    let both = [password(), new.clone()];
    let mut admin = server.admin().await;
    let changed = admin.set_passwords(LEADER, &both, &[reader().accepting(&both)], false).await;
    assert_eq!(changed, Ok(()));
    assert_eq!(send(&mut connection, &own).await, "nil", "the old password");
    let mut newer = server.log_in(reader().name(), &new).await.unwrap();
    assert_eq!(send(&mut newer, &own).await, "nil", "the new password");
    // A new leader that opens users during the rotation closes no connection.
    assert_eq!(admin.open(LEADER, &[reader().accepting(&both)]).await, Ok(()));
    for connection in [&mut connection, &mut newer] {
        assert_eq!(send(connection, &own).await, "nil");
    }
    let mut hand = server.connect_as(OPERATOR_USER).await;
    assert_eq!(send(&mut hand, &own).await, "NOPERM", "the operator's user cannot read locks");
}
