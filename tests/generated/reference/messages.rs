//! The pages of conditions and Events: reasons from `crates/api/src/conditions`, messages from the enums beside the decisions.

use std::fmt::Write;

use super::{
    page,
    source::{Item, block, items, messages},
};
use crate::{read, root, sources::sources};

const REASONS: [&str; 2] = ["crates/api/src/conditions/reasons.rs", "crates/api/src/conditions/quorum_reasons.rs"];
const STATUS: &str = "src/quorum/model/status/messages.rs";
const ANSWERS: &str = "crates/engine/src/redlock/answers.rs";
const LOCK_EVENTS: (&str, &str) = ("src/lock/model/events.rs", "LockEvent");
const JOB_EVENTS: (&str, &str) = ("src/job/model.rs", "JobEvent");
const QUORUM_EVENTS: (&str, &str) = ("src/quorum/model/events.rs", "QuorumEvent");

/// Enums with messages of a lock's conditions, each with its condition.
const OF_LOCKS: [(&str, &str, &str); 4] = [
    ("src/lock/model/refusal.rs", "Refusal", "Accepted"),
    ("src/quorum/model/lookup.rs", "LookupError", "Accepted"),
    ("src/lock/model/held_message.rs", "HeldMessage", "Held"),
    ("src/lock/model/end.rs", "End", "Held"),
];

/// Enums whose variants are fragments of messages, by the name of their placeholder.
const FRAGMENTS: [(&str, &str, &str, &str); 13] = [
    ("why", "with the reason NoCandidate: why a pod cannot hold the lock", "src/lock/model/candidate.rs", "Ineligible"),
    ("why", "with the reason NoCandidate: why a Job cannot be started", "src/lock/model/job.rs", "UnfitJob"),
    ("doubt", "why it is not known whether the holder runs", "src/lock/model/end.rs", "Doubt"),
    ("counts>`, `<waits>`, `<clocks", "what each member waits for", STATUS, "MemberWaits"),
    ("doing>`, `<loss", "what is under way", "src/quorum/model/progress.rs", "Doing"),
    ("until", "what has to happen first", "src/quorum/model/progress.rs", "Until"),
    (
        "objects>`, `<blocked>`, `<clients>`, `<certificate>`, `<problem",
        "what is in the way",
        "src/quorum/model/blocked.rs",
        "Blocked",
    ),
    ("unfit", "why a certificate cannot be used", "src/quorum/model/tls.rs", "Unfit"),
    ("invalid", "why a specification cannot be carried out", "src/quorum/model/invalid.rs", "Invalid"),
    ("failures>`, `<trouble", "why a member did not vote", ANSWERS, "MemberError"),
    (
        "why",
        "in status.members: why an external member does not answer",
        "src/quorum/model/unanswered.rs",
        "Unanswered",
    ),
    ("message", "in status.members: why an external member does not vote", STATUS, "Unfit"),
    ("message>`, `<0", "why a server cannot hold locks", ANSWERS, "Unfit"),
];

/// Names of `names!`, with their comments.
fn names(of: &str) -> Vec<Item> {
    let text = REASONS.map(read).concat();
    let body = block(&text, &format!("    {of} {{")).to_owned();
    items(&body)
}

fn reason<'a>(reasons: &'a [Item], name: &str) -> &'a Item {
    reasons.iter().find(|reason| reason.name() == name).unwrap_or_else(|| panic!("{REASONS:?} have no reason {name}"))
}

/// `A` of `AcceptedReason::A`.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap().trim_end_matches(')')
}

/// The message with its placeholders in angle brackets.
fn with_placeholders(message: &str) -> String {
    message.replace('{', "<").replace('}', ">")
}

fn entry(text: &mut String, status: &str, reason: &Item, messages: &[String]) {
    let meaning = &reason.paragraphs[0];
    writeln!(text, "#### {status} · {}\n\n{meaning}\n", reason.name()).unwrap();
    for message in messages.iter().filter(|message| !message.is_empty()) {
        writeln!(text, "- message: `{}`", with_placeholders(message)).unwrap();
    }
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "Nothing.".to_owned());
    let (itself, to_do) = (reason.after("Automatic:"), reason.after("To do:"));
    if itself.is_some() || to_do.is_some() {
        writeln!(text, "- automatic: {}\n- to do: {}", or_nothing(itself), or_nothing(to_do)).unwrap();
    }
    text.push('\n');
}

