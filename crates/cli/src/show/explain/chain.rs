//! Pure: the chain of what a lock needs, link by link, in sentences.

mod quorum_link;

pub use quorum_link::{QuorumState, member_text, of_quorum};

use kube::ResourceExt as _;
use quorum_link::quorum_link;

use crate::cluster::objects::LockObject;
use crate::output::Tone;
use crate::output::format::{and, count, moment};
use crate::show::{advice, lock_row};
use redlock_api::MilliTime;
use redlock_api::conditions::{HeldReason, KEY_NEVER_EXPIRES, LockCondition};

/// Maximum number of finished locks in an explanation.
const ENDS: usize = 3;

/// The beginnings of commands in messages of the operator.
const COMMANDS: [&str; 2] = [": redlock ", ": kubectl "];

/// The state of a link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The need is met.
    Fine,
    /// The need will be met automatically.
    Waits,
    /// The user has to act.
    Stops,
    /// This user cannot read it.
    Unknown,
}

impl State {
    /// The mark in front of the link, with its tone.
    #[must_use]
    pub const fn mark(self) -> (&'static str, Tone) {
        match self {
            Self::Fine => ("ok", Tone::Good),
            Self::Waits => ("waits", Tone::Waiting),
            Self::Stops => ("stops", Tone::Bad),
            Self::Unknown => ("?", Tone::Dim),
        }
    }
}

/// One thing that a lock needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The topic, in one word.
    pub about: &'static str,
    /// The state of the link.
    pub state: State,
    /// Sentences about the link.
    pub lines: Vec<String>,
    /// The step for the user.
    pub to_do: Option<String>,
}

impl Link {
    /// A link with one sentence, and without a step.
    fn new(about: &'static str, state: State, line: impl Into<String>) -> Self {
        Self { about, state, lines: vec![line.into()], to_do: None }
    }
}

/// Why a lock is held or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The name of the lock.
    pub lock: String,
    /// Whether the lock has a holder.
    pub held: bool,
    /// The answer in one sentence.
    pub summary: String,
    /// The links, from the quorum to the queue.
    pub links: Vec<Link>,
}

impl Explanation {
    /// The first step for the user. A link that stops comes before one that waits.
    pub fn to_do(&self) -> Option<&str> {
        let of = |state: State| {
            let mut links = self.links.iter().filter(move |link| link.state == state);
            links.find_map(|link| link.to_do.as_deref())
        };
        of(State::Stops).or_else(|| of(State::Waits))
    }

    /// Whether a link has a step for the user, or a message with a command.
    pub fn has_remedy(&self) -> bool {
        let has_command = |text: &String| COMMANDS.iter().any(|command| text.contains(command));
        self.links.iter().any(|link| link.to_do.is_some() || link.lines.iter().any(has_command))
    }
}

/// Explains the locks of the target. The locks in `others` compete with them.
pub fn explain(
    target: &str,
    meant: &[LockObject],
    others: &[LockObject],
    quorum: &QuorumState,
    now: MilliTime,
) -> Explanation {
    let all: Vec<&LockObject> = meant.iter().chain(others).collect();
    let held = meant.iter().any(LockObject::is_held);
    // The explanation is about the holder, or else about the next lock, or else about the ended locks.
    let first = meant.iter().find(|lock| lock.is_held()).or_else(|| meant.iter().find(|lock| !lock.is_finished()));
    let ended = if first.is_none() { meant } else { &[] };
    let mut links: Vec<_> = ended.iter().filter_map(|lock| end_link(lock, now)).take(ENDS).collect();
    links.push(quorum_link(quorum, now));
    if let Some(lock) = first {
        links.extend(operator_link(lock));
        links.push(accepted_link(lock));
        links.push(if lock.is_held() { hold_link(lock, now) } else { wait_link(lock, &all, now) });
    }
    links.extend(queue_link(&all, first));
    let summary = match ended {
        [only] => ended_summary(target, only, &all),
        _ => summary(target, first, &all, now),
    };
    Explanation { lock: target.to_owned(), held, summary, links }
}

fn summary(target: &str, first: Option<&LockObject>, all: &[&LockObject], now: MilliTime) -> String {
    let Some(lock) = first else {
        return format!("{target} is not held: every claim on it has ended.");
    };
    if lock.is_held() {
        let until = lock.valid_until().filter(|until| *until >= now);
        let until = until.map(|until| format!(", at least until {}", moment(until, now)));
        let until = until.unwrap_or_default();
        let token = lock.status.fencing_token.map(|token| format!(" with token {token}")).unwrap_or_default();
        return format!("{target} is held by {:?}{token}{until}.", lock.who());
    }
    match holders(all) {
        None => format!("{target} is not held: {}.", reason_text(lock)),
        Some(holders) => format!("{target} is not held by dlock/{}: {holders} has the key.", lock.name_any()),
    }
}

