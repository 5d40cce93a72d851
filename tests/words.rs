//! Names of types, functions, variants, fields and files: no word of perception or speech, and no file that is hard to find.
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
const RETIRED: [&str; 30] = [
    "see",
    "sees",
    "seen",
    "saw",
    "look",
    "looks",
    "sight",
    "sights",
    "say",
    "says",
    "said",
    "tell",
    "tells",
    "told",
    "hear",
    "heard",
    "know",
    "knows",
    "known",
    "shown",
    "word",
    "words",
    "parts",
    "book",
    "desk",
    "nobody",
    "nobodys",
    "somebody",
    "everybody",
    "anew",
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
    !FOREIGN.contains(&name.as_str()) && words(&name).iter().any(|word| RETIRED.contains(&word.as_str()))
}

/// The identifier at the beginning of a text.
fn identifier(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap()
}

/// A declaration without its visibility, and without `const` and `async` before a function.
fn unqualified(line: &str) -> &str {
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub(") {
        line = rest.split_once(") ").map_or(line, |(_, rest)| rest);
    }
    line = line.strip_prefix("pub ").unwrap_or(line);
    for prefix in ["const fn ", "async fn ", "unsafe fn "] {
        if line.starts_with(prefix) {
            line = &line[prefix.len() - "fn ".len()..];
        }
    }
    line
}

/// The name of the type, function or module that a line declares.
fn item(line: &str) -> Option<&str> {
    let line = unqualified(line);
    let kinds = ["fn ", "struct ", "enum ", "trait ", "type ", "mod ", "static "];
    kinds.into_iter().find_map(|kind| line.strip_prefix(kind)).map(identifier)
}

/// The names of fields that are declared in one line, and of a constant.
fn fields(line: &str) -> Vec<&str> {
    let line = unqualified(line);
    let line = line.strip_prefix("const ").unwrap_or(line);
    let first = identifier(line);
    let is_first = !first.is_empty() && line[first.len()..].starts_with(": ");
    let body =
        line.split_once(" { ").filter(|_| first.chars().next().is_some_and(char::is_uppercase) || first == "struct");
    let inner = body.into_iter().flat_map(|(_, body)| body.split(", "));
    let inner = inner.filter_map(|field| Some(identifier(unqualified(field.split_once(": ")?.0))));
    is_first.then_some(first).into_iter().chain(inner).collect()
}

/// A name in a file, and the number of its line.
type Declared = (usize, String);

/// The names that a file declares, of production code and of tests.
fn declarations(text: &str, is_test_file: bool) -> (Vec<Declared>, Vec<Declared>) {
    let (mut production, mut tests) = (Vec::new(), Vec::new());
    let (mut before, mut is_test, mut variants) = ("", is_test_file, None);
    for (at, line) in text.lines().enumerate() {
        // A module of tests ends with the first brace at the beginning of a line.
        is_test |= before.starts_with("#[cfg(") && before.contains("test") && line.ends_with(" {");
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        let names = if is_test { &mut tests } else { &mut production };
        let mut add = |name: &str| names.push((at + 1, name.to_owned()));
        item(line).into_iter().for_each(&mut add);
        if !is_test && !code.starts_with("//") {
            fields(line).into_iter().for_each(&mut add);
            if variants == Some(indentation) && code.starts_with(char::is_uppercase) {
                add(identifier(code));
            }
        }
        // An enum of the macro `messages` has a semicolon in place of the brace, and the variants are on its own level.
        let opened = [("{", 4), (";", 0)].into_iter().find(|(end, _)| line.ends_with(end));
        match opened.filter(|_| unqualified(line).starts_with("enum ")) {
            Some((_, deeper)) => variants = Some(indentation + deeper),
            None if code == "}" && variants == Some(indentation + 4) => variants = None,
            None => {}
        }
        is_test &= is_test_file || line != "}";
        before = line;
    }
    (production, tests)
}

#[test]
fn no_name_uses_a_retired_term() {
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(|folder| sources(Path::new(folder))).collect();
    assert!(files.len() > 400, "only {} files", files.len());
    let (mut found, mut of_production) = (Vec::new(), 0);
    for file in files {
        let is_test_file = file.iter().any(|part| part == "tests" || part == "tests.rs");
        let (production, tests) = declarations(&fs::read_to_string(&file).unwrap(), is_test_file);
        of_production += production.len();
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let names = production.into_iter().chain(tests).chain([(1, stem.to_owned())]);
        found.extend(
            names.filter(|(_, name)| is_retired(name)).map(|(at, name)| format!("{}:{at}: {name}", file.display())),
        );
    }
    assert!(of_production > 5_000, "only {of_production} names of production code");
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
}

#[test]
fn names_are_found_in_production_code_and_in_tests() {
    let text = "const HEARD: i64 = 1;\npub(in crate::a) struct A {\n    pub says: String,\n}\nenum B {\n    Known { told: u8 },\n}\n\
                #[test]\nfn a_test() {}\n#[cfg(test)]\nmod tests {\n    fn look() { let said: u8 = 1; }\n}\nconst fn last(key: u8) {}\n";
    let names = |declared: Vec<Declared>| declared.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ");
    let (production, tests) = declarations(text, false);
    assert_eq!(
        (names(production), names(tests)),
        ("HEARD A says B told Known a_test last".into(), "tests look".into())
    );
    let text = "messages! {\n    pub enum C: means -> (u8);\n\n    /// Text\n    Seen => (1),\n}\n";
    assert_eq!(names(declarations(text, false).0), "C Seen");
    assert_eq!(declarations("fn f() {}\n}\nfn g() {}\n", true).1.len(), 2);
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
