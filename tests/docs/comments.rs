//! Comments follow docs/dev/STYLE.md, and their references lead somewhere.

use std::fs;

use super::{prose, root, sources::sources};

/// All folders with code.
const CODE: [&str; 3] = ["crates", "src", "tests"];

/// Words that hide the subject of a sentence when they begin it.
const NO_SUBJECT: [&str; 6] = ["What ", "Who ", "Whose ", "Of ", "So ", "One that "];

/// Lines of comment without code between them.
struct Comment {
    file: String,
    line: usize,
    text: String,
    is_doc: bool,
}

/// The text of a comment line, and whether it is a doc comment.
fn text_of(line: &str) -> Option<(bool, &str)> {
    let line = line.trim_start();
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    doc.map(|text| (true, text)).or_else(|| Some((false, line.strip_prefix("//")?)))
}

/// The comments of a file, without examples of code.
///
/// Each list item is a comment of its own.
fn comments_of(file: &str, text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let (mut continues, mut in_example) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let Some((is_doc, comment)) = text_of(line) else {
            (continues, in_example) = (false, false);
            continue;
        };
        let comment = comment.trim();
        in_example ^= comment.starts_with("```");
        if comment.is_empty() || in_example || comment.starts_with(['#', '|']) {
            continues = false;
            continue;
        }
        let is_item = comment.starts_with("- ") || comment.starts_with("* ");
        match found.last_mut().filter(|last| continues && last.is_doc == is_doc && !is_item) {
            Some(last) => last.text = format!("{} {comment}", last.text),
            None => {
                let text = comment.trim_start_matches(['-', '*', ' ']).to_owned();
                found.push(Comment { file: file.to_owned(), line: at + 1, text, is_doc });
            }
        }
        continues = !comment.starts_with("```");
    }
    found
}

/// All comments of the Rust files below this folder.
fn comments_below(folder: &str) -> Vec<Comment> {
    let mut files = sources(&root().join(folder));
    files.sort();
    let comments = files.iter().flat_map(|file| {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        comments_of(name, &fs::read_to_string(file).unwrap())
    });
    comments.filter(|comment| !comment.file.contains("/target/")).collect()
}

/// The rules that this comment breaks, each with its place and the offending text.
fn offences(comment: &Comment) -> Vec<String> {
    let mut found = Vec::new();
    let mut offence =
        |rule: String, text: &str| found.push(format!("{}:{}: {rule}: {text}", comment.file, comment.line));
    if let Some(begin) = NO_SUBJECT.into_iter().find(|begin| comment.text.starts_with(begin)) {
        offence(format!("begins with {:?}", begin.trim()), prose::sentences(&comment.text)[0].as_str());
    }
    for sentence in prose::sentences(&comment.text) {
        let words = prose::words(&sentence);
        if comment.is_doc && words > prose::LONGEST_SENTENCE {
            offence(format!("{words} words"), &sentence);
        }
        if let [word, ..] = prose::avoided(&sentence)[..] {
            offence(format!("{word:?}"), &sentence);
        }
    }
    found
}

#[test]
fn comments_follow_the_style() {
    let bad: Vec<_> = CODE.into_iter().flat_map(comments_below).flat_map(|comment| offences(&comment)).collect();
    assert!(bad.is_empty(), "{} offences:\n{}", bad.len(), bad.join("\n"));
}

/// Numbers of the rules of docs/dev/rules.md.
fn rules() -> Vec<String> {
    let text = super::page("dev/rules.md");
    let numbers = text.lines().filter_map(|line| line.strip_prefix("**")?.split_once(". ").map(|(number, _)| number));
    numbers.filter(|number| number.parse::<u32>().is_ok()).map(str::to_owned).collect()
}

/// The pages that a text names, each with the section that follows it between quotation marks.
fn references(text: &str) -> Vec<(String, Option<String>)> {
    let pages = text.match_indices("docs/").filter_map(|(at, _)| {
        let (name, rest) = text[at..].split_once(".md")?;
        let is_name = name.chars().all(|c| c.is_alphanumeric() || "/-_".contains(c));
        let rest = rest.trim_start_matches('`').strip_prefix(", \"");
        is_name.then(|| (format!("{name}.md"), rest.and_then(|rest| Some(rest.split_once('"')?.0.to_owned()))))
    });
    pages.collect()
}

/// The numbers in "rule 7", "rules 1 to 7" and "rules 3 and 7".
fn numbered(text: &str) -> Vec<String> {
    let after = text.match_indices("rule").filter_map(|(at, _)| {
        let rest = &text[at + 4..];
        rest.strip_prefix(' ').or_else(|| rest.strip_prefix("s "))
    });
    let words = after.flat_map(|rest| {
        let word = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let numbers = rest.split_whitespace().map(word);
        numbers.take_while(|it| it.parse::<u32>().is_ok() || ["to", "and"].contains(&it.as_str())).collect::<Vec<_>>()
    });
    words.filter(|word| word.parse::<u32>().is_ok()).collect()
}

#[test]
fn references_in_comments_lead_somewhere() {
    let rules = rules();
    assert_eq!(rules.len(), 12, "{rules:?}");
    let (mut bad, mut found) = (Vec::new(), 0);
    for comment in CODE.into_iter().flat_map(comments_below) {
        let place = format!("{}:{}", comment.file, comment.line);
        for (name, section) in references(&comment.text) {
            found += 1;
            let page = fs::read_to_string(root().join(&name)).unwrap_or_default();
            let has = |section: &str| page.lines().any(|line| line.trim_start_matches('#').trim() == section);
            if page.is_empty() || section.as_ref().is_some_and(|section| !has(section)) {
                bad.push(format!("{place}: {name} {}", section.unwrap_or_default()));
            }
        }
        let of_the_style = comment.text.contains("STYLE.md");
        let unknown = numbered(&comment.text).into_iter().filter(|number| !of_the_style && !rules.contains(number));
        bad.extend(unknown.map(|number| format!("{place}: rule {number}")));
    }
    assert!(found > 30, "only {found} references were found");
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn an_offence_has_its_place_and_its_text() {
    let text = "fn f() {\n    // What is counted.\n}\n\n/// Short. Reads `nobody` and `may`.\nfn g() {}\n/// It may end anew.\n";
    let found: Vec<_> = comments_of("a.rs", text).iter().flat_map(offences).collect();
    let expected = ["a.rs:2: begins with \"What\": What is counted.", "a.rs:7: \"anew\": It may end anew."];
    assert_eq!(found, expected);
    let text = format!("/// {}.", "word ".repeat(31).trim());
    assert!(offences(&comments_of("a.rs", &text)[0])[0].starts_with("a.rs:1: 31 words: word"));
}

#[test]
fn references_are_found() {
    let text = "See `docs/dev/rules.md`, \"Updates\", and docs/run.md (rules 3 and 7 or rule 12).";
    let expected = [("docs/dev/rules.md".to_owned(), Some("Updates".to_owned())), ("docs/run.md".to_owned(), None)];
    assert_eq!((references(text), numbered(text)), (expected.to_vec(), vec!["3".into(), "7".into(), "12".into()]));
}
