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
        match UserRule::client_of(user).map(|client| self.passwords.grants.get(client)) {
            None => derived(&[]),
            Some(Some(grant)) => derived(&[&grant.namespace, &grant.key_prefix, &hex(&grant.salt)]),
            // No client gets this password.
            Some(None) => derived(&["of no client"]),
        }
    }
}
