//! What the holders of locks believed, and whether they may have. Pure: it gets a history and gives what is wrong with it.
//!
//! Times are milliseconds of the wall clock that everything on this machine shares.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Millis = i64;

/// A loss is explained by what went wrong up to this long before it, and the hold's ttl: keys of a member that came back are set
/// again by the leader's next renewal.
const BEFORE: Millis = 5_000;
/// For as long as nobody leads, nobody sets keys again on a member that came back, and nobody publishes.
const WITHOUT_LEADER: Millis = 20_000;

/// One hold, as its holder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) who: String,
    pub(crate) key: String,
    /// Claims and elections have one, clients outside have none.
    pub(crate) token: Option<i64>,
    /// When the holder learnt of it.
    pub(crate) from: Millis,
    /// Until when it may believe in it, after the last renewal that it knows of.
    pub(crate) until: Millis,
    /// When it began to give the lock back.
    pub(crate) released: Option<Millis>,
    pub(crate) ttl: Millis,
    pub(crate) losses: Vec<Loss>,
}

impl Hold {
    /// When the holder stopped believing in it.
    pub(crate) fn end(&self) -> Millis {
        self.released.map_or(self.until, |released| released.min(self.until))
    }
}

/// The end of a hold that its holder did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) at: Millis,
    pub(crate) kind: LossKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// The validity that the holder knew of ended before it heard of another. The lock may have been renewed all the while.
    Lapsed,
    /// It is told that it has the lock no more.
    Taken,
}

/// Something that was broken on purpose, or that was seen to be out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: &'static str,
    pub(crate) from: Millis,
    pub(crate) until: Millis,
    /// Members that could not vote. One of three costs nobody a lock.
    pub(crate) members: BTreeSet<String>,
    /// Replicas of the operator that did not work. One of two costs nobody a lock, but delays what is published.
    pub(crate) operators: BTreeSet<String>,
    /// The API server, or the way to it, was away: nothing can be published.
    pub(crate) api_server: bool,
    /// A member's clock was stepped ahead. Until it is fenced, clients outside may be granted what somebody else holds, and
    /// docs/safety.md says so: they see no clock.
    pub(crate) clock: bool,
    /// This holder itself was hit, or asked for the end.
    pub(crate) holder: Option<String>,
}

/// What is wrong with a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) overlaps: Vec<String>,
    /// Overlaps that docs/safety.md excepts.
    pub(crate) excepted: Vec<String>,
    pub(crate) reversals: Vec<String>,
    pub(crate) unexplained: Vec<String>,
    pub(crate) lapsed: usize,
    pub(crate) taken: usize,
}

/// Judges a history. `majority` members have to be out, and `replicas` of the operator, before locks may be lost.
pub(crate) fn check(holds: &[Hold], faults: &[Fault], majority: usize, replicas: usize) -> Verdict {
    let mut keys: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    // Who hears of a hold only when it is over has never believed in it.
    for hold in holds.iter().filter(|hold| hold.from < hold.end()) {
        keys.entry(&hold.key).or_default().push(hold);
    }
    let mut verdict = Verdict::default();
    for holds in keys.values_mut() {
        holds.sort_by_key(|hold| (hold.from, hold.until));
        for (later, told) in overlaps(holds) {
            let excepted = faults.iter().any(|fault| excepts(fault, later));
            if excepted { &mut verdict.excepted } else { &mut verdict.overlaps }.push(told);
        }
        verdict.reversals.extend(reversals(holds));
    }
    for hold in holds {
        for loss in &hold.losses {
            match loss.kind {
                LossKind::Lapsed => verdict.lapsed += 1,
                LossKind::Taken => verdict.taken += 1,
            }
            if !is_explained(hold, *loss, faults, majority, replicas) {
                verdict.unexplained.push(format!("nothing explains this loss: {loss:?} of {hold:?}"));
            }
        }
    }
    verdict
}

/// The client outside was granted while a member voted by a clock that had been stepped ahead.
fn excepts(fault: &Fault, later: &Hold) -> bool {
    fault.clock && later.token.is_none() && fault.from <= later.from && later.from <= fault.until
}

/// Holds of one key in the order in which they began: each begins when all before it have ended.
fn overlaps<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, String)> {
    let mut found = Vec::new();
    let mut longest: Option<&'a Hold> = None;
    for hold in holds {
        if let Some(earlier) = longest.filter(|earlier| hold.from < earlier.end()) {
            let told = format!("two holders for {} ms: {earlier:?} and {hold:?}", earlier.end() - hold.from);
            found.push((*hold, told));
        }
        if longest.is_none_or(|earlier| earlier.end() < hold.end()) {
            longest = Some(hold);
        }
    }
    found
}

fn reversals(holds: &[&Hold]) -> Vec<String> {
    let mut found = Vec::new();
    let mut highest: Option<(i64, &Hold)> = None;
    for hold in holds {
        let Some(token) = hold.token else { continue };
        if let Some((before, earlier)) = highest.filter(|(before, _)| token <= *before) {
            found.push(format!("token {token} after {before}: {earlier:?} and {hold:?}"));
        }
        highest = highest.filter(|(before, _)| *before >= token).or(Some((token, hold)));
    }
    found
}

fn is_explained(hold: &Hold, loss: Loss, faults: &[Fault], majority: usize, replicas: usize) -> bool {
    let since = loss.at - hold.ttl - BEFORE;
    let near = |fault: &&Fault, margin: Millis| fault.from <= loss.at && fault.until >= since - margin;
    let without_leader = || faults.iter().filter(|fault| near(fault, WITHOUT_LEADER));
    let operators: BTreeSet<_> = without_leader().flat_map(|fault| &fault.operators).collect();
    let margin = if operators.is_empty() { 0 } else { WITHOUT_LEADER };
    let members: BTreeSet<_> =
        faults.iter().filter(|fault| near(fault, margin)).flat_map(|fault| &fault.members).collect();
    let late =
        loss.kind == LossKind::Lapsed && (!operators.is_empty() || without_leader().any(|fault| fault.api_server));
    late || members.len() >= majority
        || operators.len() >= replicas
        || faults.iter().any(|fault| near(&fault, 0) && fault.holder.as_deref() == Some(&hold.who))
}
