//! Pure: the state of all locks and quorums at one moment, in the order in which it matters.
//!
//! `redlock top` and `redlock report --html` draw it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::{advice, lock_row};
use crate::cluster::objects::{LockObject, QuorumMember, QuorumObject};
use crate::output::format::{between, millis, moment, span};
use crate::show::explain::{State, member_text, of_quorum};
use redlock_api::MilliTime;
use redlock_api::conditions::LockCondition;

pub mod lanes;

/// All locks and quorums at one moment.
pub struct Picture<'a> {
    /// The locks by their keys. Keys in trouble come first, then keys with long queues.
    pub keys: Vec<KeyState<'a>>,
    /// The quorums by their names.
    pub quorums: Vec<&'a QuorumObject>,
    /// The time of the picture.
    pub now: MilliTime,
}

/// All locks on one key.
#[derive(Clone, Debug)]
pub struct KeyState<'a> {
    /// `<namespace>/<key>`.
    pub lock: String,
    /// The locks that hold the key.
    pub holders: Vec<&'a LockObject>,
    /// The waiting locks, in the order of the queue.
    pub queue: Vec<&'a LockObject>,
    /// The finished locks. The picture draws their history.
    pub finished: Vec<&'a LockObject>,
    /// The number of locks in trouble.
    pub troubled: usize,
    /// The longest wait, in milliseconds.
    pub longest: Option<i64>,
    /// The sum of the transitions of these locks.
    pub transitions: i64,
}

/// One thing that needs attention, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The name of the lock or the quorum.
    pub about: String,
    /// A sentence about the problem.
    pub text: String,
    /// The next step.
    pub next: String,
}

/// The validity of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The remaining validity, in milliseconds.
    pub left: i64,
    /// The ttl, in milliseconds.
    pub ttl: i64,
}

impl<'a> Picture<'a> {
    /// Groups locks by their keys, and sorts keys by trouble.
    pub fn of(
        locks: impl IntoIterator<Item = &'a LockObject>,
        quorums: impl IntoIterator<Item = &'a QuorumObject>,
        now: MilliTime,
    ) -> Self {
        let mut keys: BTreeMap<String, KeyState<'a>> = BTreeMap::new();
        for lock in locks {
            let name = lock.lock();
            keys.entry(name.clone()).or_insert_with(|| KeyState::new(name)).add(lock, now);
        }
        let mut keys: Vec<_> = keys.into_values().collect();
        for key in &mut keys {
            key.queue.sort_by_cached_key(|lock| {
                let position = lock.status.queue_position.unwrap_or(i32::MAX);
                (position, Reverse(lock.spec.priority), lock.created(), lock.name_any())
            });
            key.holders.sort_by_cached_key(|lock| lock.name_any());
        }
        keys.sort_by_key(|key| Reverse((key.troubled, key.queue.len(), key.transitions, key.longest)));
        let mut quorums: Vec<_> = quorums.into_iter().collect();
        quorums.sort_by_cached_key(|quorum| quorum.full_name());
        Self { keys, quorums, now }
    }

    /// The number of locks that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.keys.iter().map(|key| key.holders.len()).sum()
    }

    /// The number of locks that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.keys.iter().map(|key| key.queue.len()).sum()
    }

    /// The number of locks in trouble.
    #[must_use]
    pub fn troubled(&self) -> usize {
        self.keys.iter().map(|key| key.troubled).sum()
    }

    /// The numbers of held and waiting locks, and of locks in trouble.
    #[must_use]
    pub fn counts(&self) -> String {
        format!("{} held, {} waiting, {} in trouble", self.held(), self.waiting(), self.troubled())
    }

    /// All problems. Those of quorums come first, because every lock depends on a quorum.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let quorums = self.quorums.iter().filter_map(|quorum| quorum_trouble(quorum, self.now));
        let all = |key: &KeyState<'a>| key.holders.iter().chain(&key.queue).copied().collect::<Vec<_>>();
        let locks = self.keys.iter().flat_map(all).filter_map(|lock| lock_trouble(lock, self.now));
        quorums.chain(locks).collect()
    }
}

