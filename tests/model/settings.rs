//! Changes of settings: `maxTTL` is raised and lowered while a lock is held, promised and forgotten.
//!
//! One member is enough. Everything that it promised and forgot must have expired when its next process is admitted.
//!
//! The leader's decisions are `effective::next` and `effective::rejoin_delay_of`, the admission is `fence::decide`.

mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redlock_operator::{
    api::{GoDuration, RedisQuorum, RedisQuorumSpec},
    quorum::model::effective::{self, Lowering},
};

use super::{
    check::{Rules, each_violated, holds, large},
    core::{NOW, admits, ago, granted},
};

const SMALL: u8 = 1;
const LARGE: u8 = 3;
/// A time longer than any wait, beyond which the model does not distinguish times.
const LONG: u8 = LARGE + 1;

#[derive(Clone)]
struct Settings {
    /// Bounds.
    changes: u8,
    restarts: u8,
    /// Whether a smaller value waits until no hold with the larger one was renewed for its time.
    lowers_late: bool,
    /// Whether the leader observes the holds.
    reads_holds: bool,
    /// Whether a larger value must be published before its use.
    publishes_first: bool,
    /// Whether a wait belongs to one specification, instead of to any with the same value.
    counts_by_specification: bool,
    /// Whether publications and admissions are written on the version that was read.
    versions: bool,
    table: Arc<Table>,
}

impl Settings {
    fn new() -> Self {
        let (changes, restarts) = if large() { (4, 2) } else { (3, 1) };
        Self {
            changes,
            restarts,
            lowers_late: true,
            reads_holds: true,
            publishes_first: true,
            counts_by_specification: true,
            versions: true,
            table: Arc::new(Table::new()),
        }
    }
}

/// The leader's wait.
///
/// It has its age in ticks, whether the last observation found a held lock, and whether it still belongs to the current
/// specification.
type Count = Option<(u8, bool, bool)>;

/// Wanted value, published value, wait, held.
type NextOf = (u8, u8, Count, bool);
/// Value in force, wait.
type Next = (u8, Count);

/// A table of the crate's decisions.
///
/// There are few inputs, and each goes to the real function once.
struct Table {
    next: HashMap<NextOf, Next>,
    /// The rejoin delay, by wanted and published value.
    delay: HashMap<(u8, u8), u8>,
}

fn quorum(wanted: u8, published: u8) -> RedisQuorum {
    let mut quorum = RedisQuorum::new("main", RedisQuorumSpec::default());
    quorum.metadata.generation = Some(2);
    let spec = &mut quorum.spec;
    (spec.clock_drift.ppm, spec.clock_drift.floor) = (0, GoDuration::from_millis(0));
    (spec.node_timeout, spec.max_ttl) = (GoDuration::from_millis(0), GoDuration::from_secs(wanted.into()));
    effective::publish(quorum.status.get_or_insert_default(), Duration::from_secs(published.into()));
    quorum
}

/// The crate's type of a wait.
///
/// It exists only while the wanted value is smaller than the one in force.
fn lowering(count: Count) -> Option<Lowering> {
    let (age, held, is_for_this) = count?;
    let (mut quorum, mut lowering) = (quorum(SMALL, LARGE), None);
    if !is_for_this {
        quorum.metadata.generation = Some(1);
    }
    let _ = effective::next(&quorum, &mut lowering, held, ago(age));
    lowering
}

fn ticks_of(duration: Duration) -> u8 {
    u8::try_from(duration.as_secs()).unwrap()
}

impl Table {
    fn new() -> Self {
        let values = [SMALL, LARGE];
        let begun = (0..=LONG).flat_map(|ago| [(ago, false), (ago, true)]);
        let begun = begun.flat_map(|(ago, held)| [Some((ago, held, true)), Some((ago, held, false))]);
        let counts: Vec<Count> = std::iter::once(None).chain(begun).collect();
        let mut table = Self { next: HashMap::new(), delay: HashMap::new() };
        for (wanted, published) in values.into_iter().flat_map(|wanted| values.map(|published| (wanted, published))) {
            let quorum = quorum(wanted, published);
            table.delay.insert((wanted, published), ticks_of(effective::rejoin_delay_of(&quorum)));
            for (count, held) in counts.iter().flat_map(|count| [(*count, false), (*count, true)]) {
                let mut after = lowering(count);
                let (next, _) = effective::next(&quorum, &mut after, held, NOW);
                let same = counts.iter().find(|known| lowering(**known) == after).copied();
                table.next.insert((wanted, published, count, held), (ticks_of(next), same.expect("a count")));
            }
        }
        table
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    wanted: u8,
    published: u8,
    count: Count,
    /// The value that a leader will publish, and whether the quorum is unchanged since that decision.
    to_publish: Option<(u8, bool)>,
    /// The delay that a leader has read, and whether the quorum is unchanged since then.
    delay_read: Option<(u8, bool)>,
    /// A grant that is not recorded yet: its ttl, and its age.
    granting: Option<(u8, u8)>,
    /// The hold: its ttl, and its remaining time.
    held: Option<(u8, u8)>,
    /// The remaining time of the member's promise, and of the forgotten one.
    promised: u8,
    forgotten: u8,
    /// Ticks since the process was first observed.
    ///
    /// `None` once it is admitted.
    fenced_for: Option<u8>,
    changes: u8,
    restarts: u8,
    admitted_early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Want(u8),
    Observe,
    Publish,
    OtherLeader,
    Grant(u8),
    Granted,
    Renew,
    Release,
    Restart,
    ReadDelay,
    Admit,
}

impl World {
    /// Records a write to the quorum, after which decisions on the earlier version are stale.
    fn changed(&mut self) {
        for decided in [&mut self.to_publish, &mut self.delay_read] {
            *decided = decided.map(|(value, _)| (value, false));
        }
    }

