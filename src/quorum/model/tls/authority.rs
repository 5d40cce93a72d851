//! The operator's own authority over time: which one signs, which ones are trusted. Pure.
//!
//! A new authority is published before it signs anything, and an old one is trusted for as long as it is valid. So a client that reads
//! `ca.crt` once a week always trusts the certificate that is served.

use k8s_openapi::ByteString;

use super::{Data, Span, union};

const DAY: i64 = 86_400;
/// How long an authority is valid.
pub const AUTHORITY_LIFE: i64 = 5 * 365 * DAY;
/// How long a member's certificate is valid.
pub const CERTIFICATE_LIFE: i64 = 90 * DAY;
/// Certificates are valid from a little earlier, for clocks that are behind.
pub const BACKDATED: i64 = 3600;
/// How long the next authority is published before it signs.
pub const OVERLAP: i64 = 7 * DAY;

/// A certificate and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

opaque!(Pair);

impl Pair {
    fn span(&self) -> Option<Span> {
        Span::of_pem(self.certificate.as_bytes())
    }
}

/// The content of an authority's Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// The one that signs.
    pub current: Option<Pair>,
    /// The one that will sign, trusted already.
    pub next: Option<Pair>,
    /// The one that signed before, trusted still; its key is gone.
    pub previous: Option<String>,
}

impl Authority {
    /// From the content of its Secret; what is not there, or only half, is missing.
    pub fn from_data(data: &Data) -> Self {
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let pair =
            |name: &str| Some(Pair { certificate: text(&format!("{name}.crt"))?, key: text(&format!("{name}.key"))? });
        Self { current: pair("ca"), next: pair("next"), previous: text("previous.crt") }
    }

    /// For its Secret.
    pub fn data(&self) -> Data {
        let pair = |name: &str, pair: &Option<Pair>| {
            let pair = pair.clone().map(|pair| [("crt", pair.certificate), ("key", pair.key)]);
            pair.into_iter().flatten().map(|(end, text)| (format!("{name}.{end}"), text)).collect::<Vec<_>>()
        };
        let previous = self.previous.iter().map(|text| ("previous.crt".to_owned(), text.clone()));
        let all = pair("ca", &self.current).into_iter().chain(pair("next", &self.next)).chain(previous);
        all.map(|(key, text)| (key, ByteString(text.into_bytes()))).collect()
    }

    /// All that are to be trusted, in PEM.
    pub fn trusted(&self) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten().map(|pair| pair.certificate.as_str());
        pairs.chain(self.previous.as_deref()).fold(String::new(), |all, one| union(&all, one))
    }
}

/// The next step for an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Make the first one, or one in place of one that cannot sign any more.
    Make,
    /// Make the next one, which does not sign yet.
    Prepare,
    /// The next one has been known for long enough: it signs from now on.
    Promote,
    /// Nothing that the previous one has signed can be valid.
    Forget,
}

/// Decides the next step at `now`, in seconds of Unix time.
pub fn decide(authority: &Authority, now: i64) -> Step {
    let span = |pair: &Option<Pair>| pair.as_ref().and_then(Pair::span);
    // An authority from the future was made while the API server's clock was ahead. Peers would not trust it before
    // then.
    let is_valid = |span: &Span| now < span.not_after && now >= span.not_before;
    let Some(current) = span(&authority.current).filter(is_valid) else { return Step::Make };
    let previous = authority.previous.as_ref().map(|pem| Span::of_pem(pem.as_bytes()));
    if previous.is_some_and(|span| span.is_none_or(|span| now >= span.not_after)) {
        return Step::Forget;
    }
    match span(&authority.next) {
        Some(next) if now >= next.not_before + BACKDATED + OVERLAP => Step::Promote,
        Some(_) => Step::Nothing,
        None if current.is_old(now) => Step::Prepare,
        None => Step::Nothing,
    }
}

/// The authority after steps until there is nothing left to do; `make` makes a new one.
///
/// # Errors
/// If none can be made.
pub fn advance<E>(mut authority: Authority, now: i64, make: impl Fn() -> Result<Pair, E>) -> Result<Authority, E> {
    loop {
        match decide(&authority, now) {
            Step::Nothing => return Ok(authority),
            Step::Make => authority = Authority { current: Some(make()?), next: None, previous: None },
            Step::Prepare => authority.next = Some(make()?),
            Step::Promote => {
                authority.previous = authority.current.take().map(|pair| pair.certificate);
                authority.current = authority.next.take();
            }
            Step::Forget => authority.previous = None,
        }
    }
}
