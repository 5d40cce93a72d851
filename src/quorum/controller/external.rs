//! Masters that others run: what their fence decides, carried out until there is nothing left to do but wait. Nothing is done to such
//! a master but reading, the record of its operators, and the counter of tokens: what makes its votes count is the status.

use std::sync::Arc;

use super::{
    Error, RESYNC, Task,
    members::{AFTER_FAILURE, STEPS},
    publish::{self, Publisher},
};
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::{
        Announced, MemberState, MemoryStatus, MilliTime, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum, RedisQuorumStatus,
    },
    fence::{
        FenceStep, Process, Reach, Reason, Record,
        decommission::EndStep,
        external::{ExternalView, PREDECESSOR, decide_external, decide_external_end, predecessor},
    },
    quorum::{
        model::{
            effective,
            lists::Lists,
            membership::{MemberView, Others, is_closed, is_declared_dead},
            plan::{MemberPlan, Plan},
            record::{self, Stamps, admitted_run_id, member_named, record_named},
            status::{self, has_forgotten, merged, unfit},
        },
        session::{ActError, FLOOR_STEP, LinkView, MemberLink, floor_of},
    },
    time::Monotonic,
};

/// One external member in one reconciliation.
struct External<'a> {
    task: &'a Task<'a>,
    plan: &'a Plan,
    publisher: &'a Publisher<'a>,
    link: &'a Arc<MemberLink>,
}

/// All that is known of it at one moment.
struct Look {
    now: Monotonic,
    view: LinkView,
    reach: Reach,
    seen: Option<Process>,
}

