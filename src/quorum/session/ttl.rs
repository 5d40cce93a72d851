//! A walk over all keys of one process, a page at a time and a rest between two walks: which of them live longer than any fence
//! waits for? (Rule 10.) Redis' ACLs cannot bound a time to live, so it is watched.

use std::time::Duration;

use crate::quorum::model::status::TtlReport;
use crate::redis_member::TtlSample;
use crate::time::Monotonic;

/// Keys of one page: one page per probe keeps the work of a member bounded, however many keys it has.
pub(super) const PAGE: u32 = 500;
/// Between two walks.
const REST: Duration = Duration::from_secs(5);
/// Of a key's name, so much is remembered at most.
const LONGEST_PREFIX: usize = 64;

/// Where the walk over one process is.
#[derive(Clone, Debug, Default)]
pub(super) struct TtlWalk {
    cursor: u64,
    rest_until: Option<Monotonic>,
    found: TtlReport,
    last: Option<TtlReport>,
}

impl TtlWalk {
    /// Where to read on now; `None` during a rest.
    pub(super) fn next(&self, now: Monotonic) -> Option<u64> {
        self.rest_until.is_none_or(|until| now >= until).then_some(self.cursor)
    }

    /// Takes a page that was read at [`TtlWalk::next`]; whether the report has changed.
    pub(super) fn page(&mut self, page: &TtlSample, bound: Duration, now: Monotonic) -> bool {
        let before = self.report();
        let own = |key: &str| key.starts_with('#');
        for (key, _) in page.keys.iter().filter(|(key, ttl)| !own(key) && ttl.is_none_or(|ttl| ttl > bound)) {
            self.found.count(prefix(key));
        }
        self.cursor = page.cursor;
        self.rest_until = None;
        if page.cursor == 0 {
            self.last = Some(std::mem::take(&mut self.found));
            self.rest_until = Some(now + REST);
        }
        self.report() != before
    }

    /// What the last complete walk found, and the present one so far. `None` as long as none is complete and nothing was found.
    pub(super) fn report(&self) -> Option<TtlReport> {
        match &self.last {
            Some(last) => Some(last.clone().or(&self.found)),
            None => (!self.found.is_empty()).then(|| self.found.clone()),
        }
    }
}

/// The part of a key that says whose it is. Shortened, and without what a terminal would obey: others choose it.
fn prefix(key: &str) -> String {
    let prefix = key.rfind('/').map_or("", |slash| &key[..=slash]);
    prefix.chars().take(LONGEST_PREFIX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn page(cursor: u64, keys: &[(&str, Option<u64>)]) -> TtlSample {
        let keys = keys.iter().map(|(key, seconds)| ((*key).to_owned(), seconds.map(Duration::from_secs)));
        TtlSample { cursor, keys: keys.collect() }
    }

    fn counts(walk: &TtlWalk) -> Option<Vec<(String, u64)>> {
        walk.report().map(|report| report.by_prefix.into_iter().collect())
    }

    #[test]
    fn what_is_beyond_the_bound_is_found_at_once_and_forgotten_after_a_walk_without_it() {
        let mut walk = TtlWalk::default();
        assert_eq!((walk.next(at(1)), walk.report()), (Some(0), None));
        let first = page(7, &[("shop/a/x", Some(31)), ("shop/ok", Some(30)), ("#token", None), ("bare", None)]);
        assert!(walk.page(&first, BOUND, at(1)));
        let found = vec![(String::new(), 1), ("shop/a/".to_owned(), 1)];
        assert_eq!((walk.next(at(1)), counts(&walk)), (Some(7), Some(found.clone())), "in the middle of the walk");
        assert!(!walk.page(&page(0, &[]), BOUND, at(2)));
        assert_eq!((walk.next(at(2)), walk.next(at(7))), (None, Some(0)), "a rest");
        // The next walk finds less, and says so when it is complete.
        assert!(!walk.page(&page(9, &[("shop/a/x", Some(29))]), BOUND, at(7)));
        assert_eq!(counts(&walk), Some(found));
        assert!(walk.page(&page(0, &[]), BOUND, at(8)));
        assert_eq!(counts(&walk), Some(vec![]));
    }

    #[test]
    fn a_prefix_is_short_and_harmless() {
        let long = format!("{}/x", "ä".repeat(100));
        for (key, expected) in [("x", ""), ("a/b/c", "a/b/"), ("a/\u{1b}[2J/x", "a/?[2J/"), (&long, &"ä".repeat(64))] {
            assert_eq!(prefix(key), expected);
        }
    }
}
