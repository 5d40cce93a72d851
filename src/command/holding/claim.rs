//! A lock by a claim, which the operator grants and renews.

mod follow;
mod heartbeat;
mod object;
mod pod;
mod status;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use follow::{Follower, Watched};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use object::Purpose;
pub(in crate::command) use pod::own as own_pod;
use serde_json::json;
pub(in crate::command) use status::Holding;
use status::Seen;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
pub(in crate::command) use trust::{Look, Trust, check_wall_clock};

use super::arguments::{LockArgs, Members, Wait};
use super::held::{Held, Keeper, NotHeld, Validity};
use super::progress::Progress;
use super::signals::Signals;
use crate::api::{DistributedLock, RELEASE_ANNOTATION};
use crate::runtime::api_time::ApiTime;
use crate::runtime::requests::{self, RequestError, request};
use crate::time::{Clock, SystemClock};

/// With --try: for an operator to say anything. A lock that is free is granted in this time.
const TRY: Duration = Duration::from_secs(10);
/// Beyond --wait, which the operator counts itself.
const WAIT_MARGIN: Duration = Duration::from_secs(2);
/// For the operator to confirm a release.
const RELEASE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(500);

/// A claim that the operator renews for this process.
pub(in crate::command) struct ClaimHold {
    word: Word,
    /// Ends the follower, which gives the watch back.
    stop: oneshot::Sender<()>,
    follower: JoinHandle<Watched>,
    heartbeat: JoinHandle<()>,
}

/// Takes the lock for as long as this process lives.
pub(super) async fn take(
    args: &LockArgs,
    members: Option<Members>,
    signals: &mut Signals,
    progress: &mut Progress,
) -> Result<Held, NotHeld> {
    let wish = Wish { args, purpose: Purpose::Attended, needs_clock: members.is_none() };
    let taken = grant(wish, signals, progress).await?;
    let Taken { client, claim, holding, watched, api_time } = taken;
    let heartbeat = tokio::spawn(heartbeat::beat(client.clone(), claim.clone()));
    let word = Word { client, claim, token: holding.token };
    let trust = Trust::new(members, api_time, args.skew.get(), &holding).await;
    let first = match trust {
        Ok(mut trust) => trust.first(&holding, args.ttl.get()).await.map(|until| (trust, until)),
        Err(error) => Err(error),
    };
    let (trust, until) = match first {
        Ok(first) => first,
        Err(error) => {
            // What went wrong is the answer; the heartbeat's end frees the lock where this does not.
            let _ = word.say(watched).await;
            heartbeat.abort();
            return Err(NotHeld::Failed(error));
        }
    };
    let (published, validity) = watch::channel(Validity { until, end: None });
    let (stop, stopped) = oneshot::channel();
    let source = trust.source();
    let follower = Follower { watched, trust, holding: holding.clone(), published };
    let follower = tokio::spawn(follower.run(stopped, args.ttl.get()));
    let keeper = Keeper::Claim(Box::new(ClaimHold { word, stop, follower, heartbeat }));
    let Holding { token, identity, .. } = holding;
    Ok(Held { lock: args.lock.to_string(), token, holder: identity, validity, source, keeper })
}

/// What a grant is made of.
struct Taken {
    client: Client,
    claim: DistributedLock,
    holding: Holding,
    watched: Watched,
    api_time: Arc<ApiTime>,
}

/// What is asked for.
struct Wish<'a> {
    args: &'a LockArgs,
    purpose: Purpose,
    /// The remaining validity will come from the status.
    needs_clock: bool,
}

/// Creates a claim and waits until it holds the lock. A claim that does not is deleted.
async fn grant(wish: Wish<'_>, signals: &mut Signals, progress: &mut Progress) -> Result<Taken, NotHeld> {
    let Wish { args, purpose, needs_clock } = wish;
    let (namespace, key) = args.lock.in_cluster()?;
    let pod = pod::own();
    let wanted = object::claim(args, key, &object::owner(args, purpose, namespace, pod), purpose);
    let api_time = Arc::new(ApiTime::new(Arc::new(SystemClock)));
    let client = Client::try_default().await.context(
        "no API server was found: set KUBECONFIG, run in a pod, or take the lock from the members with --direct",
    )?;
    let client = api_time.observe(client);
    if needs_clock {
        request(client.apiserver_version()).await.context("the API server does not answer")?;
        check_wall_clock(&api_time, &SystemClock, args.skew.get())?;
    }
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), namespace);
    let created = request(locks.create(&PostParams::default(), &wanted)).await;
    let claim = created.map_err(|error| refused(&error, namespace))?;
    let mut watched = Watched::new(&locks, &claim.name_any());
    let held = tokio::select! {
        biased;
        signal = signals.ending() => Err(NotHeld::Signal(signal)),
        held = until_held(&mut watched, args, progress) => held,
    };
    match held {
        Ok(holding) => Ok(Taken { client, claim, holding, watched, api_time }),
        Err(error) => {
            if let Err(failed) = requests::delete(&client, &claim).await {
                let name = format!("{namespace}/{}", claim.name_any());
                eprintln!("redlock: delete the claim dlock {name}, or it may get the lock later: {failed}");
            }
            Err(error)
        }
    }
}

