//! Recognises servers that cannot hold locks, by their INFO.

use crate::redlock::Unfit;

/// Minimum major version. It introduced the option `GT` of `PEXPIRE`.
const MIN_MAJOR: u32 = 7;

/// The reason why the server with this INFO can hold no locks.
///
/// A missing field is no reason.
#[must_use]
pub fn unfit_reason(info: &[u8]) -> Option<Unfit> {
    let info = std::str::from_utf8(info).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let major = |version: &str| version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    // Valkey has another name for this field.
    match field("redis_mode").or_else(|| field("server_mode")) {
        Some("sentinel") => return Some(Unfit::Sentinel),
        Some("cluster") => return Some(Unfit::Cluster),
        _ => {}
    }
    // Valkey reports the version of Redis with which it is compatible.
    if let Some(version) = field("redis_version").filter(|version| major(version).is_some_and(|it| it < MIN_MAJOR)) {
        return Some(Unfit::Old(version.to_owned()));
    }
    if field("role").is_some_and(|role| role != "master") {
        return Some(Unfit::Replica);
    }
    field("maxmemory_policy").filter(|policy| *policy != "noeviction").map(|policy| Unfit::Evicts(policy.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfit_servers_are_recognised_by_info() {
        for (info, unfit) in [
            ("redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n", None),
            ("run_id:abc\r\n", None),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n", None),
            ("redis_version:7.2.4\r\nredis_mode:sentinel\r\n", Some(Unfit::Sentinel)),
            ("redis_mode:cluster\r\nrole:slave\r\n", Some(Unfit::Cluster)),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:cluster\r\n", Some(Unfit::Cluster)),
            ("redis_version:6.2.14\r\n", Some(Unfit::Old("6.2.14".to_owned()))),
            ("redis_version:7.0.15\r\nrole:slave\r\n", Some(Unfit::Replica)),
            ("role:master\r\nmaxmemory_policy:allkeys-lru\r\n", Some(Unfit::Evicts("allkeys-lru".to_owned()))),
        ] {
            assert_eq!(unfit_reason(info.as_bytes()), unfit, "{info}");
        }
    }
}
