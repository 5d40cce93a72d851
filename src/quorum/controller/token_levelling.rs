//! The members' token counters are kept level (`docs/dev/algorithm.md`, "Tokens"). Otherwise a member that was restored by a clock, or that
//! has missed many tokens, would cost each acquisition without all votes a second round, and deny clients their tokens.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::quorum::model::counters;
use crate::quorum::model::record::admitted_run_id;
use crate::quorum::session::{ActError, MemberLink, QuorumSession, Sessions};
use crate::redlock::{FencingToken, MemberError, RunId};

/// The pause between two checks.
const PERIOD: Duration = Duration::from_secs(5);
/// For one member.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Levels the counters of all quorums every few seconds, as long as this leader leads. Raising a counter is right whichever replica does it.
pub(super) async fn run(sessions: Sessions) {
    loop {
        for session in sessions.all() {
            if session.quorum().metadata.deletion_timestamp.is_none() {
                level_counters(&session, session.hint()).await;
            }
        }
        sleep(PERIOD).await;
    }
}

/// Raises every admitted counter that is behind, as far as members can be asked.
///
/// It is raised to the highest counter that was read and counts, and at least to `at_least`.
pub(super) async fn level_counters(session: &QuorumSession, at_least: FencingToken) {
    let (quorum, links) = (session.quorum(), session.links());
    let counters = links.iter().filter_map(|link| {
        let run_id = admitted_run_id(&quorum, link.name().as_str())?;
        let observation =
            link.state().observation().filter(|observation| link.answers() && observation.run_id == run_id).cloned()?;
        Some(((link.clone(), run_id), observation.counter.unwrap_or_default()))
    });
    let counters: Vec<_> = counters.collect();
    let (highest, members) = counters::behind(counters, at_least);
    let raised = members.iter().map(|(link, run_id)| raise(link, run_id, highest));
    for (outcome, (link, _)) in join_all(raised).await.into_iter().zip(&members) {
        match outcome {
            Ok(()) => {
                tracing::info!(member = %link.name(), counter = %highest, "raised the token counter to that of the other members")
            }
            Err(error) => tracing::debug!(member = %link.name(), %error, "token counter not raised yet"),
        }
    }
    // Tokens of clients outside are among them: the floor goes above those, too.
    session.observe_token(highest);
}

async fn raise(link: &MemberLink, run_id: &RunId, to: FencingToken) -> Result<(), ActError> {
    let raised = timeout(TIMEOUT, async { link.admin_session(run_id).await?.restore_counter(to).await });
    raised.await.unwrap_or(Err(ActError::Member(MemberError::TimedOut)))
}
