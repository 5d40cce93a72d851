//! A client: it acquires, renews when `Holds` requires it, repairs, and ends its holds in every way.
//!
//! Some holds have a standby, which also renews them and takes over when the first one dies.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use redlock_operator::{
    api::HeldQuorum,
    lock::{
        model::hold::{Hold, RenewalOutcome, Terms},
        replica::hold_table::Holds,
    },
    redlock::{
        Acquire, AcquireRequest, Elector, Electorate, Extend, ExtendRequest, Grant, LockKey, LockMember, LockValue,
        Nonce, Redlock, RunId, Seal, Settings, ValueSigner,
    },
    time::{Boottime, Clock},
};
use tokio::time::{Sleep, sleep};

use super::{
    clock::SimClock,
    link::Link,
    quorum::{NODE_TIMEOUT, Quorum, TTL},
    rng::Rng,
};

const INTERVAL: Duration = Duration::from_millis(650);

/// The state of one replica of a client.
#[derive(Clone)]
pub(crate) struct Replica {
    name: String,
    clock: Arc<SimClock>,
    engine: Redlock<SimClock>,
    pub(crate) links: Vec<Arc<Link<SimClock>>>,
    quorum: Arc<Quorum>,
    /// The status that it last read.
    admitted: Arc<Mutex<Vec<Option<RunId>>>>,
}

impl Replica {
    pub(crate) fn new(name: String, quorum: &Arc<Quorum>, rng: &mut Rng) -> Self {
        let ppm = i64::try_from(rng.below(8_000)).unwrap() - 4_000;
        let clock = Arc::new(SimClock::new(ppm));
        let links = quorum.servers.iter().map(|server| Link::new(server.clone(), clock.clone(), rng.fork())).collect();
        let settings = Settings { node_timeout: NODE_TIMEOUT, ..Settings::default() };
        let engine = Redlock::new(clock.clone(), settings);
        let admitted = Arc::new(Mutex::new(vec![None; quorum.servers.len()]));
        tokio::spawn(follow(quorum.clone(), admitted.clone(), rng.fork()));
        Self { name, clock, engine, links, quorum: quorum.clone(), admitted }
    }

    fn electorate(&self) -> Electorate {
        let admitted = self.admitted.lock().unwrap().clone();
        let electors = self
            .links
            .iter()
            .zip(admitted)
            .map(|(link, admitted)| Elector { member: link.clone() as Arc<dyn LockMember>, admitted });
        Electorate::single(electors.collect()).with_clock_check(self.quorum.clock_check())
    }

    fn true_time(&self, reading: Boottime) -> Duration {
        self.clock.true_time(reading)
    }

    fn note(&self, event: &str) {
        self.quorum.history.note(&format!("{}: {event}", self.name));
    }
}

/// Delivers the status late, like a watch.
async fn follow(quorum: Arc<Quorum>, admitted: Arc<Mutex<Vec<Option<RunId>>>>, mut rng: Rng) {
    loop {
        let news = quorum.status.lock().unwrap().admitted.clone();
        sleep(rng.millis(0, 400)).await;
        *admitted.lock().unwrap() = news;
    }
}

/// One hold, as all replicas of its client have it.
#[derive(Clone)]
struct Held {
    key: LockKey,
    value: LockValue,
    nonce: Nonce,
    interval: usize,
    /// The key of `Holds`.
    uid: String,
}

pub(crate) struct Client {
    pub(crate) first: Replica,
    pub(crate) standby: Replica,
    pub(crate) keys: u64,
    pub(crate) signer: ValueSigner,
    pub(crate) rng: Rng,
}

enum End {
    Release,
    Seal,
    Crash,
}

