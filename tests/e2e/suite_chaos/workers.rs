//! Holders that get their locks from the operator: claims, and the tracker of an election.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::api::{DeleteParams, PostParams};
use parking_lot::Mutex;
use redlock_operator::{
    api::DistributedLock,
    time::{Boottime, Clock as _, SystemClock},
};
use tokio::time::sleep;

use super::{
    history::{History, Id, now},
    watched::{Watch, Watched},
};
use crate::{
    bench::Bench,
    checker::{Fault, Hold, LossKind, Millis},
    locks::{claim, is_held, leader, status},
    rng::Rng,
    spans::millis,
    store::Store,
};

/// The pause before the retry of a failed request.
const AGAIN: Duration = Duration::from_millis(200);
/// The name of a fault of a holder itself.
pub(crate) const PAUSED: &str = "a holder stood still";
/// The longest time between two readings of the clock by a worker without events.
const LOOK: Duration = Duration::from_millis(100);

/// State that all workers share.
pub(crate) struct Stage {
    pub(crate) bench: Bench,
    pub(crate) history: Arc<History>,
    pub(crate) watched: Watched,
    /// A store that checks tokens, and one that does not.
    pub(crate) stores: [Mutex<Store>; 2],
    pub(crate) stop: AtomicBool,
    elements: AtomicUsize,
}

impl Stage {
    pub(crate) fn new(bench: &Bench, history: Arc<History>) -> Arc<Self> {
        Arc::new(Self {
            bench: bench.clone(),
            history,
            watched: Watched::start(bench),
            stores: [Mutex::new(Store::new(true)), Mutex::new(Store::new(false))],
            stop: AtomicBool::new(false),
            elements: AtomicUsize::new(0),
        })
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) async fn until_stopped(&self) {
        while !self.stopped() {
            sleep(LOOK).await;
        }
    }

    /// Reads, waits, and appends one element.
    async fn change(&self, key: &str, token: i64, wait: Duration) {
        let element = self.elements.fetch_add(1, Ordering::SeqCst) as u64;
        let store = |index: usize| self.stores[index].lock();
        let read: [Option<BTreeSet<u64>>; 2] = [0, 1].map(|index| store(index).read(key, token));
        sleep(wait).await;
        for (index, elements) in read.into_iter().enumerate() {
            if let Some(mut elements) = elements {
                elements.insert(element);
                store(index).write(key, token, elements, element);
            }
        }
    }
}

/// The behaviour of a worker that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// One change.
    Short,
    /// One change per second, for this time.
    Long(Duration),
    /// The process is frozen between the read and the write, until long after the lock expired.
    ///
    /// The operator does not renew its hold beyond `maxHold`, as after the end of a heartbeat.
    Paused,
}

/// One worker after another claims a key.
pub(crate) struct Worker {
    pub(crate) stage: Arc<Stage>,
    pub(crate) who: String,
    pub(crate) key: String,
    /// Whether its holds last for seconds.
    pub(crate) long: bool,
    pub(crate) rng: Rng,
}

const MAX_HOLD: Duration = Duration::from_secs(1);

impl Worker {
    pub(crate) async fn work(mut self) {
        let mut number = 0;
        while !self.stage.stopped() {
            number += 1;
            self.one(number).await;
        }
    }

    async fn one(&mut self, number: u64) {
        let id: Id = (self.who.clone(), number);
        let name = format!("{}-{number}", self.who);
        let ttl = if self.long { self.rng.millis(2_500, 3_000) } else { self.rng.millis(1_100, 3_000) };
        let what = match self.rng.below(100) {
            _ if self.long => Use::Long(self.rng.millis(3_000, 20_000)),
            0..8 => Use::Paused,
            _ => Use::Short,
        };
        let mut manifest = claim(&name, &self.key, Some("q"), ttl);
        if what == Use::Paused {
            manifest["spec"]["maxHold"] = format!("{}ms", MAX_HOLD.as_millis()).into();
        }
        self.create(manifest).await;
        let mut watch = self.stage.watched.lock(&name);
        if let Some(token) = self.granted(&id, &mut watch, ttl).await {
            let lasts = match what {
                Use::Long(lasts) => lasts,
                Use::Short => Duration::ZERO,
                Use::Paused => MAX_HOLD + ttl * 2,
            };
            if what == Use::Paused {
                let (at, until) = (now(), now() + millis(lasts));
                let holder = Some(self.who.clone());
                self.stage.history.fault(Fault { kind: PAUSED, from: at, until, holder, ..Fault::default() });
            }
            let ends = SystemClock.boottime() + lasts;
            let follow = follow(&self.stage.history, &id, token, &mut watch, ends);
            let key = &self.key;
            let change = async {
                let wait = match what {
                    Use::Paused => lasts,
                    Use::Short | Use::Long(_) => self.rng.millis(0, 10),
                };
                self.stage.change(key, token, wait).await;
                while what != Use::Paused && SystemClock.boottime() + Duration::from_secs(1) < ends {
                    sleep(Duration::from_secs(1)).await;
                    self.stage.change(key, token, Duration::from_millis(5)).await;
                }
            };
            tokio::join!(follow, change);
        }
        self.stage.history.released(&id);
        self.delete(&name).await;
        if self.stage.stopped() {
            return;
        }
        sleep(self.rng.millis(0, 100)).await;
    }

