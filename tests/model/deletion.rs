//! A quorum is deleted, and created again under its name with a smaller `maxTTL`.
//!
//! One member is enough. All of its promises must have expired when a process of the next quorum votes. The fence of
//! that process waits for the smaller value only.
//!
//! The end is `fence::decommission::decide_end`, the admission `fence::decide`.

use redlock_operator::fence::decommission::{EndInput, EndStep, decide_end};
use redlock_operator::fence::{Evidence, ObservedProcess, Process, Reach, Record, RunId, State, Users, Verdict};

use super::check::{Rules, each_violated, holds};
use super::core::{NOW, admits, ago, granted, rejoin_ticks, ticks};

const SMALL: u8 = 1;
const LARGE: u8 = 3;
/// A time longer than any wait, beyond which the model does not distinguish times.
const LONG: u8 = LARGE + 1;

#[derive(Clone)]
struct Deletion {
    /// Whether the operator waits for the promises of a dead member.
    outlasts_the_dead: bool,
    /// Whether it also waits for a member without a known voting process.
    ///
    /// Its death can have been recorded a moment ago.
    outlasts_the_restarted: bool,
    /// How often a replica without state becomes the leader.
    terms: u8,
}

impl Deletion {
    const fn new() -> Self {
        Self { outlasts_the_dead: true, outlasts_the_restarted: true, terms: 1 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Life {
    #[default]
    Voting,
    Closed,
    Dead,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Quorum {
    #[default]
    Lives,
    Deleted,
    Gone,
    /// Created again.
    ///
    /// Its process was first observed this number of ticks ago.
    Again(u8),
    /// It votes.
    Votes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    life: Life,
    /// Remaining ticks of validity of the longest promise.
    promised: u8,
    quorum: Quorum,
    /// Whether the record has no process that can be open.
    buried: bool,
    /// The start of this leader's wait, in ticks before now.
    closed: Option<u8>,
    harmless: Option<u8>,
    terms: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Promise,
    Die,
    Bury,
    Delete,
    /// The leader reads the member, and decides.
    Observe,
    Lead,
    MakeAgain,
    Admit,
}

impl Deletion {
    fn observe(&self, world: &mut World) {
        let run_id = RunId::from("old");
        let process =
            Process { run_id: run_id.clone(), pod_uid: "pod".into(), container_id: None, node_name: None, node: None };
        let state = if world.buried { State::Pending } else { State::Admitted };
        let record = Record {
            state,
            run_id: Some(run_id.clone()),
            admitted: !world.buried,
            process: Some(process).filter(|_| !world.buried),
            ..Record::default()
        };
        let users = if world.life == Life::Voting { Users::Open } else { Users::Closed };
        let observed = ObservedProcess { run_id, first_observed: ago(LONG), users, closed_since: None };
        let reach = if world.life == Life::Dead { Reach::NotRunning } else { Reach::Answering(observed) };
        let dead = Verdict::Dead(Evidence::Terminated);
        let verdict = match world.life {
            _ if world.buried => Verdict::None,
            Life::Dead => dead,
            Life::Voting | Life::Closed => Verdict::Unconfirmed { until: None },
        };
        let waits = if world.buried { self.outlasts_the_restarted } else { self.outlasts_the_dead };
        if waits && (world.buried || world.life == Life::Dead) {
            world.harmless.get_or_insert(0);
        }
        let step = decide_end(&EndInput {
            now: NOW,
            record: &record,
            reach: &reach,
            verdict: &verdict,
            rejoin_delay: ticks(rejoin_ticks(LARGE)),
            closed_since: world.closed.map(ago),
            harmless_since: world.harmless.map(ago),
        });
        match step {
            EndStep::Close => (world.life, world.closed) = (Life::Closed, Some(0)),
            EndStep::Ended => world.quorum = Quorum::Gone,
            EndStep::Wait { .. } | EndStep::Unconfirmed { .. } => {}
        }
    }
}

impl Rules for Deletion {
    type State = World;
    type Step = Step;

    fn steps(&self, _world: &World, steps: &mut Vec<Step>) {
        use Step::{Admit, Bury, Delete, Die, Lead, MakeAgain, Observe, Promise, Tick};
        steps.extend([Tick, Promise, Die, Bury, Delete, Observe, Lead, MakeAgain, Admit]);
    }

    fn apply(&self, world: &mut World, step: Step) {
        match (step, world.quorum) {
            (Step::Tick, _) => {
                let older = |age: Option<u8>| age.map(|age| (age + 1).min(LONG));
                world.promised = world.promised.saturating_sub(1);
                (world.closed, world.harmless) = (older(world.closed), older(world.harmless));
                if let Quorum::Again(age) = &mut world.quorum {
                    *age = (*age + 1).min(LONG);
                }
            }
            (Step::Promise, _) if world.life == Life::Voting => world.promised = granted(LARGE, 0).unwrap(),
            (Step::Die, _) => world.life = Life::Dead,
            // Its death is recorded while the quorum exists.
            (Step::Bury, Quorum::Lives) if world.life == Life::Dead => world.buried = true,
            (Step::Delete, Quorum::Lives) => world.quorum = Quorum::Deleted,
            (Step::Observe, Quorum::Deleted) => self.observe(world),
            (Step::Lead, _) if world.terms < self.terms => {
                (world.closed, world.harmless, world.terms) = (None, None, world.terms + 1);
            }
            (Step::MakeAgain, Quorum::Gone) => world.quorum = Quorum::Again(0),
            (Step::Admit, Quorum::Again(age)) if admits(age, rejoin_ticks(SMALL)) => world.quorum = Quorum::Votes,
            _ => {}
        }
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        let broken = world.quorum == Quorum::Votes && world.promised > 0;
        broken.then_some("a process of the next quorum votes while a promise of the one before lives")
    }

    fn goal(&self, world: &World) -> bool {
        world.quorum == Quorum::Votes && world.buried
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Tick => "a tick passes",
            Step::Promise => "the member promises a lock",
            Step::Die => "its process ends",
            Step::Bury => "its death is recorded",
            Step::Delete => "the quorum is deleted",
            Step::Observe => "the leader observes the member",
            Step::Lead => "a replica that has just started leads",
            Step::MakeAgain => "the quorum is made again, with a smaller maxTTL",
            Step::Admit => "its process is admitted",
        }
        .into()
    }

    fn show(&self, world: &World) -> String {
        format!(
            "{:?}, promised for {} more; {:?}; closed {:?}, harmless {:?}",
            world.life, world.promised, world.quorum, world.closed, world.harmless
        )
    }
}

#[test]
fn deletion() {
    holds("deletion", Deletion::new());
}

#[test]
fn without_any_one_rule_a_promise_outlives_its_quorum() {
    let no_process = Deletion { outlasts_the_restarted: false, ..Deletion::new() };
    each_violated([
        ("deletion, dead members not waited for", Deletion { outlasts_the_dead: false, ..Deletion::new() }),
        ("deletion, members without a process not waited for", no_process),
    ]);
}
