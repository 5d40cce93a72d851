//! The floor: one thread with raw sockets and pipelined commands, and no more than Redlock asks for.
//!
//! It sends `SET NX PX` to all members, and then compare-and-delete to all. A majority decides each of them. It has no token, no drift,
//! no retries, and no error handling.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::certificate::SERVER_NAME;

const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    fn connect(port: u16, tls: Option<&Arc<rustls::ClientConfig>>) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let Some(config) = tls else { return Ok(Self::Plain(stream)) };
        let name = SERVER_NAME.try_into().map_err(io::Error::other)?;
        let connection = rustls::ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(rustls::StreamOwned::new(connection, stream))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Link {
    stream: Stream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// The worker and its round for each expected reply.
    due: VecDeque<(usize, u64)>,
}

#[derive(Clone)]
struct Worker {
    round: u64,
    replies: usize,
    holds: bool,
}

pub(crate) struct Floor {
    links: Vec<Link>,
    sha1: String,
}

impl Floor {
    /// Connects to all servers. With a configuration it speaks TLS, by rustls.
    pub(crate) fn connect(ports: &[u16], tls: Option<&Arc<rustls::ClientConfig>>) -> io::Result<Self> {
        let mut links = Vec::new();
        let mut sha1 = String::new();
        for port in ports {
            let mut stream = Stream::connect(*port, tls)?;
            let load = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{RELEASE}\r\n", RELEASE.len());
            stream.write_all(load.as_bytes())?;
            let mut answer = [0; 47];
            stream.read_exact(&mut answer)?;
            sha1 = String::from_utf8_lossy(&answer[5..45]).into_owned();
            stream.socket().set_nonblocking(true)?;
            links.push(Link { stream, out: Vec::new(), input: Vec::new(), due: VecDeque::new() });
        }
        Ok(Self { links, sha1 })
    }

    /// Runs `workers` callers at once, each with its own key, and returns the number of cycles.
    ///
    /// It calls `is_over` after each cycle.
    pub(crate) fn run(&mut self, workers: usize, mut is_over: impl FnMut() -> bool) -> io::Result<u64> {
        let quorum = self.links.len() / 2 + 1;
        let mut state = vec![Worker { round: 0, replies: 0, holds: false }; workers];
        for (worker, state) in state.iter_mut().enumerate() {
            self.begin(worker, state);
        }
        let (mut cycles, mut running) = (0, workers);
        while running > 0 {
            self.flush()?;
            self.wait()?;
            for link in 0..self.links.len() {
                for (worker, round) in self.replies(link)? {
                    let current = &mut state[worker];
                    if current.round != round {
                        continue;
                    }
                    current.replies += 1;
                    if current.replies < quorum {
                        continue;
                    }
                    current.holds = !current.holds;
                    let is_cycle = !current.holds;
                    cycles += u64::from(is_cycle);
                    if is_cycle && is_over() {
                        (current.round, running) = (u64::MAX, running - 1);
                    } else {
                        self.begin(worker, &mut state[worker]);
                    }
                }
            }
        }
        Ok(cycles)
    }

    fn begin(&mut self, worker: usize, state: &mut Worker) {
        (state.round, state.replies) = (state.round + 1, 0);
        let key = format!("floor{worker}");
        let value = format!("{worker:020}{:020}", state.round | 1);
        let held = format!("{worker:020}{:020}", (state.round - 1) | 1);
        let command = if state.holds {
            let sha1 = &self.sha1;
            format!("*5\r\n$7\r\nEVALSHA\r\n$40\r\n{sha1}\r\n$1\r\n1\r\n${}\r\n{key}\r\n$40\r\n{held}\r\n", key.len())
        } else {
            format!(
                "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$40\r\n{value}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
                key.len()
            )
        };
        for link in &mut self.links {
            link.out.extend_from_slice(command.as_bytes());
            link.due.push_back((worker, state.round));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        for link in &mut self.links {
            while !link.out.is_empty() {
                match link.stream.write(&link.out) {
                    Ok(written) => drop(link.out.drain(..written)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut polled: Vec<_> = self.links.iter().map(|link| PollFd::new(&link.stream, PollFlags::IN)).collect();
        let longest = rustix::event::Timespec::try_from(Duration::from_secs(2)).map_err(io::Error::other)?;
        poll(&mut polled, Some(&longest))?;
        Ok(())
    }

    /// The replies of one link. Each reply is one line.
    fn replies(&mut self, link: usize) -> io::Result<Vec<(usize, u64)>> {
        let link = &mut self.links[link];
        let mut buffer = [0; 16_384];
        match link.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => link.input.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut replies = Vec::new();
        while let Some(end) = link.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = link.input.drain(..=end).collect();
            let is_yes = line.first() == Some(&b'+') || line == b":1\r\n";
            // A bulk reply of nil, `$-1`, is also one line.
            if let Some(due) = link.due.pop_front().filter(|_| is_yes) {
                replies.push(due);
            }
        }
        Ok(replies)
    }
}
