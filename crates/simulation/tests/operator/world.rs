//! The coordinator: one queue of events in true time.
//!
//! It advances the processes between events.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api_line::{ApiSide, Asked};
use crate::cluster::ClusterSide;
use crate::electors::Electors;
use crate::logs;
use crate::messages::{AnswerBody, MessageQueue, Parcel, Sent};
use crate::net::{Direction, Network, Segment, Way};
use crate::oracle::Oracle;
use crate::plan::{Fault, Pause, Plan};
use crate::process::{Pace, Process};
use crate::rng::Rng;
use crate::servers::Servers;
use crate::time::At;
use crate::trace::Trace;
use crate::users::Users;

/// An event of the queue.
pub(crate) enum Event {
    Arrives {
        connection: u64,
        direction: Direction,
        segment: Segment,
    },
    Unacknowledged {
        connection: u64,
        sent: At,
    },
    KeepaliveEnds {
        way: Way,
        cut: At,
    },
    ApiAsked(Asked),
    ApiAnswers {
        answer: oneshot::Sender<io::Result<Response<AnswerBody>>>,
        response: io::Result<Response<AnswerBody>>,
    },
    WatchShows {
        watch: u64,
        through: u64,
    },
    WatchEnds {
        watch: u64,
    },
    Fault(Fault),
    Healed(Fault),
    Users(crate::users::Step),
    Start {
        process: usize,
    },
    /// The next process of an external master starts, with this share of the keys in percent.
    MasterStarts {
        number: usize,
        kept: u64,
    },
    /// The application of a pod answers again.
    Recovers {
        pod: String,
    },
}

struct Scheduled {
    at: At,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Events by their time.
///
/// If two have the same time, the one that was scheduled first comes first.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: At, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { at, sequence: self.sequence, event }));
    }

    fn pop(&mut self, until: At) -> Option<(At, Event)> {
        if self.heap.peek()?.0.at > until {
            return None;
        }
        self.heap.pop().map(|Reverse(next)| (next.at, next.event))
    }

    /// Drops the pending repairs, so that later faults last.
    pub(crate) fn forget_repairs(&mut self) {
        self.heap.retain(|Reverse(next)| !matches!(next.event, Event::Healed(_)));
    }

    /// Drops the pending starts of a process, so that it stays dead.
    pub(crate) fn forget_starts(&mut self, process: usize) {
        let starts = |event: &Event| matches!(event, Event::Start { process: of } if *of == process);
        self.heap.retain(|Reverse(next)| !starts(&next.event));
    }
}

/// The state of the whole simulation.
pub(crate) struct World {
    pub(crate) seed: u64,
    /// True time of the current event.
    pub(crate) now: At,
    pub(crate) queue: Queue,
    pub(crate) trace: Trace,
    pub(crate) messages: Arc<MessageQueue>,
    pub(crate) processes: Vec<Process>,
    pub(crate) network: Network,
    pub(crate) servers: Servers,
    pub(crate) api: ApiSide,
    pub(crate) cluster: ClusterSide,
    pub(crate) users: Users,
    pub(crate) electors: Electors,
    pub(crate) oracle: Oracle,
    pub(crate) plan: Plan,
    /// Members that can be faulty at the end.
    pub(crate) outsiders: std::collections::BTreeSet<String>,
    /// Draws the order in which processes get a tick.
    turns: Rng,
}

impl World {
    fn new(seed: u64, trace: Trace) -> Self {
        let plan = Plan::draw(seed);
        let mut api = ApiSide::new(seed, plan.api_wrong);
        let clock = api.clock(At::default());
        let cluster = ClusterSide::new(seed, &plan, &mut api.server, clock);
        Self {
            seed,
            now: At::default(),
            queue: Queue::default(),
            trace,
            messages: Arc::default(),
            processes: Vec::new(),
            network: Network::default(),
            servers: Servers::default(),
            api,
            cluster,
            users: Users::new(seed, &plan),
            electors: Electors::default(),
            oracle: Oracle::default(),
            plan,
            outsiders: std::collections::BTreeSet::new(),
            turns: Rng::of(seed, "turns"),
        }
    }

    /// Advances the time.
    fn run_until(&mut self, end: At) {
        let mut tick_begins = self.now;
        while tick_begins < end {
            while let Some((at, event)) = self.queue.pop(tick_begins) {
                self.now = self.now.max(at);
                self.happens(event);
            }
            self.now = tick_begins;
            let tick = if self.no_process_runs() { LONG_TICK } else { self.plan.tick };
            self.cluster_step();
            self.electors_step();
            let mut order: Vec<usize> = (0..self.processes.len()).collect();
            self.turns.shuffle(&mut order);
            for process in order {
                self.processes[process].tick(tick_begins, tick);
                for parcel in self.messages.take() {
                    self.sent(parcel);
                }
            }
            tick_begins = tick_begins + tick;
        }
        self.now = tick_begins;
    }

    /// Whether no process runs, in a run of hours.
    fn no_process_runs(&self) -> bool {
        let rests = |process: &Process| !process.lives() || process.pace != Pace::Running;
        self.plan.hours && self.now.0 > STARTED && self.processes.iter().all(rests)
    }

