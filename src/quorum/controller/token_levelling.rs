//! Raises low token counters to the highest one (`docs/dev/algorithm.md`, "Tokens"). Otherwise a counter that was restored from a clock,
//! or that missed many tokens, has two effects. An acquisition without all votes needs a second round, and clients get no tokens.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use crate::quorum::model::{counters, record};
use crate::quorum::session::{QuorumSession, Sessions};
use crate::redlock::FencingToken;

/// The pause between two checks.
const PERIOD: Duration = Duration::from_secs(5);

/// Levels the counters of all quorums every few seconds while this leader leads.
///
/// Each replica can raise a counter safely.
pub(super) async fn run(sessions: Sessions) {
    loop {
        let sessions = sessions.all();
        let present = sessions.iter().filter(|session| session.quorum().metadata.deletion_timestamp.is_none());
        // A quorum whose members answer slowly delays no other one.
        join_all(present.map(|session| level_counters(session, session.hint()))).await;
        sleep(PERIOD).await;
    }
}

/// Raises every admitted counter that is behind, on members that answer.
///
/// The new value is the highest plausible counter, and at least `at_least`. Without votes the quorum levels every counter, because the
/// next vote that raises it can be of an operator with another list.
pub(super) async fn level_counters(session: &QuorumSession, at_least: FencingToken) {
    let (quorum, links) = (session.quorum(), session.links());
    let counters = links.iter().filter_map(|link| {
        let run_id = record::admitted_run_id(&quorum, link.name.as_str())?;
        let state = link.state();
        let observation = state.observation().filter(|observation| link.answers() && observation.run_id == run_id)?;
        Some(((link.clone(), run_id), observation.counter.unwrap_or_default()))
    });
    let lag = if session.allows_votes() { counters::MOST_LAG } else { 0 };
    let (highest, members) = counters::behind(counters.collect(), at_least, lag);
    join_all(members.iter().map(|(link, run_id)| link.raise_counter(run_id, highest))).await;
    // The highest counter includes tokens of clients outside the operator, so the floor rises above those as well.
    session.observe_token(highest);
}
