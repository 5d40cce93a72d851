//! A client is removed, and another one gets its name, on the same process.

use crate::quorum::{LEADER, open};
use crate::server::{PREFIX, Server, USERS, client, locker, password};
use redis::aio::MultiplexedConnection;
use redlock_operator::redis_member::Secret;
use redlock_operator::redis_member::acl::{KeyPrefix, UserRule};

/// Another client with the same name and another key prefix.
fn another() -> UserRule {
    UserRule::client("billing", USERS, &KeyPrefix::parse("other/").unwrap(), &Secret::new("another"))
}

async fn connect(server: &Server, password: &Secret) -> redis::RedisResult<MultiplexedConnection> {
    server.log_in(client().name(), password).await
}

async fn set(connection: &mut MultiplexedConnection, prefix: &str) -> Result<(), redis::RedisError> {
    redis::cmd("SET").arg(format!("{prefix}job")).arg("v").query_async(connection).await
}

#[tokio::test]
async fn a_former_client_of_the_same_name_is_disconnected() {
    let server = Server::start().await;
    open(&server).await;
    let mut before = server.connect_as(client().name()).await;
    assert!(set(&mut before, PREFIX).await.is_ok());
    let mut admin = server.admin().await;
    // Opening the same client again keeps its connection.
    assert_eq!(admin.open(LEADER, &[client()]).await, Ok(()));
    let both = client().accepting(&[password(), Secret::new("another")]);
    assert_eq!(admin.open(LEADER, &[both]).await, Ok(()));
    assert!(set(&mut before, PREFIX).await.is_ok());
    assert_eq!(admin.open(LEADER, &[client()]).await, Ok(()));

    assert_eq!(admin.open(LEADER, &[another()]).await, Ok(()));
    let error = set(&mut before, "other/").await.unwrap_err();
    assert!(error.is_io_error(), "its connection must end: {error}");
    assert!(connect(&server, &password()).await.is_err(), "the old password must fail");
    let mut after = connect(&server, &Secret::new("another")).await.unwrap();
    assert!(set(&mut after, "other/").await.is_ok());
    assert_eq!(set(&mut after, PREFIX).await.unwrap_err().code(), Some("NOPERM"));
}

#[tokio::test]
async fn a_removed_client_is_disconnected_and_cannot_log_in() {
    let server = Server::start().await;
    open(&server).await;
    let mut before = server.connect_as(client().name()).await;
    let mut locking = server.connect_as(locker().name()).await;
    let mut admin = server.admin().await;
    let removed = [UserRule::removed(client().name())];
    assert_eq!(admin.close(LEADER, &removed).await, Ok(()));
    assert!(set(&mut before, PREFIX).await.unwrap_err().is_io_error());
    assert!(connect(&server, &password()).await.is_err());
    assert!(connect(&server, &Secret::new("anything")).await.is_err());
    assert!(set(&mut locking, PREFIX).await.is_ok(), "other users must keep their connections");
    assert!(admin.observe(&[client().name()]).await.unwrap().open_users.is_empty());
    assert!(
        !admin.users().await.unwrap().names.contains(&client().name().to_owned()),
        "the member must forget the user"
    );
    // A new client gets the same name.
    assert_eq!(admin.open(LEADER, &[another()]).await, Ok(()));
    let mut after = connect(&server, &Secret::new("another")).await.unwrap();
    assert!(set(&mut after, "other/").await.is_ok());
}
