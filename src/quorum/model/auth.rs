//! The secrets of a quorum. The key of the lock values is always derived from one seed. The passwords are derived from
//! the same seed until passwords are rotated. Then they have a seed of their own, and two during the rotation.
//!
//! Each member has passwords of its own, so that a wrong address (a reused pod IP) never authenticates. Each membership epoch has
//! users, and so passwords, of its own. The passwords of clients end with their clients (see `auth/grants.rs`).

mod grants;

use std::collections::BTreeMap;

use hmac::Mac;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use crate::api::PasswordStage;
use crate::redis_member::Secret;
use crate::redis_member::acl::PROBE_USER;
use crate::redlock::{ValueSigner, hex, mac};
use crate::time::UnixMillis;
use grants::Grants;

/// Key of the seed in the auth Secret.
pub const SEED_KEY: &str = "seed";
/// Key of the state of the rotation.
const PASSWORDS_KEY: &str = "passwords";
/// Key of the proof of that state. Only an operator with the seed can have written it.
const PROOF_KEY: &str = "passwords-proof";

/// Bytes of an id. They distinguish ids, and are too few for any other use.
const ID_BYTES: usize = 5;

type Seed = [u8; 32];

/// The secrets of one quorum.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    seed: Seed,
    passwords: Passwords,
}

/// The passwords in use.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Passwords {
    /// Rises with every change, so that an older state can be recognized.
    generation: u64,
    /// The seed of the passwords. `None` before the first rotation, which means the seed of the quorum.
    seed: Option<Seed>,
    rotation: Option<Rotation>,
    /// The last executed request.
    rotated: Option<String>,
    /// When they replaced lost passwords, in milliseconds of Unix time.
    /// It is 0 for the first secrets of a quorum.
    #[serde(default)]
    recreated_at: i64,
    /// The grants of the clients.
    #[serde(default)]
    grants: Grants,
}

/// A rotation in progress.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    seed: Seed,
    /// Its stage.
    pub stage: PasswordStage,
    /// The request: the text of the annotation.
    pub request: String,
}

impl Auth {
    /// Fresh secrets.
    pub fn random() -> Self {
        Self { seed: rand::random(), passwords: Passwords::default() }
    }

    /// New secrets in place of lost ones, which members still use.
    ///
    /// `now` is Unix time. It must be later than the times of earlier replacements.
    pub fn replacement(now: UnixMillis) -> Self {
        Self { passwords: Passwords { recreated_at: now.0.max(1), ..Passwords::default() }, ..Self::random() }
    }

    /// A public name of these secrets.
    ///
    /// `None` for the first secrets of a quorum, so that its objects do not contain an id.
    pub fn id(&self) -> Option<String> {
        (self.passwords.recreated_at != 0).then(|| hex(&derive(&self.seed, &["id"])[..ID_BYTES]))
    }

