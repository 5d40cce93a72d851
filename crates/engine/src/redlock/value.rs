//! The value of a lock's key, and the nonce in it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of the nonce.
///
/// Its text has twice as many hex characters.
const HALF: usize = 10;

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Exactly [`HALF`] bytes of lower-case hex, as [`to_hex`] writes them.
fn from_hex(text: &[u8]) -> Option<[u8; HALF]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_chunks::<2>();
    let bytes: Vec<u8> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect::<Option<_>>()?;
    if rest.is_empty() { bytes.try_into().ok() } else { None }
}

/// The public half of a lock value: 20 hex characters, fresh for every attempt.
///
/// A value is used for one attempt only. Otherwise a late release of an earlier attempt would delete the key of a later
/// one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; HALF]);

impl Nonce {
    /// A random nonce.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The bytes of the nonce.
    #[must_use]
    pub const fn bytes(self) -> [u8; HALF] {
        self.0
    }

    /// Makes a nonce from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; HALF]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

impl FromStr for Nonce {
    type Err = NotANonce;

    fn from_str(text: &str) -> Result<Self, NotANonce> {
        from_hex(text.as_bytes()).map(Self).ok_or(NotANonce)
    }
}

/// A nonce is 20 lower-case hex characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a nonce is 20 lower-case hex characters")]
pub struct NotANonce;

/// The value of a lock's key: 40 hex characters.
///
/// It is secret, because it is enough to release the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockValue(Arc<str>);

impl LockValue {
    /// A random value, which no other client has.
    #[must_use]
    pub fn random() -> Self {
        Self(to_hex(&rand::random::<[u8; 2 * HALF]>()).into())
    }

    /// Any text as a value.
    ///
    /// It must be used for one attempt only.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The value itself, for the wire only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockValue(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nonces_and_values_are_fresh() {
        assert_ne!(Nonce::random(), Nonce::random());
        assert_ne!(LockValue::random(), LockValue::random());
        assert_eq!(LockValue::random().expose().len(), 40);
    }

    #[test]
    fn debug_output_shows_no_value() {
        let value = LockValue::random();
        assert!(!format!("{value:?}").contains(&value.expose()[20..]));
    }

    proptest! {
        #[test]
        fn every_nonce_survives_text(bytes: [u8; 10]) {
            let nonce = Nonce::from_bytes(bytes);
            prop_assert_eq!(nonce.to_string().parse(), Ok(nonce));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,45}") {
            let _ = text.parse::<Nonce>();
        }
    }
}
