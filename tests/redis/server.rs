//! A `redis-server` process that ends when it is dropped.

use crate::port::free_port;
use redlock_operator::redis_member::acl::{KeyPrefix, OPERATOR_USER, PROBE_USER, UserRule, users_acl};
use redlock_operator::redis_member::{AdminConnection, Endpoint, Secret};
use redlock_operator::time::SystemClock;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The membership epoch of the users in these tests.
pub(crate) const USERS: i64 = 7;
pub(crate) const PREFIX: &str = "shop/";

pub(crate) fn password() -> Secret {
    Secret::new("correct horse battery staple")
}

pub(crate) fn locker() -> UserRule {
    UserRule::locker(USERS, &password())
}

pub(crate) fn client() -> UserRule {
    UserRule::client("billing", USERS, &KeyPrefix::parse(PREFIX).unwrap(), &password())
}

/// A read-only client.
pub(crate) fn reader() -> UserRule {
    UserRule::reader("board", &KeyPrefix::parse(PREFIX).unwrap(), &password())
}

pub(crate) fn probe() -> UserRule {
    UserRule::probe(&password())
}

pub(crate) fn endpoint(address: &str, username: &str) -> Endpoint {
    Endpoint { address: address.to_owned(), username: username.to_owned(), password: password(), tls: None }
}

pub(crate) async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within 10 s: {what}");
}

pub(crate) struct Server {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::configured("").await
    }

    /// Starts a server with the lines of a redis.conf, except for the port and the folder.
    pub(crate) async fn configured(conf: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("redlock-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("users.acl"), users_acl(&[password()], &[locker(), client(), reader(), probe()]))
            .unwrap();
        let elsewhere = |line: &&str| !["port", "bind", "dir", "aclfile"].contains(&line.split(' ').next().unwrap());
        let conf: Vec<&str> = conf.lines().filter(elsewhere).collect();
        std::fs::write(directory.join("redis.conf"), conf.join("\n")).unwrap();
        let port = free_port();
        let mut server = Self { child: spawn(port, &directory), port, directory };
        server.ready().await;
        server
    }

    /// Kills the process, and starts another one at its address.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.directory);
        self.ready().await;
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process by SIGSTOP. It keeps its connections and does not answer.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Continues the process by SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn admin(&self) -> AdminConnection {
        let endpoint = endpoint(&self.address(), OPERATOR_USER);
        AdminConnection::connect(&endpoint, Arc::new(SystemClock), Duration::from_secs(5)).await.unwrap()
    }

    /// A connection of an ordinary Redis client.
    /// Whether the server is Redis 7.0, whose answers differ from those of later servers.
    pub(crate) async fn is_redis_7_0(&self) -> bool {
        self.admin().await.observe(&[]).await.unwrap().version.starts_with("7.0.")
    }

    pub(crate) async fn connect_as(&self, user: &str) -> redis::aio::MultiplexedConnection {
        self.try_connect_as(user).await.unwrap()
    }

    async fn try_connect_as(&self, user: &str) -> Option<redis::aio::MultiplexedConnection> {
        let password = password();
        let url = format!("redis://{user}:{}@{}/", password.expose().replace(' ', "%20"), self.address());
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.ok()
    }

    pub(crate) async fn keys(&self) -> Vec<(String, Option<Duration>)> {
        // No user can list keys, so the test grants itself the right for a moment.
        let mut operator = self.connect_as(OPERATOR_USER).await;
        let rules = |rules: &[&str]| redis::cmd("ACL").arg("SETUSER").arg(OPERATOR_USER).arg(rules).clone();
        rules(&["(~* -@all +keys +pttl)"]).exec_async(&mut operator).await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut operator).await.unwrap();
        let mut found = Vec::new();
        for key in keys.into_iter().filter(|key| !key.starts_with('#')) {
            match redis::cmd("PTTL").arg(&key).query_async::<i64>(&mut operator).await.unwrap() {
                // The key expired after KEYS.
                -2 => {}
                millis => found.push((key, u64::try_from(millis).ok().map(Duration::from_millis))),
            }
        }
        rules(&["clearselectors"]).exec_async(&mut operator).await.unwrap();
        found
    }

    async fn ready(&mut self) {
        for _ in 0..500 {
            assert!(self.child.try_wait().unwrap().is_none(), "redis-server ended at its start");
            if let Some(mut connection) = self.try_connect_as(PROBE_USER).await
                && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server does not answer");
    }
}

fn spawn(port: u16, directory: &PathBuf) -> Child {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    Command::new(program)
        .arg(directory.join("redis.conf"))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--maxmemory-policy", "noeviction", "--busy-reply-threshold", "100", "--aclfile"])
        .arg(directory.join("users.acl"))
        .arg("--dir")
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server can be started")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
