//! Who the passwords of clients are for. A password is made of the quorum's seed, of its member and user, and of the grant that it
//! belongs to: of the client's namespace and key prefix, what it may do there, and a random number. A client that was another one under
//! the same name, or the same one elsewhere, had another grant, and so other passwords.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Auth, Passwords, Seed, hex};
use crate::api::ClientAccess;
use crate::quorum::model::plan::ClientPlan;
use crate::redis_member::acl::UserRule;

/// Bytes of the random number of a grant.
const SALT_BYTES: usize = 16;

/// What is granted to each client, by its name.
pub(super) type Grants = BTreeMap<String, Grant>;

/// What one client is granted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    namespace: String,
    key_prefix: String,
    access: ClientAccess,
    /// `None`: by a version of the operator that knew no grants. Its passwords stay as they were made.
    salt: Option<[u8; SALT_BYTES]>,
}

impl Grant {
    fn is_for(&self, client: &ClientPlan) -> bool {
        self.namespace == client.namespace
            && self.key_prefix == client.key_prefix.as_str()
            && self.access == client.access
    }

    fn new(client: &ClientPlan, salt: Option<[u8; SALT_BYTES]>) -> Self {
        let key_prefix = client.key_prefix.as_str().to_owned();
        Self { namespace: client.namespace.clone(), key_prefix, access: client.access, salt }
    }
}

impl Auth {
    /// Whether these secrets tell grants; those of a version before do not.
    pub const fn knows_grants(&self) -> bool {
        self.passwords.grants.is_some()
    }

    /// Whether the passwords of this client are those of this grant.
    pub fn grants(&self, client: &ClientPlan) -> bool {
        let Some(grants) = &self.passwords.grants else { return true };
        grants.get(&client.name).is_some_and(|grant| grant.is_for(client))
    }

    /// The secrets with a grant for each of these clients and no other.
    ///
    /// Clients that have not changed keep their grants, and the others get new ones. Where the secrets tell of no
    /// grants yet, clients that `had_passwords` keep these. `None` if nothing changes.
    pub fn granting(&self, clients: &[ClientPlan], had_passwords: impl Fn(&ClientPlan) -> bool) -> Option<Self> {
        let grant = |client: &ClientPlan| match &self.passwords.grants {
            None if had_passwords(client) => Grant::new(client, None),
            None => Grant::new(client, Some(rand::random())),
            Some(grants) => {
                let same = grants.get(&client.name).filter(|grant| grant.is_for(client)).cloned();
                same.unwrap_or_else(|| Grant::new(client, Some(rand::random())))
            }
        };
        let grants: Grants = clients.iter().map(|client| (client.name.clone(), grant(client))).collect();
        let changes = self.passwords.grants.as_deref() != Some(&grants);
        changes.then(|| self.changed(Passwords { grants: Some(Box::new(grants)), ..self.passwords.clone() }))
    }

