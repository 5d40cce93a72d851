//! Pure: the parameters of a request.

use std::time::Duration;

use super::lock::Order;
use crate::hold::{LockArgs, LockName};
use redlock_api::GoDuration;

/// The longest wait of one request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Maximum length of the ID of an instance or a request.
const LONGEST_ID: usize = 128;

/// Decodes percent-encoding, for example `%2F` as a slash. `None` if the text is malformed.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(rest.next()?)? * 16 + digit(rest.next()?)?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// The instance that sends the request.
    pub(super) instance: Option<String>,
    /// Identifies one request to acquire, so that it can be repeated.
    pub(super) request: Option<String>,
    pub(super) token: Option<i64>,
    /// Longest wait for the lock.
    pub(super) wait: Option<Duration>,
    pub(super) ttl: Option<GoDuration>,
    /// How long to hold the lock without further requests.
    pub(super) hold_for: Option<Duration>,
    pub(super) min_hold: Option<GoDuration>,
    /// Register only while no other instance is served.
    pub(super) if_none: bool,
}

impl Query {
    /// # Errors
    /// If a parameter cannot be read. The error is a sentence that names it.
    pub(super) fn of(text: Option<&str>) -> Result<Self, String> {
        let mut query = Self::default();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |what: &str| format!("The parameter {name} is {what}.");
            let value = decoded(value).ok_or_else(|| wrong("no text"))?;
            let duration = || value.parse::<GoDuration>().map_err(|_| wrong("no duration, for example 10s or 1m30s"));
            let id = || if value.len() <= LONGEST_ID { Ok(value.clone()) } else { Err(wrong("too long")) };
            match name {
                "instance" => query.instance = Some(id()?),
                "request" => query.request = Some(id()?),
                "token" => query.token = Some(value.parse().map_err(|_| wrong("no fencing token"))?),
                "wait" => query.wait = Some(duration()?.get().min(LONGEST_WAIT)),
                "ttl" => query.ttl = Some(duration()?),
                "holdFor" => query.hold_for = Some(duration()?.get()),
                "ifNone" => query.if_none = value.parse().map_err(|_| wrong("neither true nor false"))?,
                "minHold" => query.min_hold = Some(duration()?),
                _ => return Err(format!("There is no parameter {name}.")),
            }
        }
        Ok(query)
    }

    /// The order for a lock. The options of the agent replace missing parameters.
    pub(super) fn order(&self, options: &LockArgs, lock: LockName) -> Order {
        let mut args = LockArgs { lock, ..options.clone() };
        args.ttl = self.ttl.unwrap_or(args.ttl);
        args.wait = self.wait.filter(|wait| !wait.is_zero()).map(Into::into);
        args.try_once = args.wait.is_none();
        args.max_hold = self.hold_for.map(Into::into);
        let min_hold = self.min_hold.filter(|least| !least.get().is_zero());
        // With a claim the operator enforces this time.
        args.min_hold = min_hold.filter(|_| !args.direct.direct);
        Order {
            request: self.request.clone(),
            is_unattended: self.hold_for.is_some(),
            least: min_hold.filter(|_| args.direct.direct).map(GoDuration::get).unwrap_or_default(),
            args,
        }
    }
}

/// Whether a request over TCP is meant for this machine.
///
/// A page in a browser can send requests to loopback, and so can an application that fetches the URLs of its clients. Such a request has
/// the name of another host.
pub(super) fn is_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_or_named() {
        let query = Query::of(Some("instance=a%2Bb&token=7&wait=90s&holdFor=5m&ttl=2s")).unwrap();
        assert_eq!((query.instance.as_deref(), query.token), (Some("a+b"), Some(7)));
        assert_eq!((query.wait, query.hold_for), (Some(LONGEST_WAIT), Some(Duration::from_secs(300))));
        assert_eq!(Query::of(None), Ok(Query::default()));
        let refused = |text| Query::of(Some(text)).unwrap_err();
        assert_eq!(refused("tll=2s"), "There is no parameter tll.");
        assert_eq!(refused("ttl=2"), "The parameter ttl is no duration, for example 10s or 1m30s.");
        assert_eq!(refused("token="), "The parameter token is no fencing token.");
        assert!(Query::of(Some(&format!("instance={}", "a".repeat(129)))).is_err());
    }

    #[test]
    fn only_requests_for_this_machine_are_answered() {
        for host in ["localhost", "127.0.0.1:4040", "[::1]:4040", "127.9.9.9", "LocalHost:1"] {
            assert!(is_loopback(Some(host)), "{host}");
        }
        for host in ["example.com", "10.0.0.1:4040", "127.0.0.1.example.com", "", "[fe80::1]:1"] {
            assert!(!is_loopback(Some(host)), "{host}");
        }
        assert!(!is_loopback(None));
    }
}
