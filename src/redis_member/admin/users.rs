//! All users of a process, those among them that the operator has not made: their names, their closing, and their passwords.

use redis::{Cmd, Pipeline, Value, cmd};

use super::{AdminConnection, GuardedOutcome, acl, field, is_open, kill, kill_others, set_user};
use crate::redis_member::acl::{CLOSED, OPERATOR_USER, UserRule, set_operator_passwords};
use crate::redis_member::{Secret, wire};
use crate::redlock::MemberError;

/// No client logs in as this one: it is off in the ACL file, and only the operator changes users.
const DEFAULT_USER: &str = "default";

/// The users of a process, but for the operator's own and `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// All of them.
    pub names: Vec<String>,
    /// Users with more rights than a closed one.
    pub open: Vec<String>,
}

impl Users {
    /// The highest membership epoch that one of them carries.
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

    /// Those of these users that the process has already, with other passwords only.
    pub(super) async fn of_others<'u>(&mut self, users: &'u [UserRule]) -> Result<Vec<&'u str>, MemberError> {
        let states = self.states(users.iter().map(UserRule::name)).await?;
        let others = users.iter().zip(&states).filter(|(user, state)| {
            let Some(Value::Array(hashes)) = field(state, "passwords") else { return false };
            user.knows_none_of(&hashes.iter().filter_map(wire::text).collect::<Vec<_>>())
        });
        Ok(others.map(|(user, _)| user.name()).collect())
    }

    /// Closes users like [`AdminConnection::close`], and others of whom only the name is known.
    ///
    /// # Errors
    /// If there is no answer in time: it is unknown whether the users are closed.
    pub async fn close_all(
        &mut self,
        epoch: i64,
        users: &[UserRule],
        others: &[String],
    ) -> Result<GuardedOutcome, MemberError> {
        // A user that is closed and kept takes memory, and room in the answer about all users, for as long as the process lives.
        let close = |user: &UserRule| match user.is_removed() {
            true => acl("DELUSER", user.name()),
            false => set_user(user, false),
        };
        let mut rules: Vec<Cmd> = users.iter().map(close).collect();
        let strangers = others.iter().filter(|name| users.iter().all(|user| user.name() != *name));
        let closed = ["clearselectors"].into_iter().chain(CLOSED.split(' ')).collect::<Vec<_>>();
        rules.extend(strangers.map(|name| acl("SETUSER", [&[name.as_str()], &*closed].concat())));
        rules.push(kill_others());
        self.guarded(epoch, rules).await
    }

    /// Gives the operator's user, and these of others, their passwords and leaves all else as it is.
    ///
    /// With `cut` the connections of these users end, all but this one. So no client stays connected with a password
    /// that is no longer accepted. Guarded by the epoch like opening.
    ///
    /// # Errors
    /// If there is no answer in time: it is unknown whether the users have them.
    pub async fn set_passwords(
        &mut self,
        epoch: i64,
        operator: &[Secret],
        users: &[UserRule],
        cut: bool,
    ) -> Result<GuardedOutcome, MemberError> {
        let mut commands = vec![acl("SETUSER", set_operator_passwords(operator))];
        commands.extend(users.iter().map(|user| acl("SETUSER", user.set_passwords())));
        if cut {
            commands.extend(users.iter().map(|user| kill(user.name())));
            commands.push(kill_others());
        }
        self.guarded(epoch, commands).await
    }

    /// Has the process read its certificate and key again, from these paths of its own.
    ///
    /// They count for connections from now on, and those that are there stay.
    ///
    /// The setting ends with the process.
    ///
    /// # Errors
    /// If there is no answer in time, or the files are missing or do not belong together; then all is as it was.
    pub async fn reload_certificate(&mut self, certificate: &str, key: &str) -> Result<(), MemberError> {
        let mut set = cmd("CONFIG");
        set.arg(&["SET", "tls-cert-file", certificate, "tls-key-file", key]);
        self.with_right("config|set", set).await.map(drop)
    }

    /// Sends a command for which no user has the right. The operator grants itself that right for the moment.
    ///
    /// A user that can change users can do so anyway.
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
        if pipeline.is_empty() { Ok(Vec::new()) } else { self.ask_all(&pipeline).await }
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
