//! Pure: the checks of each part of an installation, each with the repair of its fault.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::cluster::Problem;
use crate::cluster::installation::Leader;
use crate::cluster::objects::LockObject;
use crate::output::format::{and, between, capitalized, count, span};
use crate::show::version::{images, tag};
use crate::show::{advice, lock_row};
use redlock_api::{GROUP, MilliTime};

/// The oldest minor version of Kubernetes that the operator supports.
const OLDEST_MINOR: u32 = 30;
/// Clock error that misleads a reader, in milliseconds.
const CLOCK_TOLERANCE: i64 = 2_000;
/// Maximum time of a deletion without an obstacle, in milliseconds.
const LONGEST_DELETION: i64 = 300_000;
/// Maximum number of names in a finding.
pub(super) const NAMED: usize = 5;

/// The state of a part of the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The part has no fault.
    Fine,
    /// The part works, but needs attention.
    Warning,
    /// The part does not work.
    Broken,
    /// This user or this machine cannot check the part.
    Unknown,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The checked part, in one or two words.
    pub about: String,
    /// The state of the part.
    pub state: State,
    /// A sentence about the state.
    pub text: String,
    /// The step that repairs the part.
    pub mend: Option<String>,
}

/// A finding about a part without a fault.
fn fine(about: &str, text: impl Into<String>) -> Finding {
    finding(about, State::Fine, text, None)
}

pub(super) fn finding(about: &str, state: State, text: impl Into<String>, mend: Option<&str>) -> Finding {
    Finding { about: about.into(), state, text: text.into(), mend: mend.map(Into::into) }
}

/// The finding of a check whose request failed.
pub fn problem(about: &str, problem: Problem) -> Finding {
    let state = if problem.is_forbidden() { State::Unknown } else { State::Broken };
    let mend = Some(problem.next).filter(|next| !next.is_empty());
    let text = format!("{}.", capitalized(problem.what.trim_end_matches('.')));
    Finding { about: about.into(), state, text, mend }
}

/// The version of Kubernetes.
pub fn server(address: &str, major: &str, minor: &str) -> Finding {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let text = format!("{address} answers, Kubernetes {major}.{minor}.");
    match (major, digits.parse::<u32>()) {
        ("1", Ok(minor)) if minor < OLDEST_MINOR => {
            let mend = "Use Kubernetes 1.30 or newer: admission policies are missing here.";
            finding("API server", State::Broken, text, Some(mend))
        }
        _ => fine("API server", text),
    }
}

/// Compares this machine's clock with the API server's, in Unix milliseconds.
///
/// `server` has the lower and the upper bound of the API server's time.
pub fn clock(wall: i64, server: Option<(i64, i64)>) -> Finding {
    let Some((least, most)) = server else {
        return finding("clock", State::Unknown, "The API server's answers carry no date.", None);
    };
    let off = if wall < least { wall - least } else { (wall - most).max(0) };
    if off.abs() < CLOCK_TOLERANCE {
        return fine("clock", "This machine's clock agrees with the API server's.");
    }
    let direction = if off > 0 { "ahead of" } else { "behind" };
    let text = format!("This machine's clock is {} {direction} the API server's.", span(off.abs()));
    let mend = "Start the time service of this machine, or that of the control plane. Who compares validUntil with this clock is misled.";
    finding("clock", State::Broken, text, Some(mend))
}

/// The finding for a kind that the API server does not serve.
pub fn not_installed(name: &str) -> Finding {
    let mend = "Install the chart redlock-operator, or apply the CRDs: redlock crds | kubectl apply --server-side -f -";
    finding("kinds", State::Broken, format!("{name} is not installed."), Some(mend))
}

/// Checks that the API server serves the kinds. Used if the user cannot read the definitions.
pub fn served(names: &[String]) -> Finding {
    let is_missing = |kind: &&str| !names.iter().any(|name| name == kind);
    match ["distributedlocks", "redisquorums"].into_iter().find(is_missing) {
        Some(kind) => not_installed(kind),
        None => fine("kinds", format!("The kinds of {GROUP} are served. You cannot read their definitions.")),
    }
}