/// Messages of locks: condition, reason, message.
fn messages_of_locks() -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    for (path, name, condition) in OF_LOCKS {
        for (variant, reason) in messages(path, name) {
            let message = variant.paragraphs[0].clone();
            // Another enum, or a status, has this message.
            if !["{0}", "{message}"].contains(&message.as_str()) {
                found.push((condition, last(&reason).to_owned(), message));
            }
        }
    }
    found
}

fn lock_conditions() -> String {
    let (accepted, held) = (names("AcceptedReason"), names("HeldReason"));
    let messages = messages_of_locks();
    let of = |condition: &str, reason: &str| -> Vec<String> {
        let all = messages.iter().filter(|(of, name, _)| *of == condition && name == reason);
        all.map(|(.., message)| message.clone()).collect()
    };
    let mut text = String::new();
    for type_ in names("LockCondition") {
        writeln!(text, "### {}\n\n{}\n", type_.name(), type_.paragraphs.join(" ")).unwrap();
        match type_.name() {
            "Accepted" => {
                for reason in &accepted {
                    let is_served =
                        reason.name() == "Accepted" || reason.paragraphs[0].contains("The condition is true");
                    let status = if is_served { "True" } else { "False" };
                    entry(&mut text, status, reason, &of("Accepted", reason.name()));
                }
            }
            "Held" => {
                for reason in &held {
                    let status = if ["Held", "Ending"].contains(&reason.name()) { "True" } else { "False" };
                    entry(&mut text, status, reason, &of("Held", reason.name()));
                }
            }
            _ => {}
        }
    }
    text
}

/// The message about an object that this version cannot read.
fn unreadable() -> String {
    let mut items = items(&read("src/operator/unreadable.rs")).into_iter();
    items.find(|item| item.code.starts_with("struct Unread")).unwrap().paragraphs.remove(0)
}

fn quorum_conditions() -> String {
    let common = names("CommonReason");
    let mut found: Vec<(String, String, String, String)> = Vec::new();
    for (variant, meaning) in messages(STATUS, "QuorumMessage") {
        let fragments: Vec<&str> = meaning.trim_matches(['(', ')']).split(", ").map(last).collect();
        let [type_, status, reason] = fragments[..] else { panic!("{meaning}") };
        found.push((type_.into(), status.into(), reason.into(), variant.paragraphs[0].clone()));
    }
    for (variant, reason) in messages("src/quorum/model/problems.rs", "Problem") {
        let message = variant.paragraphs[0].replace("{0}", "{invalid}");
        found.push(("Ready".into(), "False".into(), last(&reason).to_owned(), message));
    }
    for reason in ["PredecessorUnconfirmed", "MembersFenced", "MembersStarting"] {
        found.push(("Ready".into(), "False".into(), reason.into(), "{waits}".into()));
    }
    found.push(("Ready".into(), "False".into(), "Unreadable".into(), unreadable()));
    let mut text = String::new();
    for type_ in names("QuorumCondition") {
        writeln!(text, "### {}\n\n{}\n", type_.name(), type_.paragraphs.join(" ")).unwrap();
        let mut of: Vec<_> = found.iter().filter(|(of, ..)| of == type_.name()).collect();
        of.sort_by_key(|(_, status, reason, _)| (status != "True", common.iter().position(|it| it.name() == reason)));
        for same in of.chunk_by(|one, other| (&one.1, &one.2) == (&other.1, &other.2)) {
            let texts: Vec<String> = same.iter().map(|(.., message)| message.clone()).collect();
            entry(&mut text, &same[0].1, reason(&common, &same[0].2), &texts);
        }
    }
    text
}

