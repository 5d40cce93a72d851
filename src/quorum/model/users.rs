//! The Redis users of a quorum: the users of each membership epoch, and the open ones on each member.

use super::plan::{ClientPlan, Plan};
use crate::api::{ClientAccess, RedisQuorum};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::membership::users_since;
use crate::redis_member::acl::{PROBE_USER, UserRule};

impl Plan {
    /// The users of this epoch on a member, with its own passwords.
    ///
    /// The operator's user is the first. The users of voting clients follow, then those of clients that only read.
    pub fn user_rules(&self, auth: &Auth, member: &str) -> Vec<UserRule> {
        self.rules(auth, member, true)
    }

    /// The rules of the operator's user and of clients. Voting clients are included only if `voting`.
    fn rules(&self, auth: &Auth, member: &str, voting: bool) -> Vec<UserRule> {
        let epoch = self.lists.epoch;
        let rule = |client: &ClientPlan| {
            let (name, user) = (&client.name, client.user(epoch));
            let password = auth.password(member, &user);
            let rule = match client.access {
                ClientAccess::ReadWrite => UserRule::client(name, epoch, &client.key_prefix, &password),
                ClientAccess::Read => UserRule::reader(name, &client.key_prefix, &password),
            };
            rule.accepting(&auth.accepted(member, &user))
        };
        let voters = self.clients_with(ClientAccess::ReadWrite).filter(|_| voting);
        let clients = voters.chain(self.clients_with(ClientAccess::Read)).map(rule);
        std::iter::once(locker_rule(auth, member, epoch)).chain(clients).collect()
    }

    fn clients_with(&self, access: ClientAccess) -> impl Iterator<Item = &ClientPlan> {
        self.clients.iter().filter(move |client| client.access == access)
    }

    /// The operator's user of the next epoch. It is not used before the status names that epoch.
    pub fn next_locker(&self, auth: &Auth, member: &str) -> UserRule {
        locker_rule(auth, member, self.lists.epoch + 1)
    }

    /// The users that are open on a member while it can vote.
    ///
    /// These are the users of the operator, of the probe, and of clients that only read. The users of voting clients are included if
    /// only this list is in force.
    pub fn open_rules(&self, auth: &Auth, member: &str) -> Vec<UserRule> {
        let mut rules = self.rules(auth, member, self.lists.admits_clients(member));
        rules.push(UserRule::probe(&auth.probe_password(member)));
        rules
    }

    /// The users of earlier epochs, from `since` on, as rules that delete them. A client that only reads has none.
    pub fn former_rules(&self, since: i64) -> Vec<UserRule> {
        let clients = self.clients_with(ClientAccess::ReadWrite).map(|client| client.name.as_str());
        let users = voters(since..self.lists.epoch, &clients.collect::<Vec<_>>());
        users.iter().map(|user| UserRule::removed(user)).collect()
    }

    /// All users that can be open on a member whose users of epochs before `since` are closed.
    ///
    /// If all of them are closed, the member gives no votes.
    pub fn closing_rules(&self, auth: &Auth, member: &str, since: i64) -> Vec<UserRule> {
        let mut rules = self.former_rules(since);
        rules.extend(self.user_rules(auth, member));
        rules.extend([self.next_locker(auth, member), UserRule::probe(&auth.probe_password(member))]);
        rules
    }
}

fn locker_rule(auth: &Auth, member: &str, epoch: i64) -> UserRule {
    let name = UserRule::locker_name(epoch);
    UserRule::locker(epoch, &auth.password(member, &name)).accepting(&auth.accepted(member, &name))
}

/// The users of these epochs that vote: the operator's, and those of these clients.
fn voters(epochs: impl Iterator<Item = i64>, clients: &[&str]) -> Vec<String> {
    let of_epoch = |epoch| {
        let clients = clients.iter().map(move |client| UserRule::client_name(client, epoch));
        std::iter::once(UserRule::locker_name(epoch)).chain(clients)
    };
    epochs.flat_map(of_epoch).collect()
}

/// The users whose state the operator reads on a member: all of [`Plan::closing_rules`].
pub fn voting_users(quorum: &RedisQuorum, member: &str) -> Vec<String> {
    let lists = Lists::of(quorum);
    let names = |access: ClientAccess| {
        let clients = quorum.spec.clients.iter().filter(move |client| client.access == access);
        clients.map(|client| client.name.as_str())
    };
    let clients: Vec<_> = names(ClientAccess::ReadWrite).collect();
    let mut users = voters(users_since(quorum, member, &lists)..=lists.epoch, &clients);
    users.extend(names(ClientAccess::Read).map(UserRule::reader_name));
    users.extend([UserRule::locker_name(lists.epoch + 1), PROBE_USER.to_owned()]);
    users
}