    /// Waits until the lock is held, and returns its token.
    ///
    /// Returns `None` if the end of the run came first.
    async fn granted(&self, id: &Id, watch: &mut Watch, ttl: Duration) -> Option<i64> {
        loop {
            if let Some((token, until)) = watch.now().as_deref().and_then(held) {
                let (who, key) = (self.who.clone(), format!("{}/{}", self.stage.bench.namespace, self.key));
                let hold =
                    Hold { who, key, token: Some(token), from: now(), until, ttl: millis(ttl), ..Hold::default() };
                self.stage.history.held(id.clone(), hold);
                return Some(token);
            }
            if self.stage.stopped() {
                return None;
            }
            watch.changed_within(LOOK).await;
        }
    }

    async fn create(&self, manifest: serde_json::Value) {
        let Ok(lock) = serde_json::from_value::<DistributedLock>(manifest) else { return };
        loop {
            match self.stage.bench.api().create(&PostParams::default(), &lock).await {
                Ok(_) => return,
                // The claim exists despite the error, or the namespace is being deleted.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 409) => return,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    async fn delete(&self, name: &str) {
        loop {
            match self.stage.bench.api::<DistributedLock>().delete(name, &DeleteParams::background()).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }
}

/// Token and validity of a held lock.
fn held(lock: &DistributedLock) -> Option<(i64, Millis)> {
    let status = is_held(lock).then(|| status(lock))?;
    Some((status.fencing_token?, status.valid_until?.as_millis()))
}

/// Records the changes of a hold until a given time or its loss.
async fn follow(history: &History, id: &Id, token: i64, watch: &mut Watch, ends: Boottime) {
    let mut lapsed = false;
    let mut valid = Millis::MIN;
    while SystemClock.boottime() < ends {
        let at = now();
        match watch.now().as_deref().and_then(held) {
            Some((same, until)) if same == token => {
                if until > valid {
                    (valid, lapsed) = (until, until <= at);
                    history.change(id, |hold| hold.until = hold.until.max(until));
                }
                if at >= valid && !lapsed {
                    lapsed = true;
                    history.lost(id, valid, LossKind::Lapsed);
                }
            }
            _ => return history.lost(id, at, LossKind::Taken),
        }
        let left = u64::try_from(valid - now()).map_or(LOOK, Duration::from_millis);
        let limit = if lapsed { LOOK } else { left + Duration::from_millis(1) };
        watch.changed_within(limit.min(ends.since(SystemClock.boottime()))).await;
    }
}

/// Follows an election, and records every leader as a holder.
pub(crate) async fn follow_election(stage: Arc<Stage>, name: &str, key: &str, ttl: Duration) {
    let mut watch = stage.watched.lock(name);
    let far = Duration::from_secs(86_400);
    while !stage.stopped() {
        if let Some((leader, (token, until))) =
            watch.now().as_deref().and_then(|lock| Some((leader(lock)?, held(lock)?)))
        {
            let id = (format!("{leader} of {name}"), token.unsigned_abs());
            let hold =
                Hold { who: leader, key: key.to_owned(), token: Some(token), from: now(), until, ..Hold::default() };
            stage.history.held(id.clone(), Hold { ttl: millis(ttl), ..hold });
            tokio::select! {
                () = follow(&stage.history, &id, token, &mut watch, SystemClock.boottime() + far) => {}
                () = stage.until_stopped() => {}
            }
        } else {
            watch.changed_within(LOOK).await;
        }
    }
}
