//! Changes of the members carried out: what [`crate::quorum::model::membership`] decides. The status is the memory of how far a change is, and every
//! write of it names the version that the step was decided on.

use std::sync::Arc;
use std::time::Duration;

use super::{Error, RESYNC, Task, external::Said, publish::Publisher};
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::RedisQuorum,
    fence::{Reach, Users},
    quorum::{
        model::{
            auth::{Auth, Stage},
            effective,
            lists::{Lists, lost_epoch, majority, meets_every_majority},
            membership::{Busy, ChangeStep, MemberView, Obstacle, View, decide, describe, is_closed, users_since},
            plan::{MemberPlan, Plan},
            record::admitted_run_id,
            rollout::RolloutStep,
        },
        session::{ActError, MemberLink, floor_of},
    },
    redis_member::acl::UserRule,
    redlock::{FencingToken, RunId},
};

/// Steps in one reconciliation.
const STEPS: usize = 8;
/// Locks, and updates, are looked at this often while a change waits for them, and members that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a reconciliation has made of a change.
pub(super) enum Changed {
    /// The lists are others now.
    Lists,
    /// They are as they were; to be looked at again after this, or when there is news.
    Nothing {
        /// For how long nothing has to be done.
        look_again: Duration,
    },
}

impl Task<'_> {
    /// Takes the steps of a change that can be taken now.
    pub(super) async fn change_members(
        &self,
        plan: &Plan,
        auth: &Auth,
        publisher: &Publisher<'_>,
    ) -> Result<Changed, Error> {
        for _ in 0..STEPS {
            let failures = match self.change_step(plan, &self.session.quorum()) {
                ChangeStep::Nothing => return Ok(Changed::Nothing { look_again: RESYNC }),
                ChangeStep::Wait(Obstacle::Members(_) | Obstacle::Unclosed(_)) => {
                    return Ok(Changed::Nothing { look_again: RESYNC });
                }
                ChangeStep::Wait(_) => break,
                ChangeStep::WaitUntil(until) => {
                    return Ok(Changed::Nothing { look_again: until.since(self.now()) });
                }
                ChangeStep::OpenNext(names) => self.open_next(plan, auth, &names).await?,
                ChangeStep::Close(names) => self.close_former_users(plan, auth, publisher, &names).await?,
                ChangeStep::Switch => match self.switch(plan, publisher).await? {
                    true => return Ok(Changed::Lists),
                    false => break,
                },
                ChangeStep::Announce(announced) => {
                    self.announce(publisher, plan, announced).await?;
                    return Ok(Changed::Lists);
                }
                ChangeStep::Finish => match self.finish(plan, publisher).await? {
                    None => return Ok(Changed::Lists),
                    Some(failures) => failures,
                },
            };
            let failed = !failures.is_empty();
            self.leader.memory(self.session.uid(), |memory| memory.change_failures = failures);
            if failed {
                break;
            }
        }
        Ok(Changed::Nothing { look_again: LOOK_AGAIN })
    }

    /// The membership epoch never falls below one that a member has users of, whoever edited the status. Whether it was raised.
    pub(super) async fn keep_epoch(&self, plan: &Plan, publisher: &Publisher<'_>) -> Result<bool, Error> {
        let found = self.session.links().iter().filter_map(|link| link.view().highest_epoch).max();
        let Some(epoch) = lost_epoch(&plan.lists, found) else { return Ok(false) };
        if Lists::of(&self.session.quorum()) != plan.lists {
            return Err(Error::Conflict);
        }
        tracing::warn!(quorum = %self.session.reference(), epoch, "the status had lost the membership epoch");
        publisher.write(|status| status.membership_epoch = Some(epoch)).await?;
        Ok(true)
    }

    /// What a change is doing, for people.
    pub(super) fn change_text(&self, plan: &Plan) -> Option<String> {
        let failures = self.leader.memory(self.session.uid(), |memory| memory.change_failures.clone());
        describe(&plan.lists, &self.change_step(plan, &self.session.quorum()), &failures)
    }

    /// The decision about this state of the quorum. One with other lists than the plan's is for the next reconciliation.
    fn change_step(&self, plan: &Plan, quorum: &RedisQuorum) -> ChangeStep {
        if plan.lists.is_settled() || Lists::of(quorum) != plan.lists {
            return ChangeStep::Nothing;
        }
        let members: Vec<_> = plan.all_members().map(|member| self.view_of_change(plan, member, quorum)).collect();
        let said = self.said(plan, quorum, &members);
        decide(&View {
            now: self.now(),
            lists: &plan.lists,
            members: &members,
            incomplete_locks: &self.incomplete_locks(plan, quorum),
            busy: self.busy(plan, quorum),
            others: said.as_ref().map(Said::others),
            former_closed_since: self.session.former_closed_since(plan.lists.epoch),
            rejoin_delay: effective::rejoin_delay_of(quorum),
        })
    }

    /// What else is under way. Passwords that wait for a person's word may wait for long: every member has them.
    fn busy(&self, plan: &Plan, quorum: &RedisQuorum) -> Option<Busy> {
        let rollout = self.rollout_step(plan, quorum);
        if !matches!(rollout, RolloutStep::Nothing | RolloutStep::Paused { .. }) {
            return Some(Busy::Update);
        }
        let auth = self.session.auth();
        let rotation = auth.as_ref().and_then(Auth::rotation);
        rotation.filter(|rotation| rotation.stage != Stage::Switched).map(|_| Busy::Passwords)
    }

    fn view_of_change(&self, plan: &Plan, member: &MemberPlan, quorum: &RedisQuorum) -> MemberView {
        if member.is_external() {
            return self.view_of_external(plan, member, quorum);
        }
        let link = self.session.link(&member.name);
        let open_users = link.as_ref().and_then(|link| self.obedient(link, quorum));
        let next = UserRule::locker_name(plan.lists.epoch + 1);
        MemberView {
            name: member.name.clone(),
            admitted: open_users.is_some(),
            ready_for_next: open_users.is_some_and(|users| users.contains(&next)),
            closed: is_closed(quorum, &member.name, &plan.lists),
            dead: false,
        }
    }

    /// The open users of a member, if the process that is admitted answers, is open, and obeys this leader only.
    fn obedient(&self, link: &MemberLink, quorum: &RedisQuorum) -> Option<Vec<String>> {
        let view = link.view();
        let admitted = admitted_run_id(quorum, link.name().as_str())?;
        let Reach::Seen(sight) = view.processes.reach(true, self.now()) else { return None };
        let obeys = view.raised == Some(self.leader.term.epoch);
        let is_it = sight.run_id == admitted && sight.users == Users::Open && obeys;
        view.observation.filter(|_| is_it).map(|observation| observation.open_users)
    }

    /// Nobody uses the user of the next epoch before the status names that epoch, so an opening that is followed by no switch
    /// does no harm.
    async fn open_next(&self, plan: &Plan, auth: &Auth, names: &[String]) -> Result<Vec<String>, Error> {
        let quorum = self.session.quorum();
        let mut failures = Vec::new();
        for name in names {
            let rule = plan.next_locker(auth, name);
            let opened = async {
                let (link, run_id) = self.admitted_link(&quorum, name)?;
                link.turn(&run_id).await?.open_more(self.leader.term.epoch, &[rule]).await
            };
            note(name, opened.await, &mut failures);
        }
        Ok(failures)
    }

    /// The one write from which on both lists count. Decided anew on what the API server has; false if something came between.
    async fn switch(&self, plan: &Plan, publisher: &Publisher<'_>) -> Result<bool, Error> {
        let quorum = self.read().await?;
        if self.change_step(plan, &quorum) != ChangeStep::Switch {
            return Ok(false);
        }
        publisher
            .write_on(&quorum, |status| {
                plan.lists.switch(status);
                publisher.refresh(status);
            })
            .await?;
        let (from, to) = (plan.lists.voters.join(", "), plan.lists.wanted.join(", "));
        self.tell(QuorumEvent::MembersChanging { from, to }).await;
        Ok(true)
    }

    /// Closes the users of earlier epochs, each member confirmed and recorded by itself. Gives what failed.
    async fn close_former_users(
        &self,
        plan: &Plan,
        auth: &Auth,
        publisher: &Publisher<'_>,
        names: &[String],
    ) -> Result<Vec<String>, Error> {
        let on_file = self.former_users_on_file(plan).await?;
        let mut failures = Vec::new();
        for name in names {
            let quorum = self.session.quorum();
            if Lists::of(&quorum) != plan.lists {
                return Err(Error::Conflict);
            }
            let mut rules = plan.former_rules(auth, name, users_since(quorum.status.as_ref(), name, &plan.lists));
            let removed = on_file.get(name).into_iter().flatten();
            rules.extend(
                removed
                    .filter(|rule| !rules.iter().any(|known| known.name() == rule.name()))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
            let closed = async {
                let (link, run_id) = self.admitted_link(&quorum, name)?;
                let mut turn = link.turn(&run_id).await?;
                turn.end_epochs_before(plan.lists.epoch, self.leader.term.epoch, &rules).await
            };
            if !note(name, closed.await, &mut failures) {
                continue;
            }
            // Of the very state that names this process: another one would be opened under the new epoch.
            publisher
                .write_on(&quorum, |status| {
                    if let Some(member) = status.members.iter_mut().find(|member| member.name == *name) {
                        member.epoch = Some(plan.lists.epoch);
                    }
                    publisher.refresh(status);
                })
                .await?;
            tracing::info!(quorum = %self.session.reference(), member = %name, epoch = plan.lists.epoch, "users of earlier epochs closed");
        }
        Ok(failures)
    }

    /// The new list goes on alone, above every token that the old one has given out. `None` when it does; else what failed.
    async fn finish(&self, plan: &Plan, publisher: &Publisher<'_>) -> Result<Option<Vec<String>>, Error> {
        let quorum = self.read().await?;
        let Some(former) = plan.lists.former.as_ref().filter(|_| self.change_step(plan, &quorum) == ChangeStep::Finish)
        else {
            return Ok(Some(vec!["something came between".to_owned()]));
        };
        // After the wait, so that no grant of the old list alone is on its way any more.
        let counters = self.counters_of_others(&quorum, "").await;
        let of_former: Vec<FencingToken> =
            counters.iter().filter(|(name, _)| former.contains(name)).map(|(_, counter)| *counter).collect();
        if of_former.len() < meets_every_majority(former) {
            return Ok(Some(vec!["too few members of the list before tell their token counters".to_owned()]));
        }
        let highest = of_former.into_iter().max().unwrap_or_default().max(floor_of(&quorum));
        let (mut raised, mut failures) = (0, Vec::new());
        for name in &plan.lists.voters {
            let confirmed = async {
                let (link, run_id) = self.admitted_link(&quorum, name)?;
                link.turn(&run_id).await?.restore_counter(highest).await
            };
            raised += usize::from(note(name, confirmed.await, &mut failures));
        }
        // Every later majority, and every restored counter, meets one of these.
        if raised < majority(&plan.lists.voters) {
            return Ok(Some(failures));
        }
        publisher
            .write_on(&quorum, |status| {
                status.former_voters.clear();
                status.announced = None;
                publisher.refresh(status);
            })
            .await?;
        self.tell(QuorumEvent::MembersChanged { members: plan.lists.voters.join(", ") }).await;
        Ok(None)
    }

    /// The link to the process of a member that is admitted.
    pub(super) fn admitted_link(&self, quorum: &RedisQuorum, name: &str) -> Result<(Arc<MemberLink>, RunId), ActError> {
        self.session.link(name).zip(admitted_run_id(quorum, name)).ok_or(ActError::NoAddress)
    }
}

/// Takes note of a failure; whether there was none.
fn note(name: &str, outcome: Result<(), ActError>, failures: &mut Vec<String>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(member = %name, %error, "change of the members waits");
            failures.push(format!("{name}: {error}"));
            false
        }
    }
}
