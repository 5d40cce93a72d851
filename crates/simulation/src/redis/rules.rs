//! The rules of `ACL SETUSER`, and of a line of the ACL file.

use super::acl::{KeyPattern, Selector, User};
use super::table::{Access, CATEGORIES, TABLE};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";
const KEY_AFTER_ALL: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
    any effect. Try 'resetkeys' to start with an empty list of patterns";
const CHANNEL_AFTER_ALL: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
    not have any effect. Try 'resetchannels' to start with an empty list of channels";

/// SHA-256 in the format of Redis.
pub(super) fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The user after the rules, or the error of the first invalid rule.
///
/// An error changes nothing.
pub(super) fn apply(user: &User, rules: &[String]) -> Result<User, String> {
    let mut user = user.clone();
    for rule in merge(rules)? {
        set_user(&mut user, &rule).map_err(|why| format!("ERR Error in ACL SETUSER modifier '{rule}': {why}"))?;
    }
    Ok(user)
}

/// The users of an ACL file: `user <name> <rules>` in each line.
pub(super) fn users(text: &str) -> Result<BTreeMap<String, User>, String> {
    let mut users = BTreeMap::from([("default".to_owned(), User::everything())]);
    let mut named = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let [keyword, name, rules @ ..] = &words[..] else { return Err(format!("no user: {line}")) };
        if keyword != "user" || named.contains(name) {
            return Err(format!("neither a user nor its only line: {line}"));
        }
        named.push(name.clone());
        users.insert(name.clone(), apply(&User::new(), rules)?);
    }
    Ok(users)
}

/// Joins the words of a selector.
///
/// It can be one argument or several.
fn merge(rules: &[String]) -> Result<Vec<String>, String> {
    let mut merged = Vec::new();
    let mut open: Option<String> = None;
    for rule in rules {
        let whole = match open.take() {
            Some(begun) => format!("{begun} {rule}"),
            None => rule.clone(),
        };
        if whole.starts_with('(') && !whole.ends_with(')') {
            open = Some(whole);
        } else {
            merged.push(whole);
        }
    }
    match open {
        Some(begun) => {
            let first = begun.split(' ').next().unwrap_or_default();
            Err(format!("ERR Unmatched parenthesis in acl selector starting at '{first}'."))
        }
        None => Ok(merged),
    }
}

fn set_user(user: &mut User, rule: &str) -> Result<(), &'static str> {
    match rule.to_ascii_lowercase().as_str() {
        "" => {}
        "on" => user.enabled = true,
        "off" => user.enabled = false,
        "nopass" => {
            user.nopass = true;
            user.passwords.clear();
        }
        "resetpass" => {
            user.nopass = false;
            user.passwords.clear();
        }
        "sanitize-payload" => user.sanitize = Some(true),
        "skip-sanitize-payload" => user.sanitize = Some(false),
        "clearselectors" => user.selectors.clear(),
        "reset" => *user = User { sanitize: Some(true), ..User::new() },
        _ if rule.starts_with(['>', '#', '<', '!']) => set_password(user, rule)?,
        _ if rule.starts_with('(') && rule.ends_with(')') => {
            let mut selector = Selector::default();
            for rule in rule[1..rule.len() - 1].split(' ').filter(|rule| !rule.is_empty()) {
                set_selector(&mut selector, rule)?;
            }
            user.selectors.push(selector);
        }
        _ => set_selector(&mut user.root, rule)?,
    }
    Ok(())
}

fn set_password(user: &mut User, rule: &str) -> Result<(), &'static str> {
    let (kind, text) = rule.split_at(1);
    let hash = if matches!(kind, ">" | "<") { hash(text.as_bytes()) } else { text.to_owned() };
    if hash.len() != 64 || !hash.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c)) {
        return Err(
            "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
        );
    }
    if matches!(kind, ">" | "#") {
        if !user.passwords.contains(&hash) {
            user.passwords.push(hash);
        }
        user.nopass = false;
    } else {
        let position = user.passwords.iter().position(|known| *known == hash);
        let missing = "The password you are trying to remove from the user does not exist";
        user.passwords.remove(position.ok_or(missing)?);
    }
    Ok(())
}

fn set_selector(selector: &mut Selector, rule: &str) -> Result<(), &'static str> {
    match rule.to_ascii_lowercase().as_str() {
        "allkeys" | "~*" => {
            selector.all_keys = true;
            selector.keys.clear();
        }
        "resetkeys" => {
            selector.all_keys = false;
            selector.keys.clear();
        }
        "allchannels" | "&*" => {
            selector.all_channels = true;
            selector.channels.clear();
        }
        "resetchannels" => {
            selector.all_channels = false;
            selector.channels.clear();
        }
        "allcommands" | "+@all" => selector.set_all(true),
        "nocommands" | "-@all" => selector.set_all(false),
        lower => match rule.as_bytes()[0] {
            b'~' => add_keys(selector, &rule[1..], Access { reads: true, writes: true })?,
            b'%' => {
                // A missing pattern is an empty one.
                let (flags, pattern) = lower[1..].split_once('~').unwrap_or((&lower[1..], ""));
                let access = Access { reads: flags.contains('r'), writes: flags.contains('w') };
                if !matches!(flags, "r" | "w" | "rw" | "wr") {
                    return Err(SYNTAX);
                }
                add_keys(selector, &rule[rule.len() - pattern.len()..], access)?;
            }
            b'&' => {
                let pattern = &rule[1..];
                if selector.all_channels {
                    return Err(CHANNEL_AFTER_ALL);
                }
                if !selector.channels.iter().any(|known| known == pattern) {
                    selector.channels.push(pattern.to_owned());
                }
            }
            sign @ (b'+' | b'-') => set_commands(selector, &lower[1..], sign == b'+')?,
            _ => return Err(SYNTAX),
        },
    }
    Ok(())
}

fn add_keys(selector: &mut Selector, pattern: &str, access: Access) -> Result<(), &'static str> {
    if selector.all_keys {
        return Err(KEY_AFTER_ALL);
    }
    if pattern.contains([' ', '\0']) {
        return Err(SYNTAX);
    }
    if let Some(known) = selector.keys.iter_mut().find(|known| known.pattern == pattern) {
        known.access.reads |= access.reads;
        known.access.writes |= access.writes;
    } else {
        selector.keys.push(KeyPattern { pattern: pattern.to_owned(), access });
    }
    Ok(())
}

/// Permits or denies a command.
///
/// `+command|argument` of a command without subcommands is not modelled.
fn set_commands(selector: &mut Selector, name: &str, allowed: bool) -> Result<(), &'static str> {
    match name.strip_prefix('@') {
        Some(category) if CATEGORIES.contains(&category) => selector.set_category(category, allowed),
        Some(_) => return Err(UNKNOWN),
        None => selector.set_command(TABLE.find(name).ok_or(UNKNOWN)?, allowed),
    }
    Ok(())
}
