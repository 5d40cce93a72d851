//! The entries of a client's Secret, as an operator writes them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::error::BuildError;
use crate::redlock::Drift;

/// The parsed entries.
#[derive(Clone)]
pub(super) struct SecretEntries {
    pub(super) urls: Vec<String>,
    /// The URLs of the former members, for readers during a change of members.
    pub(super) former_urls: Vec<String>,
    pub(super) key_prefix: String,
    /// The maximum time to live that the operator's fence covers.
    pub(super) max_ttl: Duration,
    pub(super) drift: Drift,
    pub(super) node_timeout: Duration,
}

/// `Debug` omits the URLs, because they contain passwords.
impl fmt::Debug for SecretEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretEntries")
            .field("key_prefix", &self.key_prefix)
            .field("max_ttl", &self.max_ttl)
            .finish_non_exhaustive()
    }
}

impl SecretEntries {
    /// Returns true if both Secrets have the same rules, so that a client can change to the other one.
    pub(super) fn has_rules_of(&self, other: &Self) -> bool {
        let rules = |it: &Self| (it.key_prefix.clone(), it.max_ttl, it.drift, it.node_timeout);
        rules(self) == rules(other)
    }

    pub(super) fn read(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BuildError> {
        let entry = |name: &'static str| {
            let bytes = data.get(name).ok_or(BuildError::Secret(name))?;
            std::str::from_utf8(bytes).map(str::trim).map_err(|_| BuildError::Secret(name))
        };
        let time = |name| duration(entry(name)?).ok_or(BuildError::Secret(name));
        let urls = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if entry("fenced")? != "true" {
            return Err(BuildError::NotFenced);
        }
        let read = Self {
            urls: urls(entry("urls")?),
            former_urls: if data.contains_key("formerUrls") { urls(entry("formerUrls")?) } else { Vec::new() },
            key_prefix: entry("keyPrefix")?.to_owned(),
            max_ttl: time("maxTTL")?,
            drift: drift(entry("clockDrift")?).ok_or(BuildError::Secret("clockDrift"))?,
            node_timeout: time("nodeTimeout")?,
        };
        let quorum: usize = entry("quorum")?.parse().map_err(|_| BuildError::Secret("quorum"))?;
        // Files of a mounted Secret can be read during their replacement.
        if quorum != read.urls.len() / 2 + 1 {
            return Err(BuildError::Torn { urls: read.urls.len(), quorum });
        }
        Ok(read)
    }
}

/// Parses a drift such as `10000ppm 2ms`: a relative part, and a part that is added once.
fn drift(text: &str) -> Option<Drift> {
    let (ppm, floor) = text.split_once(' ')?;
    Some(Drift { ppm: ppm.strip_suffix("ppm")?.parse().ok()?, floor: duration(floor)? })
}

/// Parses whole numbers with units, as Kubernetes writes durations: `50ms`, `10s`, `1m30s`, `2h`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text, Duration::ZERO);
    if text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(millis)?;
        total = total.checked_add(Duration::from_millis(part))?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [(&str, &str); 7] = [
        ("urls", "redis://a:1\nredis://b:1\nredis://c:1\n"),
        ("keyPrefix", "shop/"),
        ("maxTTL", "1m30s"),
        ("clockDrift", "5000ppm 3ms"),
        ("nodeTimeout", "250ms"),
        ("quorum", "2"),
        ("fenced", "true"),
    ];

    fn secret(changed: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let entries = SECRET.iter().chain(changed);
        entries.map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn all_entries_are_read() {
        let read = SecretEntries::read(&secret(&[])).unwrap();
        assert_eq!((read.urls.len(), read.former_urls.len(), read.key_prefix.as_str()), (3, 0, "shop/"));
        assert_eq!((read.max_ttl.as_secs(), read.node_timeout.as_millis()), (90, 250));
        assert_eq!(read.drift, Drift { ppm: 5_000, floor: Duration::from_millis(3) });
        let former = SecretEntries::read(&secret(&[("formerUrls", "redis://u:hidden@a:1")])).unwrap();
        assert_eq!(former.former_urls, ["redis://u:hidden@a:1"]);
        let one = SecretEntries::read(&secret(&[("urls", "redis://u:hidden@a:1"), ("quorum", "1")])).unwrap();
        assert!(!format!("{former:?} {one:?}").contains("hidden"), "debug output shows no password");
    }

    #[test]
    fn a_secret_without_the_entries_of_the_fence_makes_no_client() {
        for (name, _) in SECRET {
            let mut data = secret(&[]);
            data.remove(name);
            assert_eq!(SecretEntries::read(&data).unwrap_err(), BuildError::Secret(name), "{name}");
        }
        for (name, text) in [
            ("maxTTL", "30"),
            ("maxTTL", ""),
            ("maxTTL", "99999999999999h"),
            ("nodeTimeout", "50µs"),
            ("clockDrift", "10000"),
            ("clockDrift", "10000ppm"),
            ("quorum", "two"),
        ] {
            let error = SecretEntries::read(&secret(&[(name, text)])).unwrap_err();
            assert_eq!(error, BuildError::Secret(name), "{name}: {text}");
        }
        assert_eq!(SecretEntries::read(&secret(&[("fenced", "false")])).unwrap_err(), BuildError::NotFenced);
        let torn = SecretEntries::read(&secret(&[("quorum", "3")])).unwrap_err();
        assert_eq!(torn, BuildError::Torn { urls: 3, quorum: 3 }, "entries of two states are not mixed");
    }
}
