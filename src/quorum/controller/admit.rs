//! The admission: the one place where a process is let in to vote. The order is the safety argument (docs/dev/rules.md, rules 3
//! and 7): connect and learn the process; read the status from the API server; decide again; read the counters; write Admitted
//! with that resourceVersion; then, on the connection of the first step, restore the counter and open the users. On a master that
//! others run there are no users to be opened: there the counter is restored first, since its votes count once the status says so.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::cluster::Cluster;
use super::error::Error;
use super::fencing::{close_users, write};
use super::look::Look;
use super::observe::Observer;
use super::{level, publish};
use crate::api::{MilliTime, RedisQuorum};
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::effective;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::facts::Shown;
use crate::quorum::model::lists::{Lists, meets_every_majority};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::record::{Stamps, admitted_run_id, publish_named};
use crate::quorum::model::version::least_fixed;
use crate::quorum::session::{ActError, AdminSession, FLOOR_STEP, QuorumSession, floor_of};
use crate::redis_member::Observation;
use crate::redlock::{FencingToken, restored};
use crate::time::UnixMillis;

/// For the counters of the others: they are taken where they can be had.
const COUNTERS_TIMEOUT: Duration = Duration::from_millis(600);

pub(super) async fn admit(observer: &Observer<'_>, cluster: &Cluster<'_>, look: &Look) -> Result<(), Error> {
    let Some(seen) = &look.seen else { return Ok(()) };
    let (session, name, external) = (observer.sights.session, look.name(), look.link.plan().is_external());
    let mut admin = look.link.admin_session(&seen.run_id).await?;
    let observation = if external {
        admin.observe().await?
    } else {
        // A user that is open and that the status does not name would have voted all along: then it is closed first, and the count begins
        // there.
        let observation = admin.observe_all().await?;
        check(&observation)?;
        observation
    };
    let quorum = cluster.read().await?;
    // Other lists mean other users, and one that is being deleted counts on nothing being opened any more.
    if Lists::of(&quorum) != observer.plan.lists || quorum.metadata.deletion_timestamp.is_some() {
        return Err(Error::Conflict);
    }
    let again = observer.sights.look(&look.link, quorum.clone()).await?;
    let Some(process) = again.seen.as_ref().filter(|process| process.run_id == seen.run_id) else {
        return Err(ActError::OtherProcess.into());
    };
    if again.step() != FenceStep::Admit {
        return Ok(());
    }
    // Its death could not be told from its successor's life later.
    if !external && (again.shown != Shown::Running || process.node_name.is_none()) {
        return Err(ActError::Unfit("its pod status does not show its container running yet").into());
    }
    let counter = restored_counter(session, observer.plan, &quorum, name, cluster.api_now()).await;
    if external {
        admin.restore_counter(counter).await?;
    } else {
        // A member that the new number would leave too far behind would refuse it.
        level::level_counters(session, counter).await;
    }
    record_admission(observer, cluster, &again, counter).await?;
    if !external {
        open(observer, cluster, admin, counter, look).await?;
    }
    let (member, process) = (name.to_owned(), process.run_id.clone());
    cluster.tell(QuorumEvent::Admitted { member, process }).await;
    if let Some(least) = least_fixed(&observation.version, observation.valkey_version.as_deref()) {
        cluster.tell(QuorumEvent::KnownFaults { member: name.to_owned(), least }).await;
    }
    Ok(())
}

