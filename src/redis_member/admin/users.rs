//! All users of a process, including those of other programs: their names, their closing, and their passwords.

use redis::{Cmd, Pipeline, Value, cmd};

use super::{ActError, AdminConnection, acl, field, is_open, kill};
use crate::redis_member::acl::{CLOSED, OPERATOR_USER, UserRule, hashes, set_passwords};
use crate::redis_member::{Secret, wire};
use crate::redlock::MemberError;

/// The user of a connection before its login.
///
/// It is off in the ACL file, and only the operator changes users. So no client can log in as this user.
const DEFAULT_USER: &str = "default";

/// The users of a process, without the operator's own user and `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// The names of all these users.
    pub names: Vec<String>,
    /// Users with more rights than a closed one.
    pub open: Vec<String>,
}

impl Users {
    /// The highest membership epoch in the names.
    pub fn highest_epoch(&self) -> Option<i64> {
        self.names.iter().filter_map(|name| UserRule::split_name(name)).map(|(_, epoch)| epoch).max()
    }
}

impl AdminConnection {
    /// Reads all users.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn users(&mut self) -> Result<Users, MemberError> {
        let Value::Array(listed) = self.with_right("acl|users", acl("USERS", Vec::<&str>::new())).await? else {
            return Err(wire::unexpected());
        };
        let names: Option<Vec<String>> = listed.iter().map(wire::text).collect();
        let mut names = names.ok_or_else(wire::unexpected)?;
        names.retain(|name| ![OPERATOR_USER, DEFAULT_USER].contains(&name.as_str()));
        let states = self.states(names.iter().map(String::as_str)).await?;
        let open = names.iter().zip(&states).filter(|(_, state)| is_open(state)).map(|(name, _)| name.clone());
        Ok(Users { open: open.collect(), names })
    }

    /// The users that already exist on the process, but only with other passwords.
    pub(super) async fn of_others<'u>(&mut self, users: &'u [UserRule]) -> Result<Vec<&'u str>, MemberError> {
        let states = self.states(users.iter().map(UserRule::name)).await?;
        let others = users.iter().zip(&states).filter(|(user, state)| {
            let Some(Value::Array(hashes)) = field(state, "passwords") else { return false };
            user.has_none_of(&hashes.iter().filter_map(wire::text).collect::<Vec<_>>())
        });
        Ok(others.map(|(user, _)| user.name()).collect())
    }

    /// Closes users like [`AdminConnection::close`], and other users of which only the name is known.
    ///
    /// # Errors
    /// If there is no answer in time. Then it is unknown whether the users are closed.
    pub async fn close_all(&mut self, epoch: i64, users: &[UserRule], others: &[String]) -> Result<(), ActError> {
        // A closed user takes memory, and space in the list of all users, until the process ends. So this deletes a removed user.
        let close = |user: &UserRule| match user.is_removed() {
            true => acl("DELUSER", user.name()),
            false => acl("SETUSER", user.set_user(false)),
        };
        let mut rules: Vec<Cmd> = users.iter().map(close).collect();
        let strangers = others.iter().filter(|name| users.iter().all(|user| user.name() != *name));
        let closed = ["clearselectors"].into_iter().chain(CLOSED.split(' ')).collect::<Vec<_>>();
        rules.extend(strangers.map(|name| acl("SETUSER", [&[name.as_str()], &*closed].concat())));
        rules.push(kill(OPERATOR_USER));
        self.guarded(epoch, rules).await
    }

    /// Replaces the passwords of the operator's user and of these users.
    ///
    /// It changes nothing if the member no longer has this epoch. With `cut` it also ends all connections of these users, except this one. So no
    /// client stays connected with a password that is no longer accepted.
    ///
    /// # Errors
    /// If there is no answer in time. Then it is unknown whether the users have the passwords.
    pub async fn set_passwords(
        &mut self,
        epoch: i64,
        operator: &[Secret],
        users: &[UserRule],
        cut: bool,
    ) -> Result<(), ActError> {
        let mut commands = vec![acl("SETUSER", set_passwords(OPERATOR_USER, &hashes(operator)))];
        commands.extend(users.iter().map(|user| acl("SETUSER", set_passwords(user.name(), &user.passwords))));
        if cut {
            commands.extend(users.iter().map(|user| kill(user.name())));
            commands.push(kill(OPERATOR_USER));
        }
        self.guarded(epoch, commands).await
    }

    /// Makes the process read its certificate and key again, from these paths of its file system.
    ///
    /// The process uses them for new connections. Existing connections stay open. The setting ends with the process.
    ///
    /// # Errors
    /// If there is no answer in time. If the files are missing or do not match, the old certificate stays in use.
    pub async fn reload_certificate(&mut self, certificate: &str, key: &str) -> Result<(), MemberError> {
        let mut set = cmd("CONFIG");
        set.arg(&["SET", "tls-cert-file", certificate, "tls-key-file", key]);
        self.with_right("config|set", set).await.map(drop)
    }

    /// Sends a command that no user has the right to run.
    ///
    /// The operator grants itself the right for this command, and removes it afterwards. A user that can change users always has this ability.
    async fn with_right(&mut self, right: &str, command: Cmd) -> Result<Value, MemberError> {
        let rule = |sign: char| acl("SETUSER", vec![OPERATOR_USER.to_owned(), format!("{sign}{right}")]);
        let mut pipeline = Pipeline::new();
        pipeline.add_command(rule('+')).add_command(command).add_command(rule('-'));
        self.ask_all(&pipeline).await?.into_iter().nth(1).ok_or_else(wire::unexpected)
    }

    /// The answers to `ACL GETUSER`, one for each of these users.
    async fn states<'u>(&mut self, users: impl Iterator<Item = &'u str>) -> Result<Vec<Value>, MemberError> {
        let mut pipeline = Pipeline::new();
        for user in users {
            pipeline.add_command(acl("GETUSER", user));
        }
        self.ask_all(&pipeline).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_epoch_is_that_of_any_user() {
        let of = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Users { names, open: Vec::new() }.highest_epoch()
        };
        assert_eq!(of(&["probe", "locker-e7", "billing-e12", "x-e1-e3"]), Some(12));
        assert_eq!(of(&["probe", "a-eb"]), None);
    }
}
