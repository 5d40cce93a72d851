//! Holders that use somebody else's lock library, in its own language: the programs of `tests/clients`, among all the others and on
//! the same keys. They believe what their library returns.

use std::{sync::Arc, time::Duration};

use redlock_operator::time::{Clock as _, SystemClock};
use tokio::{task::JoinSet, time::sleep};

use super::{
    history::{Id, now},
    workers::Stage,
};
use crate::{
    checker::Hold,
    libraries::{LIBRARIES, Library, LockClient, REDISSON},
    quorums::Quorum,
    rng::Rng,
    spans::millis,
};

/// Between two attempts to start a program while the API server is away.
const AGAIN: Duration = Duration::from_millis(500);

/// The libraries whose locks are strings, and so contend with the operator's.
pub(crate) fn contending() -> impl Iterator<Item = Library> {
    LIBRARIES.into_iter().filter(|library| *library != REDISSON)
}

/// A user of one library.
pub(crate) struct LibraryWorker {
    pub(crate) stage: Arc<Stage>,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) library: Library,
    pub(crate) keys: Vec<String>,
    pub(crate) rng: Rng,
}

impl LibraryWorker {
    /// One process after another, as programs are deployed anew: each has the addresses and the user that the quorum's Secret
    /// names when it starts.
    pub(crate) async fn work(mut self) {
        let mut number = 0;
        while !self.stage.stopped() {
            let Ok(mut client) = LockClient::start(&self.quorum, self.library).await else {
                sleep(AGAIN).await;
                continue;
            };
            let ends = SystemClock.boottime() + self.rng.millis(20_000, 40_000);
            while SystemClock.boottime() < ends && !self.stage.stopped() {
                number += 1;
                // One that does not answer is replaced.
                if self.one(&mut client, number).await.is_err() {
                    break;
                }
            }
        }
    }

    async fn one(&mut self, client: &mut LockClient, number: u64) -> anyhow::Result<()> {
        let any = usize::try_from(self.rng.below(self.keys.len() as u64))?;
        let (key, ttl) = (self.keys[any].clone(), self.rng.millis(1_500, 3_000));
        let asked = now();
        // A library that fails because members do has no lock, as far as its user knows.
        let held = match client.attempt(&key, ttl).await? {
            Some(held) if held.from < held.until => held,
            _ => {
                sleep(self.rng.millis(50, 400)).await;
                return Ok(());
            }
        };
        let id: Id = (format!("{} for {key}", self.library.name), number);
        // The program may have stood still after its library had measured the time: no key lives longer than this.
        let until = held.until.min(asked + millis(ttl));
        let (who, from) = (id.0.clone(), held.from);
        self.stage.history.held(id.clone(), Hold { who, key, from, until, ttl: millis(ttl), ..Hold::default() });
        let whole = u64::try_from(until - from).unwrap_or(0);
        if self.rng.percent(3) {
            // This one just goes away.
            sleep(Duration::from_millis(whole)).await;
            return Ok(());
        }
        sleep(if self.rng.percent(10) { self.rng.millis(0, whole) } else { self.rng.millis(0, 15) }).await;
        self.stage.history.released(&id);
        // An error says that the lock had run out, or that members do not answer.
        client.ask("release").await?;
        Ok(())
    }
}

/// Every library contends on these keys, until the stage's end.
pub(crate) fn start(stage: &Arc<Stage>, quorum: &Arc<Quorum>, keys: &[String], rng: &mut Rng, tasks: &mut JoinSet<()>) {
    for library in contending() {
        let worker = LibraryWorker {
            stage: stage.clone(),
            quorum: quorum.clone(),
            library,
            keys: keys.to_vec(),
            rng: rng.fork(),
        };
        tasks.spawn(worker.work());
    }
}