/// Whether the installed definition has exactly the fields of this version.
pub fn definition(name: &str, ours: &CustomResourceDefinition, theirs: &CustomResourceDefinition) -> Finding {
    let (ours, theirs) = (fields(ours), fields(theirs));
    let named = |fields: Vec<&String>| fields.into_iter().take(NAMED).cloned().collect::<Vec<_>>();
    let (missing, more) = (named(ours.difference(&theirs).collect()), named(theirs.difference(&ours).collect()));
    if !missing.is_empty() {
        let text = format!("{name} is older than this command: it has no {}.", and(&missing));
        let mend = "Upgrade the chart, or apply the CRDs: redlock crds | kubectl apply --server-side -f -";
        return finding("kinds", State::Broken, text, Some(mend));
    }
    if !more.is_empty() {
        let text = format!("{name} is newer than this command: it has {}, too.", and(&more));
        return finding("kinds", State::Warning, text, Some("Upgrade this command to the version of the operator."));
    }
    fine("kinds", format!("{name} has the fields of this version."))
}

/// The paths of all fields in the first version.
fn fields(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let definition = serde_json::to_value(definition).unwrap_or_default();
    if let Some(schema) = definition.pointer("/spec/versions/0/schema/openAPIV3Schema") {
        walk(schema, "", &mut found);
    }
    found
}

fn walk(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        walk(field, &path, found);
        found.insert(path);
    }
    if let Some(items) = schema.get("items") {
        walk(items, &format!("{path}[]"), found);
    }
}

/// A right that commands need.
#[derive(Debug)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The subresource, if the right is for one.
    pub subresource: Option<&'static str>,
    /// The commands that need the right.
    commands: &'static str,
    /// The ClusterRole that grants the right.
    role: &'static str,
    /// Whether most commands need the right.
    is_needed: bool,
}

const fn right(verb: &'static str, resource: &'static str, commands: &'static str, role: &'static str) -> Right {
    Right { verb, group: GROUP, resource, subresource: None, commands, role, is_needed: false }
}

/// The rights that commands need, with the commands and the roles.
pub const RIGHTS: &[Right] = &[
    Right {
        is_needed: true,
        ..right("list", "distributedlocks", "list, status, explain, history, top", "redlock-operator-view")
    },
    Right { is_needed: true, ..right("watch", "distributedlocks", "wait, list --watch", "redlock-operator-view") },
    right("list", "redisquorums", "quorum status", "redlock-operator-view in the namespace of the quorum"),
    right("create", "distributedlocks", "taking locks", "redlock-operator-holder or -edit"),
    right("patch", "distributedlocks", "step-down", "redlock-operator-edit"),
    right("break", "distributedlocks", "break", "redlock-operator-break and -edit"),
    Right {
        group: "",
        subresource: Some("eviction"),
        ..right("create", "pods", "quorum restart", "Kubernetes' edit in the namespace of the quorum")
    },
];

