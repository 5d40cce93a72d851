use super::store::{Counts, Store};

/// A worker with token 1 reads, pauses until a worker with token 2 has written, and then writes.
fn paused(checks: bool) -> Counts {
    let mut store = Store::new(checks);
    let mut old = store.read("k", 1).unwrap();
    let mut new = store.read("k", 2).unwrap();
    old.insert(1);
    new.insert(2);
    assert!(store.write("k", 2, new, 2));
    assert_eq!(store.write("k", 1, old, 1), !checks);
    store.count()
}

#[test]
fn a_store_that_checks_tokens_loses_nothing() {
    assert_eq!(paused(true), Counts { written: 1, lost: 0, refused: 1 });
}

#[test]
fn a_store_without_token_checks_loses_a_write() {
    assert_eq!(paused(false), Counts { written: 2, lost: 1, refused: 0 });
}

/// The later holder has read and not yet written, so a write of the earlier holder would be lost.
#[test]
fn a_reading_already_shuts_out_older_tokens() {
    let mut store = Store::new(true);
    let old = store.read("k", 1).unwrap();
    store.read("k", 2).unwrap();
    assert!(!store.write("k", 1, old, 1));
    assert_eq!(store.read("k", 1), None);
    assert!(store.read("other", 1).is_some(), "keys have tokens of their own");
}

#[test]
fn a_holder_can_write_more_than_once() {
    let mut store = Store::new(true);
    for element in [1, 2] {
        let mut set = store.read("k", 7).unwrap();
        set.insert(element);
        assert!(store.write("k", 7, set, element));
    }
    assert_eq!(store.count(), Counts { written: 2, lost: 0, refused: 0 });
}
