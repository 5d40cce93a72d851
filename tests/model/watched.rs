//! A record on a member by which a client can vote without a wait: `#watched`.
//!
//! It has the process and the delay that a client has waited there. Nothing in the product writes this record
//! (docs/dev/algorithm.md gives the reason). The model has the rules that the record would need. A client that finds
//! the record of another client votes at once. It must never vote on data that is younger than its own delay, because a
//! lock that the member has forgotten can last that long.

use std::fmt::Write;

use super::check::{Rules, holds, large, violated};
use super::protocol::CLIENTS;

/// The delays of the two clients, in ticks, which have different longest times to live.
const DELAYS: [u8; 2] = [1, 2];

#[derive(Clone)]
struct Watched {
    /// How often the member loses its data.
    faults: u8,
    /// Whether the record names its process by `run_id`.
    names_process: bool,
    /// Whether the record names the history of its data, `master_replid`.
    ///
    /// A promoted replica begins another one.
    names_history: bool,
    /// Whether a client ignores the record of a shorter delay than its own.
    compares_delays: bool,
    /// Whether a client that begins to wait puts a random mark on the member.
    marks: bool,
    /// Whether the end of the wait is written only where the mark still is, in one step.
    writes_by_mark: bool,
    /// Whether record and identity are read again after the counter of tokens is raised.
    ///
    /// From then on a vote reveals a loss.
    checks_again: bool,
}

impl Watched {
    fn new() -> Self {
        Self {
            faults: if large() { 3 } else { 2 },
            names_process: true,
            names_history: true,
            compares_delays: true,
            marks: true,
            writes_by_mark: true,
            checks_again: true,
        }
    }
}

/// A process and the history of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Identity {
    process: u8,
    history: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    of: Identity,
    mark: u8,
    /// 0 during the wait.
    delay: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Connected,
    /// It has read the record, and reads the identity next.
    HasRecord(Option<Record>),
    /// It has waited for this number of ticks.
    Waiting {
        of: Identity,
        mark: u8,
        since: u8,
    },
    /// It has found the mark, and will write.
    Writing {
        of: Identity,
        mark: u8,
    },
    /// It can vote once the counter is raised.
    ///
    /// `mark` is that of its own wait.
    Ready {
        of: Identity,
        mark: Option<u8>,
    },
    /// The counter is raised.
    Raised {
        of: Identity,
        mark: Option<u8>,
    },
    Voting,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    identity: Identity,
    /// Ticks since the member lost its data, at most the longest delay.
    age: u8,
    record: Option<Record>,
    /// The data of a replica or a snapshot, which can be old.
    copy: Option<Record>,
    clients: [Phase; 2],
    faults: u8,
    marks: u8,
    is_wrong: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Copy,
    /// A process without data.
    Restart,
    /// Another process with the copy: an older snapshot, or a replica at the same address.
    Replace,
    /// The same process becomes a replica of the copy, and is promoted.
    Resync,
    Flush,
    /// A client takes its next step.
    Go(usize),
}

impl Watched {
    fn matches(&self, record: &Record, identity: Identity) -> bool {
        (!self.names_process || record.of.process == identity.process)
            && (!self.names_history || record.of.history == identity.history)
    }

    /// Decides after the record and the identity are read.
    fn decide(&self, world: &mut World, client: usize, record: Option<Record>, of: Identity) {
        let watched = record.filter(|record| self.matches(record, of) && record.delay > 0);
        if watched.is_some_and(|record| !self.compares_delays || record.delay >= DELAYS[client]) {
            world.clients[client] = Phase::Ready { of, mark: None };
            return;
        }
        // The member decides in one script, so the second client waits with the existing mark.
        let mark = match world.record.filter(|record| self.matches(record, of)) {
            Some(record) => record.mark,
            None if self.marks => {
                world.marks += 1;
                world.record = Some(Record { of, mark: world.marks, delay: 0 });
                world.marks
            }
            None => 0,
        };
        world.clients[client] = Phase::Waiting { of, mark, since: 0 };
    }

    fn is_marked(&self, world: &World, mark: u8) -> bool {
        !self.marks || world.record.is_some_and(|record| record.mark == mark)
    }

    fn write(&self, world: &mut World, client: usize, of: Identity, mark: u8) {
        let known = world.record.filter(|record| self.matches(record, of)).map_or(0, |record| record.delay);
        world.record = Some(Record { of, mark, delay: known.max(DELAYS[client]) });
    }

    fn go(&self, world: &mut World, client: usize) {
        let (delay, identity) = (DELAYS[client], world.identity);
        let next = match world.clients[client] {
            Phase::Connected => Phase::HasRecord(world.record),
            Phase::HasRecord(record) => {
                self.decide(world, client, record, identity);
                return;
            }
            Phase::Waiting { since, .. } if since < delay => return,
            Phase::Waiting { of, mark, .. } => Phase::Ready { of, mark: Some(mark) },
            Phase::Ready { of, mark } => Phase::Raised { of, mark },
            Phase::Raised { of, mark } => {
                let is_same = identity == of || !self.names_history && identity.process == of.process;
                let is_there = match mark {
                    Some(mark) => self.is_marked(world, mark),
                    None => world.record.is_some_and(|record| self.matches(&record, of) && record.delay > 0),
                };
                match mark {
                    _ if self.checks_again && !(is_same && is_there) => Phase::Connected,
                    Some(mark) if !self.writes_by_mark => Phase::Writing { of, mark },
                    Some(mark) => {
                        self.write(world, client, of, mark);
                        self.vote(world, client)
                    }
                    None => self.vote(world, client),
                }
            }
            Phase::Writing { of, mark } => {
                self.write(world, client, of, mark);
                self.vote(world, client)
            }
            Phase::Voting => return,
        };
        world.clients[client] = next;
    }

