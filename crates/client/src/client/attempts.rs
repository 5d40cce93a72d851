//! How a client asks for a lock: once, and again until it is held.

use super::Inner;
use super::closing::UnderWay;
use super::error::NotAcquired;
use super::event::Event;
use super::hints::{ANNOUNCE_AGAIN, Cue, Ear};
use super::lock::Place;
use crate::redlock::{
    Acquire, AcquireRequest, Answers, Command, Elector, Grant, KeyState, LockKey, LockValue, MemberError,
    MemberFailure, Reply, RunId, jittered,
};
use crate::time::Boottime;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The first pause between two attempts; it doubles up to [`super::Builder::retry`].
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// The longest pause of a caller that hears of releases: a holder can die with its lock.
const LONGEST_HEARING: Duration = Duration::from_secs(1);
/// The pause after a release for which another one is to try first: it may have gone.
const AFTER_OTHERS: Duration = Duration::from_millis(10);

/// A lock that was granted. Its attempt is under way until a guard has it.
pub(super) struct Taken<'a> {
    /// The key, its value, and the time to live.
    pub(super) lock: (LockKey, LockValue, Duration),
    pub(super) grant: Grant,
    _under_way: UnderWay<'a>,
}

impl Inner {
    /// Attempts until one is granted, or fails for what waiting does not change, or the deadline is there.
    pub(super) async fn attempts(
        &self,
        place: &Place,
        ttl: Duration,
        (begun, deadline): (Boottime, Boottime),
    ) -> Result<Taken<'_>, NotAcquired> {
        let key = &place.key;
        let mut pause = FIRST_RETRY;
        let mut ear: Option<Ear> = None;
        if self.hints.yields(key) {
            let ear = ear.insert(self.hints.listen(key));
            ear.announce_wait();
            if !self.rest(Some(ear), AFTER_OTHERS, deadline).await {
                ear.yielded_in_vain();
            }
        }
        loop {
            // A release that was told before all listened is found by the attempt behind this.
            let longest = if self.hints.is_heard(key) { self.retry.max(LONGEST_HEARING) } else { self.retry };
            let error = match self.attempt_any(place, ttl, self.clock.boottime().since(begun)).await {
                Ok(taken) => return Ok(taken),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => error,
            };
            if matches!(error, NotAcquired::HeldByOther { .. }) {
                let ear = ear.get_or_insert_with(|| self.hints.listen(key));
                ear.announce_wait();
            }
            let next = next_attempt(&error, pause.min(longest));
            let is_woken = tokio::select! {
                biased;
                () = self.closing.closed() => return Err(NotAcquired::Closed),
                is_woken = self.rest(ear.as_ref(), next, deadline) => is_woken,
            };
            if !is_woken && self.clock.boottime() >= deadline {
                return Err(error);
            }
            pause = if is_woken { FIRST_RETRY } else { (pause * 2).min(longest) };
        }
    }

    /// Waits for so long, or until the deadline, or until this client is to try: then `true`. Where another one is to try first, it is
    /// given a moment; but each client tries by itself from time to time, whatever it hears.
    async fn rest(&self, ear: Option<&Ear>, pause: Duration, deadline: Boottime) -> bool {
        let begun = self.clock.boottime();
        let latest = (begun + pause.max(self.retry)).min(deadline);
        let mut end = (begun + pause).min(deadline);
        loop {
            let now = self.clock.boottime();
            let Some(ear) = ear else {
                sleep(end.since(now)).await;
                return false;
            };
            match timeout(end.since(now).min(ANNOUNCE_AGAIN), ear.cue()).await {
                Ok(Cue::Go) => return true,
                Ok(Cue::Soon) => end = end.min(self.clock.boottime() + some_of(FIRST_RETRY)),
                Ok(Cue::Others) => {
                    ear.announce_wait();
                    end = (self.clock.boottime() + some_of(AFTER_OTHERS)).min(latest);
                }
                Err(_) if self.clock.boottime() >= end => return false,
                // Those who do not hear of it for long take this caller for gone.
                Err(_) => ear.announce_wait(),
            }
        }
    }

    /// One attempt at each key of the place, until one is granted or an answer is not about that key.
    pub(super) async fn attempt_any(
        &self,
        place: &Place,
        ttl: Duration,
        waited: Duration,
    ) -> Result<Taken<'_>, NotAcquired> {
        place.check(&self.key_prefix)?;
        let (mut most, mut soonest) = (0, None::<Duration>);
        for key in place.keys(rand::random()) {
            match self.attempt(key, ttl, waited).await {
                Err(NotAcquired::HeldByOther { refusals, longest }) => {
                    most = most.max(refusals);
                    soonest = soonest.into_iter().chain(longest).min();
                }
                outcome => return outcome,
            }
        }
        Err(NotAcquired::HeldByOther { refusals: most, longest: soonest })
    }

    /// One attempt, and an event for it.
    async fn attempt(&self, key: LockKey, ttl: Duration, waited: Duration) -> Result<Taken<'_>, NotAcquired> {
        // Fresh for each attempt: a late release of the one before must not end this one.
        let value = LockValue::random();
        let (began, under_way) = (self.clock.boottime(), self.closing.begin()?);
        let outcome = self.ask(&key, &value, ttl).await;
        let took = || self.clock.boottime().since(began);
        match &outcome {
            Ok(grant) => {
                self.observer.notify(|| Event::Acquired { key: &key, token: grant.token, took: took(), waited });
            }
            Err(error) => self.observer.notify(|| Event::NotAcquired { key: &key, error, took: took() }),
        }
        outcome.map(|grant| Taken { lock: (key, value, ttl), grant, _under_way: under_way })
    }

    /// Checks that no member has one of these keys. A majority of those that may vote has to answer: a process that has lost its memory
    /// is no witness.
    pub(super) async fn check_free(&self, keys: &[LockKey]) -> Result<(), NotAcquired> {
        let longest = self.redlock.settings().node_timeout;
        let electorate = self.members.voters()?;
        // Each key in a job of its own: where no script may look at a key, it takes three commands.
        let inspect = |elector: &Elector| -> Vec<_> {
            keys.iter().map(|key| elector.member.send(vec![Command::Inspect { key: key.clone() }])).collect()
        };
        let asked: Vec<_> = electorate.electors().iter().map(|elector| (elector, inspect(elector))).collect();
        let (mut free, mut failures) = (0, Vec::new());
        for (Elector { member, admitted }, answers) in asked {
            match are_missing(answers, admitted.as_ref(), longest).await {
                Ok(true) => free += 1,
                Ok(false) => return Err(NotAcquired::OtherSlots),
                Err(failure) => failures.push((member.name().clone(), failure)),
            }
        }
        if free >= self.members.quorum() {
            return Ok(());
        }
        Err(NotAcquired::NoQuorum { failures: self.members.explained(failures) })
    }

    async fn ask(&self, key: &LockKey, value: &LockValue, ttl: Duration) -> Result<Grant, NotAcquired> {
        if self.redis.iter().any(|member| member.has_ended()) {
            return Err(NotAcquired::Broken);
        }
        if ttl < Duration::from_millis(1) || ttl > self.longest_ttl {
            return Err(NotAcquired::Ttl { most: self.longest_ttl });
        }
        let electorate = self.members.voters()?;
        let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl, token: self.tokens };
        match self.redlock.acquire(&electorate, request).await {
            Acquire::Granted(grant) => Ok(grant),
            Acquire::HeldByOther { refusals, longest, .. } => Err(NotAcquired::HeldByOther { refusals, longest }),
            Acquire::NoQuorum { failures, .. } => {
                Err(NotAcquired::NoQuorum { failures: self.members.explained(failures) })
            }
            Acquire::Expired => Err(NotAcquired::Expired),
            Acquire::CountersApart => Err(NotAcquired::CountersApart),
        }
    }
}

