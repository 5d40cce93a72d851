//! The pause before the next attempt to connect to a member.

use std::time::Duration;

/// The first pause between two attempts to connect.
pub(super) const RETRY_PERIOD: Duration = Duration::from_millis(200);
/// The maximum of that pause, which grows with successive failures.
///
/// A new process must be observed soon, because its fence starts with the observation. An external master possibly never answers.
const LONGEST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY_OF_EXTERNAL: Duration = Duration::from_secs(5);

/// The pause before the next attempt to connect, after this number of earlier failures.
pub(super) fn retry_pause(failures: u32, is_external: bool) -> Duration {
    let longest = if is_external { LONGEST_RETRY_OF_EXTERNAL } else { LONGEST_RETRY };
    RETRY_PERIOD.saturating_mul(1 << failures.min(8)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_never_answers_is_retried_less_and_less() {
        let pauses = |is_external| (0..40).map(|at| retry_pause(at, is_external).as_millis()).collect::<Vec<_>>();
        assert_eq!(pauses(false)[..4], [200, 400, 800, 1_000]);
        assert_eq!(pauses(true)[..6], [200, 400, 800, 1_600, 3_200, 5_000]);
        assert_eq!(pauses(true).last(), Some(&5_000));
    }
}
