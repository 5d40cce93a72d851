//! Checks of a lock's recorded versions.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use redlock_operator::api::{DistributedLock, DistributedLockStatus, LockHolder};

use crate::{
    locks::{Lock, is_held, status},
    record::Version,
};

/// Checks that one holder held the lock without a gap from its first hold on, with one token.
///
/// Every validity was published before the earlier one ended. Returns the number of observed renewals.
pub(crate) fn check_held_throughout(versions: &[Version<DistributedLock>]) -> anyhow::Result<usize> {
    let mut versions = versions.iter().skip_while(|version| !is_held(&version.object));
    let first = status(&versions.next().context("it was never held")?.object);
    let (mut until, mut renewals) = (first.valid_until.context("a holder without validUntil")?, 0);
    for version in versions {
        let now = status(&version.object);
        ensure!(is_held(&version.object) && !version.gone, "the lock was lost: {now:?}");
        ensure!(lasting(&now) == lasting(&first), "the holder changed: {:?}, then {:?}", first.holder, now.holder);
        let [before, after] = [&first, &now].map(|status| (status.fencing_token, status.transitions));
        ensure!(before == after, "it was acquired again: token and transitions {before:?}, then {after:?}");
        let valid_until = now.valid_until.context("a holder without validUntil")?;
        ensure!(valid_until >= until, "validUntil went back from {until} to {valid_until}");
        if valid_until > until {
            let late = version.wall.0 - until.as_millis();
            ensure!(late < 0, "validUntil {valid_until} was published {late} ms after the one before had ended");
            renewals += 1;
        }
        until = valid_until;
    }
    Ok(renewals)
}

/// Checks [`check_held_throughout`] of each lock.
pub(crate) fn check_all_held(locks: &[Lock]) -> anyhow::Result<()> {
    for lock in locks {
        check_held_throughout(&lock.recorder.versions()).with_context(|| lock.name.clone())?;
    }
    Ok(())
}

/// Checks that one holder held the lock with one token from its first hold on.
///
/// The published validity can have expired while no publication was possible. The keys must not have expired.
pub(crate) fn check_never_lost(versions: &[Version<DistributedLock>]) -> anyhow::Result<()> {
    let held = versions.iter().skip_while(|version| !is_held(&version.object));
    let observed: Vec<_> =
        held.map(|version| (is_held(&version.object) && !version.gone, status(&version.object))).collect();
    let first = observed.first().map(|(_, status)| status.clone()).context("it was never held")?;
    // A newer version of the operator adds fields to the record of a hold.
    let hold = |status: &DistributedLockStatus| {
        let holder = status.holder.clone();
        (holder.map(|holder| (holder.identity, holder.nonce, holder.container_id, holder.slot)), status.fencing_token)
    };
    for (held, now) in observed {
        let same = held && hold(&now) == hold(&first);
        ensure!(same, "it changed hands or was lost: {first:?}, then {now:?}");
    }
    Ok(())
}

/// Checks that at most one pod had a leader label at any time, and that one has it now.
///
/// `versions` are those of all pods with the label, in the order of the API server's changes.
pub(crate) fn check_one_label(versions: &[Version<Pod>]) -> anyhow::Result<()> {
    let mut labelled = BTreeSet::new();
    for version in versions {
        let name = version.object.name_any();
        if version.gone {
            labelled.remove(&name);
        } else {
            labelled.insert(name);
        }
        ensure!(labelled.len() < 2, "these pods had the leader label at the same time: {labelled:?}");
    }
    ensure!(labelled.len() == 1, "{} pods have the leader label", labelled.len());
    Ok(())
}

/// The holder without the rejoin delay, which grows when the setting in force changes.
fn lasting(status: &DistributedLockStatus) -> Option<LockHolder> {
    status.holder.clone().map(|holder| LockHolder { rejoin_delay: None, ..holder })
}
