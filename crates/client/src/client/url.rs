//! URLs of members.

use std::fmt;

/// One member's URL: `redis://[user:password@]host[:port]`, or `rediss://` with TLS.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MemberUrl {
    pub(super) address: String,
    pub(super) host: String,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) tls: bool,
}

/// The error of a URL.
///
/// It never contains the URL, which can have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is not `redis` or `rediss`.
    #[error("a member's URL begins with redis:// or rediss://")]
    Scheme,
    /// The URL names a local socket.
    #[error(
        "a member behind a local socket is not supported: independent masters run on machines of their own: use redis://host:port"
    )]
    UnixSocket,
    /// Sentinel moves a master from one process to another, which would take a lock from its holder.
    #[error(
        "Sentinel is not supported: Redlock needs independent masters, and a failover forgets locks; name the masters themselves"
    )]
    Sentinel,
    /// Masters of a cluster are not independent copies of one lock.
    #[error(
        "Redis Cluster is not supported: each of its masters has other keys; name independent masters, one URL each"
    )]
    Cluster,
    /// The URL names another database than 0.
    #[error("databases other than 0 are not supported: leave /{0} out")]
    Database(u32),
    /// The URL has no host, an invalid port, a broken escape, or text behind the address.
    #[error("use redis://[user:password@]host[:port]")]
    Malformed,
}

const DEFAULT_PORT: u16 = 6379;

impl MemberUrl {
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.trim().split_once(':').ok_or(UrlError::Scheme)?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            "unix" | "redis+unix" => return Err(UrlError::UnixSocket),
            "redis-sentinel" | "redis+sentinel" | "rediss+sentinel" => return Err(UrlError::Sentinel),
            "redis-cluster" | "redis+cluster" | "rediss+cluster" => return Err(UrlError::Cluster),
            _ => return Err(UrlError::Scheme),
        };
        let rest = rest.strip_prefix("//").ok_or(UrlError::Malformed)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        match path {
            "" | "0" => {}
            path => return Err(path.parse().map_or(UrlError::Malformed, UrlError::Database)),
        }
        let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        if address.contains(',') {
            return Err(UrlError::Cluster);
        }
        let (username, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host_and_port(address).ok_or(UrlError::Malformed)?;
        let username = decoded(username).ok_or(UrlError::Malformed)?;
        let password = decoded(password).ok_or(UrlError::Malformed)?;
        // A password without a user belongs to the default user of Redis.
        let username = if username.is_empty() && !password.is_empty() { "default".to_owned() } else { username };
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Ok(Self { address: format!("{bracketed}:{port}"), host: host.to_owned(), username, password, tls })
    }
}

impl fmt::Debug for MemberUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberUrl").field("address", &self.address).field("tls", &self.tls).finish_non_exhaustive()
    }
}

fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, rest) = match address.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => address.find(':').map_or((address, ""), |colon| address.split_at(colon)),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => port.parse().ok()?,
        Some(_) => return None,
        None if rest.is_empty() => DEFAULT_PORT,
        None => return None,
    };
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "?#@".contains(c));
    is_host.then_some((host, port))
}

/// Decodes escapes: `%40` is `@`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            // `from_str_radix` accepts a sign, and an escape has none.
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_of_members_are_read() {
        for (text, address, username, password, tls) in [
            ("redis://10.0.0.1", "10.0.0.1:6379", "", "", false),
            ("redis://shop-e7:p%40ss@redis-0.example:6380/", "redis-0.example:6380", "shop-e7", "p@ss", false),
            ("rediss://:secret@[2001:db8::1]:1/0", "[2001:db8::1]:1", "default", "secret", true),
        ] {
            let url = MemberUrl::parse(text).unwrap();
            assert_eq!(
                (url.address.as_str(), url.username.as_str(), url.password.as_str(), url.tls),
                (address, username, password, tls)
            );
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn unsupported_urls_are_refused_by_name() {
        for (text, error) in [
            ("10.0.0.1", UrlError::Scheme),
            ("http://x", UrlError::Scheme),
            ("unix:/run/redis.sock", UrlError::UnixSocket),
            ("redis+unix:///run/redis.sock", UrlError::UnixSocket),
            ("redis-sentinel://a:26379/main", UrlError::Sentinel),
            ("redis://a:1,b:2", UrlError::Cluster),
            ("redis-cluster://a", UrlError::Cluster),
            ("redis://a/3", UrlError::Database(3)),
            ("redis://a/x", UrlError::Malformed),
            ("redis://", UrlError::Malformed),
            ("redis:a", UrlError::Malformed),
            ("redis://a:99999", UrlError::Malformed),
            ("redis://a?db=3", UrlError::Malformed),
            ("redis://u:%4@a", UrlError::Malformed),
            ("redis://u:%+1@a", UrlError::Malformed),
            ("redis://a:+1", UrlError::Malformed),
            ("redis://[::1", UrlError::Malformed),
        ] {
            assert_eq!(MemberUrl::parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(redis|rediss|unix)?(://)?[a-z:@/%\\[\\]0-9é,]{0,30}") {
            let _ = MemberUrl::parse(&text);
        }
    }
}
