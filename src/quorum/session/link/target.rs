//! The address of a member, and the user for its connections.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{MemberLink, Target};
use crate::api::MEMBER_LABEL;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::expose::PORT;
use crate::quorum::model::facts;
use crate::redis_member::acl::{OPERATOR_USER, UserRule};
use crate::redis_member::{Authorities, Endpoint, Guard, RedisMember, TlsClient};
use crate::redlock::RunId;

impl MemberLink {
    /// The voting connection under this membership epoch. `None` before the member had an address in it.
    pub fn voter(&self, epoch: i64) -> Option<Arc<RedisMember>> {
        let voter = self.voter.lock();
        voter.as_ref().filter(|((of, _guard), _)| *of == epoch).map(|(_, voter)| voter.clone())
    }

    /// Sets the target to the member's pod, if it has one.
    ///
    /// Returns false if the authorities for TLS are missing.
    ///
    /// A pod with TLS has no target until the trusted authorities are known.
    pub(in crate::quorum::session) fn place(
        &self,
        pod: Option<&Pod>,
        auth: Option<&Auth>,
        authorities: Option<&Authorities>,
        epoch: i64,
        users: &[String],
    ) -> bool {
        // A pod of another owner with this name must not get the passwords.
        let pod = pod.filter(|pod| pod.labels().get(MEMBER_LABEL) == Some(&self.plan.name));
        let wants_tls = pod.is_some_and(facts::uses_tls);
        let namespace = self.shared.quorum.namespace.as_deref().unwrap_or_default();
        let tls = authorities.filter(|_| wants_tls);
        let tls = tls.and_then(|authorities| authorities.server(&self.plan.dns_name(namespace)).ok());
        let is_decided = tls.is_some() == wants_tls;
        let located = pod.filter(|_| is_decided).and_then(|pod| Some((pod.uid()?, address(pod)?)));
        self.place_at(located, tls, auth, epoch, users);
        is_decided
    }

    pub(super) fn place_at(
        &self,
        located: Option<(String, String)>,
        tls: Option<TlsClient>,
        auth: Option<&Auth>,
        epoch: i64,
        users: &[String],
    ) {
        let target = auth.zip(located).map(|(auth, (pod_uid, address))| {
            let endpoint = |username: String| Endpoint {
                address: address.clone(),
                password: auth.password(&self.plan.name, &username),
                username,
                tls: tls.clone(),
            };
            self.place_voter(epoch, endpoint(UserRule::locker_name(epoch)), None);
            let admin = endpoint(OPERATOR_USER.to_owned());
            let other = auth.other_password(&self.plan.name, OPERATOR_USER);
            let other_admin = other.map(|password| Endpoint { password, ..admin.clone() });
            Target { pod_uid, admin, other_admin, users: users.to_vec() }
        });
        self.set_target(target);
    }

    fn set_target(&self, target: Option<Target>) {
        self.target.send_if_modified(|current| {
            let is_new = *current != target;
            *current = target;
            is_new
        });
    }

    /// Sets the place of the member and the process that the status admits.
    ///
    /// Without a user the target stays, because the Secret was possibly deleted by mistake.
    pub(in crate::quorum::session) fn place_external(
        &self,
        user: Option<Endpoint>,
        admitted: Option<RunId>,
        epoch: i64,
        guard: Guard,
    ) {
        let before = std::mem::replace(&mut *self.admitted.lock(), admitted.clone());
        // The operator cannot end this process for a step of its clock. Before its next admission it has waited like one that forgot
        // everything, so its clock is judged from its new time.
        if before.is_some() && before != admitted {
            self.shared.clocks.forget(&self.name);
        }
        // The Secret was possibly read when a member of this name had another address.
        let is_here = |user: &Endpoint| self.plan.external.as_ref().is_some_and(|plan| plan.address == user.address);
        let Some(admin) = user.filter(is_here) else { return };
        self.place_voter(epoch, admin.clone(), Some(guard));
        self.set_target(Some(Target { pod_uid: String::new(), admin, other_admin: None, users: Vec::new() }));
    }

    fn place_voter(&self, epoch: i64, endpoint: Endpoint, guard: Option<Guard>) {
        let (name, machine) = (self.name.clone(), self.shared.machine.clone());
        let mut voter = self.voter.lock();
        match &*voter {
            Some(((of, guarded), voter)) if *of == epoch && *guarded == guard => voter.set_endpoint(endpoint),
            _ => {
                let next = match guard.clone() {
                    Some(guard) => RedisMember::guarded(name, endpoint, machine, guard),
                    None => RedisMember::new(name, endpoint, machine),
                };
                *voter = Some(((epoch, guard), Arc::new(next)));
            }
        }
    }
}

fn address(pod: &Pod) -> Option<String> {
    Some(SocketAddr::new(facts::pod_ip(pod)?.parse().ok()?, PORT).to_string())
}
