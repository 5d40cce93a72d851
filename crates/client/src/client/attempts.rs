//! Attempts of a client: one, and repeated ones until the lock is held.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Inner;
use super::closing::AttemptInProgress;
use super::error::NotAcquired;
use super::event::Event;
use super::hints::{ANNOUNCE_AGAIN, Hint, ReleaseSubscription};
use super::lock::Target;
use crate::redlock::{
    Acquire, AcquireRequest, Answers, Command, Elector, Grant, KeyState, LockKey, LockValue, MemberError,
    MemberFailure, Reply, RunId, jittered,
};
use crate::time::Boottime;

/// The first pause between two attempts.
///
/// It doubles up to [`super::Builder::retry`].
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// Maximum pause of a caller that gets notifications, because a holder can die without a release.
const MAX_NOTIFIED_PAUSE: Duration = Duration::from_secs(1);
/// The pause in which another client can acquire first.
///
/// It is short, because the other client has perhaps left.
const OTHER_FIRST_PAUSE: Duration = Duration::from_millis(10);

/// A granted lock.
///
/// Its attempt is in progress until a guard has it.
pub(super) struct GrantedLock<'a> {
    /// The key, its value, and the time to live.
    pub(super) lock: (LockKey, LockValue, Duration),
    pub(super) grant: Grant,
    _attempt: AttemptInProgress<'a>,
}

