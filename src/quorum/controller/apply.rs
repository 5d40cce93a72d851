//! Built objects to the API server. An object of the same name that is not this quorum's is refused, never taken over.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::{
    Error, RESYNC, Task,
    owned::Outcome,
    publish::{Applied, Publisher},
    tls::Tls,
};
use crate::quorum::model::problems::Problem;
use crate::{
    quorum::model::{
        auth::Auth,
        build::{Objects, OperatorPods, build},
        plan::Plan,
        status::Obstacle,
    },
    time::Monotonic,
};

/// Secrets are looked at again only after this: a reconciliation often follows the one before within milliseconds, and nobody
/// here watches Secrets. Everything else is compared every time, with what the watches say.
const SECRETS_PERIOD: Duration = Duration::from_secs(10);

impl Task<'_> {
    /// Applies everything, Secrets and Services before the StatefulSets whose pods need them.
    pub(super) async fn apply(
        &self,
        plan: &Plan,
        auth: &Auth,
        tls: &Tls,
        publisher: &Publisher<'_>,
    ) -> Result<Applied, Error> {
        // Named one by one: an object that is added to `Objects` must not be forgotten here.
        let Objects { config, services, disruption_budget, network_policy, clients, stateful_sets } =
            build(plan, auth, &self.operator_pods(), &tls.transport);
        let mut applied = self.apply_secrets(plan, auth, tls, publisher, (config, clients)).await?;
        let owned = &self.leader.owned;
        let mut in_the_way: Vec<String> = applied.blocked_config.iter().cloned().collect();
        for service in &services {
            let live = owned.services.named(&plan.namespace, &service.name_any());
            note(self.keep(plan, service, live.as_deref()).await?, &mut in_the_way);
        }
        self.hide(plan).await?;
        if let Some(budget) = &disruption_budget {
            let live = owned.budgets.named(&plan.namespace, &budget.name_any());
            note(self.keep(plan, budget, live.as_deref()).await?, &mut in_the_way);
        }
        if let Some(policy) = &network_policy {
            let live = owned.policies.named(&plan.namespace, &policy.name_any());
            note(self.keep(plan, policy, live.as_deref()).await?, &mut in_the_way);
        }
        // Without a certificate a new pod could not start, or not be spoken to.
        let without_certificate = tls.obstacle();
        for set in stateful_sets.iter().filter(|_| without_certificate.is_none()) {
            let live = owned.stateful_sets.named(&plan.namespace, &set.name_any());
            note(self.keep(plan, set, live.as_deref()).await?, &mut in_the_way);
        }
        applied.obstacle = (!in_the_way.is_empty())
            .then(|| Obstacle::of(&Problem::InTheWay { objects: in_the_way.join("; ") }))
            .or(without_certificate);
        if applied.obstacle.is_some() || !applied.blocked_clients.is_empty() {
            // What is in the way is somebody else's, so nothing tells when it goes.
            applied.due = applied.due.min(SECRETS_PERIOD);
        }
        let obstacle = applied.obstacle.clone();
        self.leader.memory(self.session.uid(), |memory| {
            if let Some((remembered, _)) = &mut memory.applied {
                remembered.obstacle = obstacle;
            }
        });
        Ok(applied)
    }

    /// Secrets are read one by one, so not every time.
    async fn apply_secrets(
        &self,
        plan: &Plan,
        auth: &Auth,
        tls: &Tls,
        publisher: &Publisher<'_>,
        secrets: (Secret, Vec<Secret>),
    ) -> Result<Applied, Error> {
        let now = self.now();
        if let Some((applied, due)) = self.recently_applied(now)
            && applied.secrets == secrets
        {
            return Ok(Applied { due: due.since(now), ..applied });
        }
        let (mut in_the_way, mut blocked_clients) = (Vec::new(), self.change_clients(plan, auth).await?);
        let clients_changed = blocked_clients.is_empty();
        if clients_changed {
            note(self.keep(plan, &secrets.0, None).await?, &mut in_the_way);
        }
        for secret in &secrets.1 {
            note(self.keep(plan, secret, None).await?, &mut blocked_clients);
        }
        blocked_clients.extend(self.keep_client_copies(plan, auth, &tls.transport, publisher).await?);
        blocked_clients.extend(self.say_without_grants(plan));
        let blocked_config = in_the_way.pop();
        let config_kept = clients_changed && blocked_config.is_none();
        let applied = Applied { secrets, blocked_clients, blocked_config, config_kept, obstacle: None, due: RESYNC };
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
        remembered.map(|(applied, at)| (applied, at + SECRETS_PERIOD)).filter(|(_, due)| now < *due)
    }

    fn operator_pods(&self) -> OperatorPods {
        let replica = &self.leader.context.replica;
        let own = self.leader.context.pods.named(&replica.namespace, &replica.pod_name);
        OperatorPods::new(&replica.namespace, &own.map(|pod| pod.labels().clone()).unwrap_or_default())
    }
}

fn note(outcome: Outcome, refusals: &mut Vec<String>) {
    if let Outcome::InTheWay(message) = outcome {
        refusals.push(message);
    }
}