/// Lists the rights of this user, and the roles that grant the missing rights.
pub fn rights(answers: &[(&'static Right, bool)], namespace: &str) -> Vec<Finding> {
    let allowed: Vec<_> = answers.iter().filter(|(_, allowed)| *allowed).map(|(right, _)| right.commands).collect();
    let mut found = Vec::new();
    if !allowed.is_empty() {
        found.push(fine("rights", format!("In namespace {namespace} you can use: {}.", allowed.join("; "))));
    }
    for (right, _) in answers.iter().filter(|(_, allowed)| !*allowed) {
        let state = if right.is_needed { State::Broken } else { State::Unknown };
        let text = format!(
            "In namespace {namespace} you cannot {} {}, which is for: {}.",
            right.verb, right.resource, right.commands
        );
        let mend = format!("If you need it, ask for the role {}.", right.role);
        found.push(finding("rights", state, text, Some(&mend)));
    }
    found
}

/// The finding if no quorum names its operator.
pub fn no_operator(quorums: usize, can_read_all: bool) -> Finding {
    if quorums == 0 && !can_read_all {
        let text = "You can read no RedisQuorum, so the operator is not checked.";
        return finding("operator", State::Unknown, text, None);
    }
    if quorums == 0 {
        let mend = "Create a RedisQuorum, or set defaultQuorum in the chart's values.";
        return finding("operator", State::Warning, "There is no RedisQuorum.", Some(mend));
    }
    let mend = "Install the chart redlock-operator, with the quorums' spec.installation as its value installation, and see that its pods run.";
    finding("operator", State::Broken, "No operator serves any RedisQuorum.", Some(mend))
}

/// Whether an operator has a leader.
pub fn leader(operator: &str, leader: &Leader) -> Finding {
    let (state, mend) = match leader {
        Leader::Works(_) => (State::Fine, None),
        Leader::Hidden => (State::Unknown, None),
        Leader::Silent(_) | Leader::Absent => {
            (State::Broken, Some("See the pods of the operator and their logs: no lock is granted without a leader."))
        }
    };
    finding("operator", state, leader.text(operator), mend)
}

/// Checks that the operator's replicas are ready and have the version of this command.
pub fn operator_pods(namespace: &str, pods: &[Pod], version: &str) -> Finding {
    let is_ready = |pod: &&Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let ready = pods.iter().filter(is_ready).count();
    let images = images(pods);
    let (replicas, named) = (count(pods.len(), "replica"), and(&images));
    let text = format!("{ready} of {replicas} of the operator in namespace {namespace} are ready, of {named}.");
    if ready < pods.len() || pods.is_empty() {
        let mend = format!("See why: kubectl -n {namespace} describe pods -l app.kubernetes.io/name=redlock-operator");
        return finding("operator", if ready == 0 { State::Broken } else { State::Warning }, text, Some(&mend));
    }
    let is_other = |tag: &str| tag.starts_with(|c: char| c.is_ascii_digit()) && tag != version;
    if images.iter().filter_map(|image| tag(image)).any(is_other) {
        let mend = format!("This command is {version}. Use the same version for both.");
        return finding("operator", State::Warning, text, Some(&mend));
    }
    fine("operator", text)
}

/// Checks the locks. The finding names those in trouble.
pub fn locks(locks: &[LockObject], now: MilliTime) -> Finding {
    let held = locks.iter().filter(|lock| lock.is_held()).count();
    let text = format!("{}, {held} of them held.", count(locks.len(), "lock"));
    let stuck = |lock: &&LockObject| {
        let since = lock.metadata.deletion_timestamp.as_ref().map(|time| MilliTime::from(time.0));
        since.is_some_and(|since| between(since, now) > LONGEST_DELETION)
    };
    let is_troubled = |lock: &&LockObject| lock_row::is_troubled(lock, now);
    let names = |locks: Vec<&LockObject>| {
        let more = locks.len().saturating_sub(NAMED);
        let mut names: Vec<_> = locks
            .iter()
            .take(NAMED)
            .map(|lock| format!("{} ({})", lock.lock(), lock.fault().map_or(lock.reason(), |fault| &fault.reason)))
            .collect();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        and(&names)
    };
    let troubled: Vec<_> = locks.iter().filter(is_troubled).collect();
    let deleted: Vec<_> = locks.iter().filter(stuck).collect();
    if let Some(first) = deleted.first() {
        let mend = format!(
            "The operator takes its finalizer off when the key has expired. See why it does not: redlock explain {}",
            first.lock()
        );
        let text = format!("{text} Deleted for more than five minutes: {}.", names(deleted.clone()));
        return finding("locks", State::Broken, text, Some(&mend));
    }
    if let Some(first) = troubled.first() {
        let to_do = first
            .fault()
            .or_else(|| first.decisive())
            .and_then(|condition| advice::of_lock(condition).to_do)
            .unwrap_or_default();
        let mend = format!("See why: redlock explain {}. {to_do}", first.lock());
        let text = format!("{text} In trouble: {}.", names(troubled.clone()));
        return finding("locks", State::Warning, text, Some(mend.trim()));
    }
    fine("locks", text)
}

#[cfg(test)]
mod tests;
