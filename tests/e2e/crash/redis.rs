//! A Redis server on this machine, as a member whose fence has ended.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use redis::aio::MultiplexedConnection;
use redlock_operator::{
    quorum::model::auth::Auth,
    redis_member::{
        AdminConnection, Endpoint,
        acl::{KeyPrefix, OPERATOR_USER, UserRule, users_acl},
    },
    redlock::RunId,
    time::SystemClock,
};

const START_LIMIT: Duration = Duration::from_secs(10);
/// The epoch of the membership.
const EPOCH: i64 = 1;

/// A process that ends when it is dropped.
pub(crate) struct Server {
    process: Child,
    directory: PathBuf,
    /// The test's own connection, with the rights of an outside client.
    pub(crate) client: MultiplexedConnection,
    pub(crate) run_id: RunId,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

impl Server {
    /// Starts it at `ip` with the users of the member `name`, and opens them.
    pub(crate) async fn start(ip: &str, name: &str, namespace: &str, auth: &Auth) -> anyhow::Result<Self> {
        let (locker, outside) = (UserRule::locker_name(EPOCH), UserRule::client_name("outside", EPOCH));
        let prefix = KeyPrefix::parse(&format!("{namespace}/")).context("a key prefix")?;
        let password = auth.password(name, &outside);
        let users = [
            UserRule::locker(EPOCH, &auth.password(name, &locker)),
            UserRule::client("outside", EPOCH, &prefix, &password),
        ];
        let directory = std::env::temp_dir().join(format!("{namespace}-{name}"));
        std::fs::create_dir_all(&directory)?;
        let operator = auth.password(name, OPERATOR_USER);
        std::fs::write(directory.join("users.acl"), users_acl(std::slice::from_ref(&operator), &users))?;
        let mut command = Command::new(std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned()));
        command.args(["--bind", ip, "--port", "6379", "--save", "", "--appendonly", "no", "--aclfile", "users.acl"]);
        let mut process = command.current_dir(&directory).stdout(Stdio::null()).spawn().context("no redis-server")?;
        let address = format!("{ip}:6379");
        let admin =
            Endpoint { address: address.clone(), username: OPERATOR_USER.to_owned(), password: operator, tls: None };
        let opened = async {
            loop {
                match AdminConnection::connect(&admin, Arc::new(SystemClock), START_LIMIT).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) if process.try_wait()?.is_some() => bail!("redis-server at {address} ended: {error}"),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        let mut connection = tokio::time::timeout(START_LIMIT, opened).await.context("redis-server is silent")??;
        connection.raise_epoch(1).await?;
        connection.open(1, &users).await?;
        let url = format!("redis://{outside}:{}@{address}/", password.expose());
        let client = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { process, directory, client, run_id: connection.run_id().clone() })
    }

    /// The value of a key.
    pub(crate) async fn get(&self, key: &str) -> anyhow::Result<Option<String>> {
        Ok(redis::cmd("GET").arg(key).query_async(&mut self.client.clone()).await?)
    }
}
