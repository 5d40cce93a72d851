//! Times that the tests measured, for the summary.

use std::{fmt, time::Duration};

use anyhow::ensure;
use parking_lot::Mutex;

use crate::cluster::checkout;

/// All times measured up to now, by their name.
#[derive(Default)]
pub(crate) struct Figures(Mutex<Vec<(String, Vec<Duration>)>>);

impl Figures {
    /// Adds a measured time.
    pub(crate) fn add(&self, of: &str, time: Duration) {
        let mut figures = self.0.lock();
        match figures.iter_mut().find(|(name, _)| name == of) {
            Some((_, times)) => times.push(time),
            None => figures.push((of.to_owned(), vec![time])),
        }
    }

    /// All times by their name, in the order of the first ones.
    pub(crate) fn rows(&self) -> Vec<(String, Vec<Duration>)> {
        self.0.lock().clone()
    }

    /// Fails unless the median of these measurements is under `limit`.
    pub(crate) fn ensure_median_under(&self, of: &str, limit: Duration) -> anyhow::Result<()> {
        let figures = self.0.lock();
        let times = figures.iter().find(|(name, _)| name == of).map(|(_, times)| times.as_slice()).unwrap_or_default();
        ensure!(!times.is_empty(), "there is no measurement of: {of}");
        ensure!(median(times) < limit, "{of}: the median must be under {} ms: {}", limit.as_millis(), Line(of, times));
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().iter().try_for_each(|(name, times)| writeln!(f, "  {}", Line(name, times)))
    }
}

struct Line<'a>(&'a str, &'a [Duration]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, times) = self;
        let (median, count) = (median(times).as_millis(), times.len());
        let [min, max] = [times.iter().min(), times.iter().max()].map(|time| time.map_or(0, Duration::as_millis));
        write!(f, "{name}: median {median} ms, min {min} ms, max {max} ms (n={count})")
    }
}

/// Writes rows into a table of docs/ if `WRITE=1` is set, and returns whether it wrote them.
///
/// Each row takes the place of the one with the same first columns, and comes with the number of these columns.
pub(crate) fn keep_rows(table: &str, rows: impl IntoIterator<Item = (usize, String)>) -> anyhow::Result<bool> {
    if !std::env::var("WRITE").is_ok_and(|write| write == "1") {
        return Ok(false);
    }
    let path = checkout().join(table);
    let mut lines: Vec<String> = std::fs::read_to_string(&path)?.lines().map(str::to_owned).collect();
    for (columns, row) in rows {
        let key = |row: &str| row.split('\t').take(columns).map(str::to_owned).collect::<Vec<_>>();
        match lines.iter_mut().find(|earlier| key(earlier) == key(&row)) {
            Some(earlier) => *earlier = row,
            None => lines.push(row),
        }
    }
    std::fs::write(path, lines.join("\n") + "\n")?;
    Ok(true)
}

/// The middle time, or the mean of the two in the middle.
pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (0, Some(low), Some(high)) => (*low + *high) / 2,
        (_, _, middle) => middle.copied().unwrap_or_default(),
    }
}
