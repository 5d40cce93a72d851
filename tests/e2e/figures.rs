//! Times that the tests measured, for the summary.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::ensure;

/// All times measured up to now, by their name.
#[derive(Default)]
pub(crate) struct Figures(Mutex<Vec<(String, Vec<Duration>)>>);

impl Figures {
    /// Adds a measured time.
    pub(crate) fn add(&self, of: &str, time: Duration) {
        let mut figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match figures.iter_mut().find(|(name, _)| name == of) {
            Some((_, times)) => times.push(time),
            None => figures.push((of.to_owned(), vec![time])),
        }
    }

    /// All times by their name, in the order of the first ones.
    pub(crate) fn rows(&self) -> Vec<(String, Vec<Duration>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fails unless the median of these measurements is under `limit`.
    pub(crate) fn ensure_median_under(&self, of: &str, limit: Duration) -> anyhow::Result<()> {
        let figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = figures.iter().find(|(name, _)| name == of).map(|(_, times)| times.as_slice()).unwrap_or_default();
        ensure!(!times.is_empty(), "there is no measurement of: {of}");
        ensure!(median(times) < limit, "{of}: the median must be under {} ms: {}", limit.as_millis(), Line(of, times));
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        figures.iter().try_for_each(|(name, times)| writeln!(f, "  {}", Line(name, times)))
    }
}

struct Line<'a>(&'a str, &'a [Duration]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, times) = self;
        let (min, max) =
            (times.iter().min().copied().unwrap_or_default(), times.iter().max().copied().unwrap_or_default());
        write!(
            f,
            "{name}: median {} ms, min {} ms, max {} ms (n={})",
            median(times).as_millis(),
            min.as_millis(),
            max.as_millis(),
            times.len()
        )
    }
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
