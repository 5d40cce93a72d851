//! Built objects to the API server, by server-side apply. An object of the same name that is not this quorum's is refused, never
//! taken over.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, RESYNC, Task, request};
use crate::api::FIELD_MANAGER;
use crate::api::conditions::CommonReason;
use crate::quorum::auth::Auth;
use crate::quorum::build::{Objects, build};
use crate::quorum::plan::Plan;
use crate::quorum::status::Obstacle;
use crate::time::Monotonic;

/// Unchanged objects are applied again only after this: a reconciliation often follows the one before within milliseconds.
const APPLY_PERIOD: Duration = Duration::from_secs(10);

/// The label by which a StatefulSet marks its pods with the revision of their template.
const REVISION_LABEL: &str = "controller-revision-hash";

/// What was applied, and what came of it.
#[derive(Clone)]
pub(super) struct Applied {
    desired: Objects,
    /// The StatefulSets as the API server has them.
    pub(super) stateful_sets: Vec<StatefulSet>,
    /// Client Secrets that could not be written, with the reason.
    pub(super) blocked_clients: Vec<String>,
    /// An object that is in the way.
    pub(super) obstacle: Option<Obstacle>,
    /// When it has to be applied again.
    pub(super) due: Duration,
}

/// The outcome for one object.
enum Outcome<K> {
    Applied(Box<K>),
    /// Another owner's object has the name, or ours is being deleted.
    InTheWay(String),
}

impl Task<'_> {
    /// Applies everything, Secrets and Services before the StatefulSets whose pods need them.
    pub(super) async fn apply(&self, plan: &Plan, auth: &Auth) -> Result<Applied, Error> {
        let desired = build(plan, auth);
        let now = self.now();
        if let Some((applied, due)) = self.recently_applied(now)
            && applied.desired == desired
        {
            return Ok(Applied { due: due.since(now), ..applied });
        }
        let mut applied = Applied {
            desired: desired.clone(),
            stateful_sets: Vec::new(),
            blocked_clients: Vec::new(),
            obstacle: None,
            due: RESYNC,
        };
        // Named one by one: an object that is added to `Objects` must not be forgotten here.
        let Objects { config, services, disruption_budget, clients, stateful_sets } = desired;
        let mut in_the_way = Vec::new();
        applied.blocked_clients = self.change_clients(plan, auth).await?;
        if applied.blocked_clients.is_empty() {
            note(self.apply_one(plan, &config).await?, &mut in_the_way);
        }
        for service in &services {
            note(self.apply_one(plan, service).await?, &mut in_the_way);
        }
        note(self.apply_one(plan, &disruption_budget).await?, &mut in_the_way);
        for secret in &clients {
            note(self.apply_one(plan, secret).await?, &mut applied.blocked_clients);
        }
        applied.blocked_clients.extend(self.apply_client_copies(plan, auth).await?);
        for set in &stateful_sets {
            applied.stateful_sets.extend(note(self.apply_one(plan, set).await?, &mut in_the_way));
        }
        applied.obstacle = (!in_the_way.is_empty())
            .then(|| Obstacle { reason: CommonReason::InvalidSpec, message: in_the_way.join("; ") });
        if applied.obstacle.is_some() || !applied.blocked_clients.is_empty() {
            // What is in the way is somebody else's, so nothing tells when it goes.
            applied.due = APPLY_PERIOD;
        }
        let remembered = (applied.clone(), self.now());
        self.leader.memory(self.session.uid(), |memory| memory.applied = Some(remembered));
        Ok(applied)
    }

    /// What was applied last in this term.
    pub(super) fn applied(&self) -> Option<Applied> {
        self.leader.memory(self.session.uid(), |memory| memory.applied.as_ref().map(|(applied, _)| applied.clone()))
    }

    /// What was applied a moment ago, and until when that suffices.
    pub(super) fn recently_applied(&self, now: Monotonic) -> Option<(Applied, Monotonic)> {
        let remembered = self.leader.memory(self.session.uid(), |memory| memory.applied.clone());
        remembered.map(|(applied, at)| (applied, at + APPLY_PERIOD)).filter(|(_, due)| now < *due)
    }

    async fn apply_one<K>(&self, plan: &Plan, desired: &K) -> Result<Outcome<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let name = desired.name_any();
        if let Some(found) = request(api.get_opt(&name)).await? {
            let ours =
                found.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == plan.uid);
            if !ours {
                return Ok(Outcome::InTheWay(format!(
                    "{} {name} exists and belongs to somebody else: delete it, or give the quorum another name",
                    K::kind(&())
                )));
            }
            if found.meta().deletion_timestamp.is_some() {
                return Ok(Outcome::InTheWay(format!("{} {name} is being deleted", K::kind(&()))));
            }
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        Ok(Outcome::Applied(Box::new(request(api.patch(&name, &params, &Patch::Apply(desired))).await?)))
    }

    /// Members whose pod was made from an older template than the StatefulSet has now.
    pub(super) fn outdated(&self, plan: &Plan, applied: &Applied) -> Vec<String> {
        let is_outdated = |set: &&StatefulSet| {
            let newest = set.status.as_ref().and_then(|status| status.update_revision.as_ref());
            let pod = self.leader.context.pods.named(&plan.namespace, &format!("{}-0", set.name_any()));
            match (newest, pod.as_ref().and_then(|pod| pod.labels().get(REVISION_LABEL))) {
                (Some(newest), Some(running)) => newest != running,
                _ => false,
            }
        };
        applied.stateful_sets.iter().filter(is_outdated).map(ResourceExt::name_any).collect()
    }
}

fn note<K>(outcome: Outcome<K>, refusals: &mut Vec<String>) -> Option<K> {
    match outcome {
        Outcome::Applied(object) => Some(*object),
        Outcome::InTheWay(message) => {
            refusals.push(message);
            None
        }
    }
}
