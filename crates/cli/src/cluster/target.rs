//! How a user names a lock: `<namespace>/<key>`, `<key>` with `-n`, or `dlock/<name>` for one object.

use std::fmt;

use kube::ResourceExt as _;

use crate::cluster::Problem;
use crate::cluster::objects::LockObject;

/// Prefix of the name of an object, in contrast to a key.
const OBJECT: &str = "dlock/";
/// Maximum length of a key, as in `spec.key`.
const LONGEST_KEY: usize = 200;

/// A lock that the command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The namespace of the lock.
    pub namespace: String,
    /// The key or the object.
    pub lock: Named,
}

/// A key, or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// All objects with this key, which compete for it.
    Key(String),
    /// One DistributedLock by its name.
    Object(String),
}

impl Target {
    /// Parses the user's argument. With the flag `-n` the whole argument is the key.
    ///
    /// # Errors
    /// If the argument names no lock. The error shows the expected form.
    pub fn parse(text: &str, flag: Option<&str>, default_namespace: &str) -> Result<Self, Problem> {
        let here = flag.unwrap_or(default_namespace).to_owned();
        if let Some(name) = text.strip_prefix(OBJECT) {
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
            let lock = Named::Object(name.to_owned());
            return if is_name { Ok(Self { namespace: here, lock }) } else { Err(malformed(text)) };
        }
        let (namespace, key) = match (flag, text.split_once('/')) {
            (None, Some((namespace, key))) => (namespace.to_owned(), key),
            _ => (here, text),
        };
        let is_key = key.len() <= LONGEST_KEY && is_of_key_characters(key);
        if namespace.is_empty() || !is_key {
            return Err(malformed(text));
        }
        Ok(Self { namespace, lock: Named::Key(key.to_owned()) })
    }

    /// Whether this is an object of the target, among those of its namespace.
    #[must_use]
    pub fn means(&self, lock: &LockObject) -> bool {
        match &self.lock {
            Named::Key(key) => lock.key() == *key,
            Named::Object(name) => lock.name_any() == *name,
        }
    }

    /// The name in output for programs: `<namespace>/<key>`, or `dlock/<name>`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.lock {
            Named::Key(key) => format!("{}/{key}", self.namespace),
            Named::Object(name) => format!("{OBJECT}{name}"),
        }
    }
}

/// Whether a text is not empty and has only characters that `spec.key` allows.
pub(crate) fn is_of_key_characters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._:/-".contains(c))
}

fn malformed(text: &str) -> Problem {
    Problem::new(
        format!("{text:?} names no lock"),
        "Use <namespace>/<key>, or <key> with -n <namespace>, or dlock/<name> for one object.",
    )
}

/// The form that a user writes without `-n`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lock {
            Named::Key(key) => write!(f, "{}/{key}", self.namespace),
            Named::Object(name) => write!(f, "dlock/{name} in namespace {}", self.namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, flag: Option<&str>) -> Option<(String, Named)> {
        Target::parse(text, flag, "home").ok().map(|target| (target.namespace, target.lock))
    }

    #[test]
    fn a_target_has_a_plain_name_for_programs() {
        let name = |text: &str, flag| Target::parse(text, flag, "here").unwrap().name();
        assert_eq!(name("shop/jobs/a", None), "shop/jobs/a");
        assert_eq!(name("jobs/a", Some("shop")), "shop/jobs/a");
        assert_eq!(name("dlock/a", Some("shop")), "dlock/a");
    }

    #[test]
    fn a_lock_is_named_by_namespace_and_key_or_by_its_object() {
        let key = |namespace: &str, key: &str| Some((namespace.to_owned(), Named::Key(key.to_owned())));
        assert_eq!(read("shop/reindex", None), key("shop", "reindex"));
        assert_eq!(read("shop/jobs/reindex", None), key("shop", "jobs/reindex"));
        assert_eq!(read("reindex", None), key("home", "reindex"));
        assert_eq!(read("jobs/reindex", Some("shop")), key("shop", "jobs/reindex"), "all of it is the key");
        let object = |namespace: &str| Some((namespace.to_owned(), Named::Object("nightly".into())));
        assert_eq!(read("dlock/nightly", None), object("home"));
        assert_eq!(read("dlock/nightly", Some("shop")), object("shop"));
    }

    #[test]
    fn an_invalid_lock_name_is_refused_with_a_valid_form() {
        for text in ["", "/key", "shop/", "a key", "dlock/", "dlock/a/b", "shop/ä"] {
            let refused = Target::parse(text, None, "home").unwrap_err();
            assert!(refused.next.contains("<namespace>/<key>"), "{text}: {refused}");
        }
        assert!(Target::parse(&"k".repeat(201), None, "home").is_err());
    }
}
