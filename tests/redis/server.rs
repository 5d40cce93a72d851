//! `redis-server` processes that end when they are dropped.

use crate::port::free_port;
use redis::aio::MultiplexedConnection;
use redlock_operator::redis_member::acl::{KeyPrefix, OPERATOR_USER, PROBE_USER, UserRule, users_acl};
use redlock_operator::redis_member::{AdminConnection, Endpoint, Secret};
use redlock_operator::redlock::{FencingToken, MemberError};
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

/// A connection for the operator's tasks.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<AdminConnection, MemberError> {
    AdminConnection::connect(endpoint, Arc::new(SystemClock), Duration::from_secs(5)).await
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

/// A connection of an ordinary Redis client.
pub(crate) async fn log_in(address: &str, user: &str, password: &Secret) -> redis::RedisResult<MultiplexedConnection> {
    let password = password.expose().replace(' ', "%20");
    redis::Client::open(format!("redis://{user}:{password}@{address}/"))?.get_multiplexed_async_connection().await
}

/// Sends a command, whose words have spaces between them.
pub(crate) async fn run(connection: &mut MultiplexedConnection, command: &str) -> redis::RedisResult<redis::Value> {
    let words: Vec<_> = command.split(' ').collect();
    redis::Cmd::new().arg(words.as_slice()).query_async(connection).await
}

/// A reply as text, or the code of its error.
pub(crate) fn as_text(reply: redis::RedisResult<redis::Value>) -> String {
    match reply {
        Ok(value) => text(&value),
        Err(error) if error.is_io_error() => "cut".to_owned(),
        Err(error) => error.code().unwrap_or("?").to_owned(),
    }
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::Nil => "nil".to_owned(),
        redis::Value::Okay => "OK".to_owned(),
        redis::Value::Int(number) => number.to_string(),
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::SimpleString(text) => text.clone(),
        redis::Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}

/// Sends commands that the user has no right to run, with "; " between them.
pub(crate) async fn are_refused(connection: &mut MultiplexedConnection, commands: &str) {
    for command in commands.split("; ") {
        assert_eq!(as_text(run(connection, command).await), "NOPERM", "{command}");
    }
}

pub(crate) struct Process(Child);

impl Process {
    /// Starts `REDIS_SERVER`, or the `redis-server` in the PATH.
    pub(crate) fn start(arguments: &[&[&str]]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(program).args(arguments.concat()).stdout(Stdio::null()).spawn();
        Self(child.expect("redis-server can be started"))
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with the file of these users.
    pub(crate) fn new(users: &[UserRule]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("redlock-test-{}-{number}", std::process::id())));
        std::fs::create_dir_all(&folder.0).unwrap();
        folder.write("users.acl", &users_acl(&[password()], users));
        folder
    }

    /// The path of a file.
    pub(crate) fn at(&self, file: &str) -> String {
        self.0.join(file).to_string_lossy().into_owned()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Server {
    process: Process,
    port: u16,
    folder: Folder,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::configured("").await
    }

    /// Starts a server with the lines of a redis.conf, except for the port and the folder.
    pub(crate) async fn configured(conf: &str) -> Self {
        let folder = Folder::new(&[locker(), client(), reader(), probe()]);
        let elsewhere = |line: &&str| !["port", "bind", "dir", "aclfile"].contains(&line.split(' ').next().unwrap());
        let conf: Vec<&str> = conf.lines().filter(elsewhere).collect();
        folder.write("redis.conf", &conf.join("\n"));
        let port = free_port();
        let mut server = Self { process: spawn(port, &folder), port, folder };
        server.ready().await;
        server
    }

    /// Kills the process, and starts another one at its address.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.port, &self.folder);
        self.ready().await;
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
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
        assert!(Command::new("kill").args([signal, &self.process.0.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn admin(&self) -> AdminConnection {
        connect(&endpoint(&self.address(), OPERATOR_USER)).await.unwrap()
    }

    /// The counter of tokens, if a vote or a test has set it.
    pub(crate) async fn counter(&self) -> Option<FencingToken> {
        self.admin().await.observe(&[]).await.unwrap().counter
    }

    /// Whether the server is Redis 7.0, whose answers differ from those of later servers.
    pub(crate) async fn is_redis_7_0(&self) -> bool {
        self.admin().await.observe(&[]).await.unwrap().version.starts_with("7.0.")
    }

    pub(crate) async fn connect_as(&self, user: &str) -> MultiplexedConnection {
        self.log_in(user, &password()).await.unwrap()
    }

    pub(crate) async fn log_in(&self, user: &str, password: &Secret) -> redis::RedisResult<MultiplexedConnection> {
        log_in(&self.address(), user, password).await
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
            assert!(self.process.0.try_wait().unwrap().is_none(), "redis-server ended at its start");
            if let Ok(mut connection) = self.log_in(PROBE_USER, &password()).await
                && run(&mut connection, "PING").await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server does not answer");
    }
}

fn spawn(port: u16, folder: &Folder) -> Process {
    Process::start(&[
        &[&folder.at("redis.conf"), "--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""],
        &["--appendonly", "no", "--maxmemory-policy", "noeviction", "--busy-reply-threshold", "100"],
        &["--aclfile", &folder.at("users.acl"), "--dir", &folder.at("")],
    ])
}
