//! The network between processes and Redis servers: TCP with latency, cuts and half-open connections.
//!
//! The latency of each message follows from the seed, its connection and its number. Therefore an additional or missing
//! fault changes no other message.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use crate::masters::PORT;
use crate::messages::{SharedEnd, change};
use crate::rng::hash;
use crate::time::At;
use crate::world::{Event, World};
use redlock_simulation::redis::ConnectionId;

/// The TCP user timeout of the product.
///
/// Data that is not acknowledged for this time ends the connection.
const USER_TIMEOUT: u64 = 2_000_000;
/// The time after which keepalive ends an idle connection over a cut.
const KEEPALIVE: u64 = 10_000_000;
/// The maximum time until lost packets are sent again, after the connection works again.
const RETRANSMISSION: u64 = 300_000;

/// The network path between a process and a host.
pub(crate) type Way = (usize, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// A message on a connection.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    Open,
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// The faults of a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) up_cut: bool,
    pub(crate) down_cut: bool,
    /// The maximum additional delay of each message, in microseconds.
    pub(crate) slow: u64,
    /// Since when a direction is cut.
    cut_since: Option<At>,
    messages: u64,
}

pub(crate) struct Connection {
    way: Way,
    port: u16,
    end: SharedEnd,
    /// The server and its end of the connection.
    peer: Option<(usize, ConnectionId)>,
    /// The arrival of the last segment in each direction, because no segment overtakes another.
    last: [At; 2],
    held: [Vec<Segment>; 2],
}

/// All connections and paths.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) ways: BTreeMap<Way, Weather>,
    /// Processes that reach no host, including later ones.
    cut_off: BTreeSet<usize>,
}

impl Network {
    /// Number of connections of a process.
    pub(crate) fn count(&self, process: usize) -> usize {
        self.connections.values().filter(|connection| connection.way.0 == process).count()
    }

    /// Whether messages of a process reach a host and return, each with at most the delay `slow`.
    pub(crate) fn reaches(&self, process: usize, host: &str, slow: u64) -> bool {
        let way = self.ways.get(&(process, host.to_owned()));
        let open = |way: &Weather| !way.up_cut && !way.down_cut && way.slow <= slow;
        way.map_or(!self.cut_off.contains(&process), open)
    }
}

impl World {
    /// A process sends a segment.
    pub(crate) fn network_sent(&mut self, at: At, connection: u64, segment: Segment) {
        self.travel(at, connection, Direction::Up, segment);
    }

    pub(crate) fn network_connect(&mut self, at: At, process: usize, connection: u64, address: &str, end: SharedEnd) {
        let (host, port) = address.rsplit_once(':').expect("an address has a port");
        let (host, port) = (self.resolve(host), port.parse().expect("a port is a number"));
        let way = (process, host);
        if !self.network.ways.contains_key(&way) {
            self.network.ways.insert(way.clone(), Weather::default());
            if self.network.cut_off.contains(&way.0) {
                self.cut(&way, true, true);
            }
        }
        let made = Connection { way, port, end, peer: None, last: [at; 2], held: Default::default() };
        self.network.connections.insert(connection, made);
        self.travel(at, connection, Direction::Up, Segment::Open);
    }

    fn travel(&mut self, at: At, number: u64, direction: Direction, segment: Segment) {
        let Some(connection) = self.network.connections.get_mut(&number) else { return };
        let way = connection.way.clone();
        let weather = self.network.ways.get_mut(&way).expect("every connection has a path");
        let cut = if direction == Direction::Up { weather.up_cut } else { weather.down_cut };
        if direction == Direction::Up && weather.cut_since.is_some() && matches!(segment, Segment::Bytes(_)) {
            self.queue.push(at + USER_TIMEOUT, Event::Unacknowledged { connection: number, sent: at });
        }
        let lane = direction as usize;
        if cut {
            connection.held[lane].push(segment);
            return;
        }
        weather.messages += 1;
        let host = way.1.bytes().map(u64::from);
        let drawn = hash(self.seed, [1, way.0 as u64, lane as u64, weather.messages].into_iter().chain(host));
        // Most messages take a fraction of a millisecond, one in fifty some milliseconds.
        let base = if drawn.is_multiple_of(50) { 1_000 + drawn / 64 % 8_000 } else { 80 + drawn / 64 % 700 };
        let slow = if weather.slow == 0 { 0 } else { hash(drawn, [2]) % weather.slow };
        let arrives = (at + base + slow).max(connection.last[lane]);
        connection.last[lane] = arrives;
        self.queue.push(arrives, Event::Arrives { connection: number, direction, segment });
    }

