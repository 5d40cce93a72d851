//! Runs a model in stateright, and prints counterexamples in a readable form.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A model: states, steps between them, and violations.
pub(crate) trait Rules: Clone + Send + Sync + 'static {
    type State: Copy + Debug + Default + Eq + Hash + Send + Sync;
    type Step: Copy + Debug + Eq + Send + Sync;

    fn starts(&self) -> Vec<Self::State> {
        vec![Self::State::default()]
    }
    /// Adds every step that can be possible.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);
    /// Changes the state, unless the step is impossible.
    fn apply(&self, state: &mut Self::State, step: Self::Step);
    /// The state after the step, if the step changes it.
    fn after(&self, state: &Self::State, step: Self::Step) -> Option<Self::State> {
        let mut next = *state;
        self.apply(&mut next, step);
        (next != *state).then_some(next)
    }
    /// A common representative of all states that differ only in the names of members or clients.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }
    /// The rule that the state violates.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;
    /// A state that the model must be able to reach.
    ///
    /// Otherwise its verdict would prove nothing.
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
        self.0.after(state, action).map(|next| self.0.canonical(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |model: &Self, state| model.0.violation(state).is_none()),
            Property::sometimes(GOAL, |model: &Self, state| model.0.goal(state)),
        ]
    }
}

/// Whether to explore with the bounds of `make prove`.
pub(crate) fn large() -> bool {
    std::env::var("MODEL_BOUND").is_ok_and(|bound| bound == "large")
}

/// Explores every reachable state and requires that none violates a rule.
pub(crate) fn holds<R: Rules>(name: &str, rules: R) {
    let started = Instant::now();
    let checker = Checked(rules.clone()).checker().threads(2).spawn_bfs().join();
    let found = checker.discovery(SAFE);
    report(name, &checker, started, if found.is_some() { "VIOLATED" } else { "HOLDS" });
    if let Some(path) = found {
        print_trace(&rules, &path.into_states());
        panic!("{name}: a rule is broken");
    }
    assert!(
        checker.discovery(GOAL).is_some(),
        "{name}: the model cannot reach the goal, so its verdict proves nothing"
    );
}

/// Requires a counterexample, and prints a shortest one.
pub(crate) fn violated<R: Rules>(name: &str, rules: R) {
    let started = Instant::now();
    // One thread explores strictly breadth first, so the trace is a shortest one.
    let checker = Checked(rules.clone()).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discovery(SAFE);
    report(name, &checker, started, if found.is_some() { "VIOLATED, as it must be" } else { "HOLDS" });
    let path = found.unwrap_or_else(|| panic!("{name}: there must be a counterexample without this guard"));
    print_trace(&rules, &path.into_states());
}

/// Requires a counterexample for each of these models, which lack one rule each.
pub(crate) fn each_violated<R: Rules>(models: impl IntoIterator<Item = (&'static str, R)>) {
    std::thread::scope(|scope| {
        for (name, rules) in models {
            scope.spawn(move || violated(name, rules));
        }
    });
}

fn report<R: Rules>(name: &str, checker: &impl Checker<Checked<R>>, started: Instant, verdict: &str) {
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("model: {name}: {verdict} ({states} states, depth {depth}, {:.1} s)", started.elapsed().as_secs_f64());
}

/// Prints a path with stable names.
///
/// The states of the path are canonical: members and clients can change their names from one to the next. This function
/// walks the same path again with stable names.
fn print_trace<R: Rules>(rules: &R, path: &[R::State]) {
    let first = rules.starts().into_iter().find(|state| rules.canonical(*state) == path[0]).expect("a start");
    let mut state = first;
    let mut text = format!("       start: {}\n", rules.show(&state));
    for (number, canonical) in path[1..].iter().enumerate() {
        let mut steps = Vec::new();
        rules.steps(&state, &mut steps);
        let (step, next) = steps
            .into_iter()
            .filter_map(|step| rules.after(&state, step).map(|next| (step, next)))
            .find(|(_, next)| rules.canonical(*next) == *canonical)
            .expect("a step of the path");
        state = next;
        text += &format!("  {:>3}. {:<66} {}\n", number + 1, rules.describe(step), rules.show(&state));
    }
    println!("{text}       => {}\n", rules.violation(&state).unwrap_or("nothing is wrong"));
}

/// Sorts adjacent members with the same role, because their order makes no difference.
pub(crate) fn sort_alike<M: Ord, P: PartialEq>(members: &mut [M], part: impl Fn(usize) -> P) {
    let mut from = 0;
    while from < members.len() {
        let to = (from..members.len()).find(|member| part(*member) != part(from)).unwrap_or(members.len());
        members[from..to].sort_unstable();
        from = to;
    }
}
