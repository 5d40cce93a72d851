use crate::redlock::{Answers, BoxFuture, Command, Elector, MemberError};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Sleep;

/// The answer of the elector at an index.
pub(super) type Answer = (usize, Result<Answers, MemberError>);

/// One request to many members, and their answers as they come. What is not waited for is executed all the same.
pub(super) struct Round {
    answers: FuturesUnordered<BoxFuture<'static, Answer>>,
    deadline: Pin<Box<Sleep>>,
    grace: Option<Pin<Box<Sleep>>>,
}

impl Round {
    /// Enqueues the commands at each of the electors, before it returns, and gives them `timeout` from now on.
    pub(super) fn send<'a>(
        electors: impl IntoIterator<Item = (usize, &'a Elector)>,
        timeout: Duration,
        commands: impl Fn(usize) -> Vec<Command>,
    ) -> Self {
        let asked = electors.into_iter().map(|(index, elector)| {
            let answer = elector.member.send(commands(index));
            Box::pin(answer.map(move |result| (index, result))) as BoxFuture<'static, Answer>
        });
        Self { answers: asked.collect(), deadline: Box::pin(tokio::time::sleep(timeout)), grace: None }
    }

    /// The next answer; `None` when all have answered or the time is over.
    pub(super) async fn next(&mut self) -> Option<Answer> {
        let grace = async {
            match &mut self.grace {
                Some(grace) => grace.as_mut().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = self.answers.next() => answer,
            () = self.deadline.as_mut() => None,
            () = grace => None,
        }
    }

    /// The next answer if it is there already.
    pub(super) fn ready(&mut self) -> Option<Answer> {
        self.answers.next().now_or_never().flatten()
    }

    /// The outcome is certain: wait for the rest only this long, and no longer than the deadline.
    pub(super) fn wait_at_most(&mut self, grace: Duration) {
        self.grace.get_or_insert_with(|| Box::pin(tokio::time::sleep(grace)));
    }
}
