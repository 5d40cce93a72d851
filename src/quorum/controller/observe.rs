//! One quorum at one moment, for the leader: caches, members' answers, records and locks. Each step of the controller
//! decides on one observation. After each change the controller makes a new one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

use super::locks::HeldLock;
use super::owned::{Owned, is_kept};
use super::snapshot::Sources;
use crate::api::{MEMBER_LABEL, RedisQuorum};
use crate::fence::{Reason, State, Users};
use crate::quorum::model::agreement::Agreement;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::expose::{Address, ExposePlan, balancer_host};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::member::{MemberSummary, Standing, StartedWith};
use crate::quorum::model::plan::{MemberPlan, Plan};
use crate::quorum::model::status::Watched;
use crate::quorum::model::{build, effective, facts, membership, record};
use crate::quorum::session::{ActError, AdminSession, LinkState, MemberLink};
use crate::redis_member::Keys;
use crate::redis_member::acl::UserRule;
use crate::time::{Boottime, Monotonic};

/// The label of a pod with the revision of its template, which the StatefulSet controller sets.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The sources of observations, and the plan and secrets that the quorum should have.
#[derive(Clone, Copy)]
pub(super) struct Observer<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) owned: &'a Owned,
    pub(super) plan: &'a Plan,
    pub(super) auth: &'a Auth,
}

/// One quorum at one moment.
pub(super) struct Observed<'a> {
    pub(super) plan: &'a Plan,
    pub(super) auth: &'a Auth,
    /// Its memory has the results of earlier steps. They are not copied, so a later step can change them.
    pub(super) sources: Sources<'a>,
    pub(super) now: Monotonic,
    pub(super) boottime: Boottime,
    pub(super) quorum: Arc<RedisQuorum>,
    /// The voters in this state of the quorum. The plan can be made from another state.
    pub(super) lists: Lists,
    /// The members of the plan, the operator's own first.
    pub(super) members: Vec<MemberSummary>,
    /// The links to them and to members that leave.
    ///
    /// This replica can lack the link to a new member for a moment.
    pub(super) links: Vec<(Arc<MemberLink>, LinkState)>,
    /// The objects of the operator's own members, in the order of the plan.
    pub(super) own_objects: Vec<OwnObjects<'a>>,
    pub(super) locks: Vec<HeldLock>,
    pub(super) agreement: Agreement,
    /// The secrets that this replica has at this moment.
    pub(super) stored_auth: Option<Auth>,
    pub(super) watched: Watched,
    /// The rest of the time for the other replicas to read the passwords.
    pub(super) readers_wait: Option<Duration>,
}

/// The objects of one of the operator's own members.
pub(super) struct OwnObjects<'a> {
    pub(super) member: &'a MemberPlan,
    pod: Option<Arc<Pod>>,
    /// The Service for clients outside the cluster.
    service: Option<Arc<Service>>,
    /// Where such clients reach the member.
    pub(super) external_address: Option<Address>,
}

