//! How long members take to answer, for `/metrics`.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;

use super::QuorumSession;
use crate::{
    redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName},
    runtime::metrics::MemberLabels,
};

/// A member whose answers are timed. An answer that nobody waited for is not.
struct Timed {
    member: Arc<dyn LockMember>,
    latency: Histogram,
}

impl LockMember for Timed {
    fn name(&self) -> &MemberName {
        self.member.name()
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        // Enqueued here and now, as the trait asks.
        let answered = self.member.send(commands);
        let latency = self.latency.clone();
        Box::pin(async move {
            let answers = answered.await?;
            latency.observe(answers.received.since(answers.sent).as_secs_f64());
            Ok(answers)
        })
    }
}

impl QuorumSession {
    /// The member, with its answers timed.
    pub(super) fn timed(&self, member: Arc<dyn LockMember>) -> Arc<dyn LockMember> {
        let labels = MemberLabels::of(&self.reference, member.name().as_str());
        let latency = self.context.metrics.member_latency.get_or_create(&labels).clone();
        Arc::new(Timed { member, latency })
    }
}

impl Drop for QuorumSession {
    fn drop(&mut self) {
        for link in self.links().iter() {
            let labels = MemberLabels::of(&self.reference, link.name().as_str());
            self.context.metrics.member_latency.remove(&labels);
        }
    }
}
