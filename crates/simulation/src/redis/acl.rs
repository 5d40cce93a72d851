//! Users of Redis and their permissions.

use super::glob;
use super::table::{Access, Command, TABLE};

/// Permitted commands with keys and channels.
///
/// A user has one selector, and can have more.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    /// Whether each command is permitted, by its number.
    pub(super) commands: Vec<bool>,
    /// Whether commands of later Redis versions are permitted, as by `+@all`.
    pub(super) future: bool,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyPattern {
    pub(super) pattern: String,
    pub(super) access: Access,
}

#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) enabled: bool,
    pub(super) nopass: bool,
    /// `sanitize-payload`, `skip-sanitize-payload`, or neither.
    pub(super) sanitize: Option<bool>,
    /// SHA-256 digests, in hexadecimal digits.
    pub(super) passwords: Vec<String>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
}

/// The reason of a refusal.
///
/// Redis checks the command, then the keys, then the channels. With several selectors, it reports the reason of the
/// selector that passed the most checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    Command,
    Key,
    Channel,
}

impl Default for Selector {
    fn default() -> Self {
        Self {
            commands: vec![false; TABLE.commands.len()],
            future: false,
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }
}

impl Selector {
    pub(super) fn set_all(&mut self, allowed: bool) {
        self.commands.fill(allowed);
        self.future = allowed;
    }

    /// Permits or denies a command with its subcommands.
    pub(super) fn set_command(&mut self, command: &Command, allowed: bool) {
        self.commands[command.id] = allowed;
        for id in &command.subcommands {
            self.commands[*id] = allowed;
        }
    }

    pub(super) fn set_category(&mut self, category: &str, allowed: bool) {
        for command in TABLE.commands.iter().filter(|command| command.is_in(category)) {
            self.set_command(command, allowed);
        }
    }

    fn check(&self, command: &Command, request: &[Vec<u8>]) -> Result<(), Refusal> {
        if !self.commands[command.id] && !command.has("no_auth") {
            return Err(Refusal::Command);
        }
        if !self.all_keys && !command.keys_of(request).iter().all(|(key, access)| self.can_use(key, *access)) {
            return Err(Refusal::Key);
        }
        let mut channels = channels_of(command.name, request).iter();
        let own = |channel: &[u8]| self.channels.iter().any(|pattern| glob::matches(pattern.as_bytes(), channel));
        if !self.all_channels && !channels.all(|channel| own(channel)) {
            return Err(Refusal::Channel);
        }
        Ok(())
    }

    fn can_use(&self, key: &[u8], access: Access) -> bool {
        let enough = |allowed: Access| (!access.reads || allowed.reads) && (!access.writes || allowed.writes);
        self.keys.iter().any(|one| enough(one.access) && glob::matches(one.pattern.as_bytes(), key))
    }
}

fn channels_of<'r>(command: &str, request: &'r [Vec<u8>]) -> &'r [Vec<u8>] {
    match command {
        "publish" => &request[1..2],
        "subscribe" => &request[1..],
        _ => &[],
    }
}

impl User {
    /// A user as `ACL SETUSER` creates it: without permissions.
    pub(super) fn new() -> Self {
        Self {
            enabled: false,
            nopass: false,
            sanitize: None,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// The default user of a server without an ACL file.
    pub(super) fn everything() -> Self {
        let mut user = Self { enabled: true, nopass: true, ..Self::new() };
        user.root.set_all(true);
        user.root.all_keys = true;
        user.root.all_channels = true;
        user
    }

    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        self.enabled && (self.nopass || self.passwords.contains(&super::rules::hash(password)))
    }

    pub(super) fn check(&self, command: &Command, request: &[Vec<u8>]) -> Result<(), Refusal> {
        let mut refusal = None;
        for selector in std::iter::once(&self.root).chain(&self.selectors) {
            match selector.check(command, request) {
                Ok(()) => return Ok(()),
                Err(refused) => refusal = refusal.max(Some(refused)),
            }
        }
        Err(refusal.unwrap_or(Refusal::Command))
    }
}

impl Refusal {
    /// The error of a command.
    pub(super) fn to_command(self, name: &str) -> String {
        match self {
            Self::Command => format!("NOPERM this user has no permissions to run the '{name}' command"),
            Self::Key => "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned(),
            Self::Channel => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
            }
        }
    }

    /// The error in a script.
    pub(super) fn to_script(self) -> String {
        let what = match self {
            Self::Command => "run this command or subcommand",
            Self::Key => "access at least one of the keys mentioned in the command arguments",
            Self::Channel => "publish to the channel mentioned in the command",
        };
        format!("ERR The user executing the script can't {what}")
    }

    /// The error of a queued command that is no longer allowed.
    pub(super) fn to_exec(self) -> String {
        let what = match self {
            Self::Command => "no permission to execute the command or subcommand",
            Self::Key => "no permission to touch the specified keys",
            Self::Channel => "no permission to access one of the channels used as arguments to the command",
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {what}"
        )
    }
}
