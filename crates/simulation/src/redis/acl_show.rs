//! Users in the format of Redis 7.0.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::acl::{Selector, User};
use super::resp::Reply;
use super::table::{CATEGORIES, Command, TABLE};

impl User {
    /// The user's line in `ACL LIST`, after its name.
    pub(super) fn line(&self) -> String {
        let mut words: Vec<String> = self.flags().into_iter().map(str::to_owned).collect();
        words.extend(self.passwords.iter().map(|hash| format!("#{hash}")));
        words.push(self.root.line());
        words.extend(self.selectors.iter().map(|selector| format!("({})", selector.line())));
        words.join(" ")
    }

    fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.nopass {
            flags.push("nopass");
        }
        match self.sanitize {
            Some(true) => flags.push("sanitize-payload"),
            Some(false) => flags.push("skip-sanitize-payload"),
            None => {}
        }
        flags
    }

    /// The reply to `ACL GETUSER`.
    pub(super) fn fields(&self) -> Reply {
        let mut fields = vec![
            Reply::text("flags"),
            Reply::texts(self.flags()),
            Reply::text("passwords"),
            Reply::texts(&self.passwords),
        ];
        fields.extend(self.root.fields());
        fields.push(Reply::text("selectors"));
        fields.push(Reply::Array(self.selectors.iter().map(|selector| Reply::Array(selector.fields())).collect()));
        Reply::Array(fields)
    }
}

impl Selector {
    fn fields(&self) -> Vec<Reply> {
        let channels: Vec<String> = self.channels.iter().map(|channel| format!("&{channel}")).collect();
        let channels = if self.all_channels { "&*".to_owned() } else { channels.join(" ") };
        vec![
            Reply::text("commands"),
            Reply::text(self.commands()),
            Reply::text("keys"),
            Reply::text(self.keys()),
            Reply::text("channels"),
            Reply::text(channels),
        ]
    }

    fn line(&self) -> String {
        let mut words = vec![self.keys()];
        if self.all_channels {
            words.push("&*".to_owned());
        } else {
            words.push("resetchannels".to_owned());
            words.extend(self.channels.iter().map(|channel| format!("&{channel}")));
        }
        words.push(self.commands());
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    fn keys(&self) -> String {
        if self.all_keys {
            return "~*".to_owned();
        }
        let one = |key: &super::acl::KeyPattern| match (key.access.reads, key.access.writes) {
            (true, false) => format!("%R~{}", key.pattern),
            (false, true) => format!("%W~{}", key.pattern),
            _ => format!("~{}", key.pattern),
        };
        self.keys.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// The command rules, from a cache.
    ///
    /// The text depends only on the commands, and replicas request it four times a second.
    fn commands(&self) -> String {
        thread_local! {
            static COMMANDS_OF_USERS: RefCell<BTreeMap<(bool, Vec<bool>), String>> = const { RefCell::new(BTreeMap::new()) };
        }
        let commands = (self.future, self.commands.clone());
        COMMANDS_OF_USERS.with_borrow_mut(|known| known.entry(commands).or_insert_with(|| self.find_commands()).clone())
    }

    /// Derives command rules like Redis, which keeps no list of them.
    ///
    /// It finds the categories that fit best, and adds the remaining commands.
    fn find_commands(&self) -> String {
        let adds = !self.future;
        let sign = if adds { '+' } else { '-' };
        let mut words = vec![if adds { "-@all" } else { "+@all" }.to_owned()];
        let mut derived = Self::default();
        derived.set_all(!adds);
        let mut left = self.clone();
        let mut used = Vec::new();
        while let Some(best) = left.best_category(adds, &used) {
            words.push(format!("{sign}@{best}"));
            derived.set_category(best, adds);
            left.set_category(best, !adds);
            used.push(best);
        }
        for command in TABLE.commands.iter().filter(|command| !command.is_subcommand()) {
            self.show_difference(command, &mut derived, &mut words);
            for id in &command.subcommands {
                self.show_difference(&TABLE.commands[*id], &mut derived, &mut words);
            }
        }
        words.join(" ")
    }

    fn show_difference(&self, command: &Command, derived: &mut Self, words: &mut Vec<String>) {
        let allowed = self.commands[command.id];
        if derived.commands[command.id] != allowed {
            words.push(format!("{}{}", if allowed { '+' } else { '-' }, command.name));
            derived.set_command(command, allowed);
        }
    }

    fn best_category(&self, adds: bool, used: &[&str]) -> Option<&'static str> {
        let mut best: Option<(usize, usize, &'static str)> = None;
        for category in CATEGORIES.into_iter().filter(|category| !used.contains(category)) {
            let in_it = || TABLE.commands.iter().filter(|command| command.is_in(category));
            let same = in_it().filter(|command| self.commands[command.id] == adds).count();
            let different = in_it().count() - same;
            let better = best.is_none_or(|(least, most, _)| different < least || (different == least && same > most));
            if same > different && better {
                best = Some((different, same, category));
            }
        }
        best.map(|(_, _, category)| category)
    }
}
