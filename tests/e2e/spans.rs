//! Intervals of holds, and the check that no two overlap.

use std::time::Duration;

use anyhow::ensure;

/// One hold.
///
/// Times are in milliseconds of Unix time. All compared clocks are of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) who: String,
    /// When the holder received the lock.
    pub(crate) from: i64,
    /// The end of its validity, or the start of its release if that was earlier.
    pub(crate) until: i64,
    /// The token of a claim.
    pub(crate) token: Option<i64>,
}

/// Milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Checks that no two holds overlap, and that the tokens of successive claims rise.
pub(crate) fn check_exclusion(spans: &[Span]) -> anyhow::Result<()> {
    let mut spans: Vec<_> = spans.iter().filter(|span| span.from < span.until).collect();
    spans.sort_by_key(|span| span.from);
    for pair in spans.windows(2) {
        let [earlier, later] = pair else { continue };
        ensure!(later.from >= earlier.until, "two holders for {} ms: {pair:?}", earlier.until - later.from);
        let rises = earlier.token.zip(later.token).is_none_or(|(earlier, later)| earlier < later);
        ensure!(rises, "the token does not rise: {pair:?}");
    }
    Ok(())
}