impl<'a> KeyState<'a> {
    fn new(lock: String) -> Self {
        let (holders, queue, finished) = (Vec::new(), Vec::new(), Vec::new());
        Self { lock, holders, queue, finished, troubled: 0, longest: None, transitions: 0 }
    }

    fn add(&mut self, lock: &'a LockObject, now: MilliTime) {
        self.transitions += lock.status.transitions;
        self.troubled += usize::from(lock_trouble(lock, now).is_some());
        if lock.is_held() {
            self.holders.push(lock);
        } else if lock.is_finished() {
            self.finished.push(lock);
        } else {
            self.queue.push(lock);
            self.longest = self.longest.max(lock.created().map(|created| between(created, now)));
        }
    }

    /// All locks on the key.
    pub fn objects(&self) -> impl Iterator<Item = &'a LockObject> + '_ {
        self.holders.iter().chain(&self.queue).chain(&self.finished).copied()
    }

    /// The first lock: it holds the key, or it is next.
    #[must_use]
    pub fn first(&self) -> Option<&'a LockObject> {
        self.objects().next()
    }
}

fn quorum_trouble(quorum: &QuorumObject, now: MilliTime) -> Option<Trouble> {
    let link = of_quorum(quorum, now);
    if link.state == State::Fine && quorum.all_vote() {
        return None;
    }
    let name = quorum.full_name();
    let next = link.to_do.unwrap_or_else(|| {
        format!("redlock quorum status -n {} {}", quorum.namespace().unwrap_or_default(), quorum.name_any())
    });
    Some(Trouble { about: name, text: link.lines.join(" "), next })
}

/// The trouble of one lock.
///
/// A held lock is in trouble if its validity has passed and its end was not announced.
fn lock_trouble(lock: &LockObject, now: MilliTime) -> Option<Trouble> {
    let trouble = |text: String, next: String| Some(Trouble { about: lock.lock(), text, next });
    if let Some(fault) = lock.fault().filter(|_| !lock.is_finished()) {
        let text = format!("dlock/{} ({}): {}.", lock.name_any(), fault.reason, fault.message.trim_end_matches('.'));
        return trouble(text, format!("redlock explain {}", lock.lock()));
    }
    if lock.is_held() && lock.status.ending.is_none() {
        let past = lock.valid_until().filter(|until| *until < now)?;
        let text = format!("The validity of dlock/{} passed at {}.", lock.name_any(), moment(past, now));
        return trouble(text, "redlock doctor".into());
    }
    if !lock_row::is_troubled(lock, now) {
        return None;
    }
    let accepted = lock.condition(LockCondition::Accepted).filter(|accepted| accepted.status != "True");
    let cause = accepted.or_else(|| lock.condition(LockCondition::Held))?;
    let message = cause.message.trim().trim_end_matches('.');
    let text = format!("dlock/{} is not held ({}): {message}.", lock.name_any(), cause.reason);
    let next = advice::of_lock(cause).to_do.unwrap_or_else(|| format!("redlock explain {}", lock.lock()));
    trouble(text, next)
}

/// The remaining validity. For an ending hold it is the time until the end.
#[must_use]
pub fn validity(lock: &LockObject, now: MilliTime) -> Option<Validity> {
    let end = lock.status.ending.as_ref().and_then(|ending| ending.until).or_else(|| lock.valid_until())?;
    Some(Validity { left: between(now, end).max(0), ttl: millis(lock.spec.ttl.get()).max(1) })
}

/// A bar that empties: `[######----]`.
#[must_use]
pub fn bar(validity: Validity, width: usize) -> String {
    let cells = i64::try_from(width).unwrap_or(i64::MAX);
    // A remaining validity above zero has at least one cell.
    let full = (validity.left.min(validity.ttl).saturating_mul(cells) + validity.ttl - 1) / validity.ttl;
    let full = usize::try_from(full).unwrap_or(0).min(width);
    format!("[{}{}]", "#".repeat(full), "-".repeat(width - full))
}

