//! Sets of members, one bit each.

pub(crate) type Set = u8;

/// Every set of this number of members, the empty one first.
pub(crate) fn sets(members: usize) -> impl Iterator<Item = Set> {
    0..1 << members
}

pub(crate) fn has(set: Set, member: usize) -> bool {
    set >> member & 1 == 1
}

pub(crate) fn members_of(set: Set) -> impl Iterator<Item = usize> {
    (0..8).filter(move |member| has(set, *member))
}

pub(crate) fn named(set: Set) -> String {
    let names = members_of(set).map(|member| format!("m{}", member + 1));
    format!("[{}]", names.collect::<Vec<_>>().join(" "))
}
