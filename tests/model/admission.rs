//! The fence: one member whose processes restart or are replaced, and two operator replicas.
//!
//! Processes can be cut off.
//!
//! One of the replicas can be frozen at any point and continue after the other has taken over. Every decision is
//! `fence::decide`, every record `Record::after`, every observation `ProcessWatch`, every verdict `predecessor::judge`.

use std::fmt::Write;

use redlock_operator::fence::{FenceStep, Reason, State};

use super::check::{Rules, each_violated, holds, large, violated};
use super::core::rejoin_ticks;

mod apply;
mod real;
mod tests;

/// Maximum number of processes of the member, one after the other.
const MOST: usize = 3;

#[derive(Clone)]
struct Admission {
    processes: usize,
    /// How long a promise lives, in ticks.
    ttl: u8,
    delay: u8,
    /// Whether the member is new.
    ///
    /// Otherwise its first process votes already.
    fresh: bool,
    /// How often a replica becomes the leader.
    terms: u8,
    /// Whether the opening uses the connection of the check.
    one_connection: bool,
    /// Whether a successor waits for the evidence of its predecessor's death.
    confirms_death: bool,
    /// Whether a Node is no evidence for a process on another machine with the same node name.
    tells_machines_apart: bool,
    /// Whether a successor's wait starts again when that death is recorded.
    counts_from_death: bool,
    /// Whether opening and closing depend on the leader's epoch.
    ///
    /// A new leader also cuts the connections of the old one.
    epoch: bool,
}

impl Admission {
    fn new(ttl: u8, fresh: bool) -> Self {
        Self {
            processes: 2,
            ttl,
            delay: rejoin_ticks(ttl),
            fresh,
            terms: 2,
            one_connection: true,
            confirms_death: true,
            tells_machines_apart: true,
            counts_from_death: true,
            epoch: true,
        }
    }
}

/// The end of a process, or its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Life {
    #[default]
    NotYet,
    Running,
    /// The process runs, but no operator reaches it.
    ///
    /// Its pod was deleted by force while its node was cut off.
    CutOff,
    /// Its container ended, and its pod continued with another one.
    Ended,
    /// Its node returned, and the kubelet ended the process.
    NodeBack,
    /// An administrator switched its machine off, and confirmed that.
    Declared,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Process {
    life: Life,
    /// The pod of the member in which it runs.
    pod: u8,
    /// Whether another machine took the name of its node during the cut, and is Ready.
    renamed: bool,
    open: bool,
    /// The leader's epoch on it.
    epoch: u8,
    /// Ticks since it could last vote.
    quiet: u8,
    /// Whether a leader closed it after its record required that, and no admission has been written since.
    shut: bool,
    /// Whether a record has admitted it.
    admitted: bool,
}

impl Process {
    fn runs(&self) -> bool {
        matches!(self.life, Life::Running | Life::CutOff)
    }

    fn votes(&self) -> bool {
        self.runs() && self.open
    }
}

/// `fence::Record`, with numbers for processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Published {
    state: State,
    reason: Option<Reason>,
    run: Option<u8>,
    admitted: bool,
    process: Option<u8>,
    predecessor: Option<u8>,
}

/// An `ObservedProcess` of the fence, in ticks before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Observed {
    process: u8,
    first: u8,
    open: bool,
    closed: Option<u8>,
}

/// The current step of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Doing {
    #[default]
    Nothing,
    /// Connected to a process that can be admitted.
    Checked(u8),
    /// It has decided again on this record.
    ///
    /// The flag is true if the record is the newest one.
    Read(u8, Published, bool),
    /// It has written the admission.
    Written(u8),
    /// It has written that the process is fenced.
    Closing(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// Its term, if it believes that it leads.
    term: u8,
    cache: Published,
    /// Whether no replica has written since `cache` was read.
    cache_is_new: bool,
    observed: Option<Observed>,
    /// A process whose wait starts again, and ticks since then.
    fenced: Option<(u8, u8)>,
    raised: Option<u8>,
    doing: Doing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    processes: [Process; MOST],
    current: u8,
    record: Published,
    replicas: [Replica; 2],
    terms: u8,
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    TooEarly,
    Twin,
    Shut,
    Unadmitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// The next process starts in the same pod.
    ///
    /// After `ForceDelete` it starts in another pod, while the first one continues to run.
    Restart,
    ForceDelete,
    NodeBack(usize),
    Declare(usize),
    Rename(usize),
    Lead(usize),
    Receive(usize),
    Probe(usize),
    Act(usize),
    Read(usize),
    Write(usize),
    Open(usize),
    Close(usize),
    Fail(usize),
}

impl Rules for Admission {
    type State = World;
    type Step = Step;

