//! The code of docs/clients.md, docs/go.md and docs/run.md comes from tested files.
//!
//! The end-to-end tests run the programs in tests/clients, the tests of the Go module compile its examples, and the suite `cli` applies the
//! manifests. The pages have the lines between `[snippet]` and `[end]`.

use crate::{check, read};

/// The pages, each with the number of its blocks.
const DOCUMENTS: [(&str, usize); 3] = [("docs/clients.md", 6), ("docs/go.md", 1), ("docs/run.md", 3)];
const SOURCE: &str = "<!-- Code from ";

/// The part of a program that the pages contain.
fn snippet(path: &str) -> String {
    let program = read(path);
    let lines = program.lines().skip_while(|line| !line.contains("[snippet]")).skip(1);
    let lines: Vec<_> = lines.take_while(|line| !line.contains("[end]")).collect();
    let text = lines.join("\n");
    assert!(!text.trim().is_empty(), "{path} has no [snippet]");
    text.trim_end().to_owned()
}

/// The document with the code of every block that has a source above it.
fn with_snippets(name: &str, document: &str, expected: usize) -> String {
    let (mut text, mut lines, mut blocks) = (String::new(), document.lines(), 0);
    while let Some(line) = lines.next() {
        text += &format!("{line}\n");
        let Some(path) = line.strip_prefix(SOURCE).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let fence =
            lines.next().filter(|line| line.starts_with("```")).expect("a fence follows the source of its code");
        text += &format!("{fence}\n{}\n```\n", snippet(path));
        assert!(lines.any(|line| line == "```"), "{name}: the code from {path} does not end");
        blocks += 1;
    }
    assert_eq!(blocks, expected, "{name}: blocks of code that have a source");
    text
}

#[test]
fn the_code_in_the_documentation_comes_from_the_tests() {
    for (name, blocks) in DOCUMENTS {
        check(name, &with_snippets(name, &read(name), blocks));
    }
}
