//! Measurements, and figures from them.

use std::time::Duration;

use redlock_client::{Boottime, Clock, SystemClock};

use crate::servers::{self, Servers, Totals};

/// p50 and p99 of acquire, p50 and p99 of release, in microseconds.
pub(crate) type Times = [f64; 4];

/// Cycles in a time, and durations of single operations.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    pub(crate) cycles: u64,
    /// Attempts that were not granted, for any reason.
    pub(crate) failed: u64,
    pub(crate) elapsed: Duration,
    pub(crate) acquires: Vec<Duration>,
    pub(crate) releases: Vec<Duration>,
    /// The times that an external program reports.
    pub(crate) times: Option<Times>,
    /// Microseconds per cycle.
    pub(crate) cpu_client: f64,
    pub(crate) cpu_servers: f64,
    /// Numbers per cycle, of all servers together.
    pub(crate) commands: f64,
    pub(crate) reads: f64,
    pub(crate) key_reads: f64,
}

impl Measured {
    pub(crate) fn per_cycle(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.cycles.max(1) as f64
    }

    pub(crate) fn rate(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.cycles += other.cycles;
        self.failed += other.failed;
        self.acquires.extend(other.acquires);
        self.releases.extend(other.releases);
    }
}

/// p50 and p99 of acquire and of release. Those of the floor are unknown.
fn times(measured: &Measured) -> Option<Times> {
    let one = std::slice::from_ref(measured);
    let of = |what, fraction| quantile(one, what, fraction) * 1e6;
    let own = || {
        let acquires: fn(&Measured) -> &Vec<Duration> = |one| &one.acquires;
        let releases: fn(&Measured) -> &Vec<Duration> = |one| &one.releases;
        [of(acquires, 0.5), of(acquires, 0.99), of(releases, 0.5), of(releases, 0.99)]
    };
    measured.times.or_else(|| (!measured.acquires.is_empty()).then(own))
}

pub(crate) fn now() -> Boottime {
    SystemClock.boottime()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn quantile(measured: &[Measured], of: fn(&Measured) -> &Vec<Duration>, fraction: f64) -> f64 {
    let mut values: Vec<Duration> = measured.iter().flat_map(|one| of(one).iter().copied()).collect();
    values.sort_unstable();
    let index = ((values.len() as f64 * fraction) as usize).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default().as_secs_f64()
}

pub(crate) fn per_cycle(measured: &[Measured]) -> f64 {
    median(measured.iter().map(Measured::per_cycle).collect())
}

pub(crate) fn rate(measured: &[Measured]) -> f64 {
    median(measured.iter().map(Measured::rate).collect())
}

/// The median of the ratios of two programs in each round.
///
/// It compares within a round, because the machine changes least there.
pub(crate) fn ratio(these: &[Measured], those: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    median(these.iter().zip(those).map(|(this, that)| of(this) / of(that)).collect())
}

/// One line about a cell.
pub(crate) fn describe(what: &str, measured: &[Measured]) -> String {
    let each = |of: fn(&Measured) -> f64| median(measured.iter().map(of).collect());
    let failed: u64 = measured.iter().map(|one| one.failed).sum();
    let failed = if failed > 0 { format!("; {failed} not granted") } else { String::new() };
    let all: Vec<Times> = measured.iter().filter_map(times).collect();
    let of = |index: usize| median(all.iter().map(|times| times[index]).collect());
    let times = if all.is_empty() {
        String::new()
    } else {
        format!("; acquire {:.0} µs, p99 {:.0} µs, release {:.0} µs, p99 {:.0} µs", of(0), of(1), of(2), of(3))
    };
    format!(
        "{what}: {:.0} µs per cycle, {:.0} cycles/s{times}; CPU per cycle: client {:.0} µs, servers {:.0} µs; {:.1} commands in {:.2} reads{failed}",
        per_cycle(measured),
        rate(measured),
        each(|one| one.cpu_client),
        each(|one| one.cpu_servers),
        each(|one| one.commands),
        each(|one| one.reads),
    )
}

pub(crate) struct Meter<'a> {
    servers: &'a Servers,
    /// The process whose CPU time is that of the client, by its number or "self".
    client: String,
    started: Boottime,
    own: u64,
    theirs: u64,
    totals: Totals,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(servers: &'a Servers) -> Self {
        Self::of(servers, "self".to_owned())
    }

    /// Measures a client in another process.
    pub(crate) fn of(servers: &'a Servers, client: String) -> Self {
        let totals = servers.totals();
        let (own, theirs) = (servers::cpu_ticks(&client), servers.cpu_ticks());
        Self { servers, client, started: now(), own, theirs, totals }
    }

    pub(crate) fn stop(self, mut measured: Measured) -> Measured {
        measured.elapsed = now().since(self.started);
        let each = |total: u64| total as f64 / measured.cycles.max(1) as f64;
        // A tick is a hundredth of a second.
        let cpu_client = each(servers::cpu_ticks(&self.client) - self.own) * 10_000.0;
        let cpu_servers = each(self.servers.cpu_ticks() - self.theirs) * 10_000.0;
        let totals = self.servers.totals();
        let commands = each(totals.commands.saturating_sub(self.totals.commands));
        let reads = each(totals.reads.saturating_sub(self.totals.reads));
        let key_reads = each(totals.key_reads.saturating_sub(self.totals.key_reads));
        Measured { cpu_client, cpu_servers, commands, reads, key_reads, ..measured }
    }
}
