//! How long members take to answer, for `/metrics`.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;

use crate::redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName};

/// A member whose answers are timed. An answer that nobody waited for is not.
pub(super) struct Timed {
    pub(super) member: Arc<dyn LockMember>,
    pub(super) latency: Histogram,
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
