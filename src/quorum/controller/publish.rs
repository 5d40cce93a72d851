//! Status to the API server: by `replace_status`, so with the resourceVersion of what it was computed from, and only when
//! something has changed.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::apply::Applied;
use super::{Error, Task, request};
use crate::api::{MemberStatus, QUORUM_FINALIZER, RedisQuorum, RedisQuorumStatus};
use crate::quorum::membership::Lists;
use crate::quorum::plan::Plan;
use crate::quorum::rollout::Progress;
use crate::quorum::status::{self, Obstacle, Overview};
use crate::time::{Clock, Monotonic};

/// Writes the status of one quorum in one reconciliation.
pub(super) struct Publisher<'a> {
    task: &'a Task<'a>,
    plan: &'a Plan,
    overview: Overview,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(task: &'a Task<'a>, plan: &'a Plan) -> Self {
        Self { task, plan, overview: Overview::default() }
    }

    pub(super) fn learn(&mut self, applied: &Applied, rollout: Option<Progress>) {
        self.overview.rollout = rollout;
        self.overview.blocked_clients.clone_from(&applied.blocked_clients);
        self.overview.obstacle.clone_from(&applied.obstacle);
    }

    /// What a change of the members is doing.
    pub(super) fn learn_change(&mut self, change: Option<String>) {
        self.overview.change = change;
    }

    /// What everything else rests on is published first: the membership epoch, and the settings that fences have to outlast
    /// before anybody may use them. When the settings are to be looked at again, if they are being lowered.
    pub(super) async fn begin(&self) -> Result<Option<Monotonic>, Error> {
        let known = self.task.session.quorum();
        let (in_force, due) = self.task.settings_in_force(&known);
        self.write_on(&known, |status| {
            self.basics(status);
            in_force.publish(status);
        })
        .await?;
        Ok(due)
    }

    /// Writes a change of the newest known status.
    pub(super) async fn write(&self, change: impl FnOnce(&mut RedisQuorumStatus)) -> Result<(), Error> {
        self.write_on(&self.task.session.quorum(), |status| {
            change(status);
            self.refresh(status);
        })
        .await
        .map(drop)
    }

    /// Writes a change of this very state, and nothing if the object has changed since.
    pub(super) async fn write_on(
        &self,
        base: &RedisQuorum,
        change: impl FnOnce(&mut RedisQuorumStatus),
    ) -> Result<Arc<RedisQuorum>, Error> {
        replace(self.task, base, change).await
    }

    fn basics(&self, status: &mut RedisQuorumStatus) {
        if status.voters.is_empty() {
            status.voters.clone_from(&self.plan.lists.voters);
        }
        status.membership_epoch.get_or_insert(self.plan.lists.epoch);
        for member in &self.plan.members {
            if !status.members.iter().any(|known| known.name == member.name) {
                status.members.push(MemberStatus { name: member.name.clone(), ..MemberStatus::default() });
            }
        }
    }

    /// Everything that follows from the rest.
    pub(super) fn refresh(&self, status: &mut RedisQuorumStatus) {
        self.basics(status);
        for (member, link) in self.task.linked(self.plan) {
            if let Some(published) = status.members.iter_mut().find(|known| known.name == member.name) {
                published.pod_name = Some(member.pod_name());
                published.address = link.view().address.or_else(|| published.address.take());
            }
        }
        let generation = self.task.session.quorum().metadata.generation;
        status.observed_generation = generation;
        // Of this very status: it may be the one that changes them.
        let lists = Lists::of_status(Some(status), self.plan.lists.wanted.clone());
        status.quorum = i32::try_from(lists.majority()).ok();
        status.ready = Some(status::ready_column(status, &lists));
        status::conditions(status, &lists, &self.overview, generation, self.task.wall());
        status::watch_conditions(status, &self.task.watched(), generation, self.task.wall());
    }
}

/// Says that a quorum cannot be carried out.
pub(super) async fn refuse(task: &Task<'_>, obstacle: Obstacle) -> Result<(), Error> {
    let base = task.session.quorum();
    let (generation, now) = (base.metadata.generation, task.wall());
    replace(task, &base, |status| {
        status.observed_generation = generation;
        status::refused(status, &obstacle, generation, now);
    })
    .await
    .map(drop)
}

/// The one place where the status of a quorum is written by the controller.
pub(super) async fn replace(
    task: &Task<'_>,
    base: &RedisQuorum,
    change: impl FnOnce(&mut RedisQuorumStatus),
) -> Result<Arc<RedisQuorum>, Error> {
    let mut next = base.clone();
    change(next.status.get_or_insert_default());
    if next.status == base.status {
        return Ok(Arc::new(next));
    }
    match request(task.api.replace_status(&base.name_any(), &PostParams::default(), &next)).await {
        Ok(written) => {
            let written = Arc::new(written);
            task.session.learn(written.clone());
            Ok(written)
        }
        Err(Error::Conflict) => {
            // What is known is old: read, so that the next attempt starts from the truth.
            task.read().await?;
            Err(Error::Conflict)
        }
        Err(error) => Err(error),
    }
}

impl Task<'_> {
    /// The quorum as the API server has it now.
    pub(super) async fn read(&self) -> Result<Arc<RedisQuorum>, Error> {
        let found = request(self.api.get_opt(&self.session.reference().name)).await?;
        let found = found.filter(|quorum| quorum.uid().as_deref() == Some(self.session.uid())).ok_or(Error::Gone)?;
        let found = Arc::new(found);
        self.session.learn_truth(found.clone());
        Ok(found)
    }

    pub(super) fn wall(&self) -> Timestamp {
        Timestamp::from_millisecond(self.leader.context.clock.wall().0).unwrap_or_default()
    }

    /// Nothing is made for a quorum that could vanish without its members having been closed.
    pub(super) async fn hold_finalizer(&self) -> Result<(), Error> {
        let quorum = self.session.quorum();
        let mut finalizers = quorum.finalizers().to_vec();
        if finalizers.iter().any(|finalizer| finalizer == QUORUM_FINALIZER) {
            return Ok(());
        }
        finalizers.push(QUORUM_FINALIZER.to_owned());
        self.set_finalizers(&quorum, &finalizers).await
    }

    /// The members can promise nothing any more.
    pub(super) async fn release_finalizer(&self) -> Result<(), Error> {
        let quorum = self.session.quorum();
        let mut finalizers = quorum.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != QUORUM_FINALIZER);
        if finalizers.len() == quorum.finalizers().len() {
            return Ok(());
        }
        self.set_finalizers(&quorum, &finalizers).await
    }

    async fn set_finalizers(&self, quorum: &RedisQuorum, finalizers: &[String]) -> Result<(), Error> {
        // With the resourceVersion, so that nobody else's finalizer is lost.
        let metadata = json!({"finalizers": finalizers, "resourceVersion": quorum.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match request(self.api.patch(&quorum.name_any(), &PatchParams::default(), &patch)).await {
            Ok(written) => {
                self.session.learn(Arc::new(written));
                Ok(())
            }
            Err(Error::Conflict) => {
                self.read().await?;
                Err(Error::Conflict)
            }
            Err(error) => Err(error),
        }
    }
}
