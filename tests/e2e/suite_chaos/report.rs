//! The figures of a run, as in docs/dev/proof.md, and the checks on them.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::ensure;
use redlock_operator::api::{MemberState, RedisQuorum};

use super::library_clients;
use crate::{
    checker::{self, Fault, Hold, Verdict},
    record::Version,
    store::Counts,
};

/// The minimum number of grants per second: 20,000 in half an hour.
const GRANTS: f64 = 11.2;
/// The maximum number of seconds for each fault: 200 faults in half an hour.
const FAULT_EVERY: u64 = 9;
const KINDS: usize = 15;
/// Maximum number of printed entries of one kind.
const SHOWN: usize = 8;

pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    holds: Vec<Hold>,
    faults: Vec<Fault>,
    kinds: BTreeMap<&'static str, usize>,
    verdict: Verdict,
}

impl Report {
    /// Creates the report of a run with the injected faults.
    ///
    /// `observed` explains more losses.
    pub(crate) fn new(seed: u64, length: Duration, holds: Vec<Hold>, faults: Vec<Fault>, observed: &[Fault]) -> Self {
        let verdict = checker::check(&holds, &[&faults[..], observed].concat(), 2, 2);
        let mut kinds = BTreeMap::new();
        for fault in &faults {
            *kinds.entry(fault.kind).or_default() += 1;
        }
        Self { seed, length, holds, faults, kinds, verdict }
    }

    fn grants(&self, with_token: bool) -> usize {
        self.holds.iter().filter(|hold| hold.token.is_some() == with_token && hold.from < hold.until).count()
    }

    pub(crate) fn overlaps(&self) -> usize {
        self.verdict.overlaps.len()
    }

    /// Fails on every kind of violation, and if the run is too small to prove anything.
    pub(crate) fn must_hold(&self) -> anyhow::Result<()> {
        let Verdict { overlaps, reversals, unexplained, .. } = &self.verdict;
        let wrong: Vec<_> =
            overlaps.iter().chain(reversals).chain(unexplained).take(SHOWN).map(String::as_str).collect();
        if !wrong.is_empty() {
            println!("faults, in milliseconds:");
            self.faults.iter().for_each(|fault| println!("  {} .. {} {}", fault.from, fault.until, fault.kind));
        }
        ensure!(wrong.is_empty(), "seed {}:\n{}", self.seed, wrong.join("\n"));
        let (length, grants) = (self.length, self.grants(true) + self.grants(false));
        ensure!(grants as f64 >= GRANTS * length.as_secs_f64(), "{grants} grants in {length:?} are too few");
        let faults = self.faults.len();
        ensure!(faults as u64 >= length.as_secs() / FAULT_EVERY, "only {faults} faults in {length:?}");
        ensure!(self.kinds.len() >= KINDS.min(faults / 2), "only {} kinds among {faults} faults", self.kinds.len());
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { overlaps, excepted, reversals, unexplained, lapsed, taken } = &self.verdict;
        let [overlaps, excepted, reversals, unexplained] = [overlaps, excepted, reversals, unexplained].map(Vec::len);
        writeln!(f, "seed {}, {} s", self.seed, self.length.as_secs())?;
        writeln!(f, "grants: {} from the operator, {} of clients outside", self.grants(true), self.grants(false))?;
        for library in library_clients::contending() {
            let of = |hold: &&Hold| hold.who.starts_with(library.name) && hold.from < hold.until;
            writeln!(f, "  {:>6} by {}", self.holds.iter().filter(of).count(), library.name)?;
        }
        writeln!(f, "faults: {} of {} kinds", self.faults.len(), self.kinds.len())?;
        self.kinds.iter().try_for_each(|(kind, count)| writeln!(f, "  {count:>4} × {kind}"))?;
        writeln!(f, "losses: {taken} locks lost, {lapsed} validities not published in time")?;
        writeln!(f, "not guaranteed: {excepted} overlaps of clients outside after a step of a clock (docs/safety.md)")?;
        write!(f, "violations: {overlaps} overlaps, {reversals} token reversals, {unexplained} unexplained losses")
    }
}

pub(crate) fn print_store(name: &str, counts: Counts) {
    let Counts { written, lost, refused } = counts;
    println!("store that {name}: {written} additions acknowledged, {lost} of them lost, {refused} requests refused");
}

/// The times without a voting member, from the quorum's status.
///
/// A member that joins or leaves is no outage, because it affects no lock.
pub(crate) fn outages(versions: &[Version<RedisQuorum>]) -> Vec<Fault> {
    let ends = versions.iter().skip(1).map(|next| next.wall.0).chain([i64::MAX]);
    let of = |(version, until): (&Version<RedisQuorum>, i64)| {
        let out = version.object.status.iter().flat_map(|status| {
            let votes = |name: &String| status.voters.contains(name) || status.former_voters.contains(name);
            let members = status.members.iter().filter(move |member| votes(&member.name));
            members.filter(|member| member.state != MemberState::Admitted).map(|member| member.name.clone())
        });
        Fault { kind: "seen", from: version.wall.0, until, members: out.collect(), ..Fault::default() }
    };
    versions.iter().zip(ends).map(of).filter(|fault| !fault.members.is_empty()).collect()
}