impl Inner {
    /// Repeats attempts until one is granted, the error is permanent, or the deadline has passed.
    pub(super) async fn attempts(
        &self,
        target: &Target,
        ttl: Duration,
        (begun, deadline): (Boottime, Boottime),
    ) -> Result<GrantedLock<'_>, NotAcquired> {
        let (key, retry) = (&target.key, self.settings.retry);
        let mut pause = FIRST_RETRY;
        let mut subscription: Option<ReleaseSubscription> = None;
        if self.hints.yields(key) {
            let subscription = subscription.insert(self.hints.subscribe(key));
            subscription.announce_wait();
            if !self.pause(Some(subscription), OTHER_FIRST_PAUSE, deadline).await {
                subscription.on_unused_yield();
            }
        }
        loop {
            // The attempt follows this check, so it also finds a release from before the subscriptions.
            let longest = if self.hints.has_majority(key) { retry.max(MAX_NOTIFIED_PAUSE) } else { retry };
            let error = match self.attempt_any(target, ttl, self.clock.boottime().since(begun)).await {
                Ok(taken) => return Ok(taken),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => error,
            };
            if matches!(error, NotAcquired::HeldByOther { .. }) {
                let subscription = subscription.get_or_insert_with(|| self.hints.subscribe(key));
                subscription.announce_wait();
            }
            let next = next_attempt(&error, pause.min(longest));
            let is_woken = tokio::select! {
                biased;
                () = self.closing.closed() => return Err(NotAcquired::Closed),
                is_woken = self.pause(subscription.as_ref(), next, deadline) => is_woken,
            };
            if !is_woken && self.clock.boottime() >= deadline {
                return Err(error);
            }
            pause = if is_woken { FIRST_RETRY } else { pause.saturating_mul(2).min(longest) };
        }
    }

    /// Waits for the pause, the deadline, or a hint.
    ///
    /// Returns true if the caller must try because of a hint.
    ///
    /// If another client goes first, the caller waits a moment. Each client also tries from time to time without a hint.
    async fn pause(&self, subscription: Option<&ReleaseSubscription>, pause: Duration, deadline: Boottime) -> bool {
        let begun = self.clock.boottime();
        let latest = (begun + pause.max(self.settings.retry)).min(deadline);
        let mut end = (begun + pause).min(deadline);
        loop {
            let now = self.clock.boottime();
            let Some(subscription) = subscription else {
                sleep(end.since(now)).await;
                return false;
            };
            match timeout(end.since(now).min(ANNOUNCE_AGAIN), subscription.next_hint()).await {
                Ok(Hint::Retry) => return true,
                Ok(Hint::RetrySoon) => end = end.min(self.clock.boottime() + randomised(FIRST_RETRY)),
                Ok(Hint::OtherFirst) => {
                    subscription.announce_wait();
                    end = (self.clock.boottime() + randomised(OTHER_FIRST_PAUSE)).min(latest);
                }
                Err(_) if self.clock.boottime() >= end => return false,
                // Other clients assume that a caller without announcements has left.
                Err(_) => subscription.announce_wait(),
            }
        }
    }

    /// One attempt at each key of the target, until one is granted or an error is not about that key.
    pub(super) async fn attempt_any(
        &self,
        target: &Target,
        ttl: Duration,
        waited: Duration,
    ) -> Result<GrantedLock<'_>, NotAcquired> {
        target.check(&self.settings.key_prefix)?;
        let (mut most, mut soonest) = (0, None::<Duration>);
        for key in target.keys(rand::random()) {
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

    /// Makes one attempt, and reports it as an event.
    async fn attempt(&self, key: LockKey, ttl: Duration, waited: Duration) -> Result<GrantedLock<'_>, NotAcquired> {
        // Each attempt has a new value, because a late release of the attempt before must not end this one.
        let value = LockValue::random();
        let (began, in_progress) = (self.clock.boottime(), self.closing.begin()?);
        let outcome = self.acquire_key(&key, &value, ttl).await;
        let took = || self.clock.boottime().since(began);
        self.settings.observer.notify(|| match &outcome {
            Ok(grant) => Event::Acquired { key: &key, token: grant.token, took: took(), waited },
            Err(error) => Event::NotAcquired { key: &key, error, took: took() },
        });
        outcome.map(|grant| GrantedLock { lock: (key, value, ttl), grant, _attempt: in_progress })
    }

    /// Checks that no member has one of these keys.
    ///
    /// A majority of the voting members must answer, because a process that has lost its memory proves nothing.
    pub(super) async fn check_free(&self, keys: &[LockKey]) -> Result<(), NotAcquired> {
        let longest = self.redlock.settings().node_timeout;
        let electorate = self.members.voters()?;
        // Each key is a request of its own, because a user without scripts needs three commands for it.
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

    async fn acquire_key(&self, key: &LockKey, value: &LockValue, ttl: Duration) -> Result<Grant, NotAcquired> {
        if self.redis.iter().any(|member| member.has_ended()) {
            return Err(NotAcquired::Broken);
        }
        if ttl < Duration::from_millis(1) || ttl > self.longest_ttl {
            return Err(NotAcquired::Ttl { most: self.longest_ttl });
        }
        let electorate = self.members.voters()?;
        let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl, token: self.settings.tokens };
        match self.redlock.acquire(&electorate, request).await {
            Acquire::Granted(grant) => Ok(grant),
            Acquire::HeldByOther { refusals, longest, .. } => Err(NotAcquired::HeldByOther { refusals, longest }),
            Acquire::NoQuorum { failures } => Err(NotAcquired::NoQuorum { failures: self.members.explained(failures) }),
            Acquire::Expired => Err(NotAcquired::Expired),
            Acquire::CountersApart => Err(NotAcquired::CountersApart),
        }
    }
}

/// Returns true if a member has none of the requested keys.
async fn are_missing(
    asked: Vec<impl Future<Output = Result<Answers, MemberError>>>,
    admitted: Option<&RunId>,
    longest: Duration,
) -> Result<bool, MemberFailure> {
    for answers in asked {
        let answers = timeout(longest, answers).await.unwrap_or(Err(MemberError::TimedOut))?;
        if answers.replies.iter().any(|it| matches!(it, Reply::State(state) if *state != KeyState::Missing)) {
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

fn failed(reply: &Reply) -> Option<MemberError> {
    if let Reply::Failed(error) = reply { Some(error.clone()) } else { None }
}

/// The pause before the next attempt, at most the time to live of the key.
///
/// A random part prevents contenders that failed together from colliding again.
fn next_attempt(error: &NotAcquired, pause: Duration) -> Duration {
    let limit = match error {
        NotAcquired::HeldByOther { longest: Some(longest), .. } => (*longest).max(Duration::from_millis(1)),
        NotAcquired::Waiting { left } => return *left,
        _ => Duration::MAX,
    };
    randomised(pause.min(limit))
}

/// Reduces a pause by a random part.
fn randomised(pause: Duration) -> Duration {
    jittered(pause.saturating_sub(pause / 4), pause / 4, rand::random())
}
