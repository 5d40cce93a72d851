//! What the leader records of the members' clocks, so that they carry the quorum's clock (`docs/algorithm.md`, "Time").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::time::interval;
use tokio_stream::wrappers::IntervalStream;

use super::{Error, Leader, Task, publish};
use crate::{
    api::RedisQuorum,
    quorum::{
        model::{effective, record::recorded_clocks, timekeeping::corrections},
        session::{QuorumSession, TimeView},
    },
    redlock::{MemberName, RunId},
    time::Boottime,
};

/// Between two looks at what is recorded.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

impl Leader {
    /// What has to be recorded of the clocks of this quorum's members now.
    fn clock_corrections(&self, session: &QuorumSession) -> BTreeMap<RunId, i64> {
        let now = self.context.clock.boottime();
        let TimeView { told, clock, api } = session.time_view();
        // A leader that has just begun does not know when the last move was.
        let moved: Boottime = self.memory(session.uid(), |memory| *memory.clock_moved.get_or_insert(now));
        let passed = i64::try_from(now.since(moved).as_micros()).unwrap_or(i64::MAX);
        let ppm = effective::clock_rule(&session.quorum()).drift.ppm;
        corrections(&told, clock, api, passed, ppm)
    }
}

impl Task<'_> {
    /// Records how the members' clocks stand, if that is not recorded yet or has to follow the API server's time. Before anything
    /// else: an admission needs the quorum's clock.
    pub(super) async fn keep_time(&self) -> Result<(), Error> {
        let corrections = self.leader.clock_corrections(&self.session);
        if corrections.is_empty() {
            return Ok(());
        }
        let quorum = self.session.quorum();
        // Of this very version: another process may have been admitted since.
        let admitted = recorded_clocks(&quorum);
        let corrected = |name: &str| corrections.get(&admitted.get(&MemberName::from(name))?.0).copied();
        publish::replace(self, &quorum, |status| {
            for member in &mut status.members {
                member.clock_offset = corrected(&member.name).or(member.clock_offset);
            }
        })
        .await?;
        let now = self.leader.context.clock.boottime();
        self.leader.memory(self.session.uid(), |memory| memory.clock_moved = Some(now));
        tracing::debug!(quorum = %self.session.reference(), ?corrections, "clock offsets recorded");
        Ok(())
    }
}

/// Quorums whose clocks have to be recorded again.
pub(super) fn due(leader: Arc<Leader>) -> impl Stream<Item = ObjectRef<RedisQuorum>> + Send + 'static {
    IntervalStream::new(interval(LOOK_PERIOD)).flat_map(move |_| {
        let sessions = leader.sessions.all();
        let due = sessions.into_iter().filter(|session| !leader.clock_corrections(session).is_empty());
        stream::iter(due.map(|session| session.reference().clone()).collect::<Vec<_>>())
    })
}
