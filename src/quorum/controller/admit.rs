//! The admission is the one place where a process becomes able to vote. The order of its steps is the safety argument
//! (docs/dev/rules.md, rules 3 and 7). The leader connects and reads the `run_id`, reads the status from the API
//! server, decides again, and reads the counters. It writes Admitted with that resourceVersion. Then it restores the counter
//! and opens the users, on the connection of the first step.
//!
//! An external master has no users to open. Its counter is restored first, because its votes count as soon as the
//! status admits it.

use futures::future::join_all;

use super::error::{Error, Result};
use super::observe::Observer;
use super::snapshot::MemberSnapshot;
use super::{fencing, publish, token_levelling};
use crate::api::RedisQuorum;
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::facts::ContainerReport;
use crate::quorum::model::lists::{Lists, meets_every_majority};
use crate::quorum::model::record::{Stamps, admitted_run_id, publish_named};
use crate::quorum::model::{effective, version};
use crate::quorum::session::{ActError, AdminSession, FLOOR_STEP, QuorumSession, floor_of};
use crate::redlock::{FencingToken, MemberError, restored};

pub(super) async fn admit(observer: &Observer<'_>, snapshot: &MemberSnapshot) -> Result<()> {
    let cluster = observer.sources.cluster;
    let Some(process) = &snapshot.process else { return Ok(()) };
    let (session, name, external) = (observer.sources.session, snapshot.name(), snapshot.link.plan.is_external());
    let mut admin = snapshot.link.admin_session(&process.run_id).await?;
    let observation = if external {
        admin.observe().await?
    } else {
        // An open user that the status does not name was able to vote until now. Then the leader closes it first, and the wait starts
        // there.
        let observation = admin.observe_all().await?;
        if let Some(unfit) = &observation.unfit {
            return Err(ActError::Member(MemberError::Unfit(unfit.clone())).into());
        }
        if !observation.open_users.is_empty() {
            return Err(ActError::Unfit("its users are open already").into());
        }
        observation
    };
    let quorum = cluster.read().await?;
    // Other lists have other users, and a quorum under deletion relies on no further opening.
    if Lists::of(&quorum) != observer.plan.lists || quorum.metadata.deletion_timestamp.is_some() {
        return Err(Error::CONFLICT);
    }
    let again = observer.sources.observe(&snapshot.link, quorum.clone()).await?;
    let process = again.process.as_ref().filter(|found| found.run_id == process.run_id);
    let process = process.ok_or(ActError::OtherProcess)?;
    if again.step() != FenceStep::Admit {
        return Ok(());
    }
    // Without these facts, a later death could not be distinguished from the life of its successor.
    if !external && (again.container_report != ContainerReport::Running || process.node_name.is_none()) {
        return Err(ActError::Unfit("its pod status does not show its container running yet").into());
    }
    let counter = restored_counter(observer, &quorum).await;
    if external {
        admin.restore_counter(counter).await?;
    } else {
        // A member whose counter is too far below the new number would refuse it.
        token_levelling::level_counters(session, counter).await;
    }
    record_admission(observer, &again, counter).await?;
    if !external {
        open(observer, admin, counter, snapshot).await?;
    }
    let (member, process) = (name.to_owned(), process.run_id.clone());
    cluster.publish_event(QuorumEvent::Admitted { member, process }).await;
    if let Some(least) = version::least_fixed(&observation.version, observation.valkey_version.as_deref()) {
        cluster.publish_event(QuorumEvent::VulnerableVersion { member: name.to_owned(), least }).await;
    }
    Ok(())
}

/// Records an admission in one write.
///
/// The write contains the admission, and a floor above all tokens that the counter of the process can issue.
async fn record_admission(observer: &Observer<'_>, snapshot: &MemberSnapshot, counter: FencingToken) -> Result<()> {
    let record = snapshot.record.after(FenceStep::Admit, snapshot.process.as_ref(), &snapshot.verdict);
    let external = snapshot.link.plan.is_external();
    let now = observer.sources.cluster.now();
    // The announced time has passed, but later replies of the API server can move the estimate of its clock back.
    let admitted_at = now + publish::until_announced(observer.sources.cluster, snapshot);
    let stamps = Stamps {
        admitted_at: observer.sources.cluster.wall_time(admitted_at, now),
        // For an external master its own record decides which epochs ended there, and the admission does not.
        epoch: (!external).then_some(observer.plan.lists.epoch),
        ..Stamps::default()
    };
    let floor = floor_of(&snapshot.quorum).max(counter.saturating_add(FLOOR_STEP));
    let written = observer.sources.cluster.replace(&snapshot.quorum, |status| {
        status.token_floor = Some(floor.get());
        publish_named(status, snapshot.name(), &record, stamps);
        if let Some(member) = status.member_mut(snapshot.name()).filter(|_| external) {
            member.memory = snapshot.memory();
        }
    });
    written.await
}

/// Opens the users of the process, once, on the connection of the check.
///
/// After a failure the state of the users is unknown, so the process is fenced and waits again.
async fn open(
    observer: &Observer<'_>,
    mut admin: AdminSession<'_>,
    counter: FencingToken,
    snapshot: &MemberSnapshot,
) -> Result<()> {
    let rules = observer.plan.open_rules(observer.auth, snapshot.name());
    let Err(error) = admin.open(observer.sources.term.epoch, &rules, counter).await else { return Ok(()) };
    drop(admin);
    tracing::warn!(member = snapshot.name(), %error, "the users were not opened, so the member is fenced again");
    let snapshot = snapshot.by(observer.sources.session.quorum());
    let rejoin_at = Some(observer.sources.cluster.now() + effective::current_rejoin_delay(&snapshot.quorum));
    let step = FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at, close: true };
    fencing::write(observer, &snapshot, step).await?;
    fencing::close_users(observer, &snapshot).await?;
    Err(error.into())
}

/// The token counter for a restarted process.
///
/// It is above every token that a majority can have issued. It is read after the rejoin delay, never before, because
/// an acquisition can be in flight until then. The clock is that of the API server, which all replicas share. A replica's
/// own clock can be days ahead, and tokens never fall.
///
/// The status does not admit the member yet, so the counters do not include its own. A read of its counter would wait without an end, because
/// this admission has the member's admin session.
async fn restored_counter(observer: &Observer<'_>, quorum: &RedisQuorum) -> FencingToken {
    // The clock is in microseconds, so it stays ahead of a million tokens per second.
    let clock = FencingToken::new(observer.sources.cluster.api_now().0.saturating_mul(1_000)).unwrap_or_default();
    let counters = admitted_counters(observer.sources.session, quorum).await;
    let list = observer.plan.lists.token_list();
    let counters = counters.into_iter().filter(|(name, _)| list.contains(name));
    let counters = counters.map(|(_, counter)| counter);
    restored(&counters.collect::<Vec<_>>(), meets_every_majority(list), floor_of(quorum), clock)
}

/// The counters of the admitted members that answer. Each is read from the admitted process.
pub(super) async fn admitted_counters(session: &QuorumSession, quorum: &RedisQuorum) -> Vec<(String, FencingToken)> {
    let links = session.links();
    let reads = links.iter().filter(|link| link.answers()).filter_map(|link| {
        let run_id = admitted_run_id(quorum, link.name.as_str())?;
        Some(async move {
            let counter = link.counter(&run_id).await.ok()?;
            Some((link.name.to_string(), counter))
        })
    });
    join_all(reads).await.into_iter().flatten().collect()
}
