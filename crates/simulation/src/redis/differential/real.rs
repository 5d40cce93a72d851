//! A real `redis-server`, and blocking connections to it.

use super::compare::{Read, read};
use super::port::free_port;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(super) struct Real {
    child: Child,
    port: u16,
    directory: PathBuf,
    connections: Vec<BufReader<TcpStream>>,
}

impl Real {
    pub(super) fn start(acl: &str, connections: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("redlock-model-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("users.acl"), acl).unwrap();
        let port = free_port();
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--maxmemory-policy", "noeviction", "--busy-reply-threshold", "100", "--aclfile"])
            .arg(directory.join("users.acl"))
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server can be started");
        let mut real = Self { child, port, directory, connections: Vec::new() };
        real.connections = (0..connections).map(|_| real.connect()).collect();
        real
    }

    fn connect(&mut self) -> BufReader<TcpStream> {
        for _ in 0..500 {
            assert!(self.child.try_wait().unwrap().is_none(), "redis-server ended at its start");
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                return BufReader::new(stream);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not listen");
    }

    pub(super) fn reconnect(&mut self, connection: usize) {
        self.connections[connection] = self.connect();
    }

    /// Reads the replies, up to the end of the connection.
    pub(super) fn ask(&mut self, connection: usize, bytes: &[u8], answers: usize) -> Vec<Read> {
        let stream = &mut self.connections[connection];
        // If the connection has ended, the read reports it.
        let _ = stream.get_mut().write_all(bytes);
        let mut found: Vec<Read> = Vec::new();
        while found.len() < answers && found.last() != Some(&Read::Closed) {
            found.push(read(stream));
        }
        found
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