    fn promise(&mut self, ttl: u8) {
        if self.fenced_for.is_none() {
            self.promised = self.promised.max(ttl);
        }
    }

    fn tick(&mut self) {
        self.count = self.count.map(|(ago, held, same)| ((ago + 1).min(LONG), held, same));
        self.granting = self.granting.map(|(ttl, age)| (ttl, age + 1)).filter(|(ttl, age)| age < ttl);
        self.held = self.held.map(|(ttl, left)| (ttl, left - 1)).filter(|(_, left)| *left > 0);
        self.promised = self.promised.saturating_sub(1);
        self.forgotten = self.forgotten.saturating_sub(1);
        self.fenced_for = self.fenced_for.map(|ticks| (ticks + 1).min(LONG));
    }
}

impl Settings {
    fn observe(&self, world: &mut World) {
        let is_longer = self.reads_holds && world.held.is_some_and(|(ttl, _)| ttl > world.wanted);
        let (value, count) = if self.lowers_late {
            self.table.next[&(world.wanted, world.published, world.count, is_longer)]
        } else {
            (world.wanted, None)
        };
        world.count = count;
        world.to_publish = Some((value, true)).filter(|(value, _)| *value != world.published);
    }
}

impl Rules for Settings {
    type State = World;
    type Step = Step;

    fn starts(&self) -> Vec<World> {
        [SMALL, LARGE].map(|value| World { wanted: value, published: value, ..World::default() }).to_vec()
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::Observe]);
        if world.changes < self.changes {
            steps.push(Step::Want(SMALL + LARGE - world.wanted));
        }
        if world.to_publish.is_some() {
            steps.push(Step::Publish);
        }
        if world.count.is_some() {
            steps.push(Step::OtherLeader);
        }
        let in_force = if self.publishes_first { world.published.min(world.wanted) } else { world.wanted };
        if world.held.is_none() && world.granting.is_none() {
            steps.extend([SMALL, LARGE].into_iter().filter(|ttl| *ttl <= in_force).map(Step::Grant));
        }
        if world.granting.is_some() {
            steps.push(Step::Granted);
        }
        if world.held.is_some() {
            steps.extend([Step::Renew, Step::Release]);
        }
        if world.restarts < self.restarts {
            steps.push(Step::Restart);
        }
        if world.fenced_for.is_some() {
            steps.extend([Step::ReadDelay, Step::Admit]);
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => world.tick(),
            Step::Want(value) => {
                (world.wanted, world.changes) = (value, world.changes + 1);
                world.count = world.count.map(|(ago, held, same)| (ago, held, same && !self.counts_by_specification));
                world.changed();
            }
            Step::Observe => self.observe(world),
            Step::Publish => {
                if let Some((value, is_fresh)) = world.to_publish
                    && (is_fresh || !self.versions)
                {
                    (world.published, world.to_publish) = (value, None);
                    world.changed();
                }
            }
            Step::OtherLeader => world.count = None,
            Step::Grant(ttl) => {
                world.granting = Some((ttl, 0));
                world.promise(ttl);
            }
            Step::Granted => {
                let Some((ttl, age)) = world.granting else { return };
                let Some(valid) = granted(ttl, age) else { return };
                (world.held, world.granting) = (Some((ttl, valid)), None);
            }
            Step::Renew => {
                let Some((ttl, _)) = world.held else { return };
                world.held = Some((ttl, ttl));
                world.promise(ttl);
            }
            // No client relies on the promises any longer.
            Step::Release => (world.held, world.promised, world.forgotten) = (None, 0, 0),
            Step::Restart => {
                world.restarts += 1;
                world.forgotten = world.forgotten.max(world.promised);
                (world.promised, world.fenced_for) = (0, Some(0));
            }
            Step::ReadDelay => world.delay_read = Some((self.table.delay[&(world.wanted, world.published)], true)),
            Step::Admit => {
                let (Some((delay, is_fresh)), Some(age)) = (world.delay_read, world.fenced_for) else { return };
                if (is_fresh || !self.versions) && admits(age, delay) {
                    world.admitted_early = world.forgotten > 0;
                    (world.fenced_for, world.delay_read) = (None, None);
                    world.changed();
                }
            }
        }
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.admitted_early.then_some("a process is admitted before what its predecessor promised has run out")
    }

    /// The value was lowered after a raise, a process restarted, and a lock is held again.
    fn goal(&self, world: &World) -> bool {
        world.changes >= 2
            && world.published == SMALL
            && world.restarts > 0
            && world.fenced_for.is_none()
            && world.held.is_some()
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Want(value) => format!("somebody writes maxTTL: {value}"),
            Step::Observe => "the leader reads the holds, and decides which value is in force".into(),
            Step::Publish => "what was decided is published".into(),
            Step::OtherLeader => "another leader starts its count".into(),
            Step::Grant(ttl) => format!("the member votes for a lock with ttl {ttl}"),
            Step::Granted => "the grant is written down".into(),
            Step::Renew => "it is renewed".into(),
            Step::Release => "it is released".into(),
            Step::Restart => "the member restarts and forgets, fenced".into(),
            Step::ReadDelay => "the leader reads how long to wait".into(),
            Step::Admit => "the process is admitted".into(),
        }
    }

    fn show(&self, world: &World) -> String {
        format!(
            "[maxTTL {} published {} promised {} forgotten {} held {:?} fenced for {:?}]",
            world.wanted, world.published, world.promised, world.forgotten, world.held, world.fenced_for
        )
    }
}
