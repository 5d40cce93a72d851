//! Runs a model in stateright, and tells a counterexample so that a person can follow it.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A model: states, steps between them, and what must never be.
pub(crate) trait Rules: Clone + Send + Sync + 'static {
    type State: Copy + Debug + Eq + Hash + Send + Sync;
    type Step: Copy + Debug + Eq + Send + Sync;

    fn starts(&self) -> Vec<Self::State>;
    /// Every step that may be possible.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);
    /// What the step leads to, if it is possible.
    fn take(&self, state: &Self::State, step: Self::Step) -> Option<Self::State>;
    /// The same state for all that differ only by the names of members or clients.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }
    /// What is wrong with the state.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;
    /// A state that the model must be able to reach, or its verdict would mean nothing.
    fn goal(&self, state: &Self::State) -> bool;
    fn describe(&self, step: Self::Step) -> String;
    fn show(&self, state: &Self::State) -> String;
}

#[derive(Clone)]
struct Checked<R>(R);

const SAFE: &str = "no rule is broken";
const GOAL: &str = "the goal is reached";

impl<R: Rules> Model for Checked<R> {
    type State = R::State;
    type Action = R::Step;

    fn init_states(&self) -> Vec<R::State> {
        self.0.starts().into_iter().map(|state| self.0.canonical(state)).collect()
    }

    fn actions(&self, state: &R::State, actions: &mut Vec<R::Step>) {
        self.0.steps(state, actions);
    }

    fn next_state(&self, state: &R::State, action: R::Step) -> Option<R::State> {
        self.0.take(state, action).map(|next| self.0.canonical(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |model: &Self, state| model.0.violation(state).is_none()),
            Property::sometimes(GOAL, |model: &Self, state| model.0.goal(state)),
        ]
    }
}

/// Whether to explore as far as `make prove` does.
pub(crate) fn large() -> bool {
    std::env::var("MODEL_BOUND").is_ok_and(|bound| bound == "large")
}

/// Explores every reachable state and requires that none breaks a rule.
pub(crate) fn holds<R: Rules>(name: &str, rules: R) {
    let started = Instant::now();
    let checker = Checked(rules.clone()).checker().threads(2).spawn_bfs().join();
    let found = checker.discovery(SAFE);
    report(name, &checker, started, if found.is_some() { "VIOLATED" } else { "HOLDS" });
    if let Some(path) = found {
        print_trace(&rules, &path.into_states());
        panic!("{name}: a rule is broken");
    }
    assert!(checker.discovery(GOAL).is_some(), "{name}: the goal is out of reach, so that the verdict means nothing");
}

/// Requires a counterexample, a shortest one, and prints it.
pub(crate) fn violated<R: Rules>(name: &str, rules: R) {
    let started = Instant::now();
    // One thread goes strictly breadth first, so that the trace is a shortest one.
    let checker = Checked(rules.clone()).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discovery(SAFE);
    report(name, &checker, started, if found.is_some() { "VIOLATED, as it must be" } else { "HOLDS" });
    let path = found.unwrap_or_else(|| panic!("{name}: without this guard there has to be a counterexample"));
    print_trace(&rules, &path.into_states());
}

fn report<R: Rules>(name: &str, checker: &impl Checker<Checked<R>>, started: Instant, verdict: &str) {
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("model: {name}: {verdict} ({states} states, depth {depth}, {:.1} s)", started.elapsed().as_secs_f64());
}

/// The states of the path are canonical ones, in which members and clients may change their names from one to the next. The
/// same path is walked again with names that stay.
fn print_trace<R: Rules>(rules: &R, path: &[R::State]) {
    let first = rules.starts().into_iter().find(|state| rules.canonical(*state) == path[0]).expect("a start");
    let mut state = first;
    let mut told = format!("       start: {}\n", rules.show(&state));
    for (number, canonical) in path[1..].iter().enumerate() {
        let mut steps = Vec::new();
        rules.steps(&state, &mut steps);
        let (step, next) = steps
            .into_iter()
            .filter_map(|step| rules.take(&state, step).map(|next| (step, next)))
            .find(|(_, next)| rules.canonical(*next) == *canonical)
            .expect("a step of the path");
        state = next;
        told += &format!("  {:>3}. {:<66} {}\n", number + 1, rules.describe(step), rules.show(&state));
    }
    println!("{told}       => {}\n", rules.violation(&state).unwrap_or("nothing is wrong"));
}

/// Sorts members that are neighbours and play the same part: whichever of them is in which state makes no difference.
pub(crate) fn sort_alike<M: Ord, P: PartialEq>(members: &mut [M], part: impl Fn(usize) -> P) {
    let mut from = 0;
    while from < members.len() {
        let to = (from..members.len()).find(|member| part(*member) != part(from)).unwrap_or(members.len());
        members[from..to].sort_unstable();
        from = to;
    }
}