fn refused(error: &RequestError, namespace: &str) -> anyhow::Error {
    let said = match error {
        RequestError::Refused(error) => error.to_string(),
        other => other.to_string(),
    };
    anyhow::anyhow!("the claim in namespace {namespace} was not created: {said}")
}

async fn until_held(watched: &mut Watched, args: &LockArgs, progress: &mut Progress) -> Result<Holding, NotHeld> {
    let begun = SystemClock.boottime();
    let longest = match args.wait() {
        Wait::Never => Some(TRY),
        Wait::For(wait) => Some(wait + WAIT_MARGIN),
        Wait::Forever => None,
    };
    let mut last = "the operator has not answered".to_owned();
    loop {
        let left = longest.map_or(Duration::MAX, |longest| (begun + longest).since(SystemClock.boottime()));
        let not_acquired = |why: &str| NotHeld::NotAcquired(format!("lock {} was not acquired: {why}", args.lock));
        let Ok(lock) = timeout(left, watched.next()).await else { return Err(not_acquired(&last)) };
        match status::read(lock.as_ref(), None) {
            Seen::Held(holding) => return Ok(holding),
            Seen::Ended { why, .. } => return Err(not_acquired(&why)),
            Seen::Waiting { why, is_taken } => {
                if is_taken && args.wait() == Wait::Never {
                    return Err(not_acquired(&why));
                }
                progress.say(&why);
                last = why;
            }
        }
    }
}

impl ClaimHold {
    /// Says the holder's word, and waits until the operator has carried it out.
    pub(in crate::command) async fn release(self) -> anyhow::Result<()> {
        // An error says that the follower has ended, which gives the watch back all the same.
        let _ = self.stop.send(());
        let result = self.word.say(self.follower.await?).await;
        self.heartbeat.abort();
        result
    }
}

/// The holder's word for one hold.
struct Word {
    client: Client,
    claim: DistributedLock,
    token: i64,
}

impl Word {
    async fn say(self, mut watched: Watched) -> anyhow::Result<()> {
        match timeout(RELEASE, say_release(&self.client, &self.claim, self.token)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.context(LAPSES)),
            Err(_) => bail!("the API server does not answer. {LAPSES}"),
        }
        // The operator remembers it until then.
        if self.claim.spec.min_hold.is_some() {
            return Ok(());
        }
        let freed = async { while let Seen::Held(_) = status::read(watched.next().await.as_ref(), None) {} };
        timeout(RELEASE, freed)
            .await
            .context("the operator has not confirmed the release within 5s; it frees the lock when it comes to it")
    }
}

const LAPSES: &str = "the lock could not be released: it becomes free one ttl after the last heartbeat";

/// Says the holder's word.
///
/// It sets the annotation, or where that is forbidden deletes a claim with a free identity.
pub(in crate::command) async fn say_release(
    client: &Client,
    claim: &DistributedLock,
    token: i64,
) -> anyhow::Result<()> {
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let word = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: token.to_string()}}});
    let (params, word) = (PatchParams::default(), Patch::Merge(word));
    loop {
        match request(locks.patch(&claim.name_any(), &params, &word)).await {
            // It is gone, and with it the hold.
            Ok(_) | Err(RequestError::Gone) => return Ok(()),
            Err(RequestError::Unknown(_) | RequestError::Conflict) => sleep(RETRY).await,
            Err(RequestError::Refused(error)) => {
                let is_free = claim.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some());
                if !is_free {
                    return Err(anyhow::Error::new(*error));
                }
                requests::delete(client, claim).await?;
                return Ok(());
            }
        }
    }
}

/// Takes the lock for a later step, which gives it back by its token. Nothing but `--max-hold` ends it before.
pub(in crate::command) async fn take_detached(
    args: &LockArgs,
    signals: &mut Signals,
) -> Result<(String, i64), NotHeld> {
    let wish = Wish { args, purpose: Purpose::Detached, needs_clock: false };
    let taken = grant(wish, signals, &mut Progress::new(&args.lock)).await?;
    Ok((taken.claim.name_any(), taken.holding.token))
}
