//! The command table of Redis 7.0.15 (`COMMAND`), from `commands.txt`.
//!
//! It has name, arity, flags, ACL categories and key positions of each command. Permissions cover all commands,
//! including those that are not modelled.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The categories, in the order of Redis.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// How a command uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

#[derive(Debug)]
enum Position {
    /// The keys from the first to the last one, by steps. A negative last position counts from the end.
    Range { last: i64, step: usize },
    /// An argument contains the number of keys.
    Counted { number: usize, first: usize, step: usize },
}

#[derive(Debug)]
struct Keys {
    access: Access,
    /// SET reads the key if it returns the old value.
    variable: bool,
    begin: usize,
    position: Position,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: usize,
    /// The name, such as `acl|setuser` for a subcommand.
    pub(super) name: &'static str,
    arity: i64,
    flags: Vec<&'static str>,
    categories: Vec<&'static str>,
    keys: Vec<Keys>,
    pub(super) subcommands: Vec<usize>,
}

pub(super) struct Table {
    pub(super) commands: Vec<Command>,
    by_name: BTreeMap<&'static str, usize>,
}

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

impl Command {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub(super) fn is_in(&self, category: &str) -> bool {
        self.categories.contains(&category)
    }

    pub(super) fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }

    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap();
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// The keys of a request, and how the command uses them.
    pub(super) fn keys_of<'r>(&self, request: &'r [Vec<u8>]) -> Vec<(&'r [u8], Access)> {
        let mut found = Vec::new();
        for keys in &self.keys {
            let mut access = keys.access;
            if keys.variable {
                access.reads = request.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET"));
            }
            for position in keys.positions(request) {
                if let Some(key) = request.get(position) {
                    found.push((key.as_slice(), access));
                }
            }
        }
        found
    }
}

impl Keys {
    fn positions(&self, request: &[Vec<u8>]) -> Vec<usize> {
        match self.position {
            Position::Range { last, step } => {
                let last = if last < 0 {
                    usize::try_from(i64::try_from(request.len()).unwrap() + last).unwrap_or(0)
                } else {
                    self.begin + usize::try_from(last).unwrap()
                };
                (self.begin..=last).step_by(step).collect()
            }
            Position::Counted { number, first, step } => {
                let count = request.get(self.begin + number).and_then(|count| super::number::integer(count));
                let count = usize::try_from(count.unwrap_or(0)).unwrap_or(0);
                let first = self.begin + first;
                // If there are more keys than arguments, the command itself refuses.
                if count > request.len().saturating_sub(first) {
                    return Vec::new();
                }
                (first..first + count * step).step_by(step).collect()
            }
        }
    }
}

impl Table {
    fn read() -> Self {
        let mut commands: Vec<Command> = Vec::new();
        let mut by_name = BTreeMap::new();
        for (id, line) in include_str!("commands.txt").lines().enumerate() {
            let words: Vec<&'static str> = line.split(' ').collect();
            let [name, arity, flags, categories, keys] = words[..] else { panic!("commands.txt: {line}") };
            let list = |text: &'static str| text.split(',').filter(|word| *word != "-").collect();
            // Ways to find keys that no modelled command uses are left out.
            let keys = keys.split(';').filter(|keys| !matches!(*keys, "-" | "?")).map(read_keys).collect();
            commands.push(Command {
                id,
                name,
                arity: arity.parse().unwrap(),
                flags: list(flags),
                categories: list(categories),
                keys,
                subcommands: Vec::new(),
            });
            by_name.insert(name, id);
            if let Some((container, _)) = name.split_once('|') {
                let container: usize = by_name[container];
                commands[container].subcommands.push(id);
            }
        }
        Self { commands, by_name }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Command> {
        self.by_name.get(name.to_ascii_lowercase().as_str()).map(|id| &self.commands[*id])
    }

    /// The command of a request, or the error if there is none.
    pub(super) fn of(&self, request: &[Vec<u8>]) -> Result<&Command, String> {
        let word = |at: usize| request.get(at).map(|word| String::from_utf8_lossy(word).into_owned());
        let name = word(0).unwrap_or_default();
        let Some(command) = self.find(&name).filter(|command| !command.is_subcommand()) else {
            let arguments: String =
                request.iter().skip(1).map(|word| format!("'{}' ", String::from_utf8_lossy(word))).collect();
            return Err(format!("ERR unknown command '{name}', with args beginning with: {arguments}"));
        };
        let command = match word(1).filter(|_| !command.subcommands.is_empty()) {
            Some(sub) => self.find(&format!("{name}|{sub}")).ok_or_else(|| {
                format!("ERR unknown subcommand '{sub}'. Try {} HELP.", command.name.to_ascii_uppercase())
            })?,
            None => command,
        };
        if !command.takes(request.len()) {
            return Err(format!("ERR wrong number of arguments for '{}' command", command.name));
        }
        Ok(command)
    }
}

/// Parses `rw@1:-1:1` (begin, last, step) or `rw@2#0:1:1` (begin, position of the number, first, step).
fn read_keys(text: &'static str) -> Keys {
    let (access, place) = text.split_once('@').unwrap();
    let number = |text: &str| text.parse::<i64>().unwrap();
    let small = |text: &str| text.parse::<usize>().unwrap();
    let (begin, rest) = place.split_once([':', '#']).unwrap();
    let rest: Vec<&str> = rest.split(':').collect();
    let position = match rest[..] {
        [last, step] => Position::Range { last: number(last), step: small(step) },
        [counted, first, step] => Position::Counted { number: small(counted), first: small(first), step: small(step) },
        _ => panic!("commands.txt: {text}"),
    };
    Keys {
        access: Access { reads: access.contains('r'), writes: access.contains('w') },
        variable: access.contains('v'),
        begin: small(begin),
        position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_table_gives_the_keys_of_a_request() {
        for (text, keys) in [
            ("SET k v", &[("k", false, true)][..]),
            ("SET k v GET", &[("k", true, true)]),
            ("DEL a b", &[("a", false, true), ("b", false, true)]),
            ("EVAL s 2 a b c", &[("a", true, true), ("b", true, true)]),
            ("EVALSHA s 0 a", &[]),
            ("EVALSHA s 9 a", &[]),
            ("WATCH a", &[("a", false, false)]),
            ("PING", &[]),
        ] {
            let request = request(text);
            let found = TABLE.of(&request).unwrap().keys_of(&request);
            let found: Vec<_> =
                found.iter().map(|(key, a)| (std::str::from_utf8(key).unwrap(), a.reads, a.writes)).collect();
            assert_eq!(found, keys, "{text}");
        }
    }
}