/// Whether a member has none of the keys that it was asked for.
async fn are_missing(
    asked: Vec<impl Future<Output = Result<Answers, MemberError>>>,
    admitted: Option<&RunId>,
    longest: Duration,
) -> Result<bool, MemberFailure> {
    for answers in asked {
        let answers = timeout(longest, answers).await.unwrap_or(Err(MemberError::TimedOut))?;
        if answers.replies.iter().any(is_key) {
            return Ok(false);
        }
        if admitted != Some(&answers.run_id) {
            return Err(MemberFailure::NotAdmitted);
        }
        if let Some(error) = answers.replies.iter().find_map(failed) {
            return Err(error.into());
        }
    }
    Ok(true)
}

fn is_key(reply: &Reply) -> bool {
    matches!(reply, Reply::State(state) if *state != KeyState::Missing)
}

fn failed(reply: &Reply) -> Option<MemberError> {
    match reply {
        Reply::Failed(error) => Some(error.clone()),
        _ => None,
    }
}

/// The pause before the next attempt: no longer than the key is known to live, and a part of it by chance, so that those who failed
/// together do not meet again.
fn next_attempt(error: &NotAcquired, pause: Duration) -> Duration {
    let known = match error {
        NotAcquired::HeldByOther { longest: Some(longest), .. } => (*longest).max(Duration::from_millis(1)),
        NotAcquired::Waiting { left } => return *left,
        _ => Duration::MAX,
    };
    some_of(pause.min(known))
}

/// A part of a pause by chance.
fn some_of(pause: Duration) -> Duration {
    jittered(pause * 3 / 4, pause / 4, rand::random())
}
