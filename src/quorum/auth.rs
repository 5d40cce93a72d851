//! The secrets of a quorum: one seed, from which every password and the key of the lock values are derived.
//!
//! Each member has passwords of its own, so that a wrong address (a reused pod IP) never authenticates, and each membership epoch has
//! users, and so passwords, of its own.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::redis_member::Secret;
use crate::redlock::ValueSigner;

/// Key of the seed in the auth Secret.
pub const SEED_KEY: &str = "seed";

/// Bytes of a seed.
const SEED_BYTES: usize = 32;

/// The secrets of one quorum.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    seed: [u8; SEED_BYTES],
}

impl Auth {
    /// Fresh secrets.
    #[must_use]
    pub fn random() -> Self {
        Self { seed: rand::random() }
    }

    /// From the value in the auth Secret; `None` if it is none.
    #[must_use]
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        Some(Self { seed: seed.try_into().ok()? })
    }

    /// For the auth Secret only.
    #[must_use]
    pub fn seed(&self) -> &[u8] {
        &self.seed
    }

    fn derive(&self, parts: &[&str]) -> [u8; 32] {
        // The seed fills half a block; HMAC pads it with zeros, done here so that no constructor can fail.
        let mut block = [0_u8; 64];
        block[..SEED_BYTES].copy_from_slice(&self.seed);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for part in parts {
            mac.update(part.as_bytes());
            // NUL is in no name, so that no two lists of parts give the same text.
            mac.update(&[0]);
        }
        mac.finalize().into_bytes().into()
    }

    /// The password of a user on a member.
    #[must_use]
    pub fn password(&self, member: &str, user: &str) -> Secret {
        Secret::new(hex(&self.derive(&["password", member, user])))
    }

    /// Signs the values of locks.
    #[must_use]
    pub fn signer(&self) -> ValueSigner {
        ValueSigner::new(&self.derive(&["lock values"]))
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(..)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_and_user_has_a_password_of_its_own() {
        let auth = Auth::from_seed(&[7; 32]).unwrap();
        let passwords: std::collections::BTreeSet<_> = [
            ("main-0", "operator"),
            ("main-1", "operator"),
            ("main-0", "locker-e1"),
            ("main-0", "locker-e2"),
            ("main-0o", "perator"),
        ]
        .iter()
        .map(|(member, user)| auth.password(member, user).expose().to_owned())
        .collect();
        assert_eq!(passwords.len(), 5);
        assert!(passwords.iter().all(|password| password.len() == 64));
        assert_eq!(
            auth.password("main-0", "operator"),
            Auth::from_seed(auth.seed()).unwrap().password("main-0", "operator")
        );
        assert_ne!(Auth::random(), Auth::random());
    }

    #[test]
    fn derivation_never_changes() {
        // A change would lock the operator out of every running member.
        let auth = Auth::from_seed(b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(auth.password("main-0", "operator").expose(), EXPECTED);
    }

    // printf 'password\0main-0\0operator\0' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
    const EXPECTED: &str = "e36a9510fd64bdbae6d9e2ac53d03047e1cee48b109441109e33ce9bead8552f";

    #[test]
    fn secrets_are_not_shown() {
        let auth = Auth::random();
        assert_eq!(format!("{auth:?} {:?}", auth.password("main-0", "operator")), "Auth(..) Secret(..)");
        assert_eq!(Auth::from_seed(&[1; 31]), None);
    }
}
