//! The members' token counters are kept level (`docs/algorithm.md`, "Tokens"). One that was restored by a clock that was ahead, or that
//! has missed many tokens, would leave the others so far behind that they refuse its number as a mistake.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::quorum::model::record::admitted_run_id;
use crate::quorum::session::{ActError, MemberLink, QuorumSession, Sessions};
use crate::redlock::{FencingToken, MemberError, RunId};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(5);
/// Counters that are no further behind stay as they are: the next vote brings them along.
const APART: u32 = 1_000;
/// For one member.
const TIMEOUT: Duration = Duration::from_millis(600);
/// Numbers from here on are no tokens: they would leave too few for those to come.
const NO_NUMBER: i64 = (1 << 53) - (1 << 50);

/// Who is behind, and what to raise them to: the highest number of all, and at least this one.
fn behind<M>(counters: Vec<(M, FencingToken)>, at_least: FencingToken) -> (FencingToken, Vec<M>) {
    let numbers = counters.iter().map(|(_, counter)| *counter).chain([at_least]);
    let highest = numbers.filter(|number| number.get() < NO_NUMBER).max().unwrap_or_default();
    let is_behind = |counter: &FencingToken| counter.saturating_add(APART) < highest;
    let members = counters.into_iter().filter(|(_, counter)| is_behind(counter)).map(|(member, _)| member);
    (highest, members.collect())
}

/// Levels the counters of all quorums every few seconds, as long as this leader leads. Raising a counter is right whichever replica does it.
pub(super) async fn run(sessions: Sessions) {
    loop {
        sleep(PERIOD).await;
        for session in sessions.all() {
            if session.quorum().metadata.deletion_timestamp.is_none() {
                level_counters(&session, session.hint()).await;
            }
        }
    }
}

/// Raises every admitted counter that is behind, as far as members can be asked.
///
/// It is raised to the highest counter that was read, and at least to `at_least`.
pub(super) async fn level_counters(session: &QuorumSession, at_least: FencingToken) {
    let (quorum, links) = (session.quorum(), session.links());
    let counters = links.iter().filter_map(|link| {
        let run_id = admitted_run_id(&quorum, link.name().as_str())?;
        let seen = link.view().observation.filter(|seen| link.is_seen() && seen.run_id == run_id)?;
        Some(((link.clone(), run_id), seen.counter.unwrap_or_default()))
    });
    let (highest, members) = behind(counters.collect(), at_least);
    let raised = members.iter().map(|(link, run_id)| raise(link, run_id, highest));
    for (outcome, (link, _)) in join_all(raised).await.into_iter().zip(&members) {
        match outcome {
            Ok(()) => {
                tracing::info!(member = %link.name(), counter = %highest, "token counter raised to that of the others")
            }
            Err(error) => tracing::debug!(member = %link.name(), %error, "token counter not raised yet"),
        }
    }
    if !members.is_empty() {
        // A direct client's may be among them: the floor goes above it, too.
        session.saw_token(highest);
    }
}

async fn raise(link: &MemberLink, run_id: &RunId, to: FencingToken) -> Result<(), ActError> {
    let raised = timeout(TIMEOUT, async { link.admin_session(run_id).await?.restore_counter(to).await });
    raised.await.unwrap_or(Err(ActError::Member(MemberError::TimedOut)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: i64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn behind_of(counters: &[i64], at_least: i64) -> (i64, Vec<usize>) {
        let counters = counters.iter().enumerate().map(|(member, number)| (member, token(*number))).collect();
        let (highest, members) = behind(counters, token(at_least));
        (highest.get(), members)
    }

    #[test]
    fn whoever_is_behind_is_raised_to_the_highest_number() {
        // Restored by a clock that was 50 days ahead: the others would refuse its number for ever.
        let ahead = 1_795_284_168_033 + (1_i64 << 32) + 1;
        assert_eq!(behind_of(&[1_795_284_168_033, ahead, 1_795_284_168_040], 0), (ahead, vec![0, 2]));
        assert_eq!(behind_of(&[5_000, 5_900, 6_000], 0), (6_000, vec![]), "a vote that was missed");
        // The member with the highest number is away, and its token is known.
        assert_eq!(behind_of(&[5_000, 5_900], 9_000), (9_000, vec![0, 1]));
        assert_eq!(behind_of(&[], 9_000), (9_000, vec![]));
    }

    #[test]
    fn a_number_that_leaves_none_to_come_is_not_copied() {
        assert_eq!(behind_of(&[5_000, NO_NUMBER, (1 << 53) - 1], 0), (5_000, vec![]));
    }
}