/// The state of a member, with a mark that is readable without colour.
#[must_use]
pub fn member_state(quorum: &QuorumObject, member: &QuorumMember, now: MilliTime) -> (&'static str, String) {
    if quorum.has_vote(member) {
        return ("●", "votes".into());
    }
    let reason = member.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    match member.rejoin_at.filter(|_| !member.votes()) {
        Some(at) => ("◐", format!("fenced {}{reason}", span(between(now, at).max(0)))),
        None => ("○", format!("{}{reason}", member.state.to_lowercase())),
    }
}

/// The votes of a quorum, and the number of failures that it survives.
#[must_use]
pub fn votes(quorum: &QuorumObject) -> String {
    let (voting, members, needed) = (quorum.voting(), quorum.status.voters.len(), quorum.needed());
    match voting.checked_sub(needed) {
        Some(reserve) => format!("{voting} of {members} vote, {needed} needed, survives {reserve}"),
        None => format!("{voting} of {members} vote, {needed} needed, grants nothing"),
    }
}

/// One sentence for each member without a vote.
pub fn absent_members(quorum: &QuorumObject, now: MilliTime) -> impl Iterator<Item = String> + '_ {
    quorum.status.members.iter().filter(|member| !member.votes()).map(move |member| member_text(member, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, lock, now, quorum, waiting};

    #[test]
    fn problems_come_first_with_the_next_step() {
        let stuck = waiting("stuck", "Unreadable", "cannot be read", None);
        let locks = [held("a"), waiting("b", "Queued", "", Some(1)), stuck];
        let quorums = [quorum(["Admitted", "Admitted", "Fenced"])];
        let picture = Picture::of(&locks, &quorums, now());
        let troubles = picture.troubles();
        assert_eq!(troubles[0].about, "redlock-system/main");
        assert_eq!(troubles[0].next, "redlock quorum status -n redlock-system main");
        assert_eq!(troubles[1].text, "dlock/stuck is not held (Unreadable): cannot be read.");
        assert_eq!((picture.held(), picture.waiting(), picture.troubled()), (1, 2, 1));
        assert!(Picture::of(&[held("a")], &[quorum(["Admitted"; 3])], now()).troubles().is_empty());
    }

    #[test]
    fn a_validity_that_passed_is_trouble_and_an_end_is_none() {
        let mut late = held("a");
        late.status.valid_until = "2026-01-01T11:59:59.000Z".parse().ok();
        assert!(Picture::of([&late], [], now()).troubles()[0].text.contains("passed at 11:59:59"));
        late.status.ending =
            serde_json::from_value(serde_json::json!({"since": "2026-01-01T11:59:58.000Z", "reason": "Broken"})).ok();
        assert!(Picture::of([&late], [], now()).troubles().is_empty());
    }

    #[test]
    fn a_bar_empties_with_the_validity() {
        let bars = [10_000, 6_200, 1, 0, 20_000].map(|left| bar(Validity { left, ttl: 10_000 }, 10));
        assert_eq!(bars, ["[##########]", "[#######---]", "[#---------]", "[----------]", "[##########]"]);
        assert_eq!(validity(&held("a"), now()), Some(Validity { left: 8_200, ttl: 10_000 }));
        assert_eq!(validity(&lock("a", "{spec: {}}"), now()), None);
    }

    #[test]
    fn a_member_has_a_mark_and_its_countdown() {
        let quorum = quorum(["Admitted", "Unreachable", "Fenced"]);
        let states: Vec<_> = quorum.status.members.iter().map(|member| member_state(&quorum, member, now())).collect();
        assert_eq!(states[0], ("●", "votes".into()));
        assert_eq!(states[1], ("○", "unreachable".into()));
        assert_eq!(states[2], ("◐", "fenced 12s (Restarted)".into()));
        assert_eq!(votes(&quorum), "1 of 3 vote, 2 needed, grants nothing");
    }
}
