//! Passwords are changed under a running process.

use crate::server::{Server, endpoint, locker, password};
use redis::aio::MultiplexedConnection;
use redlock_operator::redis_member::acl::OPERATOR_USER;
use redlock_operator::redis_member::{ActError, AdminConnection, Endpoint, Secret};
use redlock_operator::redlock::MemberError;

fn new() -> Secret {
    Secret::new("battery horse staple correct")
}

async fn connect(server: &Server, user: &str, password: Secret) -> Result<AdminConnection, MemberError> {
    crate::server::connect(&Endpoint { password, ..endpoint(&server.address(), user) }).await
}

async fn set(connection: &mut MultiplexedConnection) -> Result<String, redis::RedisError> {
    redis::cmd("SET").arg("k").arg("v").query_async(connection).await
}

#[tokio::test]
async fn a_password_is_added_quietly_and_its_removal_ends_connections() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    admin.raise_epoch(3).await.unwrap();
    let mut admin = server.admin().await;
    assert_eq!(admin.open(3, &[locker()]).await, Ok(()));
    let mut holder = server.connect_as(locker().name()).await;
    assert!(set(&mut holder).await.is_ok());

    let both = [password(), new()];
    let users = [locker().accepting(&both)];
    let stale = admin.set_passwords(2, &both, &users, true).await;
    assert_eq!(stale, Err(ActError::Deposed), "a former leader must change nothing");
    assert_eq!(admin.set_passwords(3, &both, &users, false).await, Ok(()));
    assert!(set(&mut holder).await.is_ok(), "the holder must keep its connection");
    for known in both {
        let observed = connect(&server, OPERATOR_USER, known).await.unwrap().observe(&[locker().name()]).await.unwrap();
        assert_eq!(observed.open_users, [locker().name()], "the open users must stay the same");
    }

    let mut admin = connect(&server, OPERATOR_USER, new()).await.unwrap();
    let users = [locker().accepting(&[new()])];
    assert_eq!(admin.set_passwords(3, &[new()], &users, true).await, Ok(()));
    assert!(set(&mut holder).await.is_err(), "a connection with the old password must end");
    for user in [OPERATOR_USER, locker().name()] {
        let old = connect(&server, user, password()).await.unwrap_err();
        assert_eq!(old, MemberError::Refused, "{user}");
    }
    let observed = admin.observe(&[locker().name()]).await.unwrap();
    assert_eq!(observed.open_users, [locker().name()], "this connection and the open user must stay");
}