    fn vote(&self, world: &mut World, client: usize) -> Phase {
        world.is_wrong |= world.age < DELAYS[client];
        Phase::Voting
    }

    /// Loses the data, or replaces it by the copy's.
    fn lose(&self, world: &mut World, step: Step) {
        if world.faults == self.faults {
            return;
        }
        world.faults += 1;
        let before = world.identity;
        match step {
            Step::Restart | Step::Replace => world.identity = Identity { process: world.faults, history: world.faults },
            Step::Resync => world.identity.history = world.faults,
            _ => {}
        }
        world.record = if matches!(step, Step::Replace | Step::Resync) { world.copy } else { None };
        world.age = 0;
        let breaks = before.process != world.identity.process;
        for client in &mut world.clients {
            // The connection ends with its process. A vote that counts from less than the raised counter reveals the
            // loss.
            let is_noticed = matches!(client, Phase::Raised { .. } | Phase::Voting);
            // A write on its way arrives in any case.
            let is_on_its_way = matches!(client, Phase::Writing { .. }) && !breaks;
            if (breaks || is_noticed) && !is_on_its_way {
                *client = Phase::Connected;
            }
        }
    }
}

impl Rules for Watched {
    type State = World;
    type Step = Step;

    fn steps(&self, _: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::Copy, Step::Restart, Step::Replace, Step::Resync, Step::Flush]);
        steps.extend((0..DELAYS.len()).map(Step::Go));
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => {
                world.age = (world.age + 1).min(DELAYS[1]);
                for client in &mut world.clients {
                    if let Phase::Waiting { since, .. } = client {
                        *since = (*since + 1).min(DELAYS[1]);
                    }
                }
            }
            Step::Copy => world.copy = world.record,
            Step::Go(_) if world.marks > 6 => {}
            Step::Go(client) => self.go(world, client),
            Step::Restart | Step::Replace | Step::Resync | Step::Flush => self.lose(world, step),
        }
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.is_wrong.then_some("a client votes on a memory that is younger than its delay")
    }

    /// Both clients vote after all losses.
    fn goal(&self, world: &World) -> bool {
        world.faults == self.faults && world.clients == [Phase::Voting; 2]
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Copy => "a replica, or a snapshot, has the data of now".into(),
            Step::Restart => "the process restarts with an empty memory".into(),
            Step::Replace => "another process begins with the copy".into(),
            Step::Resync => "the process becomes a replica of the copy and is promoted".into(),
            Step::Flush => "FLUSHALL".into(),
            Step::Go(client) => format!("client {} (delay {}) takes its next step", CLIENTS[client], DELAYS[client]),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = format!("p{} history {} age {}", world.identity.process, world.identity.history, world.age);
        if let Some(Record { of, mark, delay }) = world.record {
            write!(text, "; record p{} history {} mark {mark} delay {delay}", of.process, of.history).unwrap();
        }
        for (name, client) in CLIENTS.iter().zip(world.clients) {
            write!(text, "; {name} {client:?}").unwrap();
        }
        text
    }
}

#[test]
fn with_all_rules_nobody_votes_on_a_young_memory() {
    holds("watched, two delays", Watched::new());
}

/// Each process begins a history of its own, so the name of the history is enough.
#[test]
fn with_a_record_that_names_neither_process_nor_history() {
    let nameless = Watched { names_process: false, names_history: false, ..Watched::new() };
    violated("the record of an older snapshot counts", nameless);
    holds("watched, the history alone", Watched { names_process: false, ..Watched::new() });
}

#[test]
fn without_the_history_in_the_record() {
    violated("a promoted replica has the record of its copy", Watched { names_history: false, ..Watched::new() });
}

#[test]
fn with_a_record_of_a_shorter_delay() {
    violated("a shorter delay is enough", Watched { compares_delays: false, ..Watched::new() });
}

/// This is the product's wait: a client does not notice a FLUSHALL during it.
#[test]
fn without_a_mark_from_the_first_sight() {
    violated("no mark shows a FLUSHALL during the wait", Watched { marks: false, ..Watched::new() });
}

#[test]
fn with_a_write_that_is_not_bound_to_the_mark() {
    violated(
        "FLUSHALL between the check of the mark and the write",
        Watched { writes_by_mark: false, ..Watched::new() },
    );
}

#[test]
fn without_a_second_check_after_the_counter() {
    violated("FLUSHALL before the counter is raised", Watched { checks_again: false, ..Watched::new() });
}