impl<'a> Observer<'a> {
    /// Observes the quorum now.
    pub(super) fn observe(&self) -> Observed<'a> {
        self.observe_at(self.sources.session.quorum())
    }

    /// Observes the quorum with this state of its object.
    pub(super) fn observe_at(&self, quorum: Arc<RedisQuorum>) -> Observed<'a> {
        let Sources { context, session, memory, .. } = self.sources;
        let (now, boottime) = (context.clock.monotonic(), context.clock.boottime());
        let (plan, namespace) = (self.plan, &self.plan.namespace);
        let links: Vec<_> = session.links().iter().map(|link| (link.clone(), link.state())).collect();
        let node = |pod: &Pod| context.nodes.cluster_named(&facts::node_name(pod)?);
        let own_objects = |member: &'a MemberPlan| {
            let (pod, expose) = (context.pods.named(namespace, &member.pod_name()), plan.expose.as_ref());
            let service = expose.and_then(|_| self.owned.services.named(namespace, &member.external_name()));
            let address = |expose: &ExposePlan| {
                expose.address(member.index, service.as_deref(), pod.as_deref().and_then(node).as_deref())
            };
            OwnObjects { member, external_address: expose.and_then(address), pod, service }
        };
        let (stored_auth, agreement) = (session.auth(), session.agreement().lock().clone());
        // External masters have keys of other programs as well.
        let own = links.iter().filter(|(link, state)| !link.plan.is_external() && state.processes.answers());
        let keys = own.filter_map(|(_, state)| state.observation()).map(|observation| observation.keys);
        let (clocks, keys) = (session.clocks().report(boottime), keys.reduce(Keys::most));
        let all_external = links.iter().all(|(link, _)| link.plan.is_external());
        let mut observed = Observed {
            plan,
            auth: self.auth,
            sources: self.sources,
            now,
            boottime,
            members: Vec::new(),
            links,
            own_objects: plan.members.iter().map(own_objects).collect(),
            locks: self.sources.held_locks(&quorum),
            agreement,
            stored_auth,
            watched: Watched { clocks, keys, bound: effective::current_max_ttl(&quorum), all_external },
            readers_wait: memory.passwords.lock().wait_for_readers(self.auth.generation(), now),
            lists: Lists::of(&quorum),
            quorum,
        };
        observed.members = plan.all_members().map(|member| self.summary(member, &observed)).collect();
        observed
    }

    fn summary(&self, plan: &MemberPlan, observed: &Observed<'_>) -> MemberSummary {
        let (quorum, lists) = (&observed.quorum, &self.plan.lists);
        let (external, own) = (plan.is_external(), !plan.is_external());
        let record = record::record_named(quorum, &plan.name);
        let state = observed.link(&plan.name).map(|(_, state)| state);
        let answering = state.and_then(LinkState::answering);
        let admitted = answering.is_some_and(|answering| record.admits(&answering.run_id));
        let obeys = answering.is_some() && state.is_some_and(|state| state.raised() == Some(self.sources.term.epoch));
        let is_open = answering.is_some_and(|answering| answering.users == Users::Open);
        let votes = admitted && (external || (obeys && is_open));
        let next = UserRule::locker_name(lists.epoch + 1);
        let open = state.and_then(LinkState::observation).map(|observation| observation.open_users.as_slice());
        let has_confirmed =
            |run_id| self.sources.memory.passwords.lock().confirmed.get(run_id) == Some(&self.auth.generation());
        let set = self.owned.stateful_sets.named(&self.plan.namespace, &plan.name);
        // A StatefulSet that a user edited, or that has an older template than the last written one, does not describe the right pod.
        let set = set.filter(|set| own && is_kept(&self.sources.memory.kept, set.as_ref()));
        let pod = observed.pod(&plan.name);
        let outdated = set.zip(pod).and_then(|(set, pod)| is_outdated(&set, pod));
        let runs_with_others = |auth: &Auth| started_with(pod, plan, auth) == StartedWith::Others;
        let refuses = own && record.admitted && observed.refuses(&plan.name);
        let lost = refuses && observed.stored_auth.as_ref().is_some_and(runs_with_others);
        let standing = match record.state {
            // A pod under deletion is excluded, because its end is awaited.
            _ if lost && outdated == Some(true) => Standing::Lost,
            State::Admitted => Standing::Admitted,
            State::Unreachable if record.admitted => Standing::Silent,
            State::Fenced if record.reason == Some(Reason::Updating) => Standing::ClosedForUpdate,
            _ => Standing::Out,
        };
        MemberSummary {
            external,
            standing,
            // The operator does not replace an external master. It must vote while another member is replaced.
            outdated: if external { Some(false) } else { outdated },
            started_with: started_with(pod, plan, self.auth),
            answers: answering.is_some(),
            obeys,
            admitted,
            votes,
            ready_for_next: external || (votes && open.is_some_and(|open| open.contains(&next))),
            confirmed: answering.is_some_and(|answering| has_confirmed(&answering.run_id)),
            closed: membership::is_closed(quorum, &plan.name, lists),
            dead: external
                && !admitted
                && !lists.wanted.contains(&plan.name)
                && membership::is_declared_dead(quorum, &plan.name),
            name: plan.name.clone(),
        }
    }
}

