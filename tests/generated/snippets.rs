//! The code in docs/clients.md is that of the programs that the end-to-end tests run (tests/clients): what stands there
//! between lines with `[snippet]` and `[end]`.

use std::fs;
use std::path::Path;

use crate::{check, root};

const DOCUMENT: &str = "docs/clients.md";
const SOURCE: &str = "<!-- Code from ";

/// The part of a program that is for readers.
fn snippet(path: &str) -> String {
    let program = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = program.lines().skip_while(|line| !line.contains("[snippet]")).skip(1);
    let lines: Vec<_> = lines.take_while(|line| !line.contains("[end]")).collect();
    let text = lines.join("\n");
    assert!(!text.trim().is_empty(), "{path} has no [snippet]");
    text.trim_end().to_owned()
}

/// The document with the code of every block that has a source above it.
fn with_snippets(document: &str) -> String {
    let (mut text, mut lines, mut blocks) = (String::new(), document.lines(), 0);
    while let Some(line) = lines.next() {
        text += &format!("{line}\n");
        let Some(path) = line.strip_prefix(SOURCE).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let fence =
            lines.next().filter(|line| line.starts_with("```")).expect("a fence follows the source of its code");
        text += &format!("{fence}\n{}\n```\n", snippet(path));
        assert!(lines.any(|line| line == "```"), "{DOCUMENT}: the code from {path} does not end");
        blocks += 1;
    }
    assert_eq!(blocks, 6, "{DOCUMENT}: one block of code for each library");
    text
}

#[test]
fn the_code_in_the_documentation_is_what_the_tests_run() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    check(Path::new(DOCUMENT), &with_snippets(&document));
}
