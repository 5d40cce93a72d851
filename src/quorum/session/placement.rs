//! Placement of the links: where each member is, and which secrets and authorities its connections use.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;

use super::{MemberLink, QuorumSession, link_list};
use crate::api::RedisQuorum;
use crate::quorum::model::agreement::{Agreement, claim_of};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::record::{admitted_run_id, record_named};
use crate::quorum::model::{effective, plan, users};
use crate::redis_member::{Authorities, Endpoint, Guard, TlsError};
use crate::redlock::{MemberError, MemberName};

impl QuorumSession {
    /// Takes the secrets after they were read or made.
    pub(crate) fn set_auth(&self, auth: Auth) {
        *self.auth.lock() = Some(auth);
        self.place();
        self.shared.announce();
    }

    /// Takes the trusted authorities, in PEM.
    pub(crate) fn set_authorities(&self, pem: &str) -> Result<(), TlsError> {
        let authorities = Authorities::from_pem(pem.as_bytes())?.judged_by(self.context.server_time.clone());
        let before = self.authorities.lock().replace(authorities.clone());
        if before != Some(authorities) {
            self.place();
            self.shared.announce();
        }
        Ok(())
    }

    /// Takes the users of all external masters as they were read, by member, or the faults.
    ///
    /// A member whose user was not read this time keeps the earlier one.
    pub(super) fn set_credentials(&self, read: &BTreeMap<String, Result<Endpoint, String>>) {
        let found = read.iter().filter_map(|(name, user)| Some((name.clone(), user.clone().ok()?)));
        let mut credentials = self.credentials.lock();
        credentials.retain(|name, _| read.contains_key(name));
        credentials.extend(found);
        drop(credentials);
        self.place();
        for link in self.links().iter().filter(|link| !link.answers()) {
            if let Some(Err(trouble)) = read.get(link.name.as_str()) {
                link.note_missed(trouble);
            }
        }
    }

    /// Updates the links to the current members, and sets the place and the user of each.
    pub(super) fn place(&self) {
        let _one_after_the_other = self.placing.lock();
        let quorum = self.quorum();
        let (auth, authorities) = (self.auth(), self.authorities.lock().clone());
        let lists = Lists::of(&quorum);
        let epoch = lists.epoch;
        let namespace = self.reference().namespace.as_deref().unwrap_or_default();
        place_claim(&self.shared.agreement, &quorum);
        self.timers.note_change(&quorum);
        let former = link_list::follow(&self.shared, &mut self.links.lock(), plan::recorded_members(&quorum));
        former.iter().for_each(|link| self.remove_latency(link));
        self.shared.clocks.set(lists.most_voters(), effective::clock_rule(&quorum));
        for link in self.links().iter() {
            if link.plan.is_external() {
                let name = &link.name;
                let admitted = admitted_run_id(&quorum, name.as_str());
                self.shared.agreement.lock().admitted(name, admitted.clone());
                // No vote is given during a joint change, so the guard has the epoch of its end.
                let since = quorum.member(name.as_str()).and_then(|member| member.memory.as_ref()?.record_since);
                let since = since.filter(|since| *since > 0);
                let guard = Guard { uid: self.uid.clone(), epoch: 2 * epoch, since };
                let current = self.credentials.lock().get(name.as_str()).cloned();
                link.place_external(current, admitted, epoch, guard);
                continue;
            }
            let pod = self.context.pods.named(namespace, &link.plan.pod_name());
            if let Some(pod) = &pod {
                self.timers.note_container(link.name.as_str(), pod);
            }
            let record = record_named(&quorum, link.name.as_str());
            if let Some(process) = record.can_be_open() {
                let is_there = pod.as_ref().and_then(|pod| pod.uid()).as_ref() == Some(&process.pod_uid);
                self.timers.note_pod(&process.pod_uid, is_there);
            }
            let users = users::voting_users(&quorum, link.name.as_str());
            if !link.place(pod.as_deref(), auth.as_ref(), authorities.as_ref(), epoch, &users) {
                self.read_secrets.notify_one();
            }
        }
    }

    /// Whether a member's certificate does not match the current authorities.
    pub(super) fn is_distrustful(&self) -> bool {
        let untrusted = |link: &Arc<MemberLink>| matches!(link.state().failure, Some(MemberError::Untrusted(_)));
        self.links().iter().any(untrusted)
    }

    /// Whether a member accepts the known secrets.
    pub(super) fn is_authenticated(&self) -> bool {
        let links = self.links();
        let mut own = links.iter().filter(|link| !link.plan.is_external()).peekable();
        // External masters have their own users, so their answers prove nothing about these secrets.
        if own.peek().is_some() { own.any(|link| link.answers()) } else { links.iter().any(|link| link.answers()) }
    }
}

/// Takes the members and the claim from this state of the quorum.
pub(super) fn place_claim(agreement: &Mutex<Agreement>, quorum: &RedisQuorum) {
    let lists = Lists::of(quorum);
    let external = plan::external_members(quorum).into_iter().map(|member| MemberName::from(member.name));
    let external: Vec<_> = external.collect();
    let paused = lists.is_joint() && !external.is_empty();
    let claimed = lists.token_list().iter().map(|name| MemberName::from(name.as_str())).collect();
    let mut agreement = agreement.lock();
    agreement.set_members(claimed, external, paused);
    agreement.set_claim(claim_of(quorum));
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::quorum::session::tests::session;
    use crate::redis_member::Secret;
    use crate::runtime::metrics::member_labels;

    #[tokio::test]
    async fn a_former_member_leaves_the_metrics() {
        let session = session();
        let latencies = &session.context.metrics.member_latency;
        let labels = ["main-0", "main-2"].map(|name| member_labels(session.reference(), name));
        labels.iter().for_each(|labels| drop(latencies.get_or_create(labels)));
        let mut smaller = (*session.quorum()).clone();
        (smaller.spec.members, smaller.metadata.resource_version) = (1, Some("2".to_owned()));
        session.update(Arc::new(smaller));
        assert_eq!(session.links().len(), 1);
        assert_eq!(labels.map(|labels| latencies.get(&labels).is_some()), [true, false]);
    }

    #[tokio::test]
    async fn a_later_member_has_no_user_of_an_earlier_one() {
        let session = session();
        let user = |name: &str| {
            let address = format!("{}:6379", Ipv4Addr::LOCALHOST);
            Endpoint { address, username: name.to_owned(), password: Secret::new(""), tls: None }
        };
        let known = || session.credentials.lock().keys().cloned().collect::<Vec<_>>();
        session.set_credentials(&[("a", Ok(user("a"))), ("b", Ok(user("b")))].map(|(n, u)| (n.to_owned(), u)).into());
        session.set_credentials(&[("a".to_owned(), Err("the API server does not answer".to_owned()))].into());
        assert_eq!(known(), ["a"], "a has the earlier user, and b has left");
    }
}
