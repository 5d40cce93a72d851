//! The rights on a managed member: its ACL file, and the arguments of the `ACL SETUSER` that opens and closes users.
//!
//! Redis keeps ACL changes only in memory, so all users of a starting member are closed, whatever happened before
//! (redis.io/docs/latest/operate/oss_and_stack/management/security/acl). The file uses only commands of Redis 7.0, which does not start with
//! an unknown command.
//!
//! No user has the right to run ACL SAVE, ACL LOAD or CONFIG, because a saved open state would be open at the next start.

use sha2::{Digest, Sha256};

use super::Secret;
use crate::redlock::hex;

/// The client name of the operator's locking path.
pub(super) const LOCKER_CLIENT: &str = "locker";
/// The operator's own user on every member.
pub const OPERATOR_USER: &str = "operator";
/// The user of the kubelet's readiness probe.
///
/// It can run `ECHO` only while the member votes. So readiness follows admission, whatever the names of the other users are. It has a
/// password, so that other clients cannot log in with it, because Redis accepts larger requests after a login.
pub const PROBE_USER: &str = "probe";

/// The rights of a closed user.
///
/// With `off` instead Redisson cannot start, and node-redis never connects, while one member of three is fenced.
pub(super) const CLOSED: &str = "-@all +ping";
/// The rights of the operator's locking user.
const LOCKER: &str =
    "-@all +ping +info +evalsha +script|load +get +set +del +pexpire +pttl +time +type +client|no-evict +incr";
/// The rights of the locking user on an external master.
///
/// Each vote there is a script.
pub const EXTERNAL_RIGHTS: &str =
    "-@all +ping +info +evalsha +script|load +get +set +del +pexpire +pttl +time +type +client|no-evict";
/// The rights of Redlock libraries (docs/clients.md).
///
/// The first line is for all of them, and the second for LockExtend and LockRelease of StackExchange.Redis. The third is for Redisson,
/// whose locks are hashes and which notifies waiters by a channel. The selector allows only INCR on the token counter.
const CLIENT: &str = "-@all +ping +set +get +del +exists +pexpire +pttl +eval +evalsha +script|load \
    +expire +watch +multi +exec +unwatch \
    +hexists +hincrby +publish +subscribe +unsubscribe \
    (~#token resetchannels -@all +incr)";
/// The rights of a client that only reads: the value of a key, and its time to live.
const READER: &str = "-@all +ping +get +pttl";
/// The suffix of the names of users that only read.
const READER_SUFFIX: &str = "-read";
/// The rights of the readiness probe while its member votes.
const PROBE: &str = "-@all +ping +echo";
/// The rights of the operator's own user on a member.
///
/// It can run the commands of `admin.rs`. They read, change the operator's own keys and the users, and end other connections and scripts.
const OPERATOR: &str = "resetchannels ~#* -@all +ping +info +time +get +set +eval +watch +unwatch +multi +exec \
    +acl|setuser +acl|getuser +acl|deluser +client|kill +client|no-evict +script|kill";

/// The `ACL SETUSER` command for the operator's locking user on an external master.
///
/// `PASSWORD` is a placeholder.
pub fn external_user(name: &str) -> String {
    format!("ACL SETUSER {name} reset on >PASSWORD ~* resetchannels {EXTERNAL_RIGHTS}")
}

/// SHA-256 of a password, as Redis stores it: 64 hex characters.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// Hashes the password.
    pub fn of(password: &Secret) -> Self {
        Self(hex(&Sha256::digest(password.expose())))
    }
}

opaque!(PasswordHash);

/// The prefix of an external client's keys: `^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/$`.
///
/// Any other text could add rules to the ACL file, or reach keys of another client or of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPrefix(String);

impl KeyPrefix {
    /// Checks the text. `None` if it does not match.
    pub fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| {
            !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'))
        };
        text.strip_suffix('/').is_some_and(|prefix| prefix.split('/').all(part)).then(|| Self(text.to_owned()))
    }

    /// The text, with its final slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A user that is open only while its member can vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRule {
    name: String,
    pub(super) passwords: Vec<PasswordHash>,
    /// Keys and channels.
    scope: String,
    open: &'static str,
}

impl UserRule {
    fn new(name: String, password: &Secret, scope: String, open: &'static str) -> Self {
        Self { name, passwords: vec![PasswordHash::of(password)], scope, open }
    }

