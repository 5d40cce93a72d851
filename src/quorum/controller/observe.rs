//! One quorum at one moment, for the leader: caches, members' answers, records and locks. Each step of the controller
//! decides on one observation and takes the next one after each act.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::ResourceExt;

use super::cluster::Cluster;
use super::locks::HeldLock;
use super::memory::{Applied, Memory, Podless};
use super::owned::{Owned, is_kept};
use super::snapshot::Sources;
use crate::api::{MEMBER_LABEL, RedisQuorum};
use crate::fence::{Reason, Record, State, Users};
use crate::quorum::model::agreement::Agreement;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::mounted_acl_key;
use crate::quorum::model::expose::{Address, balancer_host};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::member::{MemberSummary, Standing, StartedWith};
use crate::quorum::model::membership::{is_closed, is_declared_dead};
use crate::quorum::model::plan::{MemberPlan, Plan};
use crate::quorum::model::record::record_named;
use crate::quorum::model::status::{Keys, Watched};
use crate::quorum::model::tls::Certificate;
use crate::quorum::model::{effective, facts};
use crate::quorum::session::{ActError, LinkReading, MemberLink};
use crate::redis_member::acl::UserRule;
use crate::redlock::RunId;
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::time::{Boottime, Monotonic};

/// The label by which a StatefulSet marks its pods with the revision of their template.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The sources of observations, and the plan and secrets that the quorum should have.
#[derive(Clone, Copy)]
pub(super) struct Observer<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) context: &'a Context,
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) term: &'a Term,
    pub(super) owned: &'a Owned,
    pub(super) memory: &'a Memory,
    pub(super) plan: &'a Plan,
    pub(super) auth: &'a Auth,
}

/// One quorum at one moment.
pub(super) struct Observed<'a> {
    pub(super) plan: &'a Plan,
    pub(super) auth: &'a Auth,
    /// The epoch of this leader.
    pub(super) epoch: i64,
    pub(super) now: Monotonic,
    pub(super) boottime: Boottime,
    pub(super) quorum: Arc<RedisQuorum>,
    /// The voters by this state of the quorum. The plan can be of another one.
    pub(super) lists: Lists,
    pub(super) rejoin_delay: Duration,
    /// All members of the plan, the operator's own first, then those that leave.
    pub(super) members: Vec<Member>,
    /// The members of the plan, as decisions see them, in the same order.
    pub(super) summaries: Vec<MemberSummary>,
    pub(super) locks: Vec<HeldLock>,
    /// Those of its clients.
    pub(super) namespaces: Vec<Arc<Namespace>>,
    pub(super) agreement: Agreement,
    /// The secrets that this replica observed now.
    pub(super) stored_auth: Option<Auth>,
    pub(super) watched: Watched,
    pub(super) former_closed_since: Option<Monotonic>,
    pub(super) applied: Option<Applied>,
    pub(super) certificate: Option<Result<Certificate, String>>,
    pub(super) change_failures: Vec<String>,
    pub(super) podless: BTreeMap<String, Podless>,
    /// How long the other replicas are still given to read the passwords.
    pub(super) passwords_settle: Option<Duration>,
}

/// One member of it.
pub(super) struct Member {
    pub(super) plan: MemberPlan,
    pub(super) record: Record,
    /// The link to it; `None` if this replica does not follow it yet.
    pub(super) link: Option<(Arc<MemberLink>, LinkReading)>,
    /// Its pod, its Service for peers outside and where they reach it.
    pub(super) pod: Option<Arc<Pod>>,
    pub(super) service: Option<Arc<Service>>,
    pub(super) external_address: Option<Address>,
}

