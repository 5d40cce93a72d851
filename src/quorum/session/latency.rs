//! How long members take to answer, for `/metrics`.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;

use super::{MemberLink, QuorumSession};
use crate::redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName};
use crate::runtime::metrics::member_labels;

/// A member with measured reply times. Only replies that the engine awaits are measured.
struct Timed {
    member: Arc<dyn LockMember>,
    latency: Histogram,
}

impl LockMember for Timed {
    fn name(&self) -> &MemberName {
        self.member.name()
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        // The command is enqueued immediately, as the trait requires.
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
    /// Removes a former member from `/metrics`.
    pub(super) fn remove_latency(&self, link: &MemberLink) {
        self.context.metrics.member_latency.remove(&member_labels(self.reference(), link.name.as_str()));
    }

    /// The member with measured reply times.
    pub(super) fn timed(&self, member: Arc<dyn LockMember>) -> Arc<dyn LockMember> {
        let labels = member_labels(self.reference(), member.name().as_str());
        let latency = self.context.metrics.member_latency.get_or_create(&labels).clone();
        Arc::new(Timed { member, latency })
    }
}
