//! How long members take to answer, for `/metrics`.

use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;
use prometheus_client::metrics::histogram::Histogram;

use crate::api::RedisQuorum;
use crate::redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName};
use crate::runtime::metrics::{Metrics, member_labels};

/// A member whose answers are timed. An answer that the engine did not wait for is not.
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

/// The member, with its answers timed.
pub(super) fn timed(
    metrics: &Metrics,
    quorum: &ObjectRef<RedisQuorum>,
    member: Arc<dyn LockMember>,
) -> Arc<dyn LockMember> {
    let labels = member_labels(quorum, member.name().as_str());
    let latency = metrics.member_latency.get_or_create(&labels).clone();
    Arc::new(Timed { member, latency })
}
