//! Pure: versions of servers whose scripts have known faults.
//!
//! A client runs scripts on the members. With a fault of the server, the client can run any code there, with the rights of every user.

/// The minimum patch level with the fixes for each minor version.
///
/// A minor version above the last one has them.
const REDIS: [[u32; 3]; 4] = [[7, 2, 11], [7, 4, 6], [8, 0, 4], [8, 2, 2]];
const VALKEY: [[u32; 3]; 3] = [[7, 2, 11], [8, 0, 6], [8, 1, 4]];

/// The version to use instead, if this one lacks the fixes.
///
/// Valkey reports its own version and that of the compatible Redis. A version without three numbers proves nothing.
pub fn least_fixed(redis: &str, valkey: Option<&str>) -> Option<String> {
    let (name, version, fixed) = valkey.map_or(("Redis", redis, &REDIS[..]), |valkey| ("Valkey", valkey, &VALKEY[..]));
    let mut numbers = version.splitn(3, '.').map(|number| number.parse::<u32>().ok());
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    let least = fixed.iter().find(|least| least[..2] >= version[..2])?;
    (version < *least).then(|| format!("{name} {}.{}.{}", least[0], least[1], least[2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_without_fixes_is_named_with_the_next_fixed_one() {
        for (redis, valkey, expected) in [
            ("7.0.15", None, Some("Redis 7.2.11")),
            ("7.2.10", None, Some("Redis 7.2.11")),
            ("7.2.11", None, None),
            ("7.4.5", None, Some("Redis 7.4.6")),
            ("8.0.4", None, None),
            ("8.2.1", None, Some("Redis 8.2.2")),
            ("8.4.0", None, None),
            ("7.2.4", Some("8.1.3"), Some("Valkey 8.1.4")),
            ("7.2.4", Some("8.1.7"), None),
            ("7.2.4", Some("9.0.0"), None),
            ("255.255.255-dev", None, None),
            ("", None, None),
        ] {
            assert_eq!(least_fixed(redis, valkey).as_deref(), expected, "{redis} {valkey:?}");
        }
    }

    #[test]
    fn the_description_of_the_image_names_the_fixed_versions_only() {
        let crds = serde_json::to_string(&crate::api::crds()).unwrap();
        let text = crds.split("Container image of the members").nth(1).unwrap().split('"').next().unwrap();
        for [major, minor, patch] in REDIS.iter().chain(&VALKEY) {
            assert!(text.contains(&format!("{major}.{minor}.{patch}")), "{text}");
        }
        assert!(!text.contains("7.0"), "{text}");
    }
}