    /// The user of the operator's locking path, with all keys and the token counter.
    pub fn locker(epoch: i64, password: &Secret) -> Self {
        Self::new(Self::locker_name(epoch), password, "~* resetchannels".to_owned(), LOCKER)
    }

    /// The user of an external Redlock client, with only its prefix.
    ///
    /// Redisson has a channel for every lock, which its scripts use like a key. For a short time it also has a key with the result of a release.
    /// No lock has such a name, because lock keys have no braces.
    pub fn client(client: &str, epoch: i64, prefix: &KeyPrefix, password: &Secret) -> Self {
        let prefix = prefix.as_str();
        let channel = format!("redisson_lock__channel:{{{prefix}*");
        let scope = format!("~{prefix}* ~{channel} ~redisson_unlock_latch:{{{prefix}* resetchannels &{channel}");
        Self::new(Self::client_name(client, epoch), password, scope, CLIENT)
    }

    /// The user of an external client that only reads keys with its prefix.
    ///
    /// It cannot vote, so it has no membership epoch.
    pub fn reader(client: &str, prefix: &KeyPrefix, password: &Secret) -> Self {
        let scope = format!("%R~{}* resetchannels", prefix.as_str());
        Self::new(Self::reader_name(client), password, scope, READER)
    }

    /// The user of the kubelet's readiness probe.
    pub fn probe(password: &Secret) -> Self {
        Self::new(PROBE_USER.to_owned(), password, "resetkeys resetchannels".to_owned(), PROBE)
    }

    /// The same user with these passwords. Redis accepts each of them.
    pub fn accepting(self, passwords: &[Secret]) -> Self {
        Self { passwords: hashes(passwords), ..self }
    }

    /// `locker-e<epoch>`, the operator's user that votes.
    ///
    /// The name has the membership epoch, so that the operator can close the users of an old member list.
    pub fn locker_name(epoch: i64) -> String {
        Self::client_name(LOCKER_CLIENT, epoch)
    }

    /// Whether this is the operator's voting user of an epoch.
    pub fn is_locker(name: &str) -> bool {
        name.strip_prefix(LOCKER_CLIENT).is_some_and(|epoch| epoch.starts_with("-e"))
    }

    /// `<client>-e<epoch>`.
    pub fn client_name(client: &str, epoch: i64) -> String {
        format!("{client}-e{epoch}")
    }

    /// `<client>-read`.
    pub fn reader_name(client: &str) -> String {
        format!("{client}{READER_SUFFIX}")
    }

    /// The client and the epoch in the name of a user; `None` for a name without an epoch.
    pub fn split_name(user: &str) -> Option<(&str, i64)> {
        let (client, epoch) = user.rsplit_once("-e")?;
        Some((client, epoch.parse().ok()?))
    }

    /// The external client of a user; `None` for the operator's own users.
    pub fn client_of(user: &str) -> Option<&str> {
        match Self::split_name(user) {
            Some((client, _)) => Some(client).filter(|client| *client != LOCKER_CLIENT),
            None => user.strip_suffix(READER_SUFFIX),
        }
    }

    /// A removed user, of which only the name is known. The operator closes it by deleting it.
    pub fn removed(name: &str) -> Self {
        Self { name: name.to_owned(), passwords: Vec::new(), scope: "resetkeys resetchannels".to_owned(), open: CLOSED }
    }

    /// Whether no client can log in as this user.
    pub const fn is_removed(&self) -> bool {
        self.passwords.is_empty()
    }

    /// Whether none of the user's passwords is among these hashes.
    pub(super) fn has_none_of(&self, hashes: &[String]) -> bool {
        self.passwords.iter().all(|own| !hashes.contains(&own.0))
    }

    /// The Redis user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arguments of the `ACL SETUSER` that opens or closes the user, its name first.
    ///
    /// They define the user completely, so the result does not depend on the ACL file of the process.
    pub fn set_user(&self, open: bool) -> Vec<String> {
        let commands = if open { self.open } else { CLOSED };
        let login =
            if self.is_removed() { "off".to_owned() } else { format!("on {}", password_rules(&self.passwords)) };
        let rules = format!("{} reset {login} {} {commands}", self.name, self.scope);
        rules.split_whitespace().map(str::to_owned).collect()
    }
}

