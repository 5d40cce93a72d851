//! Carries out the steps of a change of the members that [`crate::quorum::model::membership`] decides. The status records the progress.
//! Every write of the status names the version on which the step was decided.

use std::time::Duration;

use super::error::{Error, RESYNC, Result};
use super::observe::{Observed, Observer};
use super::{admit, clients, decide};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lists::{lost_epoch, meets_every_majority};
use crate::quorum::model::membership::{ChangeStep, users_since};
use crate::quorum::model::progress::Until;
use crate::quorum::model::record::record_named;
use crate::quorum::session::{ActError, floor_of};
use crate::redlock::FencingToken;
use crate::time::Monotonic;

/// Steps in one reconciliation.
const STEPS: usize = 8;
/// How often a waiting change checks locks, updates and failed members.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Takes the possible steps of a change, and returns when to check it again.
///
/// The memory keeps the failures at members, which explain the wait.
pub(super) async fn carry_out(observer: &Observer<'_>) -> Result<Monotonic> {
    let (cluster, failures) = (observer.sources.cluster, &observer.sources.memory.change_failures);
    for _ in 0..STEPS {
        let observed = observer.observe();
        let failed = match decide::change(&observed) {
            ChangeStep::Nothing
            | ChangeStep::Unclosed(_)
            | ChangeStep::Wait(Until::MembersVote { .. } | Until::NewMembersVote { .. }) => {
                return Ok(cluster.after(RESYNC));
            }
            ChangeStep::Wait(_) => break,
            ChangeStep::WaitUntil(until) => return Ok(until),
            ChangeStep::OpenNext(names) => open_next(&observed, &names).await,
            ChangeStep::Close(names) => close_former_users(observer, &names).await?,
            ChangeStep::Switch => {
                switch(observer).await?;
                break;
            }
            ChangeStep::Finish => finish(observer).await?,
        };
        let has_failed = !failed.is_empty();
        *failures.lock() = failed;
        if has_failed {
            break;
        }
    }
    Ok(cluster.after(RECHECK_AFTER))
}

/// Raises the membership epoch if the members have users of another one, and withdraws their admissions. Then ends this reconciliation.
///
/// The epoch never falls below the highest one of a member, even if a user edits the status.
pub(super) async fn keep_epoch(observer: &Observer<'_>) -> Result<()> {
    let observed = observer.observe();
    let found = observed.links.iter().filter_map(|(_, state)| state.highest_epoch()).max();
    let open_users = observed.links.iter().filter_map(|(link, state)| {
        let is_admitted = record_named(&observed.quorum, link.name.as_str()).admitted;
        Some((state.observation()?.open_users.as_slice(), is_admitted))
    });
    let Some(epoch) = lost_epoch(&observed.plan.lists, found, open_users) else { return Ok(()) };
    if !observed.is_of_plan() {
        return Err(Error::CONFLICT);
    }
    tracing::warn!(quorum = %observed.plan.name, epoch, "the membership epoch in the status is not that of the members");
    let lists = &observed.plan.lists;
    observer.sources.cluster.replace(&observed.quorum, |status| lists.continue_with(epoch, status)).await?;
    Err(Error::Later(Duration::ZERO))
}

/// Opens the operator's user of the next epoch on these members, and returns the failures.
///
/// No replica uses this user before the status names that epoch. So an opening without a later switch does no harm.
async fn open_next(observed: &Observed<'_>, names: &[String]) -> Vec<String> {
    let mut failures = Vec::new();
    for name in names {
        let (rule, epoch) = (observed.plan.next_locker(observed.auth, name), observed.sources.term.epoch);
        let opened = async { observed.admin_session(name).await?.open_more(epoch, &[rule]).await };
        note(name, opened.await, &mut failures);
    }
    failures
}