impl<'a> Observer<'a> {
    /// The quorum as it is known now.
    pub(super) fn observe(&self) -> Observed<'a> {
        self.observe_at(self.sources.session.quorum())
    }

    /// By this state of the object.
    pub(super) fn observe_at(&self, quorum: Arc<RedisQuorum>) -> Observed<'a> {
        let (context, session, plan, memory) = (self.context, self.sources.session, self.plan, self.memory);
        let (now, boottime, links) = (context.clock.monotonic(), context.clock.boottime(), session.links());
        let leavers = links.iter().filter(|link| plan.member(link.name().as_str()).is_none());
        let members = plan.all_members().chain(leavers.map(|link| link.plan()));
        let members: Vec<Member> = members.map(|member| self.member(member, &quorum, &links)).collect();
        let lists = Lists::of(&quorum);
        let (stored_auth, agreement) = (session.auth(), session.agreement().lock().clone());
        let own = plan.all_members().zip(&members);
        let summaries = own.map(|(_, member)| self.summary(member, &quorum, stored_auth.as_ref())).collect();
        let clients = plan.clients.iter().filter_map(|client| context.namespaces.cluster_named(&client.namespace));
        let watched = Watched {
            clocks: session.clocks().report(boottime),
            keys: own_keys(&links),
            bound: effective::current(&quorum).max_ttl,
            all_external: links.iter().all(|link| link.plan().is_external()),
        };
        Observed {
            plan,
            auth: self.auth,
            epoch: self.sources.epoch,
            now,
            boottime,
            rejoin_delay: effective::rejoin_delay_of(&quorum),
            members,
            summaries,
            namespaces: clients.collect(),
            locks: self.sources.held_locks(&quorum),
            agreement,
            stored_auth,
            watched,
            former_closed_since: session.timers().former_closed_since(plan.lists.epoch),
            applied: memory.applied.lock().clone(),
            certificate: memory.certificate.lock().clone(),
            change_failures: memory.change_failures.lock().clone(),
            podless: memory.podless.lock().clone(),
            passwords_settle: memory.passwords.lock().settle(self.auth.generation(), now),
            lists,
            quorum,
        }
    }

    fn member(&self, plan: &MemberPlan, quorum: &RedisQuorum, links: &[Arc<MemberLink>]) -> Member {
        let (context, namespace) = (self.context, &self.plan.namespace);
        let link = links.iter().find(|link| link.name().as_str() == plan.name);
        let own = !plan.is_external();
        let pod = own.then(|| context.pods.named(namespace, &plan.pod_name())).flatten();
        let expose = self.plan.expose.as_ref().filter(|_| own);
        let service = expose.and_then(|_| self.owned.services.named(namespace, &plan.external_name()));
        let node = pod.as_deref().and_then(facts::node_name);
        let node = node.and_then(|name| context.nodes.cluster_named(&name));
        Member {
            record: record_named(quorum.status.as_ref(), &plan.name),
            link: link.map(|link| (link.clone(), link.reading())),
            external_address: expose.and_then(|to| to.address(plan.index, service.as_deref(), node.as_deref())),
            plan: plan.clone(),
            pod,
            service,
        }
    }

    fn summary(&self, member: &Member, quorum: &RedisQuorum, stored: Option<&Auth>) -> MemberSummary {
        let (Member { plan, record, .. }, lists) = (member, &self.plan.lists);
        let (external, own) = (plan.is_external(), !plan.is_external());
        let reading = member.link.as_ref().map(|(_, reading)| reading);
        let answering =
            reading.filter(|reading| reading.processes.answers()).and_then(|reading| reading.last_process.as_ref());
        let admitted = answering.is_some_and(|answering| record.admits(&answering.run_id));
        let obeys = answering.is_some() && reading.is_some_and(|reading| reading.raised == Some(self.sources.epoch));
        let is_open = answering.is_some_and(|answering| answering.users == Users::Open);
        let votes = admitted && (external || (obeys && is_open));
        let next = UserRule::locker_name(lists.epoch + 1);
        let open = reading
            .and_then(|reading| reading.observation.as_ref())
            .map(|observation| observation.open_users.as_slice());
        let has_confirmed =
            |run_id| self.memory.passwords.lock().confirmed.get(run_id) == Some(&self.auth.generation());
        let set = self.owned.stateful_sets.named(&self.plan.namespace, &plan.name);
        // A user's edit, or an older template than the one just written, does not describe the right pod.
        let set = set.filter(|set| own && is_kept(&self.memory.kept, set.as_ref()));
        let outdated = set.zip(member.pod.as_ref()).and_then(|(set, pod)| is_outdated(&set, pod));
        let lost = own && record.admitted && stored.is_some_and(|auth| member.is_lost(auth));
        let standing = match record.state {
            // Not while it ends: it is waited for then.
            _ if lost && outdated == Some(true) => Standing::Lost,
            State::Admitted => Standing::Admitted,
            State::Unreachable if record.admitted => Standing::Silent,
            State::Fenced if record.reason == Some(Reason::Updating) => Standing::ClosedForUpdate,
            _ => Standing::Out,
        };
        MemberSummary {
            external,
            standing,
            // The operator does not replace an external master; it has to vote while another member is replaced.
            outdated: if external { Some(false) } else { outdated },
            started_with: member.started_with(self.auth),
            answers: answering.is_some(),
            obeys,
            admitted,
            votes,
            ready_for_next: external || (votes && open.is_some_and(|open| open.contains(&next))),
            confirmed: answering.is_some_and(|answering| has_confirmed(&answering.run_id)),
            closed: is_closed(quorum, &plan.name, lists),
            dead: external && !admitted && !lists.wanted.contains(&plan.name) && is_declared_dead(quorum, &plan.name),
            name: plan.name.clone(),
        }
    }
}