    fn starts(&self) -> Vec<World> {
        let mut fresh = World::default();
        for process in &mut fresh.processes {
            process.quiet = self.ttl;
        }
        fresh.processes[0].life = Life::Running;
        fresh.replicas.iter_mut().for_each(|replica| replica.cache_is_new = true);
        let mut voting = fresh;
        voting.processes[0] = Process { open: true, epoch: 1, quiet: 0, ..voting.processes[0] };
        voting.record =
            Published { state: State::Admitted, run: Some(0), admitted: true, process: Some(0), ..voting.record };
        for replica in &mut voting.replicas {
            replica.cache = voting.record;
            replica.observed = Some(Observed { process: 0, first: self.delay, open: true, closed: None });
        }
        (voting.replicas[0].term, voting.replicas[0].raised, voting.terms) = (1, Some(0), 1);
        vec![if self.fresh { fresh } else { voting }]
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::Restart, Step::ForceDelete]);
        for process in 0..self.processes {
            steps.extend([Step::NodeBack(process), Step::Declare(process), Step::Rename(process)]);
        }
        for (number, replica) in world.replicas.iter().enumerate() {
            steps.extend([Step::Lead(number), Step::Receive(number), Step::Probe(number)]);
            if replica.term == 0 {
                continue;
            }
            match replica.doing {
                Doing::Nothing => steps.push(Step::Act(number)),
                Doing::Checked(_) => steps.extend([Step::Read(number), Step::Fail(number)]),
                Doing::Read(..) => steps.extend([Step::Write(number), Step::Fail(number)]),
                Doing::Written(_) => steps.extend([Step::Open(number), Step::Fail(number)]),
                Doing::Closing(_) => steps.extend([Step::Close(number), Step::Fail(number)]),
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => self.tick(world),
            Step::Restart => self.next_process(world, Life::Ended),
            Step::ForceDelete => self.next_process(world, Life::CutOff),
            Step::NodeBack(at) => Self::end_cut_off(&mut world.processes[at], Life::NodeBack),
            Step::Declare(at) => Self::end_cut_off(&mut world.processes[at], Life::Declared),
            Step::Rename(at) => world.processes[at].renamed |= world.processes[at].life == Life::CutOff,
            Step::Lead(_) if world.terms == self.terms => {}
            Step::Lead(number) => {
                world.terms += 1;
                let replica = &mut world.replicas[number];
                (replica.term, replica.raised, replica.doing) = (world.terms, None, Doing::Nothing);
            }
            Step::Receive(number) => self.receive(world, number),
            Step::Probe(number) => self.probe(world, number),
            Step::Act(number) => self.act(world, number),
            Step::Read(number) => self.read(world, number),
            Step::Write(number) => self.write(world, number),
            Step::Open(number) => self.open(world, number),
            Step::Close(number) => self.close(world, number),
            Step::Fail(number) => world.replicas[number].doing = Doing::Nothing,
        }
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.wrong.map(|wrong| match wrong {
            Wrong::TooEarly => "a process was opened while promises of the one before may last",
            Wrong::Twin => "two processes of one member can vote",
            Wrong::Shut => "a process was opened that its leader had closed, without a new admission",
            Wrong::Unadmitted => "a process was opened that no record ever admitted",
        })
    }

    /// The last process has been admitted and opened.
    fn goal(&self, world: &World) -> bool {
        world.processes[self.processes - 1].votes() && world.terms == self.terms
    }

    fn describe(&self, step: Step) -> String {
        let name = |replica: usize| ["operator X", "operator Y"][replica];
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Restart => "the process ends, its pod starts the next one".into(),
            Step::ForceDelete => "its node is cut off, its pod force-deleted: a twin starts".into(),
            Step::NodeBack(p) => format!("the node of p{p} comes back, its kubelet ends p{p}"),
            Step::Declare(p) => format!("a person switches p{p}'s machine off and says so"),
            Step::Rename(p) => format!("another machine comes under the name of the node of p{p}"),
            Step::Lead(r) => format!("{} takes the lead", name(r)),
            Step::Receive(r) => format!("{} receives the record", name(r)),
            Step::Probe(r) => format!("{} probes the member", name(r)),
            Step::Act(r) => format!("{} decides and acts", name(r)),
            Step::Read(r) => format!("{} reads the record, decides again", name(r)),
            Step::Write(r) => format!("{} writes Admitted", name(r)),
            Step::Open(r) => format!("{} opens", name(r)),
            Step::Close(r) => format!("{} closes", name(r)),
            Step::Fail(r) => format!("{} fails", name(r)),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::new();
        for (number, process) in world.processes.iter().enumerate().filter(|(_, p)| p.life != Life::NotYet) {
            let open = if process.votes() { " OPEN" } else { "" };
            write!(text, "p{number} {:?}{open} epoch {}; ", process.life, process.epoch).unwrap();
        }
        let run = world.record.run.map_or_else(String::new, |run| format!(" p{run}"));
        let before = world.record.predecessor.map_or_else(String::new, |p| format!(" after p{p}"));
        write!(text, "record {:?}{run}{before}", world.record.state).unwrap();
        for (name, replica) in ["X", "Y"].iter().zip(&world.replicas).filter(|(_, replica)| replica.term > 0) {
            let doing = match replica.doing {
                Doing::Nothing => String::new(),
                Doing::Checked(p) => format!(" checked p{p}"),
                Doing::Read(p, ..) => format!(" decided on p{p}"),
                Doing::Written(p) => format!(" to open p{p}"),
                Doing::Closing(p) => format!(" to close p{p}"),
            };
            write!(text, "; {name} leads ({}){doing}", replica.term).unwrap();
        }
        text
    }
}
