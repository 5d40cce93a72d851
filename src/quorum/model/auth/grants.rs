//! The grants that clients' passwords belong to. A password is derived from the quorum's seed, its member and user, and
//! its grant. A grant has the client's namespace and key prefix, its rights there, and a random number. A client that
//! had another namespace or prefix under the same name had another grant, and so other passwords.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Auth, Passwords, Seed, derive, hex};
use crate::api::ClientAccess;
use crate::quorum::model::plan::ClientPlan;
use crate::redis_member::Secret;
use crate::redis_member::acl::UserRule;

/// Bytes of the random number of a grant.
const SALT_BYTES: usize = 16;

/// The grant of each client, by its name.
pub(super) type Grants = BTreeMap<String, Grant>;

/// The grant of one client.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    namespace: String,
    key_prefix: String,
    access: ClientAccess,
    salt: [u8; SALT_BYTES],
}

impl Grant {
    fn new(client: &ClientPlan, salt: [u8; SALT_BYTES]) -> Self {
        let key_prefix = client.key_prefix.as_str().to_owned();
        Self { namespace: client.namespace.clone(), key_prefix, access: client.access, salt }
    }

    fn is_for(&self, client: &ClientPlan) -> bool {
        *self == Self::new(client, self.salt)
    }
}

impl Auth {
    /// Whether the passwords of this client belong to the grant of this plan.
    pub fn grants(&self, client: &ClientPlan) -> bool {
        self.passwords.grants.get(&client.name).is_some_and(|grant| grant.is_for(client))
    }

    /// The secrets with grants for exactly these clients.
    ///
    /// Unchanged clients keep their grants, and the other clients get new ones. `None` if no grant changes.
    pub fn granting(&self, clients: &[ClientPlan]) -> Option<Self> {
        let grant = |client: &ClientPlan| {
            let same = self.passwords.grants.get(&client.name).filter(|grant| grant.is_for(client)).cloned();
            same.unwrap_or_else(|| Grant::new(client, rand::random()))
        };
        let grants: Grants = clients.iter().map(|client| (client.name.clone(), grant(client))).collect();
        (self.passwords.grants != grants).then(|| self.changed(Passwords { grants, ..self.passwords.clone() }))
    }

    /// Derives a password from the seed, the member, the user and the grant.
    pub(super) fn password_by(&self, seed: &Seed, member: &str, user: &str) -> Secret {
        let plain: &[&str] = &["password", member, user];
        let derived = |labels: &[&str]| Secret::new(hex(&derive(seed, &[plain, labels].concat())));
        let Some(client) = UserRule::client_of(user) else { return derived(&[]) };
        match self.passwords.grants.get(client) {
            Some(grant) => derived(&[&grant.namespace, &grant.key_prefix, &hex(&grant.salt)]),
            // No client gets this password.
            None => derived(&["of no client"]),
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

    #[test]
    fn a_password_ends_with_its_client() {
        let ci = client("ci", "a", "a/");
        let first = Auth::random().granting(std::slice::from_ref(&ci)).unwrap();
        assert_eq!(first.granting(std::slice::from_ref(&ci)), None, "nothing has changed");
        let mut passwords = vec![password(&first, &ci)];
        let removed = first.granting(&[]).unwrap();
        passwords.push(password(&removed, &ci));
        let reader = ClientPlan { access: ClientAccess::Read, ..ci.clone() };
        for other in [ci.clone(), client("ci", "b", "a/"), client("ci", "a", "b/"), reader] {
            let added = removed.granting(std::slice::from_ref(&other)).unwrap();
            passwords.push(password(&added, &other));
            if other != ci {
                let moved = first.granting(std::slice::from_ref(&other)).unwrap();
                assert!(!first.grants(&other) && moved.grants(&other) && !moved.grants(&ci));
                passwords.push(password(&moved, &other));
                let back = moved.granting(std::slice::from_ref(&ci)).unwrap();
                passwords.push(password(&back, &ci));
            }
        }
        let different: std::collections::BTreeSet<_> = passwords.iter().collect();
        assert_eq!(different.len(), passwords.len());
    }

    #[test]
    fn removing_a_grant_keeps_all_other_passwords() {
        let (ci, shop) = (client("ci", "a", "a/"), client("shop", "a", "a/"));
        let both = Auth::random().granting(&[ci.clone(), shop.clone()]).unwrap();
        let one = both.granting(std::slice::from_ref(&ci)).unwrap();
        assert_eq!(password(&both, &ci), password(&one, &ci));
        assert_ne!(password(&both, &shop), password(&one, &shop));
        for user in ["operator", "locker-e3", "probe"] {
            assert_eq!(both.password("q-0", user), one.password("q-0", user), "{user}");
        }
        assert!(one.supersedes(&both) && !both.supersedes(&one), "other replicas take it");
        assert_eq!(Auth::from_data(&one.data()), Some(one.clone()));
        let rotated = one.begin("t").advance().advance().advance();
        assert_ne!(password(&rotated, &ci), password(&one, &ci));
        assert_eq!(rotated.granting(std::slice::from_ref(&ci)), None);
    }

    #[test]
    fn secrets_begin_without_grants() {
        for auth in [Auth::random(), Auth::replacement(crate::time::UnixMillis(1))] {
            assert!(!auth.grants(&client("ci", "a", "a/")));
            assert_eq!(Auth::from_data(&auth.data()), Some(auth));
        }
    }
}
