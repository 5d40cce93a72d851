//! Creates a claim and waits until it holds the lock.

use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::arguments::{LockArgs, Wait};
use super::super::held_lock::NotHeld;
use super::super::identity::{is_of_pod, whoami};
use super::super::progress::Progress;
use super::super::signals::Signals;
use super::follow::Watched;
use super::object::{Purpose, TRY};
use super::pod::OwnPod;
use super::status::{ClaimState, Holding, Obstacle};
use super::validity_source::check_wall_clock;
use super::{RETRY, heartbeat, object, pod, status};
use crate::cluster::{Cluster, Problem};
use crate::console;
use redlock_api::requests::{self, RequestError, request};
use redlock_api::server_time::ServerTime;
use redlock_api::{CREATED_BY_ANNOTATION, DistributedLock};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// Extra time beyond --wait, which the operator counts from the creation of the claim.
const WAIT_MARGIN: Duration = Duration::from_secs(2);

/// Time in which a free lock is granted. A wait without another holder is reported after it.
const QUIET: Duration = Duration::from_secs(1);

const SILENT_SERVER: &str = "the API server does not answer";
const SILENT_OPERATOR: &str = "the operator has not answered";

/// A claim that holds the lock.
pub(super) struct GrantedClaim {
    pub(super) client: Client,
    pub(super) claim: DistributedLock,
    pub(super) holding: Holding,
    pub(super) watched: Watched,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) heartbeat: AbortOnDropHandle<()>,
}

/// The requests for one claim.
struct Claimant<'a> {
    args: &'a LockArgs,
    purpose: Purpose,
    own_pod: Option<OwnPod>,
    client: Client,
    locks: Api<DistributedLock>,
    wanted: DistributedLock,
    /// The claim exists, or can exist because a creation has no answer yet.
    can_exist: bool,
    /// When the wait ends. `None`: never.
    deadline: Option<Boottime>,
}

/// Creates a claim and waits until it holds the lock. After a failure it deletes the claim.
///
/// With `needs_clock` the remaining validity comes from the status.
pub(super) async fn grant(
    args: &LockArgs,
    purpose: Purpose,
    needs_clock: bool,
    signals: &mut Signals,
    progress: &mut Progress,
) -> Result<GrantedClaim, NotHeld> {
    let (namespace, _) = args.lock.in_cluster()?;
    let own_pod = pod::own();
    let wanted = wanted(args, purpose, own_pod.clone())?;
    let cluster = Cluster::connect(&args.cluster).await?;
    let (client, server_time) = (cluster.client.clone(), cluster.server_time());
    let locks = Api::namespaced(client.clone(), namespace);
    let deadline = deadline(args.wait(), SystemClock.boottime());
    let mut claimant = Claimant { args, purpose, own_pod, client, locks, wanted, can_exist: false, deadline };
    let attempt = async {
        if needs_clock {
            claimant.read_clock(&server_time, progress).await?;
        }
        claimant.name_creator(progress).await?;
        let claim = claimant.create(progress).await?;
        // The operator skips a claim whose heartbeat has stopped, for example because its creator was killed.
        let heartbeat = tokio::spawn(heartbeat::beat(claimant.client.clone(), claim.clone()));
        let heartbeat = AbortOnDropHandle::new(heartbeat);
        let mut watched = Watched::new(&claimant.locks, &claim.name_any());
        let holding = claimant.until_held(&mut watched, progress).await?;
        Ok::<_, NotHeld>((claim, holding, watched, heartbeat))
    };
    match signals.unless_ending(attempt).await {
        Ok((claim, holding, watched, heartbeat)) => {
            Ok(GrantedClaim { client: claimant.client, claim, holding, watched, server_time, heartbeat })
        }
        Err(error) => {
            claimant.withdraw().await;
            Err(error)
        }
    }
}

/// The claim to create. A pod can hold it.
fn wanted(args: &LockArgs, purpose: Purpose, own_pod: Option<OwnPod>) -> anyhow::Result<DistributedLock> {
    let (namespace, key) = args.lock.in_cluster()?;
    let owner = object::owner(args, purpose, namespace, own_pod);
    Ok(object::claim(args, namespace, key, owner, purpose))
}

/// The end of a wait that begins now.
fn deadline(wait: Wait, now: Boottime) -> Option<Boottime> {
    match wait {
        Wait::Never => Some(now + TRY),
        Wait::For(wait) => Some(now + wait + WAIT_MARGIN),
        Wait::Forever => None,
    }
}