/// Records an admission in one write.
///
/// The write has the admission, and the floor above all tokens that the counter of the process may give out.
async fn record_admission(
    observer: &Observer<'_>,
    cluster: &Cluster<'_>,
    look: &Look,
    counter: FencingToken,
) -> Result<(), Error> {
    let record = look.record.after(FenceStep::Admit, look.seen.as_ref(), &look.verdict);
    let external = look.link.plan().is_external();
    let admitted_at = publish::not_before_announced(cluster, look);
    let stamps = Stamps {
        admitted_at: MilliTime::from_millis(admitted_at),
        operator_epoch: Some(observer.sights.epoch),
        // Which epochs are over on a master that others run is what its record says, and not known by an admission.
        epoch: (!external).then_some(observer.plan.lists.epoch),
        ..Stamps::default()
    };
    let floor = floor_of(&look.quorum).max(counter.saturating_add(FLOOR_STEP));
    let written = cluster.replace(&look.quorum, |status| {
        status.token_floor = Some(floor.get());
        publish_named(status, look.name(), &record, stamps);
        if let Some(member) = status.members.iter_mut().find(|member| external && member.name == look.name()) {
            member.memory = look.memory();
        }
    });
    written.await
}

/// Opens on the connection of the check, once. A failure leaves the state of the users unknown, so the process is fenced and
/// counted again.
async fn open(
    observer: &Observer<'_>,
    cluster: &Cluster<'_>,
    mut admin: AdminSession<'_>,
    counter: FencingToken,
    look: &Look,
) -> Result<(), Error> {
    let rules = observer.plan.open_rules(observer.auth, look.name());
    let Err(error) = admin.open(observer.sights.epoch, &rules, counter).await else { return Ok(()) };
    drop(admin);
    tracing::warn!(member = look.name(), %error, "opening failed, fencing again");
    let look = look.by(observer.sights.session.quorum());
    let rejoin_at = Some(cluster.now() + effective::current(&look.quorum).rejoin_delay());
    let step = FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at, close: true };
    write(observer, cluster, &look, step).await?;
    close_users(observer, &look).await?;
    Err(error.into())
}

/// A process that could forget while it runs must not vote, whatever has configured it so.
fn check(observation: &Observation) -> Result<(), ActError> {
    if !observation.is_master {
        return Err(ActError::Unfit("it is a replica, not a master"));
    }
    if observation.append_only {
        return Err(ActError::Unfit("it writes an append-only file"));
    }
    if observation.maxmemory_policy != "noeviction" {
        return Err(ActError::Unfit("it may evict keys"));
    }
    if !observation.open_users.is_empty() {
        return Err(ActError::Unfit("its users are open already"));
    }
    Ok(())
}

/// The counter with which a process starts that has forgotten its own.
///
/// It is above every token that a majority may have given out. It is read after the rejoin delay, never before: an
/// acquisition may be in flight until then. `clock` is the API server's, which is one for all. A replica's own clock
/// may be days ahead, and tokens never go back.
async fn restored_counter(
    session: &QuorumSession,
    plan: &Plan,
    quorum: &RedisQuorum,
    member: &str,
    clock: UnixMillis,
) -> FencingToken {
    let counters = counters_of_others(session, quorum, member).await;
    // In microseconds, so that a million tokens per second are behind it.
    let clock = FencingToken::new(clock.0.saturating_mul(1_000)).unwrap_or_default();
    let list = plan.lists.knows_tokens();
    let counters = counters.into_iter().filter(|(name, _)| list.contains(name));
    let counters = counters.map(|(_, counter)| counter);
    restored(&counters.collect::<Vec<_>>(), meets_every_majority(list), floor_of(quorum), clock)
}

/// The counters of the other admitted members, each read from the process that is admitted.
pub(super) async fn counters_of_others(
    session: &QuorumSession,
    quorum: &RedisQuorum,
    name: &str,
) -> Vec<(String, FencingToken)> {
    let links = session.links();
    let others = links.iter().filter(|link| link.name().as_str() != name && link.is_seen());
    let reads = others.filter_map(|link| {
        let run_id = admitted_run_id(quorum, link.name().as_str())?;
        Some(async move {
            let counter = timeout(COUNTERS_TIMEOUT, link.counter(&run_id)).await.ok()?.ok()?;
            Some((link.name().to_string(), counter))
        })
    });
    join_all(reads).await.into_iter().flatten().collect()
}
