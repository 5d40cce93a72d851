//! Signs lock values with the quorum's key, and recognises signed values.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{LockValue, Nonce};

/// Number of bytes in the nonce, and in the tag. Their texts have two hex characters for each byte.
const HALF: usize = 10;

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC-SHA-256 with a key of any length.
///
/// A key that is longer than a block is hashed, and a shorter one is padded (RFC 2104). The only infallible constructor needs a key with the
/// length of a block.
pub(crate) fn mac(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        let digest = <Sha256 as sha2::Digest>::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    Hmac::new(&block.into())
}

/// Makes unguessable lock values, and recognises them.
///
/// Every replica with the quorum's key recognises the operator's own values on a member. A value is nonce ‖ HMAC-SHA-256(key, lock UID ‖ nonce).
/// Each half has 20 hex characters.
#[derive(Clone)]
pub struct ValueSigner(Hmac<Sha256>);

impl ValueSigner {
    /// `key` is the secret in the quorum's auth Secret, of any length.
    pub fn new(key: &[u8]) -> Self {
        Self(mac(key))
    }

    fn tag_of(&self, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.into_iter().for_each(|part| mac.update(part));
        mac
    }

    fn lock_tag(&self, lock_uid: &str, nonce: &Nonce) -> Hmac<Sha256> {
        // The nonce has a fixed length, so two different inputs never give the same text.
        self.tag_of([lock_uid.as_bytes(), nonce.to_string().as_bytes()])
    }

    fn seal_tag(&self, value: &str) -> Hmac<Sha256> {
        // No UID contains NUL, so the tag of a seal is never the tag of a lock.
        self.tag_of([b"seal\0", value.as_bytes()])
    }

    /// The value of one attempt on the lock with this UID.
    pub fn value(&self, lock_uid: &str, nonce: &Nonce) -> LockValue {
        let tag = self.lock_tag(lock_uid, nonce).finalize().into_bytes();
        LockValue::from_text(format!("{nonce}{}", hex(&tag[..HALF])))
    }

    /// The nonce, if [`ValueSigner::value`] made `value` for this lock.
    ///
    /// It compares the tag in constant time.
    pub fn recognise(&self, lock_uid: &str, value: &str) -> Option<Nonce> {
        let (nonce, tag) = halves(value)?;
        self.lock_tag(lock_uid, &nonce).verify_truncated_left(&tag).is_ok().then_some(nonce)
    }

    /// The value to which a seal sets the key instead of `value`.
    ///
    /// It is derived from `value`, so every replica recognises the seal. A replica that extends `value` fails, because the key has another value.
    pub fn sealed(&self, value: &LockValue) -> LockValue {
        let tag = self.seal_tag(value.expose()).finalize().into_bytes();
        let nonce: String = value.expose().chars().take(2 * HALF).collect();
        LockValue::from_text(format!("{nonce}{}", hex(&tag[..HALF])))
    }

    /// Whether an attempt on this lock has `value` as its value or as its seal.
    pub fn is_of(&self, lock_uid: &str, value: &str) -> bool {
        let Some((nonce, _)) = halves(value) else { return false };
        self.recognise(lock_uid, value).is_some() || self.recognise_sealed(lock_uid, &nonce, value)
    }

    /// Whether `value` is the seal of the attempt `nonce` on this lock.
    ///
    /// It compares the tag in constant time.
    pub fn recognise_sealed(&self, lock_uid: &str, nonce: &Nonce, value: &str) -> bool {
        let Some((found, tag)) = halves(value) else { return false };
        let held = self.value(lock_uid, nonce);
        found == *nonce && self.seal_tag(held.expose()).verify_truncated_left(&tag).is_ok()
    }
}

opaque!(ValueSigner);

fn halves(value: &str) -> Option<(Nonce, [u8; HALF])> {
    let (nonce, tag) = value.split_at_checked(2 * HALF)?;
    // The tag has the same format as a nonce.
    Some((nonce.parse().ok()?, tag.parse::<Nonce>().ok()?.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONCE: Nonce = Nonce::from_bytes([7; 10]);

    #[test]
    fn a_value_is_its_nonce_and_a_short_hmac_sha_256_in_hex() {
        // printf 'uid-107070707070707070707' | openssl dgst -sha256 -hmac key
        for (key, value) in [
            (&b"key"[..], "07070707070707070707f83c465f606489532c36"),
            (&[b'k'; 100][..], "07070707070707070707179b053a4a3a3e586b2c"),
        ] {
            assert_eq!(ValueSigner::new(key).value("uid-1", &NONCE).expose(), value);
        }
    }

    #[test]
    fn only_the_own_value_of_the_own_lock_is_recognised() {
        let signer = ValueSigner::new(b"key");
        let value = signer.value("uid-1", &NONCE);
        assert_eq!(signer.recognise("uid-1", value.expose()), Some(NONCE));
        assert_eq!(signer.recognise("uid-2", value.expose()), None);
        assert_eq!(ValueSigner::new(b"other").recognise("uid-1", value.expose()), None);
        let mut forged = value.expose().to_owned();
        forged.replace_range(0..1, "1");
        let (short, upper) = (&value.expose()[..39], value.expose().to_uppercase());
        for foreign in [forged.as_str(), "", "1795284168", "äöü", short, &upper] {
            assert_eq!(signer.recognise("uid-1", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_seal_is_recognised_as_a_seal_and_not_as_a_value() {
        let signer = ValueSigner::new(b"key");
        let value = signer.value("uid-1", &NONCE);
        let sealed = signer.sealed(&value);
        assert_ne!(sealed, value);
        assert!(signer.recognise_sealed("uid-1", &NONCE, sealed.expose()));
        assert!(!signer.recognise_sealed("uid-1", &NONCE, value.expose()));
        assert!(!signer.recognise_sealed("uid-2", &NONCE, sealed.expose()));
        assert!(!signer.recognise_sealed("uid-1", &Nonce::from_bytes([8; 10]), sealed.expose()));
        assert_eq!(signer.recognise("uid-1", sealed.expose()), None);
    }

    #[test]
    fn debug_output_shows_no_value() {
        let signer = ValueSigner::new(b"key");
        let value = signer.value("uid-1", &NONCE);
        assert!(!format!("{value:?} {signer:?}").contains(&value.expose()[20..]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,45}") {
            prop_assert_eq!(ValueSigner::new(b"key").recognise("uid", &text), None);
        }
    }
}