/// One sentence about the end of a lock, and about the present holder of its key.
fn ended_summary(target: &str, lock: &LockObject, all: &[&LockObject]) -> String {
    let reason = lock.condition(LockCondition::Finished).map_or("Finished", |finished| &finished.reason);
    let key = holders(all).map(|holders| format!(" {holders} has the key now.")).unwrap_or_default();
    format!("{target} ended with reason {reason}.{key}")
}

/// The link about the end of a finished lock, with the step for the user.
fn end_link(lock: &LockObject, now: MilliTime) -> Option<Link> {
    let finished = lock.condition(LockCondition::Finished).filter(|finished| finished.status == "True")?;
    let advice = advice::of_lock(finished);
    let at = moment(MilliTime::from(finished.last_transition_time.0), now);
    let means = if finished.message.trim().is_empty() { &advice.means } else { &finished.message };
    let mut lines = vec![format!("dlock/{} ended at {at} ({}): {}.", lock.name_any(), finished.reason, trim(means))];
    let last = lock.status.history.iter().max_by_key(|past| past.to);
    lines.extend(last.map(|past| match past.fencing_token {
        Some(token) => format!("The last holder was {:?}, with fencing token {token}.", past.identity),
        None => format!("The last holder was {:?}.", past.identity),
    }));
    let is_normal = finished.reason == HeldReason::Released.as_str();
    let state = if is_normal { State::Fine } else { State::Stops };
    let again = "Create another claim, if the work still has to be done.";
    let to_do = (!is_normal).then(|| advice.to_do.unwrap_or_else(|| again.into()));
    Some(Link { about: "end", state, lines, to_do })
}

/// The identities of the holders, in quotes.
fn holders(all: &[&LockObject]) -> Option<String> {
    let names: Vec<_> = all.iter().filter(|lock| lock.is_held()).map(|lock| format!("{:?}", lock.who())).collect();
    (!names.is_empty()).then(|| and(&names))
}

fn reason_text(lock: &LockObject) -> String {
    let reason = lock.reason();
    let means = lock.decisive().map(|condition| advice::of_lock(condition).means).unwrap_or_default();
    match reason {
        "NotAccepted" => "the operator cannot serve it as it is".into(),
        "Pending" => "the operator has not decided yet".into(),
        _ if means.is_empty() => format!("the operator reports {reason}"),
        _ => lower(means.split(". ").next().unwrap_or_default().trim_end_matches('.')),
    }
}

/// The text with a small first letter and without backquotes, for the middle of a sentence.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    (first + letters.as_str()).replace('`', "")
}

/// A message without its full stop.
fn trim(message: &str) -> &str {
    message.trim().trim_end_matches('.')
}

/// A link if the status does not describe the newest version of the object.
fn operator_link(lock: &LockObject) -> Option<Link> {
    let observed = lock.status.observed_generation;
    if !lock.status.conditions.is_empty() && (observed.is_none() || observed >= lock.metadata.generation) {
        return None;
    }
    let version = if lock.status.conditions.is_empty() { "" } else { "the newest version of " };
    let line = format!("The operator has not reconciled {version}DistributedLock {} yet.", lock.name_any());
    let to_do = "Wait a second. If it lasts, check that an operator runs and watches this namespace: redlock doctor";
    Some(Link { to_do: Some(to_do.into()), ..Link::new("operator", State::Waits, line) })
}

fn accepted_link(lock: &LockObject) -> Link {
    let about = "accepted";
    let Some(accepted) = lock.condition(LockCondition::Accepted) else {
        return Link::new(about, State::Unknown, "The operator has not reported whether it can serve the lock.");
    };
    if accepted.status == "True" && lock.fault().is_none() {
        return Link::new(about, State::Fine, "The operator can serve the lock as it is.");
    }
    let cause = lock.fault().unwrap_or(accepted);
    let advice = advice::of_lock(cause);
    let state = if advice.automatic.is_some() { State::Waits } else { State::Stops };
    let serves = if accepted.status == "True" { "serves the lock with a fault" } else { "cannot serve the lock" };
    let mut lines = vec![format!("The operator {serves} ({}): {}.", cause.reason, trim(&cause.message))];
    lines.extend(advice.automatic.map(|text| format!("Automatic: {}", lower(&text))));
    Link { about, state, lines, to_do: advice.to_do }
}