    /// Reads secrets from the seed in the auth Secret.
    ///
    /// `None` if this is no seed.
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        Some(Self { seed: seed.try_into().ok()?, passwords: Passwords::default() })
    }

    /// Reads secrets from the content of the auth Secret.
    ///
    /// `None` if another party wrote it.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let auth = Self::from_seed(&data.get(SEED_KEY)?.0)?;
        let Some(passwords) = data.get(PASSWORDS_KEY) else { return Some(auth) };
        (data.get(PROOF_KEY)?.0 == auth.proof(&passwords.0)).then_some(())?;
        Some(Self { passwords: serde_json::from_slice(&passwords.0).ok()?, ..auth })
    }

    /// The content of the auth Secret.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([(SEED_KEY.to_owned(), ByteString(self.seed.to_vec()))]);
        if self.passwords != Passwords::default() {
            // Serialization cannot fail, because every key and number is valid in JSON.
            let passwords = serde_json::to_vec(&self.passwords).unwrap_or_default();
            data.insert(PROOF_KEY.to_owned(), ByteString(self.proof(&passwords)));
            data.insert(PASSWORDS_KEY.to_owned(), ByteString(passwords));
        }
        data
    }

    fn proof(&self, passwords: &[u8]) -> Vec<u8> {
        let key = hex(&derive(&self.seed, &["state of passwords"]));
        derive(&self.seed, &[&key, &hex(passwords)]).to_vec()
    }

    /// Whether this is a later state of the same secrets, or replaced the other secrets after their loss.
    ///
    /// Members are then started with these secrets. So the other secrets never come back, even if a replica still has a copy of them.
    pub fn supersedes(&self, other: &Self) -> bool {
        self.passwords.recreated_at > other.passwords.recreated_at
            || (self.seed == other.seed && self.generation() > other.generation())
    }

    /// Rises with every change of the passwords.
    pub const fn generation(&self) -> u64 {
        self.passwords.generation
    }

    /// The rotation in progress.
    pub const fn rotation(&self) -> Option<&Rotation> {
        self.passwords.rotation.as_ref()
    }

    /// The last executed request to rotate.
    pub fn rotated(&self) -> Option<&str> {
        self.passwords.rotated.as_deref()
    }

    /// These secrets with new passwords in addition to the old ones.
    pub fn begin(&self, request: &str) -> Self {
        let rotation = Rotation { seed: rand::random(), stage: PasswordStage::Adding, request: request.to_owned() };
        self.changed(Passwords { rotation: Some(rotation), ..self.passwords.clone() })
    }

    /// These secrets with their rotation in the next stage.
    pub fn advance(&self) -> Self {
        let Some(rotation) = self.rotation().cloned() else { return self.clone() };
        let stage = match rotation.stage {
            PasswordStage::Adding => PasswordStage::Switched,
            PasswordStage::Switched => PasswordStage::Removing,
            PasswordStage::Removing => {
                let (seed, rotated) = (Some(rotation.seed), Some(rotation.request));
                return self.changed(Passwords { seed, rotated, rotation: None, ..self.passwords.clone() });
            }
        };
        self.changed(Passwords { rotation: Some(Rotation { stage, ..rotation }), ..self.passwords.clone() })
    }

    fn changed(&self, passwords: Passwords) -> Self {
        let generation = self.passwords.generation + 1;
        Self { seed: self.seed, passwords: Passwords { generation, ..passwords } }
    }

    /// The seed of the used passwords, and that of the others during a rotation.
    fn seeds(&self) -> (&Seed, Option<&Seed>) {
        let old = self.passwords.seed.as_ref().unwrap_or(&self.seed);
        match self.rotation() {
            None => (old, None),
            Some(Rotation { seed, stage: PasswordStage::Adding, .. }) => (old, Some(seed)),
            Some(Rotation { seed, .. }) => (seed, Some(old)),
        }
    }

    /// The password of a user on a member.
    pub fn password(&self, member: &str, user: &str) -> Secret {
        let (used, _other) = self.seeds();
        self.password_by(used, member, user)
    }

    /// The other password that a process perhaps has.
    ///
    /// During a rotation, a process that started with an older file has that password.
    pub fn other_password(&self, member: &str, user: &str) -> Option<Secret> {
        let (_used, other) = self.seeds();
        Some(self.password_by(other?, member, user))
    }

    /// All passwords that a member must accept from a user.
    pub fn accepted(&self, member: &str, user: &str) -> Vec<Secret> {
        let both = self.rotation().is_some_and(|rotation| rotation.stage != PasswordStage::Removing);
        let other = self.other_password(member, user).filter(|_| both);
        std::iter::once(self.password(member, user)).chain(other).collect()
    }

    /// The password of the readiness probe of a member.
    ///
    /// It is not rotated. A rotation would have to wait for the kubelet, which writes a new file into a running pod at an
    /// unknown time. This password permits `ECHO` only.
    pub fn probe_password(&self, member: &str) -> Secret {
        Secret::new(hex(&derive(&self.seed, &["password", member, PROBE_USER])))
    }

    /// Signs the values of locks. Its key never changes, because the members store signed values.
    pub fn signer(&self) -> ValueSigner {
        ValueSigner::new(&derive(&self.seed, &["lock values"]))
    }
}

fn derive(seed: &Seed, labels: &[&str]) -> [u8; 32] {
    let mut mac = mac(seed);
    for label in labels {
        mac.update(label.as_bytes());
        // No name contains NUL, so different lists of parts give different texts.
        mac.update(&[0]);
    }
    mac.finalize().into_bytes().into()
}

opaque!(Auth);
opaque!(Rotation);

#[cfg(test)]
mod tests;
