//! Reads enums and constants with their comments out of the source, as rustfmt writes it.

use crate::read;

/// A comment, by its paragraphs, and the line of code under it.
pub(super) struct Item {
    pub(super) paragraphs: Vec<String>,
    pub(super) code: String,
}

impl Item {
    /// The name, such as `Queued` of `Queued { position: usize },`.
    pub(super) fn name(&self) -> &str {
        self.code.split([' ', ',', '(', '{']).next().unwrap()
    }

    /// The rest of the paragraph with this beginning.
    pub(super) fn after(&self, beginning: &str) -> Option<String> {
        let found = self.paragraphs.iter().find_map(|paragraph| paragraph.strip_prefix(beginning))?;
        let mut letters = found.trim().chars();
        letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
    }
}

/// Every line of code in `text` with the comment above it.
///
/// Attributes are skipped.
pub(super) fn items(text: &str) -> Vec<Item> {
    let (mut items, mut paragraphs) = (Vec::new(), vec![String::new()]);
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            match comment.trim() {
                "" => paragraphs.push(String::new()),
                comment => {
                    let last = paragraphs.last_mut().unwrap();
                    *last = format!("{last} {comment}").trim().to_owned();
                }
            }
        } else if !line.starts_with("#[") && !line.is_empty() {
            items.push(Item {
                paragraphs: std::mem::replace(&mut paragraphs, vec![String::new()]),
                code: line.to_owned(),
            });
        }
    }
    items
}

/// The text between braces after `before`, at the indentation of that line.
pub(super) fn block<'a>(text: &'a str, before: &str) -> &'a str {
    let at = text.find(before).unwrap_or_else(|| panic!("there is no `{before}`"));
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let indentation: String = text[start..].chars().take_while(|c| *c == ' ').collect();
    let end = format!("\n{indentation}}}");
    let body = at + text[at..].find('{').unwrap() + 1;
    &text[body..body + text[body..].find(&end).unwrap_or_else(|| panic!("`{before}` has no end"))]
}

/// The variants of an enum of `messages!`, each with the code after `=>`.
pub(super) fn messages(path: &str, name: &str) -> Vec<(Item, String)> {
    let text = read(path).replace("=>\n        ", "=> ");
    let begins = text.find(&format!("pub enum {name}: ")).unwrap_or_else(|| panic!("{path} has no messages {name}"));
    let (_, body) = text[begins..].split_once(";\n").unwrap();
    let meaning = |item: &Item| item.code.split_once(" => ").unwrap().1.trim_end_matches(',').to_owned();
    let all = items(body.split("\n}\n").next().unwrap()).into_iter();
    all.map(|item| (meaning(&item), item)).map(|(meaning, item)| (item, meaning)).collect()
}
