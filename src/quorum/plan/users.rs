//! The Redis users of a quorum: which there are in a membership epoch, and which are open on a member when.

use super::Plan;
use crate::api::RedisQuorum;
use crate::quorum::auth::Auth;
use crate::quorum::membership::{Lists, users_since};
use crate::redis_member::acl::{PROBE_USER, UserRule};

impl Plan {
    /// The users of this epoch that can vote on a member, with its own passwords: the operator's first, then the clients'.
    #[must_use]
    pub fn user_rules(&self, auth: &Auth, member: &str) -> Vec<UserRule> {
        self.user_rules_of(auth, member, self.lists.epoch)
    }

    fn user_rules_of(&self, auth: &Auth, member: &str, epoch: i64) -> Vec<UserRule> {
        let password = |user: &str| auth.password(member, user);
        let clients = self
            .clients
            .iter()
            .map(|client| UserRule::client(&client.name, epoch, &client.key_prefix, &password(&client.user(epoch))));
        let accepting = |rule: UserRule| {
            let accepted = auth.accepted(member, rule.name());
            rule.accepting(&accepted)
        };
        std::iter::once(self.locker_rule(auth, member, epoch)).chain(clients.map(accepting)).collect()
    }

    fn locker_rule(&self, auth: &Auth, member: &str, epoch: i64) -> UserRule {
        let name = UserRule::locker_name(epoch);
        UserRule::locker(epoch, &auth.password(member, &name)).accepting(&auth.accepted(member, &name))
    }

    /// The operator's user of the next epoch. Nobody uses it before the status names that epoch.
    #[must_use]
    pub fn next_locker(&self, auth: &Auth, member: &str) -> UserRule {
        self.locker_rule(auth, member, self.lists.epoch + 1)
    }

    /// The users that are open on a member while it may vote: the operator's, the probe's, and the clients' if clients know of
    /// this list alone.
    #[must_use]
    pub fn open_rules(&self, auth: &Auth, member: &str) -> Vec<UserRule> {
        let mut rules = self.user_rules(auth, member);
        if !self.lists.lets_clients_in(member) {
            rules.truncate(1);
        }
        rules.push(UserRule::probe(&auth.probe_password(member)));
        rules
    }

    /// The users of earlier epochs, from `since` on.
    #[must_use]
    pub fn former_rules(&self, auth: &Auth, member: &str, since: i64) -> Vec<UserRule> {
        (since..self.lists.epoch).flat_map(|epoch| self.user_rules_of(auth, member, epoch)).collect()
    }

    /// All users that may be open on a member on which those of epochs before `since` are closed: with them closed it votes for
    /// nobody.
    #[must_use]
    pub fn closing_rules(&self, auth: &Auth, member: &str, since: i64) -> Vec<UserRule> {
        let mut rules = self.former_rules(auth, member, since);
        rules.extend(self.user_rules(auth, member));
        rules.extend([self.next_locker(auth, member), UserRule::probe(&auth.probe_password(member))]);
        rules
    }
}

/// The users whose state on a member is asked for: all of [`Plan::closing_rules`].
#[must_use]
pub fn voting_users(quorum: &RedisQuorum, member: &str) -> Vec<String> {
    let lists = Lists::of(quorum);
    let since = users_since(quorum.status.as_ref(), member, &lists);
    let of_epoch = |epoch: i64| {
        let clients = quorum.spec.clients.iter().map(move |client| UserRule::client_name(&client.name, epoch));
        std::iter::once(UserRule::locker_name(epoch)).chain(clients)
    };
    let next = [UserRule::locker_name(lists.epoch + 1), PROBE_USER.to_owned()];
    (since..=lists.epoch).flat_map(of_epoch).chain(next).collect()
}
