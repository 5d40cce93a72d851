//! Pure: the locks that the `redlock run`s around this one hold, from the outermost to the innermost.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::hold::Location;

/// The environment variable with the locks, for the command.
pub(super) const HELD: &str = "REDLOCK_HELD";

/// The lock of one outer `run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OuterLock {
    pub(super) place: Location,
    pub(super) lock: String,
    /// The socket of the `redlock run` that holds it.
    pub(super) socket: PathBuf,
}

/// The locks of all outer `run`s. The last one is that of the innermost `run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct OuterLocks(Vec<OuterLock>);

impl OuterLocks {
    /// # Errors
    /// If the value of the variable is not a list of locks.
    pub(super) fn of(variable: Option<OsString>) -> anyhow::Result<Self> {
        let Some(text) = variable.filter(|text| !text.is_empty()) else { return Ok(Self::default()) };
        serde_json::from_slice(text.as_encoded_bytes())
            .with_context(|| format!("{HELD} does not hold what `redlock run` sets there: unset it"))
    }

    /// The socket of the innermost `run`, if it holds this lock.
    ///
    /// # Errors
    /// If another outer `run` holds the lock, or possibly holds it. That `run` releases the lock only after the end of this one, which would
    /// wait without an end.
    pub(super) fn shared(&self, place: &Location, lock: &str) -> anyhow::Result<Option<PathBuf>> {
        let is_same = |link: &OuterLock| match place {
            Location::Agent { .. } => is_named(&link.lock, lock),
            _ => link.lock == lock,
        };
        let compared = |link: &OuterLock| if is_same(link) { link.place.is(place) } else { Some(false) };
        if let Some(link) = self.0.last().filter(|link| compared(link) == Some(true)) {
            return Ok(Some(link.socket.clone()));
        }
        if self.0.iter().any(|link| compared(link).is_none()) {
            bail!(
                "a `redlock run` around this one holds lock {lock} by another way: a claim, --quorum, --direct or --agent. That can be the same \
                 lock, which is released after the end of this one. Give both the same options, or unset {HELD} if they are two locks"
            );
        }
        if self.0.iter().any(|link| compared(link) == Some(true)) {
            let held: Vec<_> = self.0.iter().map(|link| link.lock.as_str()).collect();
            bail!(
                "lock {lock} is held by a `redlock run` around this one, which holds {} in this order: take a lock once, and several \
                 locks in the same order everywhere",
                held.join(", ")
            );
        }
        Ok(None)
    }

    /// Adds the lock that this `run` holds. Returns the value of the variable.
    ///
    /// If this `run` shares the innermost lock, its socket replaces the socket of the outer `run`.
    pub(super) fn with(mut self, link: OuterLock) -> OsString {
        if self.0.last().is_some_and(|last| (&last.place, &last.lock) == (&link.place, &link.lock)) {
            self.0.pop();
        }
        self.0.push(link);
        serde_json::to_string(&self).unwrap_or_default().into()
    }
}

/// Whether `lock` names this lock of an agent. A key alone is one of any namespace.
pub(super) fn is_named(of_agent: &str, lock: &str) -> bool {
    let is_key = || !lock.contains('/') && of_agent.split_once('/').is_some_and(|(_, key)| key == lock);
    of_agent == lock || is_key()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(addresses: &str) -> Location {
        Location::Members { addresses: addresses.into() }
    }

    fn link(place: &str, lock: &str) -> OuterLock {
        OuterLock { place: members(place), lock: lock.into(), socket: format!("/run/{lock}").into() }
    }

    fn chain(links: &[(&str, &str)]) -> OuterLocks {
        links.iter().fold(OuterLocks::default(), |chain, (place, lock)| {
            OuterLocks::of(Some(chain.with(link(place, lock)))).unwrap()
        })
    }

    #[test]
    fn a_lock_of_the_innermost_run_is_shared() {
        let held = chain(&[("p", "b"), ("p", "a")]);
        assert_eq!(held.shared(&members("p"), "a").unwrap(), Some("/run/a".into()));
        assert_eq!(held.shared(&members("p"), "c").unwrap(), None);
        assert_eq!(OuterLocks::of(None).unwrap().shared(&members("p"), "a").unwrap(), None);
        assert_eq!(chain(&[("p", "a")]).shared(&members("q"), "a").unwrap(), None, "another lock of the same name");
        let shares = chain(&[("p", "a"), ("p", "a")]);
        assert_eq!(shares, chain(&[("p", "a")]), "a run that shares answers for the outer one");
    }

    #[test]
    fn a_key_alone_names_the_lock_of_an_agent() {
        for (of_agent, lock, is_same) in [
            ("shop/reindex", "shop/reindex", true),
            ("shop/reindex", "reindex", true),
            ("reindex", "reindex", true),
            ("shop/jobs/reindex", "jobs/reindex", false),
            ("reindex", "shop/reindex", false),
        ] {
            assert_eq!(is_named(of_agent, lock), is_same, "{of_agent} {lock}");
        }
        let agent = Location::Agent { address: "127.0.0.1:4040".into() };
        let held = OuterLock { place: agent.clone(), lock: "shop/reindex".into(), socket: "/run/a".into() };
        let held = OuterLocks::of(Some(OuterLocks::default().with(held))).unwrap();
        assert_eq!(held.shared(&agent, "reindex").unwrap(), Some("/run/a".into()));
    }

    #[test]
    fn a_lock_that_can_be_the_same_one_is_refused() {
        let cluster = |server: &str, quorum: Option<&str>| Location::Cluster {
            server: server.into(),
            quorum: quorum.map(str::to_owned),
        };
        let agent = |address: &str| Location::Agent { address: address.into() };
        assert_eq!(cluster("s", None).is(&cluster("s", None)), Some(true));
        assert_eq!(cluster("s", None).is(&cluster("t", None)), Some(false));
        assert_eq!(cluster("s", Some("a")).is(&cluster("s", Some("b"))), Some(false));
        assert_eq!(cluster("s", None).is(&cluster("s", Some("a"))), None, "it can be the default");
        assert_eq!(agent("a").is(&agent("b")), None);
        for other in [cluster("s", None), agent("a")] {
            let refused = chain(&[("p", "a"), ("p", "b")]).shared(&other, "a").unwrap_err().to_string();
            assert!(refused.contains("by another way"), "{refused}");
            assert_eq!(chain(&[("p", "b")]).shared(&other, "a").unwrap(), None, "another name is another lock");
        }
    }

    #[test]
    fn a_circle_is_refused_with_the_held_locks() {
        let refused = chain(&[("p", "a"), ("p", "b")]).shared(&members("p"), "a").unwrap_err().to_string();
        assert!(refused.contains("which holds a, b in this order"), "{refused}");
    }

    #[test]
    fn another_text_is_refused() {
        assert!(OuterLocks::of(Some("shop/a".into())).unwrap_err().to_string().contains(HELD));
        assert_eq!(OuterLocks::of(Some("".into())).unwrap(), OuterLocks::default());
    }
}