impl Client {
    pub(crate) async fn run(mut self) {
        let mut attempt = 0_u64;
        loop {
            sleep(self.rng.millis(20, 200)).await;
            attempt += 1;
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&self.rng.next().to_be_bytes());
            let nonce = Nonce::from_bytes(bytes);
            let uid = format!("{} {attempt}", self.first.name);
            let key = LockKey::new(format!("key{}", self.rng.below(self.keys)));
            let value = self.signer.value(&uid, &nonce);
            let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl: TTL, token: true };
            let electorate = self.first.electorate();
            let outcome = paused(self.first.engine.acquire(&electorate, request), &mut self.rng).await;
            let Acquire::Granted(grant) = outcome else { continue };
            self.first.quorum.ensure_floor(grant.token.get());
            let until = self.first.true_time(grant.valid_until);
            let interval = self.first.quorum.history.granted(&self.first.name, key.as_str(), grant.token, until);
            self.hold(grant, Held { key, value, nonce, interval, uid }).await;
        }
    }

    async fn hold(&mut self, grant: Grant, held: Held) {
        let first = self.first.clone();
        let holds = Holds::default();
        holds.adopt(first.hold(&held, grant.valid_until, grant.started + INTERVAL), false);
        let ends_at = first.clock.boottime() + self.rng.millis(50, 3_500);
        let end = match self.rng.below(4) {
            0 => End::Seal,
            1 => End::Crash,
            _ => End::Release,
        };
        let standby = self.rng.percent(50).then(|| {
            let task = self.standby.clone().stand_by(held.clone(), grant.valid_until, first.clone(), self.rng.fork());
            tokio::spawn(task)
        });
        let valid = first.renew(&held, &holds, Some(ends_at), true, &mut self.rng).await;
        match end {
            _ if !valid => first.note(&format!("has lost {}", held.key)),
            End::Release => {
                if let Some(standby) = &standby {
                    standby.abort();
                }
                first.quorum.history.released(held.interval);
                let electorate = first.electorate();
                paused(first.engine.release(&electorate, &held.key, &held.value), &mut self.rng).await;
            }
            End::Seal => self.seal(&held).await,
            End::Crash => {
                first.note(&format!("dies with {}", held.key));
                if standby.is_some() {
                    // The standby notifies the holder now.
                    sleep(self.rng.millis(0, 3_000)).await;
                }
            }
        }
        if let Some(standby) = standby {
            if matches!(end, End::Crash) && valid {
                let _ = standby.await;
            } else {
                // The holder is not notified, and the members must stop it.
                sleep(self.rng.millis(0, 4_000)).await;
                standby.abort();
            }
        }
    }

    /// Ends the hold without a release, so that the holder continues until its last deadline.
    async fn seal(&mut self, held: &Held) {
        let replica = self.first.clone();
        let sealed = self.signer.sealed(&held.value);
        let delay = self.rng.millis(0, 500);
        for _ in 0..20 {
            let electorate = replica.electorate();
            let outcome = replica.engine.seal(&electorate, &held.key, &held.value, &sealed, delay).await;
            match outcome {
                Seal::Sealed { until, .. } => {
                    replica.quorum.history.sealed(held.interval, replica.true_time(until));
                    replica.quorum.history.count(|counts| counts.seals += 1);
                    return;
                }
                Seal::Gone => return,
                Seal::NoQuorum { .. } => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

impl Replica {
    fn hold(&self, held: &Held, valid_until: Boottime, due: Boottime) -> Hold {
        let terms = Terms {
            lock: ObjectRef::new("lock").within("ns"),
            uid: held.uid.clone(),
            quorum: HeldQuorum { namespace: "ns".into(), name: "main".into(), uid: "q".into() },
            key: held.key.clone(),
            nonce: held.nonce,
            ttl: TTL,
            renew_interval: INTERVAL,
        };
        Hold::new(terms, valid_until, due)
    }

    /// Renews until `ends_at`, or until the hold is lost.
    ///
    /// Returns whether it is valid at the end. With `tells` it notifies the holder of its renewals.
    async fn renew(&self, held: &Held, holds: &Holds, ends_at: Option<Boottime>, tells: bool, rng: &mut Rng) -> bool {
        loop {
            let now = self.clock.boottime();
            if ends_at.is_some_and(|end| now >= end)
                || holds.get(&held.uid, &held.nonce).is_none_or(|hold| !hold.is_valid(now))
            {
                return holds.get(&held.uid, &held.nonce).is_some_and(|hold| hold.is_valid(now));
            }
            let due = holds.next_due().unwrap_or(now).min(ends_at.unwrap_or(now + INTERVAL));
            // The timer's clock and this one's differ.
            sleep(due.since(now) + Duration::from_millis(1)).await;
            for hold in holds.take_due(self.clock.boottime()) {
                let request = ExtendRequest {
                    key: held.key.clone(),
                    value: held.value.clone(),
                    ttl: hold.terms.ttl,
                    valid_until: Some(hold.valid_until),
                };
                let electorate = self.electorate();
                let mut outcomes = paused(self.engine.extend(&electorate, vec![request]), rng).await;
                let outcome = outcomes.remove(0);
                let round = RenewalOutcome::Round(outcome.clone());
                holds.apply_outcome(&held.uid, &held.nonce, round, self.clock.boottime());
                let known = holds.get(&held.uid, &held.nonce).filter(|hold| !hold.refused);
                let (Extend::Renewed { started, valid_until, missing, .. }, Some(known)) = (outcome, known) else {
                    continue;
                };
                self.quorum.history.count(|counts| counts.renewals += 1);
                if tells {
                    self.quorum.history.valid_until(held.interval, &self.name, self.true_time(known.valid_until));
                    if !missing.is_empty() {
                        let times = (valid_until, started + TTL / 4);
                        let repair = self.engine.repair(&electorate, &held.key, &held.value, times, &missing);
                        let repaired = paused(repair, rng).await.len();
                        self.quorum.history.count(|counts| counts.repairs += repaired as u64);
                    }
                }
            }
        }
    }

    /// Renews a hold that another replica has published, and takes over after a while.
    ///
    /// It does not publish anything itself.
    async fn stand_by(self, held: Held, published: Boottime, first: Self, mut rng: Rng) {
        sleep(rng.millis(0, 700)).await;
        let left = first.true_time(published).saturating_sub(self.quorum.history.now()).min(TTL);
        if left.is_zero() {
            return;
        }
        let now = self.clock.boottime();
        let holds = Holds::default();
        holds.adopt(self.hold(&held, now + left, now + INTERVAL.min(left / 2)), true);
        let takes_over_at = now + rng.millis(500, 8_000);
        if !self.renew(&held, &holds, Some(takes_over_at), false, &mut rng).await {
            return;
        }
        let Some(known) = holds.get(&held.uid, &held.nonce) else { return };
        self.note(&format!("goes on with {}", held.key));
        self.quorum.history.count(|counts| counts.takeovers += 1);
        self.quorum.history.valid_until(held.interval, &self.name, self.true_time(known.valid_until));
        let ends_at = self.clock.boottime() + rng.millis(100, 4_000);
        self.renew(&held, &holds, Some(ends_at), true, &mut rng).await;
    }
}

/// Pauses the process occasionally.
///
/// During the pause nothing is polled, while time and messages continue.
async fn paused<F: Future>(future: F, rng: &mut Rng) -> F::Output {
    let pause = rng.percent(5).then(|| (rng.below(4), rng.millis(10, 3_000)));
    Paused {
        future: Box::pin(future),
        polls_left: pause.map_or(u64::MAX, |(polls, _)| polls),
        pause: pause.map(|p| p.1),
        asleep: None,
    }
    .await
}

struct Paused<F> {
    future: Pin<Box<F>>,
    polls_left: u64,
    pause: Option<Duration>,
    asleep: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Paused<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.polls_left == 0
            && let Some(pause) = self.pause.take()
        {
            self.asleep = Some(Box::pin(sleep(pause)));
        }
        self.polls_left = self.polls_left.saturating_sub(1);
        if let Some(asleep) = &mut self.asleep {
            if asleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.asleep = None;
        }
        self.future.as_mut().poll(context)
    }
}
