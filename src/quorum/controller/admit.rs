//! The admission: the one place where a process is let in to vote. The order is the safety argument (docs/safety.md, rules 3
//! and 7): connect and learn the process; read the status from the API server; decide again; read the counters; write Admitted
//! with that resourceVersion; then, on the connection of the first step, restore the counter and open the users.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::{
    Error, Task,
    members::{Look, Member},
};
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::{MilliTime, RedisQuorum},
    fence::{FenceStep, Process, Reason},
    quorum::{
        model::{
            effective,
            lists::{Lists, meets_every_majority},
            plan::Plan,
            record::{Stamps, admitted_run_id, publish},
        },
        session::{ActError, FLOOR_STEP, Turn, floor_of},
    },
    redis_member::Observation,
    redlock::{FencingToken, restored},
};

/// For the counters of the others: they are taken where they can be had.
const COUNTERS_TIMEOUT: Duration = Duration::from_millis(600);

impl Member<'_> {
    pub(super) async fn admit(&self, look: &Look) -> Result<(), Error> {
        let Some(seen) = &look.seen else { return Ok(()) };
        let mut turn = self.link.turn(&seen.run_id).await?;
        // A user that nobody knows of and that is open would have voted all along: then it is closed first, and the count begins there.
        let observation = turn.observe_all().await?;
        check(&observation)?;
        let quorum = self.task.read().await?;
        // Other lists mean other users, and one that is being deleted counts on nothing being opened any more.
        if Lists::of(&quorum) != self.plan.lists || quorum.metadata.deletion_timestamp.is_some() {
            return Err(Error::Conflict);
        }
        let record = self.record(&quorum);
        let again = self.task.look(self.link, &quorum, &record).await?;
        let decided_again = self.step(&quorum, &record, &again);
        let Some(process) = again.seen.as_ref().filter(|process| process.run_id == seen.run_id) else {
            return Err(ActError::OtherProcess.into());
        };
        if decided_again != FenceStep::Admit {
            return Ok(());
        }
        // Its death could not be told from its successor's life later.
        if !again.is_shown || process.node_name.is_none() {
            return Err(ActError::Unfit("its pod status does not show its container running yet").into());
        }
        let counter = self.task.restored_counter(self.plan, &quorum, &self.member.name).await;
        // Whom the new number would leave too far behind would refuse it.
        self.task.level_counters(counter).await;
        let clock_offset = self.task.session.clock_offset_of(&observation);
        self.record_admission(&quorum, &again, counter, clock_offset).await?;
        self.open(turn, counter, look).await?;
        self.say_admitted(process).await;
        Ok(())
    }

    /// The admission, the floor above all that its counter may give out, and how its clock stands, in one write.
    async fn record_admission(
        &self,
        quorum: &RedisQuorum,
        look: &Look,
        counter: FencingToken,
        clock_offset: i64,
    ) -> Result<(), Error> {
        let record = self.record(quorum).after(FenceStep::Admit, look.seen.as_ref(), &look.verdict);
        let stamps = Stamps {
            admitted_at: MilliTime::from_millis(self.task.leader.context.api_now().0),
            operator_epoch: Some(self.task.leader.term.epoch),
            epoch: Some(self.plan.lists.epoch),
            clock_offset: Some(clock_offset),
            ..Stamps::default()
        };
        let floor = floor_of(quorum).max(counter.saturating_add(FLOOR_STEP));
        let written = self.publisher.write_on(quorum, |status| {
            status.token_floor = Some(floor.get());
            if let Some(member) = status.members.iter_mut().find(|member| member.name == self.member.name) {
                publish(member, &record, stamps);
            }
            self.publisher.refresh(status);
        });
        written.await.map(drop)
    }

    /// Opens on the connection of the check, once. A failure leaves the state of the users unknown, so the process is fenced and
    /// counted anew.
    async fn open(&self, mut turn: Turn<'_>, counter: FencingToken, look: &Look) -> Result<(), Error> {
        let rules = self.plan.open_rules(self.auth, &self.member.name);
        let Err(error) = turn.open(self.task.leader.term.epoch, &rules, counter).await else { return Ok(()) };
        drop(turn);
        tracing::warn!(member = %self.member.name, %error, "opening failed, fencing again");
        let quorum = self.task.session.quorum();
        let record = self.record(&quorum);
        let delay = effective::current(&quorum).rejoin_delay();
        let step =
            FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at: Some(self.task.now() + delay), close: true };
        self.write(step, &quorum, &record, look).await?;
        self.close(look).await?;
        Err(error.into())
    }

    async fn say_admitted(&self, process: &Process) {
        let (member, process) = (self.member.name.clone(), process.run_id.clone());
        self.task.tell(QuorumEvent::Admitted { member, process }).await;
    }
}

/// A process that could forget while it runs must not vote, whoever configured it so.
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

impl Task<'_> {
    /// The counter that a process which has forgotten it starts with: above every token that a majority may have given out.
    ///
    /// Read after the rejoin delay, never before: an acquisition may be in flight until then.
    pub(super) async fn restored_counter(&self, plan: &Plan, quorum: &RedisQuorum, member: &str) -> FencingToken {
        let counters = self.counters_of_others(quorum, member).await;
        // Of the API server, which is one for all: a replica's own clock may be days ahead, and tokens never go back.
        let clock = FencingToken::new(self.leader.context.api_now().0).unwrap_or_default();
        let list = plan.lists.knows_tokens();
        let counters = counters.into_iter().filter(|(name, _)| list.contains(name)).map(|(_, counter)| counter);
        restored(&counters.collect::<Vec<_>>(), meets_every_majority(list), floor_of(quorum), clock)
    }

    /// The counters of the other admitted members, each read from the process that is admitted.
    pub(super) async fn counters_of_others(&self, quorum: &RedisQuorum, name: &str) -> Vec<(String, FencingToken)> {
        let links = self.session.links();
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
}
