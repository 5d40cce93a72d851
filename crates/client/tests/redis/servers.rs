//! `redis-server` processes on loopback.

use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{LONG, until};
use crate::port::free_port;

/// A `redis-server` process.
///
/// Dropping it ends the process.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::on(free_port(), &[]).await
    }

    /// Starts a server with more options.
    pub(crate) async fn on(port: u16, options: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(program);
        command
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(options);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-server is needed");
        let server = Self { child, port };
        until(LONG, "redis-server answers", async || server.ask("PING").await.as_deref() == Some("+PONG")).await;
        server
    }

    /// The first line of the answer to an inline command.
    pub(crate) async fn ask(&self, command: &str) -> Option<String> {
        self.text(command).await?.lines().next().map(str::to_owned)
    }

    /// The answer to an inline command, if it is short.
    pub(crate) async fn text(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
        let mut answer = vec![0; 4096];
        let read = stream.read(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer[..read]).into_owned())
    }

    pub(crate) async fn has(&self, key: &str) -> bool {
        self.ask(&format!("EXISTS {key}")).await.as_deref() == Some(":1")
    }

    pub(crate) async fn is_restored(&self) {
        until(LONG, "the counter is restored", async || self.has("#token").await).await;
    }

    /// How often clients have called a command since the last reset.
    pub(crate) async fn calls(&self, command: &str) -> usize {
        let stats = self.text("INFO commandstats").await.unwrap();
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1);
        calls.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Starts another process on the same port, with empty memory.
    pub(crate) async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        *self = Self::on(self.port, &[]).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn servers(count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::start().await);
    }
    servers
}

/// Sends a command to each server, which must accept it.
pub(crate) async fn ask_all(servers: &[Server], command: &str) {
    for server in servers {
        assert_eq!(server.ask(command).await.as_deref(), Some("+OK"), "{command}");
    }
}

/// Waits until no server has this key.
pub(crate) async fn is_gone(servers: &[Server], key: &str) {
    until(LONG, "the key is deleted", async || {
        for server in servers {
            if server.has(key).await {
                return false;
            }
        }
        true
    })
    .await;
}

/// The URLs with this user and password.
pub(crate) fn logged_in(servers: &[Server], login: &str) -> Vec<String> {
    servers.iter().map(|server| format!("redis://{login}@127.0.0.1:{}", server.port)).collect()
}

pub(crate) fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port)).collect()
}
