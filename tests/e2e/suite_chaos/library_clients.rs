//! Holders that use a lock library in its own language: the programs of `tests/clients`.
//!
//! They contend with all other holders on the same keys. They believe what their library returns.

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

/// The pause between two attempts to start a program while the API server is down.
const AGAIN: Duration = Duration::from_millis(500);

/// The libraries whose locks are strings, so they contend with the operator's.
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
    /// Runs one process after another, like repeated deployments of a program.
    ///
    /// Each uses the addresses and the user in the quorum's Secret at its start.
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
                // The worker replaces a process that does not answer.
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
        // If a library fails because of failed members, its user holds no lock.
        let held = match client.attempt(&key, ttl).await? {
            Some(held) if held.from < held.until => held,
            _ => {
                sleep(self.rng.millis(50, 400)).await;
                return Ok(());
            }
        };
        let id: Id = (format!("{} for {key}", self.library.name), number);
        // The program can have been frozen after its library measured the time, but no key lives longer than this.
        let until = held.until.min(asked + millis(ttl));
        let (who, from) = (id.0.clone(), held.from);
        self.stage.history.held(id.clone(), Hold { who, key, from, until, ttl: millis(ttl), ..Hold::default() });
        let whole = u64::try_from(until - from).unwrap_or(0);
        if self.rng.percent(3) {
            // This holder ends without a release.
            sleep(Duration::from_millis(whole)).await;
            return Ok(());
        }
        sleep(if self.rng.percent(10) { self.rng.millis(0, whole) } else { self.rng.millis(0, 15) }).await;
        self.stage.history.released(&id);
        // An error means that the lock had expired, or that members do not answer.
        client.ask("release").await.map(drop)
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