fn fragments() -> String {
    let mut text = String::new();
    for (placeholder, meaning, path, name) in FRAGMENTS {
        writeln!(text, "`<{placeholder}>`, {meaning}:\n").unwrap();
        let source = read(path).replace("pub(super) enum", "pub enum").replace("pub(crate) enum", "pub enum");
        let body = block(&source, &format!("pub enum {name} {{"));
        let attributes = body.contains("#[error");
        let texts: Vec<String> = if attributes {
            errors(body)
        } else {
            items(body).into_iter().map(|it| it.paragraphs[0].clone()).collect()
        };
        for message in texts.iter().filter(|message| !message.is_empty()) {
            writeln!(text, "- `{}`", with_placeholders(message)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// The messages of an error: `#[error("...")]`.
fn errors(body: &str) -> Vec<String> {
    let fragments = body.split("#[error(").skip(1);
    let texts = fragments.filter_map(|part| part.split_once('"')).map(|(_, rest)| rest.split("\"\n").next().unwrap());
    texts.map(|text| text.split("\")]").next().unwrap().split("\\\n").map(str::trim_start).collect()).collect()
}

#[test]
fn conditions_and_their_messages_are_on_one_page() {
    let introduction = "\
`kubectl describe` shows these conditions. Each has its statuses and reasons, the messages with their placeholders, the automatic reaction, and the \
next step for you. [The glossary](../glossary.md) explains the terms. [Parts of messages](#parts-of-messages) come last.";
    let body = format!(
        "## DistributedLock\n\n{}## RedisQuorum\n\n{}## Parts of messages\n\n{}",
        lock_conditions(),
        quorum_conditions(),
        fragments()
    );
    page("conditions.md", "Conditions", introduction, &body);
}

fn events((path, name): (&str, &str)) -> String {
    let mut text = "| reason | type | message | when | to do |\n|---|---|---|---|---|\n".to_owned();
    for (variant, meaning) in messages(path, name) {
        let (reason, kind) = meaning.trim_matches(['(', ')']).split_once(", ").unwrap();
        let (reason, kind) = (reason.trim_matches('"'), last(kind));
        let reason = if reason == "Accepted" { "that of Accepted".to_owned() } else { format!("`{reason}`") };
        let when = variant.after("When:").unwrap_or_default();
        let to_do = variant.after("To do:").unwrap_or_else(|| "Nothing.".to_owned());
        let message = with_placeholders(&variant.paragraphs[0]);
        writeln!(text, "| {reason} | {kind} | `{message}` | {when} | {to_do} |").unwrap();
    }
    text
}

#[test]
fn events_are_on_one_page() {
    let introduction = "\
`kubectl events` shows these Events of locks and quorums. They are for users, and Kubernetes deletes them after an hour. Programs read \
[conditions](conditions.md). For claims the operator publishes Warnings only, because the history in the status has the rest.";
    let body = format!(
        "## DistributedLock\n\n{}\n## RedisQuorum\n\n{}\n## Job\n\n{}\n## Any watched object\n\n\
         | reason | type | message | when | to do |\n|---|---|---|---|---|\n\
         | `Unreadable` | Warning | `{}` | This version of the operator cannot read the object. | Change the field that the message names, or delete the object. |\n",
        events(LOCK_EVENTS),
        events(QUORUM_EVENTS),
        events(JOB_EVENTS),
        with_placeholders(&unreadable()),
    );
    page("events.md", "Events", introduction, &body);
}

/// Checks that every message is on a page, so that users can find it.
#[test]
fn every_enum_of_messages_is_on_a_page() {
    let known: Vec<&str> =
        OF_LOCKS.iter().map(|(_, name, _)| *name).chain(FRAGMENTS.iter().map(|(.., name)| *name)).collect();
    let rest = ["Problem", "QuorumMessage", "LockEvent", "JobEvent", "QuorumEvent", "Unread"];
    for path in sources(&root().join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("displaydoc::Display").skip(1) {
            let name = part.lines().find_map(|line| line.split_once("enum ").or_else(|| line.split_once("struct ")));
            let name = name.unwrap().1.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            assert!(known.contains(&name) || rest.contains(&name), "{}: {name} is on no page", path.display());
        }
    }
}