    fn sent(&mut self, Parcel { at, process, what }: Parcel) {
        match what {
            Sent::Connect { connection, address, end } => {
                self.network_connect(at, process, connection, &address, end);
            }
            Sent::Bytes { connection, bytes } => self.network_sent(at, connection, Segment::Bytes(bytes)),
            Sent::Close { connection } => self.network_sent(at, connection, Segment::End),
            Sent::Request { request, answer } => self.api_sent(at, process, *request, answer),
            Sent::ContenderReport(report) => self.handle_report(at, process, report),
            Sent::Ended => self.process_ended(at, process),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives { connection, direction, segment } => self.network_arrives(connection, direction, segment),
            Event::Unacknowledged { connection, sent } => self.unacknowledged(connection, sent),
            Event::KeepaliveEnds { way, cut } => self.keepalive_ends(&way, cut),
            Event::ApiAsked(asked) => self.on_api_request(asked),
            Event::ApiAnswers { answer, response } => drop(answer.send(response)),
            Event::WatchShows { watch, through } => self.watch_shows(watch, through),
            Event::WatchEnds { watch } => self.watch_ends(watch),
            Event::Fault(fault) => self.fault(&fault),
            Event::Healed(fault) => self.heal(&fault),
            Event::Users(step) => self.users_step(step),
            Event::Start { process } => self.start_process(process),
            Event::MasterStarts { number, kept } => self.start_master(number, kept),
            Event::Recovers { pod } => self.sicken(&pod, false),
        }
    }

    pub(crate) fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.add(self.now, what);
    }

    pub(crate) fn start_process(&mut self, process: usize) {
        if !self.processes[process].lives() {
            self.note(format_args!("{} starts", self.processes[process].name));
            self.processes[process].start(&self.messages);
        }
    }

    /// SIGKILL, and a new life after a while.
    pub(crate) fn kill_process(&mut self, process: usize, away: u64) {
        if self.processes[process].lives() {
            self.note(format_args!("{} is killed", self.processes[process].name));
            self.processes[process].kill();
            self.process_lost(process);
            self.cut_watches(process, false);
            self.queue.push(self.now + away, Event::Start { process });
        }
    }

    /// Handles the end of a process without SIGKILL.
    ///
    /// A replica ends only after SIGTERM.
    fn process_ended(&mut self, at: At, process: usize) {
        let name = self.processes[process].name.clone();
        self.trace.add(at, format_args!("{name} has ended"));
        if process < self.plan.replicas.len() && !self.processes[process].is_terminated() {
            self.oracle.violated_once(format!("{name} ended without a signal at {at}"), &format!("end of {name}"));
        }
        self.processes[process].kill();
        self.process_lost(process);
        self.cut_watches(process, false);
        self.queue.push(self.now + 1_000_000, Event::Start { process });
    }
}

/// The time by which each process has started.
const STARTED: u64 = 1_000_000;
/// A tick in which no process runs, in microseconds.
const LONG_TICK: u64 = 4_000_000;
/// Seconds after which a run of hours that has not settled pauses its processes, and the length of that pause.
const PAUSE_AFTER: u64 = 40;
const PAUSE: u64 = 3_900_000_000;
/// Seconds for which the settled state has to last.
const REST: u32 = 3;
/// The same with checks of times, because nothing is due before a leader has been healthy for a while.
const LONG_REST: u32 = 25;

/// Runs one seed, and returns its result.
pub(crate) fn run(seed: u64, trace: &Trace) -> Value {
    logs::record(trace);
    let mut world = World::new(seed, trace.clone());
    let plan = world.plan.clone();
    println!("{plan}");
    world.begin();
    world.api_changed();
    for (at, fault) in &plan.faults {
        world.queue.push(*at, Event::Fault(fault.clone()));
    }
    world.run_until(plan.calm);
    world.heal_all();
    if plan.core {
        world.queue.forget_repairs();
        world.break_all_but_a_core();
    }
    let (mut resting, rest) = (0, if plan.habits.wide { LONG_REST } else { REST });
    let mut active = 0;
    while world.now < plan.length && resting < rest {
        world.run_until(world.now + 1_000_000);
        resting = if world.unrest().is_empty() { resting + 1 } else { 0 };
        active += 1;
        // A wait of hours passes while the replicas are stopped, because their clocks continue.
        if plan.hours && resting == 0 && active >= PAUSE_AFTER {
            world.fault(&Fault::Standstill { how: Pause::Stop, length: PAUSE });
            world.run_until(world.now + PAUSE);
            active = 0;
        }
    }
    world.finish();
    let logged = logs::taken();
    let mut violations = world.oracle.violations.clone();
    violations.extend(logged.panics.iter().map(|panic| format!("a panic: {panic}")));
    json!({
        "violations": violations, "hash": format!("{:016x}", trace.hash()), "lines": trace.lines(),
        "counts": world.oracle.counts, "warnings": logged.warnings, "seconds": world.now.0 / 1_000_000, "faults": plan.faults.len(),
    })
}
