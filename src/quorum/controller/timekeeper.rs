//! What the leader records of the members' clocks, so that they carry the quorum's clock (`docs/algorithm.md`, "Time").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::time::interval;
use tokio_stream::wrappers::IntervalStream;

use super::cluster::Cluster;
use super::{Error, Leader};
use crate::api::RedisQuorum;
use crate::quorum::model::effective;
use crate::quorum::model::record::recorded_clocks;
use crate::quorum::model::timekeeping::corrections;
use crate::quorum::session::{QuorumSession, TimeView};
use crate::redlock::{MemberName, RunId};
use crate::time::{Boottime, Clock};

/// Between two looks at what is recorded.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// What has to be recorded of the clocks of this quorum's members now. `moved`: when that was done last, or may have been.
fn clock_corrections(
    session: &QuorumSession,
    clock: &dyn Clock,
    moved: &Mutex<Option<Boottime>>,
) -> BTreeMap<RunId, i64> {
    let now = clock.boottime();
    let TimeView { told, clock, api } = session.time_view();
    // A leader that has just begun does not know when the last move was.
    let moved: Boottime = *moved.lock().get_or_insert(now);
    let passed = i64::try_from(now.since(moved).as_micros()).unwrap_or(i64::MAX);
    let ppm = effective::clock_rule(&session.quorum()).drift.ppm;
    corrections(&told, clock, api, passed, ppm)
}

/// Records how the members' clocks stand.
///
/// It does so if that is not recorded yet, or has to follow the API server's time. This comes before anything else: an
/// admission needs the quorum's clock.
pub(super) async fn keep(
    cluster: &Cluster<'_>,
    session: &QuorumSession,
    clock: &dyn Clock,
    moved: &Mutex<Option<Boottime>>,
) -> Result<(), Error> {
    let corrections = clock_corrections(session, clock, moved);
    if corrections.is_empty() {
        return Ok(());
    }
    let quorum = session.quorum();
    // Of this very version: another process may have been admitted since.
    let admitted = recorded_clocks(&quorum);
    let corrected = |name: &str| corrections.get(&admitted.get(&MemberName::from(name))?.0).copied();
    let written = cluster.replace(&quorum, |status| {
        for member in &mut status.members {
            member.clock_offset = corrected(&member.name).or(member.clock_offset);
        }
    });
    written.await?;
    *moved.lock() = Some(clock.boottime());
    tracing::debug!(quorum = %session.reference(), ?corrections, "clock offsets recorded");
    Ok(())
}

/// Quorums whose clocks have to be recorded again.
pub(super) fn due(leader: Arc<Leader>) -> impl Stream<Item = ObjectRef<RedisQuorum>> + Send + 'static {
    IntervalStream::new(interval(LOOK_PERIOD)).flat_map(move |_| {
        let (sessions, clock) = (leader.sessions.all(), &*leader.context.clock);
        let is_due = |session: &Arc<QuorumSession>| {
            !clock_corrections(session, clock, &leader.memory(session.uid()).clock_moved).is_empty()
        };
        let due = sessions.iter().filter(|session| is_due(session)).map(|session| session.reference().clone());
        stream::iter(due.collect::<Vec<_>>())
    })
}
