//! Status to the API server: by `replace_status`, so with the resourceVersion of what it was computed from, and only when
//! something has changed.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Error, Task, request, rotation};
use crate::quorum::model::status::Said;
use crate::{
    api::{MemberState, MemberStatus, MilliTime, QUORUM_FINALIZER, RedisQuorum, RedisQuorumStatus},
    fence::count_from,
    quorum::model::{
        effective,
        lists::Lists,
        plan::Plan,
        rollout::Progress,
        status::{self, Obstacle, Overview},
    },
    time::Monotonic,
};

/// What was applied, and what came of it.
#[derive(Clone)]
pub(super) struct Applied {
    /// The Secrets that were asked for.
    pub(super) secrets: (Secret, Vec<Secret>),
    /// Client Secrets that could not be written, with the reason.
    pub(super) blocked_clients: Vec<String>,
    /// What is in the way of the config Secret.
    pub(super) blocked_config: Option<String>,
    pub(super) config_kept: bool,
    /// An object that is in the way.
    pub(super) obstacle: Option<Obstacle>,
    /// When it has to be applied again.
    pub(super) due: Duration,
}

impl Applied {
    /// Whether the config Secret is as it shall be.
    pub(super) fn is_config_kept(&self) -> bool {
        self.config_kept
    }
}

/// An announcement that is off by no more milliseconds stands: two readings of two clocks never agree.
const ANNOUNCED_WITHIN: i64 = 1_000;

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

    pub(super) fn learn_rotation(&mut self, rotation: Option<String>) {
        self.overview.rotation = rotation;
    }

    /// Members that run with lost secrets.
    pub(super) fn learn_loss(&mut self, loss: Option<String>) {
        self.overview.loss = loss;
    }

    pub(super) fn learn_tls(&mut self, tls: Option<Said>) {
        self.overview.tls = tls;
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

    /// The last write of a reconciliation: everything that follows, and when fenced members may vote as it stands now. A leader that
    /// saw a process later than the one before it counts longer, and so do larger settings.
    pub(super) async fn conclude(&self) -> Result<(), Error> {
        self.write(|status| self.announce_counts(status)).await
    }

    fn announce_counts(&self, status: &mut RedisQuorumStatus) {
        let (now, delay) = (self.task.now(), effective::rejoin_delay_of(&self.task.session.quorum()));
        for link in self.task.session.links().iter() {
            let Some(member) = status.members.iter_mut().find(|member| member.name == link.name().as_str()) else {
                continue;
            };
            let view = link.view();
            let sight = view.sight.filter(|sight| member.run_id.as_deref() == Some(sight.run_id.as_str()));
            let (Some(announced), Some(sight)) = (member.rejoin_at, sight) else { continue };
            let counted = self.task.wall_time(count_from(&sight, view.fenced_since) + delay, now);
            let is_off = |counted: &MilliTime| (counted.as_millis() - announced.as_millis()).abs() > ANNOUNCED_WITHIN;
            if member.state == MemberState::Fenced {
                member.rejoin_at = counted.filter(is_off).or(member.rejoin_at);
            }
        }
    }

    fn basics(&self, status: &mut RedisQuorumStatus) {
        if status.voters.is_empty() {
            status.voters.clone_from(&self.plan.lists.voters);
        }
        status.membership_epoch = status.membership_epoch.max(Some(self.plan.lists.epoch));
        for member in self.plan.all_members() {
            if !status.members.iter().any(|known| known.name == member.name) {
                status.members.push(MemberStatus { name: member.name.clone(), ..MemberStatus::default() });
            }
        }
        // Before anything depends on it: whoever leaves has to be reached when the specification names it no more.
        for (name, external) in
            self.plan.external.iter().filter_map(|member| Some((&member.name, member.external.as_ref()?)))
        {
            let is_it = |member: &&mut MemberStatus| member.name == *name;
            let Some(member) = status.members.iter_mut().find(is_it) else { continue };
            // Another address is another master.
            if member.external.as_ref().is_none_or(|known| known.address == external.address) {
                member.external = Some(external.published());
            }
        }
    }

    /// Everything that follows from the rest.
    pub(super) fn refresh(&self, status: &mut RedisQuorumStatus) {
        self.basics(status);
        let mut external = self.task.external_addresses(self.plan);
        external.resize(self.plan.members.len(), None);
        for (member, external) in self.plan.members.iter().zip(external) {
            let Some(link) = self.task.session.link(&member.name) else { continue };
            if let Some(published) = status.members.iter_mut().find(|known| known.name == member.name) {
                published.pod_name = Some(member.pod_name());
                published.address = link.view().address.or_else(|| published.address.take());
                published.external_address = external.map(|address| address.to_string());
            }
        }
        self.task.refresh_external(status);
        let generation = self.task.session.quorum().metadata.generation;
        status.observed_generation = generation;
        status.password_rotation = self.task.session.auth().as_ref().and_then(rotation::published);
        // Of this very status: it may be the one that changes them.
        let lists = Lists::of_status(Some(status), self.plan.lists.wanted.clone());
        status.quorum = i32::try_from(lists.majority()).ok();
        status.ready = Some(status::ready_column(status, &lists));
        let agreement =
            status::agreement(&self.task.session.accord().lock(), self.plan, self.task.leader.context.clock.boottime());
        let mut shut_out: Vec<_> = self.task.session.links().iter().flat_map(|link| link.shut_out_in_words()).collect();
        shut_out.extend(status::kept_busy(status));
        let overview = Overview { agreement: Some(agreement), shut_out, ..self.overview.clone() };
        status::conditions(status, &lists, &overview, generation, self.task.api_time());
        status::watch_conditions(status, &self.task.watched(), generation, self.task.api_time());
    }
}

/// Says that a quorum cannot be carried out.
pub(super) async fn refuse(task: &Task<'_>, obstacle: Obstacle) -> Result<(), Error> {
    let base = task.session.quorum();
    let (generation, now) = (base.metadata.generation, task.api_time());
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

    /// A moment by the API server's time, for people.
    pub(super) fn wall_time(&self, at: Monotonic, now: Monotonic) -> Option<MilliTime> {
        let left = i64::try_from(at.since(now).as_millis()).ok()?;
        MilliTime::from_millis(self.leader.context.api_now().0.saturating_add(left))
    }

    /// The API server's time: by it the transitions of conditions are dated, whichever replica leads.
    pub(super) fn api_time(&self) -> Timestamp {
        Timestamp::from_millisecond(self.leader.context.api_now().0).unwrap_or_default()
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
