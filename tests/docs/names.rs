//! Names of test functions are short sentences that begin with their subject.

use std::fs;

use super::{root, sources::sources};

/// Maximum number of characters of a name, so that it fits in a line of a report.
const LONGEST: usize = 60;

/// Words that hide the subject of a name when they begin it.
const NO_SUBJECT: [&str; 6] = ["what_", "who_", "whose_", "one_", "of_", "so_"];

/// Minimum number of underscores of a name that is a sentence.
const SENTENCE: usize = 3;

/// The names of functions in this text that break a rule.
fn offences(text: &str) -> Vec<&str> {
    let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    let names = names.filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    let is_bad = |name: &&str| {
        let is_sentence = name.matches('_').count() >= SENTENCE;
        name.len() > LONGEST || is_sentence && NO_SUBJECT.iter().any(|begin| name.starts_with(begin))
    };
    names.filter(is_bad).collect()
}

#[test]
fn names_of_tests_are_short_and_have_a_subject() {
    let files = ["crates", "src", "tests"].into_iter().flat_map(|folder| sources(&root().join(folder)));
    let mut bad = Vec::new();
    for path in files.filter(|path| !path.components().any(|it| it.as_os_str() == "target")) {
        let name = path.strip_prefix(root()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        bad.extend(offences(&text).into_iter().map(|offence| format!("{}: {offence}", name.display())));
    }
    assert!(bad.is_empty(), "at most {LONGEST} characters, and no {NO_SUBJECT:?}:\n{}", bad.join("\n"));
}

#[test]
fn offences_of_names_are_found() {
    let (long, clause) = ("a_".repeat(31), ["what", "has", "no", "subject"].join("_"));
    let text = format!("fn {long}() {{}}\nasync fn {clause}<T>() {{}}\nfn one_label() {{}}\nfn a_short_name() {{}}\n");
    assert_eq!(offences(&text), [&long, &clause]);
}
