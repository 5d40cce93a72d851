//! Values for the unit tests of several modules.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::redlock::FencingToken;
use crate::time::{Boottime, Monotonic};

/// This many seconds on the clock of fences.
pub(crate) fn monotonic(seconds: u64) -> Monotonic {
    Monotonic::new(Duration::from_secs(seconds))
}

/// This many seconds on the clock of validities.
pub(crate) fn boottime(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(seconds))
}

/// The fencing token with this number.
pub(crate) fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// The first thing that this search finds within the limit.
pub(crate) async fn found<T>(limit: Duration, mut search: impl FnMut() -> Option<T>) -> Option<T> {
    let searching = async {
        loop {
            if let Some(found) = search() {
                return found;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(limit, searching).await.ok()
}

#[derive(clap::Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    arguments: A,
}

/// The arguments of a command line, without the name of the command.
pub(crate) fn arguments<A: clap::Args>(line: &[&str]) -> A {
    let line = ["redlock"].iter().chain(line);
    <Line<A> as clap::Parser>::parse_from(line).arguments
}