/// The arguments of the `ACL SETUSER` that replaces only a user's passwords.
pub(super) fn set_passwords(user: &str, passwords: &[PasswordHash]) -> Vec<String> {
    let rules = format!("{user} resetpass {}", password_rules(passwords));
    rules.split_whitespace().map(str::to_owned).collect()
}

/// The hashes in a fixed order, whichever password is in use.
pub(super) fn hashes(passwords: &[Secret]) -> Vec<PasswordHash> {
    let mut hashes: Vec<_> = passwords.iter().map(PasswordHash::of).collect();
    hashes.sort_by(|a, b| a.0.cmp(&b.0));
    hashes
}

fn password_rules(passwords: &[PasswordHash]) -> String {
    passwords.iter().map(|hash| format!("#{}", hash.0)).collect::<Vec<_>>().join(" ")
}

/// The text of `users.acl`, in which only the operator's user is open.
///
/// The `default` user is off, so a connection has no rights before its login.
pub fn users_acl(operator_passwords: &[Secret], users: &[UserRule]) -> String {
    let mut lines = vec![
        "user default off".to_owned(),
        format!("user {OPERATOR_USER} on {} {OPERATOR}", password_rules(&hashes(operator_passwords))),
    ];
    // A user in the file needs no `reset`, because it starts without rights.
    let closed = |user: &UserRule| format!("user {}", user.set_user(false).join(" ").replacen(" reset ", " ", 1));
    lines.extend(users.iter().map(closed));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_prefix_cannot_add_rules() {
        for good in ["shop/", "a/b/c/", "A-1_2.x/", "./", "../"] {
            assert!(KeyPrefix::parse(good).is_some(), "{good:?}");
        }
        let bad = [
            "", "/", "shop", "shop//", "/shop/", "x* ~/", "x* ~", "a b/", "a\n/", "a/\n", "shop/*/", "#token/", "ä/",
            "a:b/",
        ];
        for bad in bad {
            assert_eq!(KeyPrefix::parse(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_key_prefix_is_one_acl_pattern_of_its_own_keys(text in "\\PC{0,12}/?") {
            if let Some(prefix) = KeyPrefix::parse(&text) {
                prop_assert_eq!(prefix.as_str(), &text);
                prop_assert!(text.ends_with('/'));
                let special = |c: char| c.is_whitespace() || "*?[]#~%+()&>@|\\\"'".contains(c);
                prop_assert!(!text.contains(special));
            }
        }
    }

    #[test]
    fn every_user_starts_closed_and_no_password_is_readable() {
        let secret = Secret::new("s3cret");
        let prefix = KeyPrefix::parse("shop/").unwrap();
        let users =
            [UserRule::locker(7, &secret), UserRule::client("billing", 7, &prefix, &secret), UserRule::probe(&secret)];
        let text = users_acl(std::slice::from_ref(&secret), &users);
        assert!(!text.contains("s3cret"));
        assert!(text.starts_with("user default off\n") && text.ends_with('\n'));
        assert!(!text.contains("nopass"));
        for name in ["locker-e7", "billing-e7", PROBE_USER] {
            let line = text.lines().find(|line| line.starts_with(&format!("user {name} on #"))).unwrap();
            assert!(line.ends_with(" -@all +ping"), "{line}");
        }
        for forbidden in ["acl|save", "acl|load", "+config", "+@all", "flushall", "debug"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn the_client_is_derived_from_the_user_name() {
        for (client, epoch) in [("shop", 7), ("x-e1", 12), ("x-read", 1), ("a-e3-read", 2)] {
            assert_eq!(UserRule::client_of(&UserRule::client_name(client, epoch)), Some(client));
            assert_eq!(UserRule::client_of(&UserRule::reader_name(client)), Some(client));
        }
        for own in [OPERATOR_USER, PROBE_USER, "default", UserRule::locker_name(3).as_str()] {
            assert_eq!(UserRule::client_of(own), None, "{own}");
        }
    }

    #[test]
    fn a_password_is_stored_as_its_sha_256() {
        // printf abc | sha256sum
        let hash = PasswordHash::of(&Secret::new("abc"));
        assert_eq!(hash.0, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(!format!("{hash:?}").contains("ba78"));
    }
}
