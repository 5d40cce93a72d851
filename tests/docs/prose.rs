//! Pages, descriptions and messages follow docs/dev/STYLE.md, as far as a program can tell.

use std::fs;

use redlock_operator::api;

use super::{KUBERNETES, code_of, fields, pages, root, sources::sources};

/// Maximum number of characters of the first sentence of a comment.
const LONGEST_FIRST_LINE: usize = 100;

/// Maximum number of words of a sentence (docs/dev/STYLE.md, rule 2).
pub(crate) const LONGEST_SENTENCE: usize = 30;

/// Words that hide a missing actor or time (docs/dev/STYLE.md, rule 10).
const AVOIDED: [&str; 10] =
    ["shall", "anew", "somebody", "whoever", "nobody", "is over", "for ever", "in vain", "had better", "for want of"];

/// The words of [`AVOIDED`] in this text, and `may`.
///
/// Readers understand `may` as "perhaps" where it means "can".
pub(crate) fn avoided(text: &str) -> Vec<&'static str> {
    let text = format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '_', " "));
    AVOIDED.into_iter().chain(["may"]).filter(|word| text.contains(&format!(" {word} "))).collect()
}

/// The sentences of a paragraph.
///
/// Code between backticks counts as one word, and the target of a link as none.
pub(crate) fn sentences(text: &str) -> Vec<String> {
    let quoted = text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "CODE" });
    let text: String = quoted.collect();
    let (first, rest) = text.split_once("](").unwrap_or((&text, ""));
    let rest = rest.split("](").map(|part| part.split_once(')').map_or(part, |(_, after)| after));
    let text: String = [first].into_iter().chain(rest).collect();
    let mut found = vec![String::new()];
    for word in text.split_whitespace() {
        let sentence = found.last_mut().unwrap();
        sentence.push_str(if sentence.is_empty() { "" } else { " " });
        sentence.push_str(word);
        if word.trim_end_matches(['*', '"', ')', ']', '_']).ends_with(['.', '?', '!']) {
            found.push(String::new());
        }
    }
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// The number of words of a sentence.
///
/// Code that follows code, as in a list of names, does not count.
pub(crate) fn words(sentence: &str) -> usize {
    let is_code = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()) == "CODE";
    let words: Vec<_> = sentence.split_whitespace().collect();
    let counted = |at: usize| at == 0 || !is_code(words[at]) || !is_code(words[at - 1]);
    (0..words.len()).filter(|at| counted(*at)).count()
}

/// The lines before and after the figures of docs/performance.md.
const BENCH: &str = "<!-- written by make bench -->";
const END_OF_BENCH: &str = "<!-- end of what make bench has written -->";

/// Paragraphs, items and cells of a page, without code, headings and comments, each with its line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut in_code, mut continues) = (false, false);
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        // Figures that a program prints are not sentences.
        let is_fence = line.starts_with("```") || line.starts_with(BENCH) || line.starts_with(END_OF_BENCH);
        in_code ^= is_fence;
        if in_code || is_fence || line.is_empty() || line.starts_with("<!--") || line.starts_with('#') {
            continues = false;
        } else if let Some(row) = line.strip_prefix('|') {
            continues = false;
            found.extend(row.split('|').map(|cell| (at, cell.trim().to_owned())));
        } else {
            let number = line.split_once(". ").map(|(number, _)| number.parse::<u32>().is_ok());
            let begins = line.starts_with("- ") || number == Some(true);
            match found.last_mut().filter(|_| continues && !begins) {
                Some((_, text)) => *text = format!("{text} {line}"),
                None => found.push((at, line.to_owned())),
            }
            continues = true;
        }
    }
    found
}