impl Task<'_> {
    /// Carries every external member as far as it goes; until when nothing has to be done unless something happens.
    pub(super) async fn settle_external(&self, plan: &Plan, publisher: &Publisher<'_>) -> Result<Monotonic, Error> {
        let mut wake = self.now() + RESYNC;
        let stays = |link: &&Arc<MemberLink>| link.plan().is_external() && plan.member(link.name().as_str()).is_some();
        for link in self.session.links().iter().filter(stays) {
            match (External { task: self, plan, publisher, link }).settle().await {
                Ok(until) => wake = wake.min(until.unwrap_or(wake)),
                // One member that fails must not keep the others waiting.
                Err(Error::Member(error)) => {
                    tracing::info!(member = %link.name(), %error, "fence not carried out");
                    wake = wake.min(self.now() + AFTER_FAILURE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(wake)
    }

    /// How an external member stands on its way to the end of its quorum.
    pub(super) async fn end_external(&self, link: &MemberLink, lingers: bool) -> Result<EndStep, Error> {
        let quorum = self.session.quorum();
        let name = link.name().as_str();
        let record = record_named(quorum.status.as_ref(), name);
        let (now, delay) = (self.now(), effective::current(&quorum).rejoin_delay());
        let key = end_of(name);
        let left_since = self.leader.memory(self.session.uid(), |memory| memory.closed.get(&key).copied());
        let is_harmless = !record.admitted && record.reason != Some(Reason::Leaving);
        let harmless_since = (lingers && is_harmless).then(|| self.session.harmless_since(name, None));
        let step = decide_external_end(&record, left_since, harmless_since, now, delay);
        match step {
            EndStep::Close => {
                self.session.note_threat(name);
                let rejoin_at = Some(now + delay);
                let leave = FenceStep::WriteFenced { reason: Reason::Leaving, rejoin_at, close: false };
                let next = record.after(leave, record.process.as_ref(), &PREDECESSOR);
                let stamps = Stamps { rejoin_at: self.wall_time(now + delay, now), ..Stamps::default() };
                publish::replace(self, &quorum, |status| record::publish_named(status, name, &next, stamps)).await?;
            }
            EndStep::Wait { .. } if left_since.is_none() => {
                self.leader.memory(self.session.uid(), |memory| memory.closed.insert(key, now));
            }
            _ => {}
        }
        Ok(step)
    }

    /// It has left. One that comes under its name later is another one.
    pub(super) fn forget_end_of_external(&self, name: &str) {
        self.leader.memory(self.session.uid(), |memory| memory.closed.remove(&end_of(name)));
    }

    /// What a change has to know of an external member. There are no users to be opened or closed: the record says which epoch votes.
    pub(super) fn view_of_external(&self, plan: &Plan, member: &MemberPlan, quorum: &RedisQuorum) -> MemberView {
        let name = &member.name;
        let seen = self.session.link(name).map(|link| link.view().processes.reach(true, self.now()));
        let admitted = admitted_run_id(quorum, name);
        let answers = matches!((&seen, &admitted), (Some(Reach::Seen(sight)), Some(run_id)) if sight.run_id == *run_id);
        MemberView {
            name: name.clone(),
            admitted: answers,
            ready_for_next: true,
            closed: is_closed(quorum, name, &plan.lists),
            dead: !answers && !plan.lists.wanted.contains(name) && is_declared_dead(quorum, name),
        }
    }

    /// What other operators say, and what ours says to them; `None` without external members.
    pub(super) fn said(&self, plan: &Plan, quorum: &RedisQuorum, members: &[MemberView]) -> Option<Said> {
        let now = self.leader.context.clock.boottime();
        let accord = self.session.accord().lock();
        let is_external = |name: &str| plan.external.iter().any(|member| member.name == name);
        let stands =
            |name: &str| admitted_run_id(quorum, name).is_some_and(|run_id| accord.counts(&name.into(), &run_id, now));
        let told = |member: &&MemberView| {
            let said = admitted_run_id(quorum, &member.name)
                .is_some_and(|run_id| accord.is_told(&member.name.as_str().into(), &run_id, now));
            member.admitted && (said || !is_external(&member.name))
        };
        let names = |members: Vec<&MemberView>| members.into_iter().map(|member| member.name.clone()).collect();
        (!plan.external.is_empty()).then(|| Said {
            unclaimed: names(
                members.iter().filter(|one| is_external(&one.name) && !one.dead && !stands(&one.name)).collect(),
            ),
            behind: accord.behind(now).into_iter().map(|other| other.name).collect(),
            told: names(members.iter().filter(told).collect()),
        })
    }

    /// What other operators are told from now on, in this very state of the quorum.
    pub(super) async fn announce(
        &self,
        publisher: &Publisher<'_>,
        plan: &Plan,
        announced: Announced,
    ) -> Result<(), Error> {
        let quorum = self.session.quorum();
        if Lists::of(&quorum) != plan.lists {
            return Err(Error::Conflict);
        }
        publisher
            .write_on(&quorum, |status| {
                status.announced = Some(announced);
                publisher.refresh(status);
            })
            .await
            .map(drop)
    }

    /// What no record says of external members: where they are, and what keeps them from voting.
    pub(super) fn refresh_external(&self, status: &mut RedisQuorumStatus) {
        // In the same write as the condition that says so: who sees that all agree may use what they agree on.
        if let Some(settled) = self.session.accord().lock().settled(self.leader.context.clock.boottime()) {
            effective::settle(status, &self.session.quorum(), settled);
        }
        for link in self.session.links().iter() {
            let Some(external) = &link.plan().external else { continue };
            let (name, view) = (link.name(), link.view());
            let unfit = status::unfit(Some(status), name.as_str(), view.observation.as_ref());
            let unfit = unfit.filter(|_| view.processes.answers()).map(|why| format!("its votes do not count: {why}"));
            let now = self.leader.context.clock.boottime();
            let trouble = || {
                let accord = self.session.accord().lock();
                let refused = accord.refused_by(name, now).map(|other| {
                    format!(
                        "RedisQuorum {} uses it, and shares no member list with this one: {}",
                        other.name, other.list
                    )
                });
                accord.trouble(name).map(str::to_owned).or(refused)
            };
            if let Some(member) = status.members.iter_mut().find(|member| member.name == name.as_str()) {
                member.address = Some(external.address.clone());
                member.message = unfit.or_else(trouble);
                let leaves = !Lists::of(&self.session.quorum()).wanted.contains(&member.name);
                if let (true, MemberState::Unreachable, Some(run_id)) = (leaves, member.state, &member.run_id) {
                    let why = member.message.as_deref().unwrap_or("it does not answer");
                    member.message = Some(format!(
                        "{why}; if you know that its process is dead, annotate the RedisQuorum with \
                         {PREDECESSOR_DEAD_ANNOTATION}={run_id}"
                    ));
                }
            }
        }
    }
}

/// Of the operators that share members, at one moment.
pub(super) struct Said {
    unclaimed: Vec<String>,
    behind: Vec<String>,
    told: Vec<String>,
}

impl Said {
    /// As the decision has it.
    pub(super) fn others(&self) -> Others<'_> {
        Others { unclaimed: &self.unclaimed, behind: &self.behind, told: &self.told }
    }
}

/// What this leader remembers of its end by.
fn end_of(name: &str) -> String {
    format!("external {name}")
}

impl Look {
    /// Of the process that answers.
    fn memory(&self) -> Option<MemoryStatus> {
        self.seen.as_ref()?;
        self.view.observation.as_ref().map(|seen| status::memory(seen, self.view.record_since))
    }
}

impl External<'_> {
    fn name(&self) -> &str {
        self.link.name().as_str()
    }

    /// Steps until there is nothing left to do but wait; until when, at the latest.
    async fn settle(&self) -> Result<Option<Monotonic>, Error> {
        for _ in 0..STEPS {
            let quorum = self.task.session.quorum();
            let record = record_named(quorum.status.as_ref(), self.name());
            let look = self.look();
            match self.step(&quorum, &record, &look) {
                FenceStep::Nothing => {
                    self.keep_memory(&quorum, &look).await?;
                    return Ok(None);
                }
                FenceStep::Wait { until } => return Ok(until),
                FenceStep::Admit => self.admit(&look).await?,
                step => self.write(step, &quorum, &record, &look).await?,
            }
        }
        Ok(Some(self.task.now() + AFTER_FAILURE))
    }

    fn look(&self) -> Look {
        let (now, view) = (self.task.now(), self.link.view());
        let reach = view.processes.reach(true, now);
        let seen = match &reach {
            Reach::Seen(sight) => Some(Process {
                run_id: sight.run_id.clone(),
                pod_uid: String::new(),
                container_id: None,
                node_name: None,
                node: None,
            }),
            _ => None,
        };
        Look { now, view, reach, seen }
    }

    /// The decision, with the settings of this very state of the quorum.
    fn step(&self, quorum: &RedisQuorum, record: &Record, look: &Look) -> FenceStep {
        let sight = look.view.sight.as_ref();
        decide_external(&ExternalView {
            now: look.now,
            record,
            reach: &look.reach,
            rejoin_delay: effective::rejoin_delay_of(quorum),
            fenced_since: look.view.fenced_since,
            clock_jumped: sight.is_some_and(|seen| self.task.session.clocks().step_of(&seen.run_id).is_some()),
            forgot: self.known_memory(quorum).zip(look.memory()).is_some_and(|(known, now)| has_forgotten(known, &now)),
            unfit: unfit(quorum.status.as_ref(), self.name(), look.view.observation.as_ref()).is_some(),
        })
    }

    fn known_memory<'q>(&self, quorum: &'q RedisQuorum) -> Option<&'q MemoryStatus> {
        member_named(quorum.status.as_ref(), self.name())?.memory.as_ref()
    }

    /// What is learnt later of a process that was admitted: its record may not have been read yet, or an older version did not ask.
    async fn keep_memory(&self, quorum: &RedisQuorum, look: &Look) -> Result<(), Error> {
        let (known, Some(now)) = (self.known_memory(quorum), look.memory()) else { return Ok(()) };
        let memory = merged(known, now);
        if known == Some(&memory) {
            return Ok(());
        }
        let written = self.publisher.write_on(quorum, |status| self.set_memory(status, Some(memory)));
        written.await.map(drop)
    }

    fn set_memory(&self, status: &mut RedisQuorumStatus, memory: Option<MemoryStatus>) {
        if let Some(member) = status.members.iter_mut().find(|member| member.name == self.name()) {
            member.memory = memory;
        }
    }

    /// Its counter first: once the status says so, its votes count.
    async fn admit(&self, look: &Look) -> Result<(), Error> {
        let Some(seen) = &look.seen else { return Ok(()) };
        let mut turn = self.link.turn(&seen.run_id).await?;
        let observation = turn.observe().await?;
        let quorum = self.task.read().await?;
        let record = record_named(quorum.status.as_ref(), self.name());
        let again = self.look();
        if again.seen.as_ref() != Some(seen) {
            return Err(ActError::OtherProcess.into());
        }
        if self.step(&quorum, &record, &again) != FenceStep::Admit {
            return Ok(());
        }
        if Lists::of(&quorum) != self.plan.lists || quorum.metadata.deletion_timestamp.is_some() {
            return Err(Error::Conflict);
        }
        let counter = self.task.restored_counter(self.plan, &quorum, self.name()).await;
        turn.restore_counter(counter).await?;
        let next = record.after(FenceStep::Admit, Some(seen), &PREDECESSOR);
        let stamps = Stamps {
            admitted_at: MilliTime::from_millis(self.task.leader.context.api_now().0),
            operator_epoch: Some(self.task.leader.term.epoch),
            clock_offset: Some(self.task.session.clock_offset_of(&observation)),
            // Which epochs are over there is what its record says, and not known by an admission.
            ..Stamps::default()
        };
        let floor = floor_of(&quorum).max(counter.saturating_add(FLOOR_STEP));
        self.publisher
            .write_on(&quorum, |status| {
                status.token_floor = Some(floor.get());
                record::publish_named(status, self.name(), &next, stamps);
                self.set_memory(status, again.memory());
                self.publisher.refresh(status);
            })
            .await?;
        let (member, process) = (self.name().to_owned(), seen.run_id.clone());
        self.task.tell(QuorumEvent::Admitted { member, process }).await;
        Ok(())
    }

    async fn write(&self, step: FenceStep, quorum: &RedisQuorum, record: &Record, look: &Look) -> Result<(), Error> {
        let before = predecessor(record, look.seen.as_ref().map(|seen| &seen.run_id));
        let next = record.after(step, look.seen.as_ref(), &before);
        let rejoin_at = match step {
            FenceStep::WriteFenced { rejoin_at, .. } => rejoin_at.and_then(|at| self.task.wall_time(at, look.now)),
            _ => None,
        };
        self.publisher
            .write_on(quorum, |status| {
                let joins = self.plan.lists.learns(self.name());
                let stamps = Stamps { rejoin_at, joins, ..Stamps::default() };
                record::publish_named(status, self.name(), &next, stamps);
                self.publisher.refresh(status);
            })
            .await?;
        tracing::info!(
            quorum = %self.task.session.reference(),
            member = %self.name(),
            state = ?next.state,
            reason = ?next.reason,
            run_id = next.run_id.as_ref().map(tracing::field::display),
            "external member"
        );
        if let FenceStep::WriteFenced { reason, .. } = step {
            self.say_fenced(reason, rejoin_at).await;
        }
        Ok(())
    }

    async fn say_fenced(&self, reason: Reason, rejoin_at: Option<MilliTime>) {
        let member = self.name().to_owned();
        let until = rejoin_at.map_or_else(|| "it is safe".to_owned(), |until| until.to_string());
        let event = match reason {
            Reason::FirstStart => QuorumEvent::SeenFirst { member, until },
            Reason::ClockJump => QuorumEvent::ExternalClockStepped { member, until },
            _ => QuorumEvent::ExternalRestarted { member, until },
        };
        self.task.tell(event).await;
    }
}