/// Writes the beginning of the joint part, after which a lock needs a majority of both lists.
///
/// Success ends the reconciliation with [`Error::Later`], because its plan belongs to the earlier lists. The step is decided again on the object
/// of the API server. If that decision differs, nothing changes and the result is `Ok`.
async fn switch(observer: &Observer<'_>) -> Result<()> {
    let cluster = observer.sources.cluster;
    let observed = observer.observe_at(cluster.read().await?);
    if decide::change(&observed) != ChangeStep::Switch {
        return Ok(());
    }
    let lists = &observed.plan.lists;
    cluster.replace(&observed.quorum, |status| lists.switch(status)).await?;
    let (from, to) = (lists.voters.join(", "), lists.wanted.join(", "));
    cluster.publish_event(QuorumEvent::MembersChanging { from, to }).await;
    Err(Error::Later(Duration::ZERO))
}

/// Closes the users of earlier epochs, and returns the failures.
///
/// Each member is closed, confirmed and recorded separately.
async fn close_former_users(observer: &Observer<'_>, names: &[String]) -> Result<Vec<String>> {
    let on_file = clients::former_users_on_file(observer.sources.cluster, observer.plan).await?;
    let mut failures = Vec::new();
    for name in names {
        let observed = observer.observe();
        if !observed.is_of_plan() {
            return Err(Error::CONFLICT);
        }
        let lists = &observed.plan.lists;
        let mut rules = observed.plan.former_rules(users_since(&observed.quorum, name, lists));
        rules.extend(on_file.get(name).into_iter().flatten().cloned());
        let closed = async {
            let mut admin = observed.admin_session(name).await?;
            admin.end_epochs_before(lists.record_epoch(), observed.sources.term.epoch, &rules).await
        };
        if !note(name, closed.await, &mut failures) {
            continue;
        }
        // The write uses the state that names this process. Another process would be opened under the new epoch.
        let written = observer.sources.cluster.replace(&observed.quorum, |status| {
            if let Some(member) = status.member_mut(name) {
                member.epoch = Some(lists.epoch);
            }
        });
        written.await?;
        tracing::info!(quorum = %observed.plan.name, member = %name, epoch = lists.epoch, "users of earlier epochs closed");
    }
    Ok(failures)
}

/// Ends the joint part, and this reconciliation with [`Error::Later`].
///
/// The tokens of the new list begin above every token of the old list. `Ok` has the failures because of which the joint part continues.
async fn finish(observer: &Observer<'_>) -> Result<Vec<String>> {
    let cluster = observer.sources.cluster;
    let observed = observer.observe_at(cluster.read().await?);
    let lists = &observed.plan.lists;
    let is_still = decide::change(&observed) == ChangeStep::Finish;
    let Some(former) = lists.former.as_ref().filter(|_| is_still) else {
        return Ok(vec!["the lists changed during this step".to_owned()]);
    };
    // The wait has ended, so no grant of the old list alone is in flight.
    let counters = admit::admitted_counters(observer.sources.session, &observed.quorum).await;
    let is_meant = |(name, counter): &(String, _)| former.contains(name) && *counter < FencingToken::OUTLIER;
    let of_former: Vec<_> = counters.into_iter().filter(is_meant).map(|(_, counter)| counter).collect();
    if of_former.len() < meets_every_majority(former) {
        return Ok(vec!["too few members of the former list have answered with their token counters".to_owned()]);
    }
    let highest = of_former.into_iter().max().unwrap_or_default().max(floor_of(&observed.quorum));
    // Every later majority, and every restored counter, includes one of the members that confirm it.
    if !observer.sources.session.raise_counters(highest).await {
        return Ok(vec!["too few members have confirmed their new token counters".to_owned()]);
    }
    cluster.replace(&observed.quorum, |status| status.former_voters.clear()).await?;
    cluster.publish_event(QuorumEvent::MembersChanged { members: lists.voters.join(", ") }).await;
    Err(Error::Later(Duration::ZERO))
}

/// Records a failure. Returns whether the outcome was a success.
fn note(name: &str, outcome: Result<(), ActError>, failures: &mut Vec<String>) -> bool {
    if let Err(error) = &outcome {
        tracing::info!(member = %name, %error, "change of the members waits");
        failures.push(format!("{name}: {error}"));
    }
    outcome.is_ok()
}