    pub(crate) fn network_arrives(&mut self, number: u64, direction: Direction, segment: Segment) {
        match direction {
            Direction::Up => self.arrives_at_server(number, segment),
            Direction::Down => self.arrives_at_process(number, segment),
        }
    }

    fn arrives_at_server(&mut self, number: u64, segment: Segment) {
        let now = self.now;
        let Some(connection) = self.network.connections.get_mut(&number) else { return };
        let host = connection.way.1.clone();
        let pod = || self.cluster.cluster.truth().at(&host).next().map(|running| running.pod_uid.clone());
        if connection.port != PORT
            && let Some(pod) = pod()
        {
            return self.arrives_at_pod(number, &pod, &segment);
        }
        let Some(server) = self.servers.at_host(&host) else {
            if pod().is_some() && !matches!(segment, Segment::End) {
                return self.travel(now, number, Direction::Down, Segment::Reset);
            }
            // No host has this address, so packets vanish. If the process closes the connection, nothing of it is left.
            if matches!(segment, Segment::End) {
                self.network.connections.remove(&number);
            }
            return;
        };
        let process = &mut self.servers.all[server];
        let clock = process.wall(now);
        match (segment, connection.peer) {
            (Segment::Open, _) if process.is_up() => {
                let id = process.server.connect(clock);
                process.connections.insert(id, number);
                connection.peer = Some((server, id));
                self.travel(now, number, Direction::Down, Segment::Open);
            }
            (Segment::Bytes(bytes), Some((of, id))) if of == server && process.is_up() => {
                process.server.feed(id, &bytes, clock);
                self.pump(server);
            }
            (Segment::End, Some((of, id))) if of == server => {
                process.server.close(id);
                process.connections.remove(&id);
                self.network.connections.remove(&number);
                self.pump(server);
            }
            (Segment::End, _) => {
                self.network.connections.remove(&number);
            }
            // No process listens at this address, or another one does.
            _ => self.travel(now, number, Direction::Down, Segment::Reset),
        }
    }

    /// Answers a segment like the application of a pod.
    ///
    /// The application answers a health check, unless it is sick.
    fn arrives_at_pod(&mut self, number: u64, pod: &str, segment: &Segment) {
        let answer = match segment {
            Segment::End | Segment::Reset => return drop(self.network.connections.remove(&number)),
            _ if self.is_sick(pod) => Segment::Reset,
            Segment::Open => Segment::Open,
            Segment::Bytes(_) => Segment::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
        };
        self.travel(self.now, number, Direction::Down, answer);
    }

    /// Sends the output of a server, and closes the connections that it has closed.
    pub(crate) fn pump(&mut self, server: usize) {
        let now = self.now;
        let process = &mut self.servers.all[server];
        let mut out = Vec::new();
        process.connections.retain(|id, number| {
            let bytes = process.server.take_output(*id);
            let closed = process.server.is_closed(*id);
            out.push((*number, bytes, closed));
            !closed
        });
        for (number, bytes, closed) in out {
            if !bytes.is_empty() {
                self.travel(now, number, Direction::Down, Segment::Bytes(bytes));
            }
            if closed {
                self.travel(now, number, Direction::Down, Segment::End);
            }
        }
    }

