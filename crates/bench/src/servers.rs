//! Masters for one run: `redis-server` processes on loopback, without persistence.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::certificate::Certificate;
use crate::port::free_port;

/// Timeout for connections and answers, because a frozen server does not answer.
const STATS_DEADLINE: Duration = Duration::from_millis(200);

/// Counters of all servers together.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) commands: u64,
    /// Reads from connections.
    pub(crate) reads: u64,
    /// Reads of a key: one per release, and two per raised counter, within their scripts.
    pub(crate) key_reads: u64,
}

pub(crate) struct Servers {
    children: Vec<Child>,
    pub(crate) ports: Vec<u16>,
    /// TLS ports, if there are any.
    pub(crate) tls_ports: Vec<u16>,
}

impl Servers {
    pub(crate) fn start(count: usize, certificate: Option<&Certificate>) -> io::Result<Self> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut servers = Self { children: Vec::new(), ports: Vec::new(), tls_ports: Vec::new() };
        for _ in 0..count {
            let port = free_port();
            let mut command = Command::new(&program);
            command.args(["--save", "", "--appendonly", "no", "--port", &port.to_string(), "--bind", "127.0.0.1"]);
            if let Some(certificate) = certificate {
                let port = free_port();
                command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
                command
                    .arg("--tls-cert-file")
                    .arg(certificate.file())
                    .arg("--tls-key-file")
                    .arg(certificate.key_file());
                servers.tls_ports.push(port);
            }
            servers.children.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            servers.ports.push(port);
        }
        servers.answer()?;
        Ok(servers)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    pub(crate) fn tls_urls(&self) -> Vec<String> {
        self.tls_ports.iter().map(|port| format!("rediss://127.0.0.1:{port}")).collect()
    }

    /// Waits until all servers have executed the requests that they received.
    pub(crate) fn answer(&self) -> io::Result<()> {
        self.ports.iter().try_for_each(|port| answers(*port))
    }

    /// Freezes one server, or continues it.
    pub(crate) fn freeze(&self, index: usize, frozen: bool) -> io::Result<()> {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let status = Command::new("kill").arg(signal).arg(self.children[index].id().to_string()).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("kill failed")) }
    }

    /// Clock ticks of CPU time that the servers have used, user and system.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        self.children.iter().map(|child| cpu_ticks(&child.id().to_string())).sum()
    }

    /// The counters of the servers until now.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for port in &self.ports {
            let Ok(stats) = stats(*port) else { continue };
            let number = |begin: &str| {
                let line = stats.lines().find_map(|line| line.strip_prefix(begin));
                line.and_then(|text| text.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
            };
            totals.commands += number("total_commands_processed:");
            totals.reads += number("total_reads_processed:");
            totals.key_reads += number("cmdstat_get:calls=");
        }
        totals
    }

    /// The number of remaining keys, without the counter.
    pub(crate) fn keys_left(&self) -> io::Result<usize> {
        let mut left = 0;
        for port in &self.ports {
            let mut stream = TcpStream::connect(("127.0.0.1", *port))?;
            stream.write_all(b"*2\r\n$4\r\nKEYS\r\n$4\r\nkey*\r\n")?;
            let mut answer = [0; 4096];
            let length = stream.read(&mut answer)?;
            let line = String::from_utf8_lossy(&answer[..length]);
            left +=
                line.trim_start_matches('*').split("\r\n").next().and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        }
        Ok(left)
    }
}

fn stats(port: u16) -> io::Result<String> {
    // A frozen process refuses connections when its queue is full of connections that a client has opened.
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), STATS_DEADLINE)?;
    stream.set_read_timeout(Some(STATS_DEADLINE))?;
    stream.write_all(b"INFO stats commandstats\r\n")?;
    let mut answer = [0; 32_768];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

/// The server's name and version.
pub(crate) fn version() -> String {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let output = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("unknown version");
    format!("Redis {version}")
}

/// User and system time of a process, in clock ticks.
pub(crate) fn cpu_ticks(process: &str) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return 0 };
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn answers(port: u16) -> io::Result<()> {
    for _ in 0..500 {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 7];
            if stream.read_exact(&mut answer).is_ok() && &answer == b"+PONG\r\n" {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("redis-server does not answer"))
}