    /// What a password is made of beside the seed.
    pub(super) fn derived(&self, seed: &Seed, member: &str, user: &str) -> [u8; 32] {
        let plain = ["password", member, user];
        let grants = self.passwords.grants.as_deref().zip(UserRule::client_of(user));
        match grants.map(|(grants, client)| grants.get(client)) {
            None | Some(Some(Grant { salt: None, .. })) => super::derive(seed, &plain),
            Some(Some(Grant { namespace, key_prefix, salt: Some(salt), .. })) => {
                super::derive(seed, &[&plain[..], &[namespace, key_prefix, &hex(salt)]].concat())
            }
            // No client is told this one.
            Some(None) => super::derive(seed, &[&plain[..], &["of no client"]].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_member::acl::KeyPrefix;

    fn client(name: &str, namespace: &str, prefix: &str) -> ClientPlan {
        let key_prefix = KeyPrefix::parse(prefix).unwrap();
        ClientPlan { name: name.into(), namespace: namespace.into(), key_prefix, access: ClientAccess::ReadWrite }
    }

    fn password(auth: &Auth, client: &ClientPlan) -> String {
        auth.password("q-0", &client.user(3)).expose().to_owned()
    }

    fn none(_: &ClientPlan) -> bool {
        false
    }

    #[test]
    fn a_password_ends_with_its_client() {
        let ci = client("ci", "a", "a/");
        let first = Auth::random().granting(std::slice::from_ref(&ci), none).unwrap();
        assert_eq!(first.granting(std::slice::from_ref(&ci), none), None, "nothing has changed");
        let mut seen = vec![password(&first, &ci)];
        let removed = first.granting(&[], none).unwrap();
        seen.push(password(&removed, &ci));
        let reader = ClientPlan { access: ClientAccess::Read, ..ci.clone() };
        for other in [ci.clone(), client("ci", "b", "a/"), client("ci", "a", "b/"), reader] {
            let added = removed.granting(std::slice::from_ref(&other), none).unwrap();
            seen.push(password(&added, &other));
            if other != ci {
                let moved = first.granting(std::slice::from_ref(&other), none).unwrap();
                assert!(!first.grants(&other) && moved.grants(&other) && !moved.grants(&ci));
                seen.push(password(&moved, &other));
                let back = moved.granting(std::slice::from_ref(&ci), none).unwrap();
                seen.push(password(&back, &ci));
            }
        }
        let different: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(different.len(), seen.len());
    }

    #[test]
    fn grants_of_others_and_users_of_the_operator_stay() {
        let (ci, shop) = (client("ci", "a", "a/"), client("shop", "a", "a/"));
        let both = Auth::random().granting(&[ci.clone(), shop.clone()], none).unwrap();
        let one = both.granting(std::slice::from_ref(&ci), none).unwrap();
        assert_eq!(password(&both, &ci), password(&one, &ci));
        assert_ne!(password(&both, &shop), password(&one, &shop));
        for user in ["operator", "locker-e3", "readiness"] {
            assert_eq!(both.password("q-0", user), one.password("q-0", user), "{user}");
        }
        assert!(one.supersedes(&both) && !both.supersedes(&one), "other replicas take it");
        assert_eq!(Auth::from_data(&one.data()), Some(one.clone()));
        let rotated = one.begin("t").advance().advance().advance();
        assert_ne!(password(&rotated, &ci), password(&one, &ci));
        assert_eq!(rotated.granting(std::slice::from_ref(&ci), none), None);
    }

    #[test]
    fn an_upgrade_keeps_the_passwords_of_clients_that_run() {
        let (ci, new) = (client("ci", "a", "a/"), client("new", "a", "a/"));
        let before = Auth::from_seed(&[7; 32]).unwrap();
        assert!(!before.knows_grants() && before.grants(&ci));
        let upgraded = before.granting(&[ci.clone(), new.clone()], |client| *client == ci).unwrap();
        assert!(upgraded.knows_grants() && upgraded.grants(&ci));
        assert_eq!(password(&upgraded, &ci), password(&before, &ci));
        assert_ne!(password(&upgraded, &new), password(&before, &new), "it was added with the upgrade");
        // It is the same client until it changes.
        let again = upgraded.granting(&[], none).unwrap().granting(std::slice::from_ref(&ci), |_| true).unwrap();
        assert_ne!(password(&again, &ci), password(&before, &ci));
        let without = before.granting(&[], none).unwrap();
        assert!(without.knows_grants(), "whoever comes now is new");
        assert_eq!(Auth::from_data(&upgraded.data()), Some(upgraded));
    }

    #[test]
    fn secrets_of_this_version_begin_without_grants() {
        for auth in [Auth::random(), Auth::anew(crate::time::UnixMillis(1))] {
            assert!(auth.knows_grants() && !auth.grants(&client("ci", "a", "a/")));
            assert_eq!(Auth::from_data(&auth.data()), Some(auth));
        }
    }
}