    /// Resets the connections of an ended server process, like the kernel.
    ///
    /// If the machine is gone, no peer is notified.
    pub(crate) fn server_lost(&mut self, server: usize, silently: bool) {
        let numbers: Vec<u64> = std::mem::take(&mut self.servers.all[server].connections).into_values().collect();
        for number in numbers {
            if let Some(connection) = self.network.connections.get_mut(&number) {
                connection.peer = None;
            }
            if !silently {
                self.travel(self.now, number, Direction::Down, Segment::Reset);
            }
        }
    }

    fn arrives_at_process(&mut self, number: u64, segment: Segment) {
        let Some(connection) = self.network.connections.get(&number) else { return };
        change(&connection.end, |end| match segment {
            Segment::Open => end.open = true,
            Segment::Bytes(bytes) => end.arrived.extend(bytes),
            Segment::End => end.ended = true,
            Segment::Reset if end.open => end.broken = Some(ErrorKind::ConnectionReset),
            Segment::Reset => end.broken = Some(ErrorKind::ConnectionRefused),
        });
    }

    /// Closes the connections of a killed process, like its kernel.
    pub(crate) fn process_lost(&mut self, process: usize) {
        let of_process = |connection: &Connection| connection.way.0 == process;
        let all = self.network.connections.iter().filter(|(_, connection)| of_process(connection));
        let numbers: Vec<u64> = all.map(|(number, _)| *number).collect();
        for number in numbers {
            self.travel(self.now, number, Direction::Up, Segment::End);
        }
    }

    /// Cuts a connection, or one of its directions.
    pub(crate) fn cut(&mut self, way: &Way, up: bool, down: bool) {
        let now = self.now;
        let weather = self.network.ways.entry(way.clone()).or_default();
        weather.up_cut |= up;
        weather.down_cut |= down;
        weather.cut_since.get_or_insert(now);
        self.queue.push(now + KEEPALIVE, Event::KeepaliveEnds { way: way.clone(), cut: now });
    }

    /// Cuts a process off from all hosts, including later ones.
    pub(crate) fn cut_off(&mut self, process: usize) {
        self.network.cut_off.insert(process);
        let ways: Vec<_> = self.network.ways.keys().filter(|way| way.0 == process).cloned().collect();
        ways.iter().for_each(|way| self.cut(way, true, true));
    }

    /// Restores a connection.
    ///
    /// Held segments are sent again after a while.
    pub(crate) fn mend(&mut self, way: &Way) {
        let Some(weather) = self.network.ways.get_mut(way) else { return };
        (weather.up_cut, weather.down_cut, weather.cut_since) = (false, false, None);
        let mut held = Vec::new();
        for (number, connection) in &mut self.network.connections {
            if connection.way == *way {
                held.extend(
                    [Direction::Up, Direction::Down].map(|direction| {
                        (*number, direction, std::mem::take(&mut connection.held[direction as usize]))
                    }),
                );
            }
        }
        for (number, direction, segments) in held {
            let later = hash(self.seed, [3, number, self.now.0]) % RETRANSMISSION;
            for segment in segments {
                self.travel(self.now + later, number, direction, segment);
            }
        }
    }

    pub(crate) fn unacknowledged(&mut self, number: u64, sent: At) {
        let Some(connection) = self.network.connections.get(&number) else { return };
        if self.network.ways[&connection.way].cut_since.is_some_and(|since| since <= sent) {
            change(&connection.end, |end| end.broken = Some(ErrorKind::TimedOut));
        }
    }

    pub(crate) fn keepalive_ends(&mut self, way: &Way, cut: At) {
        if self.network.ways.get(way).and_then(|weather| weather.cut_since) != Some(cut) {
            return;
        }
        for connection in self.network.connections.values().filter(|connection| connection.way == *way) {
            change(&connection.end, |end| end.broken = Some(ErrorKind::TimedOut));
        }
    }
}