/// The keys of the operator's own members. External masters have keys of other programs, too.
fn own_keys(links: &[Arc<MemberLink>]) -> Option<Keys> {
    let own = links.iter().filter(|link| !link.plan().is_external()).map(|link| link.reading());
    let observed = own.filter(|reading| reading.processes.answers()).filter_map(|reading| reading.observation);
    let keys = observed
        .map(|observation| Keys { endless: observation.endless_keys(), average_ttl: observation.keyspace.average_ttl });
    keys.reduce(Keys::most)
}

impl Observed<'_> {
    /// The lists are still those that the plan was made from.
    pub(super) fn is_of_plan(&self) -> bool {
        self.lists == self.plan.lists
    }

    /// The operator's own members of the plan.
    pub(super) fn own(&self) -> &[Member] {
        self.members.get(..self.plan.members.len()).unwrap_or_default()
    }

    /// The operator's own members of the plan, as decisions see them.
    pub(super) fn own_summaries(&self) -> &[MemberSummary] {
        self.summaries.get(..self.plan.members.len()).unwrap_or_default()
    }

    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.plan.name == name)
    }

    /// The process of a member that is admitted.
    pub(super) fn admitted_run_id(&self, name: &str) -> Option<RunId> {
        let record = &self.member(name)?.record;
        record.run_id.clone().filter(|_| record.admitted)
    }

    /// The link to it.
    pub(super) fn admitted(&self, name: &str) -> Result<(Arc<MemberLink>, RunId), ActError> {
        let link = self.member(name).and_then(|member| member.link.as_ref()).map(|(link, _)| link.clone());
        link.zip(self.admitted_run_id(name)).ok_or(ActError::NoAddress)
    }

    /// Hosts of the members' load balancers.
    pub(super) fn balancer_hosts(&self) -> Vec<String> {
        self.own().iter().filter_map(|member| balancer_host(member.service.as_ref()?)).collect()
    }

    /// The addresses that clients get in place of the members' names, by index.
    pub(super) fn given_addresses(&self) -> Vec<Option<Address>> {
        let Some(expose) = &self.plan.expose else { return Vec::new() };
        self.own().iter().map(|member| expose.given(member.plan.index, member.service.as_deref())).collect()
    }
}

impl Member {
    /// Which secrets the first process of its pod was started with.
    pub(super) fn started_with(&self, auth: &Auth) -> StartedWith {
        match self.pod.as_ref().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            None => StartedWith::Nothing,
            Some(pod) if facts::acl_key(pod) == Some(mounted_acl_key(auth, &self.plan).as_str()) => StartedWith::These,
            Some(_) => StartedWith::Others,
        }
    }

    /// Whether its process was started with lost secrets, and refuses those that took their place.
    ///
    /// The operator cannot do anything to it, and its pod is going to be replaced.
    pub(super) fn is_lost(&self, auth: &Auth) -> bool {
        let uid = self.pod.as_ref().and_then(|pod| pod.uid());
        let refuses = self.link.as_ref().is_some_and(|(_, reading)| reading.is_refused_by(uid.as_deref()));
        refuses && self.started_with(auth) == StartedWith::Others
    }

    /// Whether its pod speaks TLS; `None` if there is no pod of it.
    pub(super) fn speaks_tls(&self) -> Option<bool> {
        let pod = self.pod.as_ref().filter(|pod| pod.labels().get(MEMBER_LABEL) == Some(&self.plan.name))?;
        Some(facts::speaks_tls(pod))
    }

    /// The process that answers.
    pub(super) fn answers(&self) -> Option<(&Arc<MemberLink>, &LinkReading)> {
        self.link.as_ref().filter(|(_, reading)| reading.processes.answers()).map(|(link, reading)| (link, reading))
    }
}

/// Whether a pod was made from an older template than its StatefulSet has now.
///
/// `None` while that is not known yet.
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

    #[test]
    fn a_pod_is_outdated_when_its_revision_is_not_the_newest() {
        let set = |observed: i64| -> StatefulSet {
            let status = json!({"observedGeneration": observed, "updateRevision": "q-0-b", "replicas": 1});
            serde_json::from_value(json!({"metadata": {"generation": 2}, "status": status})).unwrap()
        };
        let pod = |revision: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"labels": {REVISION_LABEL: revision}}})).unwrap()
        };
        assert_eq!(is_outdated(&set(2), &pod("q-0-a")), Some(true));
        assert_eq!(is_outdated(&set(2), &pod("q-0-b")), Some(false));
        // The StatefulSet controller has not processed the newest template.
        assert_eq!(is_outdated(&set(1), &pod("q-0-a")), None);
        assert_eq!(is_outdated(&set(2), &Pod::default()), None);
        let mut ending = pod("q-0-a");
        ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(is_outdated(&set(2), &ending), None);
    }
}