impl Observed<'_> {
    /// Whether the plan was made from the lists of this state.
    pub(super) fn is_of_plan(&self) -> bool {
        self.lists == self.plan.lists
    }

    /// The operator's own members of the plan.
    pub(super) fn own(&self) -> &[MemberSummary] {
        self.members.get(..self.plan.members.len()).unwrap_or_default()
    }

    /// The link to a member. `None` if this replica does not have it yet.
    pub(super) fn link(&self, name: &str) -> Option<(&Arc<MemberLink>, &LinkState)> {
        self.links.iter().find(|(link, _)| link.name.as_str() == name).map(|(link, state)| (link, state))
    }

    /// The link to a member with an answering process.
    pub(super) fn answering(&self, name: &str) -> Option<(&Arc<MemberLink>, &LinkState)> {
        self.link(name).filter(|(_, state)| state.processes.answers())
    }

    /// The pod of a member.
    pub(super) fn pod(&self, name: &str) -> Option<&Pod> {
        self.own_objects.iter().find(|own| own.member.name == name)?.pod.as_deref()
    }

    /// Whether a member's pod uses TLS. `None` if it has no pod.
    pub(super) fn uses_tls(&self, name: &str) -> Option<bool> {
        let is_its = |pod: &&Pod| pod.labels().get(MEMBER_LABEL).is_some_and(|of| of == name);
        self.pod(name).filter(is_its).map(facts::uses_tls)
    }

    /// Whether the process in a member's pod refuses the operator's password.
    pub(super) fn refuses(&self, name: &str) -> bool {
        let uid = self.pod(name).and_then(|pod| pod.uid());
        self.link(name).is_some_and(|(_, state)| state.is_refused_by(uid.as_deref()))
    }

    /// Connects to the process of an admitted member.
    pub(super) async fn admin_session(&self, name: &str) -> Result<AdminSession<'_>, ActError> {
        let admitted = self.link(name).zip(record::admitted_run_id(&self.quorum, name));
        let ((link, _), run_id) = admitted.ok_or(ActError::NoAddress)?;
        link.admin_session(&run_id).await
    }

    /// Hosts of the members' load balancers.
    pub(super) fn balancer_hosts(&self) -> Vec<String> {
        self.own_objects.iter().filter_map(|own| balancer_host(own.service.as_deref()?)).collect()
    }

    /// The addresses that clients get instead of the members' names, by index.
    pub(super) fn given_addresses(&self) -> Vec<Option<Address>> {
        let Some(expose) = &self.plan.expose else { return Vec::new() };
        self.own_objects.iter().map(|own| expose.given(own.member.index, own.service.as_deref())).collect()
    }
}

/// Which secrets the first process of a member's pod was started with.
fn started_with(pod: Option<&Pod>, member: &MemberPlan, auth: &Auth) -> StartedWith {
    match pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        None => StartedWith::Nothing,
        Some(pod) if facts::acl_key(pod) == Some(build::mounted_acl_key(auth, member).as_str()) => StartedWith::These,
        Some(_) => StartedWith::Others,
    }
}

/// Whether a pod was made from an older template than its StatefulSet has now.
///
/// `None` if that is unknown yet.
fn is_outdated(set: &StatefulSet, pod: &Pod) -> Option<bool> {
    let status = set.status.as_ref()?;
    let current = status.observed_generation.is_some() && status.observed_generation == set.metadata.generation;
    let newest = status.update_revision.as_ref().filter(|_| current && pod.metadata.deletion_timestamp.is_none())?;
    Some(pod.labels().get(REVISION_LABEL)? != newest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;

    #[test]
    fn a_pod_is_outdated_when_its_revision_is_not_the_newest() {
        let set = |observed: i64| -> StatefulSet {
            let status = json!({"observedGeneration": observed, "updateRevision": "q-0-b", "replicas": 1});
            parsed(json!({"metadata": {"generation": 2}, "status": status}))
        };
        let pod = |revision: &str| parsed::<Pod>(json!({"metadata": {"labels": {REVISION_LABEL: revision}}}));
        assert_eq!(is_outdated(&set(2), &pod("q-0-a")), Some(true));
        assert_eq!(is_outdated(&set(2), &pod("q-0-b")), Some(false));
        // The StatefulSet controller has not processed the newest template.
        assert_eq!(is_outdated(&set(1), &pod("q-0-a")), None);
        assert_eq!(is_outdated(&set(2), &Pod::default()), None);
        let mut ending = pod("q-0-a");
        ending.metadata.deletion_timestamp = Some(parsed(json!("2026-01-01T00:00:00Z")));
        assert_eq!(is_outdated(&set(2), &ending), None);
    }
}
