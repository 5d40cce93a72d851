//! Names of types, functions, modules and files: no word of perception or speech, and no file that is hard to find.
//!
//! The terms with one meaning each are in `src/lib.rs`, and for users in docs/glossary.md.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "support/sources.rs"]
mod sources;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sources::sources;

/// Words that hide the purpose of a type, a function or a file.
const RETIRED: [&str; 20] = [
    "see", "sees", "seen", "saw", "look", "looks", "sight", "sights", "say", "says", "said", "tell", "tells", "told",
    "word", "words", "known", "shown", "parts", "book",
];

/// Methods of foreign traits, and this file.
const FOREIGN: [&str; 4] = ["from_parts", "into_parts", "from_request_parts", "words"];

/// Maximum number of terms in `src/lib.rs`.
const MOST_TERMS: usize = 25;

/// The words of a name: `node` and `history` for `NodeHistory` and `node_history`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(letter.to_lowercase().filter(|letter| *letter != '_'));
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_retired(name: &str) -> bool {
    // In a constant in capitals each letter would be a word.
    let name = if name.chars().any(char::is_lowercase) { name.to_owned() } else { name.to_lowercase() };
    let words = words(&name);
    // A longer name is the sentence of an end-to-end test.
    words.len() < 6 && !FOREIGN.contains(&name.as_str()) && words.iter().any(|word| RETIRED.contains(&word.as_str()))
}

/// The name that a line declares, unless it is a test, because names of tests are sentences.
fn declared(line: &str, before: &str) -> Option<String> {
    let mut line = line.trim_start();
    for prefix in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async "] {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    if let Some(rest) = line.strip_prefix("pub(in ") {
        line = rest.split_once(") ")?.1;
    }
    let kinds = ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "static "];
    let rest = kinds.into_iter().find_map(|kind| line.strip_prefix(kind))?;
    let is_test = line.starts_with("fn ") && before.contains("test");
    let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (!is_test).then_some(name)
}

#[test]
fn no_type_function_or_file_is_named_by_a_retired_word() {
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(|folder| sources(Path::new(folder))).collect();
    assert!(files.len() > 400, "only {} files", files.len());
    let mut found = Vec::new();
    for file in files {
        if is_retired(file.file_stem().unwrap().to_str().unwrap()) {
            found.push(format!("{}: the file", file.display()));
        }
        let text = fs::read_to_string(&file).unwrap();
        let mut before = "";
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = declared(line, before).filter(|name| is_retired(name)) {
                found.push(format!("{}:{}: {name}", file.display(), at + 1));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_code_has_a_glossary_of_few_terms() {
    let text = fs::read_to_string("src/lib.rs").unwrap();
    let terms =
        text.lines().filter(|line| line.starts_with("//!")).flat_map(|line| line.split("**").skip(1).step_by(2));
    let terms: Vec<_> = terms.collect();
    assert!((15..=MOST_TERMS).contains(&terms.len()), "{} terms: {terms:?}", terms.len());
    let retired: Vec<_> = terms.iter().filter(|term| is_retired(&term.replace(' ', "_"))).collect();
    assert!(retired.is_empty(), "{retired:?}");
}

/// Every folder can have `tests`, `status`, `error`, `properties` and the root of its crate.
#[test]
fn a_file_name_is_in_at_most_three_rooms_without_a_plural() {
    let mut files: Vec<_> = ["src", "crates"].into_iter().flat_map(|folder| sources(Path::new(folder))).collect();
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "tests"));
    let stem = |file: &Path| file.file_stem().unwrap().to_str().unwrap().to_owned();
    let usual = ["tests", "status", "error", "lib", "main", "properties"];
    let mut found = Vec::new();
    for file in &files {
        let (name, folder) = (stem(file), file.parent().unwrap());
        let places = files.iter().filter(|other| stem(other) == name).count();
        if places > 3 && !usual.contains(&name.as_str()) {
            found.push(format!("{}: one of {places} files of this name", file.display()));
        }
        if files.contains(&folder.join(format!("{name}s.rs"))) {
            found.push(format!("{}: beside {name}s.rs", file.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Checks production files only.
#[test]
fn no_file_is_longer_than_350_lines() {
    let files: Vec<_> = ["src", "crates/api/src", "crates/cli/src", "crates/client/src", "crates/engine/src"]
        .into_iter()
        .flat_map(|folder| sources(Path::new(folder)))
        .collect();
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<_> = files.iter().filter(|file| lines(file) > 350).map(|file| (file, lines(file))).collect();
    assert!(long.is_empty(), "{long:#?}");
}
