//! Passwords and certificates of a running process.

use super::{AdminConnection, kill, kill_others};
use crate::redis_member::Secret;
use crate::redis_member::acl::{OPERATOR_USER, UserRule, set_operator_passwords};
use crate::redlock::MemberError;
use redis::{Pipeline, cmd};

/// The outcome of changing passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordChange {
    /// They are what they shall be.
    Changed,
    /// The epoch is another one: nothing was changed.
    EpochMoved,
}

impl AdminConnection {
    /// Gives the operator's user, and these of others, their passwords and leaves all else as it is; with `cut` the connections
    /// of these users end, all but this one, so that nobody stays who came with a password that is no longer accepted. Guarded by
    /// the epoch like opening.
    ///
    /// # Errors
    /// If there is no answer in time: they may or may not have them.
    pub async fn set_passwords(
        &mut self,
        epoch: i64,
        operator: &[Secret],
        users: &[UserRule],
        cut: bool,
    ) -> Result<PasswordChange, MemberError> {
        let set = |rules: Vec<String>| {
            let mut command = cmd("ACL");
            command.arg("SETUSER").arg(rules);
            command
        };
        let mut commands = vec![set(set_operator_passwords(operator))];
        commands.extend(users.iter().map(|user| set(user.set_passwords())));
        if cut {
            commands.extend(users.iter().map(|user| kill(user.name())));
            commands.push(kill_others());
        }
        Ok(if self.guarded(epoch, commands).await? { PasswordChange::Changed } else { PasswordChange::EpochMoved })
    }

    /// Has the process read its certificate and key again, from these paths of its own, for connections from now on. Those that
    /// are there stay.
    ///
    /// Nobody has CONFIG: the operator gives itself the one command for this one moment. Whoever may change users can do so
    /// anyway, and what is set does not outlive the process.
    ///
    /// # Errors
    /// If there is no answer in time, or the files are missing or do not belong together; then all is as it was.
    pub async fn reload_certificate(&mut self, certificate: &str, key: &str) -> Result<(), MemberError> {
        let rule = |rule| ["SETUSER", OPERATOR_USER, rule];
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ACL").arg(&rule("+config|set"));
        pipeline.cmd("CONFIG").arg(&["SET", "tls-cert-file", certificate, "tls-key-file", key]);
        pipeline.cmd("ACL").arg(&rule("-config|set"));
        self.ask_all(&pipeline).await.map(drop)
    }
}