fn hold_link(lock: &LockObject, now: MilliTime) -> Link {
    let status = &lock.status;
    let who = lock.who();
    let since = status.acquired_at.map(|at| format!(" since {}", moment(at, now))).unwrap_or_default();
    let votes = status.votes.as_deref().map(|votes| format!(" {votes} members store it.")).unwrap_or_default();
    let mut lines = vec![format!("{who:?} holds the lock{since}.{votes}")];
    if let Some(until) = lock.valid_until().filter(|until| *until < now && status.ending.is_none()) {
        let ended = moment(until, now);
        lines.push(format!("Its validity ended at {ended}, and the operator has published no later one."));
        let to_do = Some("Check that the operator works: redlock doctor".into());
        return Link { about: "holder", state: State::Stops, lines, to_do };
    }
    let Some(ending) = &status.ending else {
        let message = lock.condition(LockCondition::Held).map(|held| trim(&held.message)).unwrap_or_default();
        let is_usual = message.is_empty() || message.contains(" holds key ");
        let usual = || "The operator renews it until the holder releases it or ends.".to_owned();
        lines.push(if is_usual { usual() } else { format!("{message}.") });
        return Link { about: "holder", state: State::Fine, lines, to_do: None };
    };
    let why = ending.message.as_deref().map(|message| format!(": {}", trim(message))).unwrap_or_default();
    lines.push(format!("The operator no longer renews it ({}){why}.", ending.reason));
    lines.extend(ending.until.map(|until| format!("The lock is free at {} at the latest.", moment(until, now))));
    let to_do = Some(format!("Wait. Make sure that {who:?} has stopped."));
    Link { about: "holder", state: State::Waits, lines, to_do }
}

/// The link about the reason why an accepted lock is not held.
fn wait_link(lock: &LockObject, all: &[&LockObject], now: MilliTime) -> Link {
    let about = if lock.spec.election.is_some() { "candidate" } else { "claim" };
    let Some(held) = lock.condition(LockCondition::Held) else {
        return Link::new(about, State::Unknown, "The operator has not reported why the lock is not held.");
    };
    let advice = advice::of_lock(held);
    let waits_for_user = [HeldReason::Suspended, HeldReason::Unreadable, HeldReason::NoCandidate];
    let is_behind_lasting_key =
        lock.condition(LockCondition::Ready).is_some_and(|ready| ready.reason == KEY_NEVER_EXPIRES);
    let state = match HeldReason::named(&held.reason) {
        Some(HeldReason::NotAccepted) => State::Waits,
        _ if is_behind_lasting_key => State::Stops,
        Some(reason) if waits_for_user.contains(&reason) => State::Stops,
        _ => State::Waits,
    };
    let name = lock.name_any();
    let mut lines = vec![format!("dlock/{name} is not held ({}): {}.", held.reason, trim(&held.message))];
    lines.extend(advice.automatic.map(|text| format!("Automatic: {}", lower(&text))));
    for other in all.iter().filter(|other| other.is_held() && other.name_any() != name) {
        let until = match (&other.status.ending, other.valid_until()) {
            (Some(ending), _) => ending.until.map(|until| format!(" Its hold ends at {}.", moment(until, now))),
            (None, Some(until)) => Some(format!(" It is renewed, now until {}.", moment(until, now))),
            (None, None) => None,
        };
        let since = other.status.acquired_at.map(|at| format!(" since {}", moment(at, now))).unwrap_or_default();
        let object = other.name_any();
        lines.push(format!("{:?} has the key by dlock/{object}{since}.{}", other.who(), until.unwrap_or_default()));
    }
    let to_do = advice.to_do.filter(|_| held.reason != HeldReason::NotAccepted.as_str());
    Link { about, state, lines, to_do }
}

/// The link about the queue for the key, in its order.
fn queue_link(all: &[&LockObject], first: Option<&LockObject>) -> Option<Link> {
    let mut queue: Vec<&LockObject> =
        all.iter().copied().filter(|lock| !lock.is_held() && !lock.is_finished()).collect();
    queue.sort_by_key(|lock| lock.status.queue_position.unwrap_or(i32::MAX));
    let (far, near): (Vec<_>, Vec<_>) = queue.iter().partition(|lock| lock.status.queue_position.is_none());
    if queue.is_empty() || queue.len() == 1 && first.is_some_and(|first| first.name_any() == queue[0].name_any()) {
        return None;
    }
    let place = |lock: &&&LockObject| {
        let position = lock.status.queue_position.unwrap_or_default();
        format!("{position}. dlock/{} ({:?}, priority {})", lock.name_any(), lock.who(), lock.spec.priority)
    };
    let wait = if queue.len() == 1 { "waits" } else { "wait" };
    let mut lines = vec![format!("{} {wait} for the key.", count(queue.len(), "lock"))];
    lines.extend(near.iter().take(10).map(place));
    let other: Vec<_> =
        far.iter().take(10).map(|lock| format!("dlock/{} ({})", lock.name_any(), lock_row::state(lock))).collect();
    if !other.is_empty() {
        lines.push(format!("Without a place: {}{}.", and(&other), if far.len() > 10 { " and others" } else { "" }));
    }
    Some(Link { about: "queue", state: State::Fine, lines, to_do: None })
}

#[cfg(test)]
mod tests;