#[test]
fn pages_have_short_sentences_and_no_hidden_actor() {
    // The style quotes the words that it forbids, and reference pages are printed from the code.
    let exempt = |page: &str| page.ends_with("STYLE.md") || page.starts_with("docs/reference");
    let mut bad = Vec::new();
    for (path, text) in pages() {
        let page = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if exempt(page) {
            continue;
        }
        for (line, paragraph) in paragraphs(&text) {
            for sentence in sentences(&paragraph) {
                let words = words(&sentence);
                if words > LONGEST_SENTENCE {
                    bad.push(format!("{page}:{line}: {words} words: {sentence}"));
                }
                bad.extend(avoided(&sentence).iter().map(|word| format!("{page}:{line}: {word:?}: {sentence}")));
            }
        }
    }
    assert!(bad.is_empty(), "{} offences:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn sentences_of_a_paragraph_are_counted_without_code_and_links() {
    let text = "One `a. b c` two. **Bold.** See [a page](x.md#y) (\"or\"). Last";
    assert_eq!(words(&sentences("It has `a`, `b` (`c`) and `d`.")[0]), 5);
    assert_eq!(sentences(text), ["One CODE two.", "**Bold.**", "See [a page (\"or\").", "Last"]);
    let page = "# Title\nOne\ntwo.\n\n```sh\nno\n```\n- item\n  goes.\n- next\n\n| a | b |\n";
    let found: Vec<_> = paragraphs(page).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect();
    assert_eq!(found, ["One two.", "- item goes.", "- next", "a", "b"]);
}

#[test]
fn descriptions_are_plain_and_their_sentences_are_short() {
    let mut found = Vec::new();
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        found.push((String::new(), schema["description"].as_str().unwrap().to_owned()));
        fields(schema, "", &mut found);
    }
    let mut bad = Vec::new();
    for (path, text) in found.iter().filter(|(path, _)| !KUBERNETES.iter().any(|of| path.contains(of))) {
        bad.extend(avoided(text).iter().map(|word| format!("{path}: {word:?} in {text:?}")));
        let long = sentences(text).into_iter().find(|text| words(text) > LONGEST_SENTENCE);
        bad.extend(long.map(|sentence| format!("{path}: more than {LONGEST_SENTENCE} words: {sentence}")));
    }
    assert!(bad.is_empty(), "{} offences:\n{}", bad.len(), bad.join("\n"));
}

/// Checks conditions, Events, errors and logs.
///
/// These are all texts between quotation marks in `src`, except in tests.
#[test]
fn messages_of_the_operator_name_their_actors() {
    let code = code_of(&["src", "crates/api/src", "crates/cli/src", "crates/client/src", "crates/engine/src"]);
    let product: String = code
        .split("#[cfg(test)]\nmod tests {")
        .enumerate()
        // A module of tests ends with the first brace at the beginning of a line.
        .map(|(index, part)| if index == 0 { part } else { part.split_once("\n}\n").map_or("", |(_, rest)| rest) })
        .collect();
    let messages = product.lines().filter(|line| !line.trim_start().starts_with("//") && !line.contains("assert"));
    let bad: Vec<_> = messages
        .flat_map(|line| line.split('"').skip(1).step_by(2).filter(|text| text.contains(' ')).map(str::to_owned))
        .filter(|text| avoided(text).iter().any(|word| *word != "may"))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Checks rule 9 of docs/dev/STYLE.md.
///
/// Comments of variants that are messages, and of the API, are printed on pages.
#[test]
fn the_first_line_of_a_comment_is_one_short_sentence() {
    let mut long = Vec::new();
    for path in ["src", "crates/cli/src"].into_iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut is_message = false;
        for (at, line) in lines.iter().enumerate() {
            is_message |= line.contains("displaydoc::Display");
            is_message &= *line != "}";
            let begins = at == 0 || !lines[at - 1].trim_start().starts_with("///");
            let next_is_message = || lines[at..].iter().take(6).any(|line| line.contains("displaydoc::Display"));
            let Some(comment) = line.trim().strip_prefix("/// ").filter(|_| begins && !is_message) else { continue };
            let sentence = comment.split(". ").next().unwrap();
            if sentence.chars().count() > LONGEST_FIRST_LINE && !next_is_message() {
                long.push(format!("{}:{}: {comment}", path.strip_prefix(root()).unwrap().display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "{} first lines are too long:\n{}", long.len(), long.join("\n"));
}