impl Claimant<'_> {
    /// Reads the API server's clock, and compares it with that of this machine.
    async fn read_clock(&self, server_time: &ServerTime, progress: &mut Progress) -> Result<(), NotHeld> {
        loop {
            match request(self.client.apiserver_version()).await {
                Ok(_) => return Ok(check_wall_clock(server_time, &SystemClock, self.args.skew.get())?),
                Err(RequestError::Unknown(_)) => self.pause(progress).await?,
                Err(error) => return Err(Problem::of_holder("failed to read the API server's time", &error).into()),
            }
        }
    }

    /// Adds the annotation with the creator, so that the creator can release the lock.
    ///
    /// Without it only the holding pod, or a user with the verb `update`, can release the lock. The own pod holds the lock only if it is a pod
    /// of this API server. A certificate, an impersonated user, or a kubeconfig of another cluster sends no token of the pod.
    async fn name_creator(&mut self, progress: &mut Progress) -> Result<(), NotHeld> {
        loop {
            match request(whoami(&self.client)).await {
                Ok(user) => {
                    let own_pod = self.own_pod.take().filter(|own| is_of_pod(&user, &own.uid));
                    self.wanted = wanted(self.args, self.purpose, own_pod)?;
                    let name = user.username.map(|name| (CREATED_BY_ANNOTATION.to_owned(), name));
                    self.wanted.annotations_mut().extend(name);
                    return Ok(());
                }
                Err(RequestError::Unknown(_)) => self.pause(progress).await?,
                Err(_) => return Ok(()),
            }
        }
    }

    /// Creates the claim.
    ///
    /// After a creation without a reply it repeats the request with the same name, so there is never a second claim.
    async fn create(&mut self, progress: &mut Progress) -> Result<DistributedLock, NotHeld> {
        loop {
            // A signal can end this request after the API server created the claim.
            let before = std::mem::replace(&mut self.can_exist, true);
            let created = match request(self.locks.create(&PostParams::default(), &self.wanted)).await {
                // Only this process uses this name, so an earlier request created the claim. The client of kube also repeats requests.
                Err(RequestError::Conflict) => match request(self.locks.get(&self.wanted.name_any())).await {
                    // A ResourceQuota changed at the same moment.
                    Err(RequestError::Gone) => Err(RequestError::Unknown(None)),
                    found => found,
                },
                Err(error @ (RequestError::Refused(_) | RequestError::Gone)) => {
                    self.can_exist = before;
                    Err(error)
                }
                created => created,
            };
            match created {
                Ok(claim) => return Ok(claim),
                Err(RequestError::Unknown(_)) => {}
                Err(error) => {
                    let namespace = self.wanted.namespace().unwrap_or_default();
                    let failure = format!("the claim in namespace {namespace} was not created");
                    return Err(Problem::of_holder(&failure, &error).into());
                }
            }
            self.pause(progress).await?;
        }
    }

    /// Pauses before a request is repeated.
    ///
    /// # Errors
    /// If the time of the wait has passed.
    async fn pause(&self, progress: &mut Progress) -> Result<(), NotHeld> {
        if self.deadline.is_some_and(|deadline| deadline <= SystemClock.boottime() + RETRY) {
            return Err(self.not_acquired(SILENT_SERVER, false));
        }
        progress.report(SILENT_SERVER, false);
        sleep(RETRY).await;
        Ok(())
    }

    async fn until_held(&self, watched: &mut Watched, progress: &mut Progress) -> Result<Holding, NotHeld> {
        let namespace = self.wanted.namespace().unwrap_or_default();
        let (mut last, mut is_taken) = (SILENT_OPERATOR.to_owned(), false);
        let quiet_until = SystemClock.boottime() + QUIET;
        let mut is_withheld = true;
        loop {
            let now = SystemClock.boottime();
            let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
            let quiet = if is_withheld { quiet_until.since(now) } else { Duration::MAX };
            let lock = match timeout(left.min(quiet), watched.event()).await {
                Ok(Ok(lock)) => lock,
                // Each attempt of an agent has another claim, and its log has each reason once.
                Ok(Err(error)) => match Problem::of_watch(&format!("watch claims in namespace {namespace}"), &error) {
                    Some(denied) => return Err(denied.into()),
                    None => continue,
                },
                Err(_) if quiet < left => {
                    is_withheld = false;
                    progress.report(&last, is_taken);
                    continue;
                }
                Err(_) => return Err(self.not_acquired(&last, is_taken)),
            };
            match status::read(lock.as_ref(), None) {
                ClaimState::Held(holding) => return Ok(holding),
                ClaimState::Ended { why, .. } => return Err(self.not_acquired(&why, is_taken)),
                ClaimState::Waiting { why, obstacle } => {
                    is_taken = obstacle == Obstacle::Taken;
                    if obstacle == Obstacle::Refused || is_taken && self.args.wait() == Wait::Never {
                        return Err(self.not_acquired(&why, is_taken));
                    }
                    is_withheld = !is_taken && SystemClock.boottime() < quiet_until;
                    if !is_withheld {
                        progress.report(&why, is_taken);
                    }
                    last = why;
                }
            }
        }
    }

    fn not_acquired(&self, why: &str, is_taken: bool) -> NotHeld {
        NotHeld::after_wait(&self.args.lock, why, is_taken)
    }

    /// Deletes the claim, even if its creation had no reply.
    async fn withdraw(&self) {
        if !self.can_exist {
            return;
        }
        if let Err(failed) = requests::delete(&self.client, &self.wanted).await {
            let (namespace, name) = (self.wanted.namespace().unwrap_or_default(), self.wanted.name_any());
            console::report(format_args!(
                "delete the claim dlock {namespace}/{name}, or it can get the lock later: {failed}"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
