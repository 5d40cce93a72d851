//! Pure: judges the recorded beliefs of holders. It gets a history and returns its violations.
//!
//! Times are milliseconds of one clock. Suite `chaos` judges by it, and tests/chaos tests it with bad histories.
#![allow(missing_docs, unreachable_pub, reason = "it is a module of two test programs")]

use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds of the clock of a history.
pub type Millis = i64;

/// A fault explains a loss if it ended at most this time and the hold's ttl before the loss.
///
/// The leader's next renewal sets the keys of a returned member again.
const BEFORE: Millis = 5_000;
/// The additional time without a leader.
///
/// Without a leader no replica sets keys again on a returned member, or writes a status.
const WITHOUT_LEADER: Millis = 20_000;

/// One hold, by the record of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The holder.
    pub who: String,
    /// The locked key.
    pub key: String,
    /// Claims and elections have one, outside clients have none.
    pub token: Option<i64>,
    /// When the holder received it.
    pub from: Millis,
    /// The last deadline of the holder, after its last observed renewal.
    pub until: Millis,
    /// When it began the release.
    pub released: Option<Millis>,
    /// How long the lock lives without a renewal.
    pub ttl: Millis,
    /// Ends that the holder did not request.
    pub losses: Vec<Loss>,
}

impl Hold {
    /// When the holder stopped believing in it.
    #[must_use]
    pub fn end(&self) -> Millis {
        self.released.map_or(self.until, |released| released.min(self.until))
    }
}

/// The end of a hold that its holder did not request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it happened.
    pub at: Millis,
    /// The kind of end.
    pub kind: LossKind,
}

/// How a holder lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// The known validity ended before the holder read a later one.
    ///
    /// The lock can have been renewed in that time.
    Lapsed,
    /// The holder was notified that it does not hold the lock.
    Taken,
}

/// An injected fault, or an observed outage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Its name.
    pub kind: &'static str,
    /// When it began.
    pub from: Millis,
    /// When it ended.
    pub until: Millis,
    /// Members that could not vote.
    ///
    /// One of three costs no holder its lock.
    pub members: BTreeSet<String>,
    /// Replicas of the operator that did not work.
    ///
    /// One of two costs no holder its lock, but delays publications.
    pub operators: BTreeSet<String>,
    /// Whether the API server was unreachable, so that nothing could be published.
    pub api_server: bool,
    /// Whether a member's clock was stepped ahead.
    ///
    /// Outside clients can get a lock of another client before the member is fenced, because they check no clock
    /// (docs/safety.md).
    pub clock: bool,
    /// The holder that the fault hit, or that requested the end.
    pub holder: Option<String>,
}

/// A violation in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Two holders at a time.
    pub overlaps: Vec<String>,
    /// Overlaps that docs/safety.md excepts.
    pub excepted: Vec<String>,
    /// Tokens that are not larger than those before.
    pub reversals: Vec<String>,
    /// Losses that no fault explains.
    pub unexplained: Vec<String>,
    /// Number of locks that holders lost because they received no later validity.
    pub lapsed: usize,
    /// Number of notifications of a loss.
    pub taken: usize,
}

/// Judges a history.
///
/// Locks can be lost only while `majority` members or `replicas` of the operator are out.
#[must_use]
pub fn check(holds: &[Hold], faults: &[Fault], majority: usize, replicas: usize) -> Verdict {
    let mut keys: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    // A holder that receives a hold only after its end has never believed in it.
    for hold in holds.iter().filter(|hold| hold.from < hold.end()) {
        keys.entry(&hold.key).or_default().push(hold);
    }
    let mut verdict = Verdict::default();
    for holds in keys.values_mut() {
        holds.sort_by_key(|hold| (hold.from, hold.until));
        for (later, message) in overlaps(holds) {
            let excepted = faults.iter().any(|fault| excepts(fault, later));
            if excepted { &mut verdict.excepted } else { &mut verdict.overlaps }.push(message);
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

/// Whether an outside client got the lock by the vote of a member with a clock stepped ahead.
fn excepts(fault: &Fault, later: &Hold) -> bool {
    fault.clock && later.token.is_none() && fault.from <= later.from && later.from <= fault.until
}

/// Finds overlaps of holds of one key, which are in the order in which they began.
///
/// Each hold must begin after the end of all earlier ones.
fn overlaps<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, String)> {
    let mut found = Vec::new();
    let mut longest: Option<&'a Hold> = None;
    for hold in holds {
        if let Some(earlier) = longest.filter(|earlier| hold.from < earlier.end()) {
            let message = format!("two holders for {} ms: {earlier:?} and {hold:?}", earlier.end() - hold.from);
            found.push((*hold, message));
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
