//! The certificates of the members: read or made, trusted, and served.
//!
//! Whom to trust is written down (in the config Secret) before any member serves a certificate of theirs, and what was trusted
//! before stays so until no member serves one of those. So every replica can speak with every member at every moment.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::{Error, Task, request};
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::status::Said;
use crate::{
    api::{FIELD_MANAGER, MEMBER_LABEL},
    quorum::{
        model::{
            build::{TLS_DIRECTORY, Transport, tls_secret},
            facts,
            plan::{MemberPlan, Plan, TlsPlan},
            status::Obstacle,
            tls::{
                AUTHORITIES_KEY, CERTIFICATE_KEY, Certificate, Data, PRIVATE_KEY_KEY, Served,
                authority::{Authority, Pair, advance},
                issue, read, report, union,
            },
        },
        session::{ActError, MemberLink, authorities_of},
    },
    redlock::MemberError,
    time::Monotonic,
};

/// Secrets are read again after this, as nobody may watch them.
const SECRETS_PERIOD: Duration = Duration::from_secs(10);
/// Between two looks at a member that serves an older certificate.
const RELOAD_PERIOD: Duration = Duration::from_secs(3);

/// How TLS stands in one reconciliation.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) transport: Transport,
    /// The certificate to be served, or what is wrong with it; `None` if members are to speak plain TCP.
    certificate: Option<Result<Certificate, String>>,
}

/// What was read a moment ago.
#[derive(Clone)]
pub(super) struct Remembered {
    plan: (Option<TlsPlan>, Vec<String>),
    certificate: Option<Result<Certificate, String>>,
    published: Option<String>,
    at: Monotonic,
}

impl Tls {
    /// What keeps members from being made or updated.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        let certificate = self.certificate.as_ref()?.as_ref().err()?.clone();
        Some(Obstacle::of(&Problem::Certificate { certificate }))
    }
}

impl Task<'_> {
    /// Reads or makes the certificate, and lets this replica trust it.
    pub(super) async fn ensure_tls(&self, plan: &Plan) -> Result<Tls, Error> {
        let tls: Vec<bool> = plan.members.iter().map(|member| self.speaks_tls(plan, member)).collect();
        if plan.tls.is_none() && !tls.contains(&true) {
            return Ok(Tls { transport: Transport { tls, ..Transport::default() }, certificate: None });
        }
        let remembered = self.remembered(plan).await?;
        let (certificate, published) = (remembered.certificate, remembered.published);
        let authorities = match &certificate {
            Some(Ok(certificate)) if self.all_serve(plan, certificate, &tls) => Some(certificate.authorities.clone()),
            Some(Ok(certificate)) => Some(union(&certificate.authorities, published.as_deref().unwrap_or_default())),
            _ => published,
        };
        if let Some(pem) = &authorities
            && let Err(error) = self.session.set_authorities(pem)
        {
            tracing::warn!(quorum = %self.session.reference(), %error, "no certificate authority can be read");
        }
        let addresses = self.given_addresses(plan);
        Ok(Tls { transport: Transport { tls, authorities, addresses }, certificate })
    }

    /// Whether a member's pod speaks TLS, or will when there is one.
    fn speaks_tls(&self, plan: &Plan, member: &MemberPlan) -> bool {
        self.pod_speaks_tls(plan, member).unwrap_or(plan.tls.is_some())
    }

    fn pod_speaks_tls(&self, plan: &Plan, member: &MemberPlan) -> Option<bool> {
        let pod = self.leader.context.pods.named(&plan.namespace, &member.pod_name())?;
        (pod.labels().get(MEMBER_LABEL) == Some(&member.name)).then(|| facts::speaks_tls(&pod))
    }

    /// Whether nobody serves anything older than this certificate. A member of which nothing is known may do so.
    fn all_serve(&self, plan: &Plan, certificate: &Certificate, tls: &[bool]) -> bool {
        let serves = |member: &MemberPlan| {
            let link = self.session.link(&member.name);
            link.is_some_and(|link| link.view().certificate == Some(certificate.fingerprint))
        };
        plan.members.iter().zip(tls).all(|(member, tls)| !tls || serves(member))
    }

    async fn remembered(&self, plan: &Plan) -> Result<Remembered, Error> {
        let now = self.now();
        let of_plan = (plan.tls.clone(), plan.issued_names(&self.balancer_hosts(plan)));
        let fresh = |known: &Remembered| known.plan == of_plan && now < known.at + SECRETS_PERIOD;
        let known = self.leader.memory(self.session.uid(), |memory| memory.tls.clone().filter(fresh));
        if let Some(known) = known {
            return Ok(known);
        }
        let config = request(self.secrets_of(plan).get_opt(&plan.config_name())).await?;
        let published = config.and_then(|config| authorities_of(&config, &plan.uid));
        let certificate = match &plan.tls {
            None => None,
            Some(tls) if tls.managed => Some(self.managed(plan, tls).await?),
            Some(tls) => Some(self.given(plan, tls).await?),
        };
        let read = Remembered { plan: of_plan, certificate, published, at: now };
        self.leader.memory(self.session.uid(), |memory| memory.tls = Some(read.clone()));
        Ok(read)
    }

    /// The certificate that somebody else writes.
    async fn given(&self, plan: &Plan, tls: &TlsPlan) -> Result<Result<Certificate, String>, Error> {
        let name = &tls.secret;
        let Some(secret) = request(self.secrets_of(plan).get_opt(name)).await? else {
            let names = plan.server_names().join(", ");
            return Ok(Err(Blocked::NoCertificate { name: name.clone(), names }.to_string()));
        };
        let certificate = read(&secret.data.unwrap_or_default(), &plan.server_names(), self.unix_seconds());
        Ok(certificate.map_err(|unfit| Blocked::UnfitCertificate { name: name.clone(), unfit }.to_string()))
    }

    /// The operator's own certificate, made anew when it is time.
    async fn managed(&self, plan: &Plan, tls: &TlsPlan) -> Result<Result<Certificate, String>, Error> {
        let now = self.unix_seconds();
        let name = plan.authority_name();
        let found = request(self.secrets_of(plan).get_opt(&name)).await?;
        if let Some(problem) = found.as_ref().and_then(|found| in_the_way(found, plan)) {
            return Ok(Err(problem));
        }
        let known = found.as_ref().and_then(|found| found.data.as_ref()).map(Authority::from_data).unwrap_or_default();
        let authority = match advance(known.clone(), now, || issue::authority(&plan.name, now)) {
            Ok(authority) => authority,
            Err(error) => return Ok(Err(Blocked::NoAuthorityMade { error: error.to_string() }.to_string())),
        };
        if authority != known {
            self.write_secret(plan, &name, authority.data(), found.as_ref()).await?;
            self.tell(QuorumEvent::AuthorityRenewed { secret: name }).await;
        }
        self.issued(plan, tls, &authority, now).await
    }

    async fn issued(
        &self,
        plan: &Plan,
        tls: &TlsPlan,
        authority: &Authority,
        now: i64,
    ) -> Result<Result<Certificate, String>, Error> {
        let name = &tls.secret;
        let found = request(self.secrets_of(plan).get_opt(name)).await?;
        if let Some(problem) = found.as_ref().and_then(|found| in_the_way(found, plan)) {
            return Ok(Err(problem));
        }
        let Some(current) = &authority.current else {
            return Ok(Err(Blocked::NoAuthority { name: name.clone() }.to_string()));
        };
        let names = plan.issued_names(&self.balancer_hosts(plan));
        let mut data = found.as_ref().and_then(|found| found.data.clone()).unwrap_or_default();
        let trusted = authority.trusted();
        if is_due(&data, current, &names, now) {
            let made = match issue::certificate(current, &names, now) {
                Ok(made) => made,
                Err(error) => return Ok(Err(Blocked::NoCertificateMade { error: error.to_string() }.to_string())),
            };
            data = tls_secret::data(&made, &trusted);
            self.write_secret(plan, name, data.clone(), found.as_ref()).await?;
            self.tell(QuorumEvent::CertificateIssued { secret: name.clone() }).await;
        } else if data.get(AUTHORITIES_KEY).map(|pem| pem.0.as_slice()) != Some(trusted.as_bytes()) {
            data.insert(AUTHORITIES_KEY.to_owned(), ByteString(trusted.into_bytes()));
            self.write_secret(plan, name, data.clone(), found.as_ref()).await?;
        }
        let unfit = |unfit| Blocked::UnfitOwnCertificate { name: name.clone(), unfit }.to_string();
        Ok(read(&data, &names, now).map_err(unfit))
    }

    /// With the version that was read: another leader may have been quicker.
    async fn write_secret(&self, plan: &Plan, name: &str, data: Data, found: Option<&Secret>) -> Result<(), Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut secret = tls_secret::secret(plan, name, data);
        let api = self.secrets_of(plan);
        match found {
            None => request(api.create(&params, &secret)).await.map(drop),
            Some(found) => {
                secret.metadata.resource_version = found.resource_version();
                // It cannot be changed.
                secret.type_.clone_from(&found.type_);
                request(api.replace(name, &params, &secret)).await.map(drop)
            }
        }
    }

    /// Has members that serve an older certificate read the new one; when to look again, if any does.
    pub(super) async fn reload_certificates(&self, plan: &Plan, tls: &Tls) -> Option<Duration> {
        let Some(Ok(certificate)) = &tls.certificate else { return None };
        let mut look_again = None;
        for (member, _) in plan.members.iter().zip(&tls.transport.tls).filter(|(_, tls)| **tls) {
            let Some(link) = self.session.link(&member.name) else { continue };
            if link.view().certificate == Some(certificate.fingerprint) || !link.is_seen() {
                continue;
            }
            match self.reload(&link, certificate).await {
                Ok(true) => {
                    self.tell(QuorumEvent::CertificateReloaded { member: link.name().to_string() }).await;
                }
                Ok(false) => look_again = Some(RELOAD_PERIOD),
                Err(error) => {
                    tracing::debug!(member = %link.name(), %error, "certificate not reloaded yet");
                    look_again = Some(RELOAD_PERIOD);
                }
            }
        }
        look_again
    }

    /// Whether the member serves it now. The file in its pod may be an old one for a minute or so, or half a pair.
    async fn reload(&self, link: &MemberLink, certificate: &Certificate) -> Result<bool, ActError> {
        let Some(sight) = link.view().sight else { return Ok(false) };
        let path = |file: &str| format!("{TLS_DIRECTORY}/{file}");
        let mut turn = link.turn(&sight.run_id).await?;
        if turn.certificate() == Some(certificate.fingerprint) {
            return Ok(true);
        }
        turn.reload_certificate(&path(CERTIFICATE_KEY), &path(PRIVATE_KEY_KEY)).await?;
        drop(turn);
        let turn = link.turn(&sight.run_id).await?;
        Ok(turn.certificate() == Some(certificate.fingerprint))
    }

    /// What the condition says; `None` without TLS.
    pub(super) fn tls_report(&self, plan: &Plan, tls: &Tls) -> Option<Said> {
        let served = |(member, link): (&MemberPlan, Arc<MemberLink>)| {
            let view = link.view();
            let failure = match view.failure {
                Some(MemberError::Untrusted(text)) => Some(text),
                _ => None,
            };
            let tls = self.pod_speaks_tls(plan, member);
            Served { member: member.name.clone(), tls, certificate: view.certificate, failure }
        };
        let members: Vec<Served> = self.linked(plan).into_iter().map(served).collect();
        Some(report(tls.certificate.as_ref()?, &members))
    }

    fn secrets_of(&self, plan: &Plan) -> Api<Secret> {
        Api::namespaced(self.leader.context.client.clone(), &plan.namespace)
    }

    fn unix_seconds(&self) -> i64 {
        self.leader.context.api_now().0 / 1000
    }
}

fn in_the_way(found: &Secret, plan: &Plan) -> Option<String> {
    let (kind, name) = ("Secret".to_owned(), found.name_any());
    if found.metadata.deletion_timestamp.is_some() {
        return Some(Blocked::BeingDeleted { kind, name }.to_string());
    }
    let ours = found.owner_references().iter().any(|owner| owner.uid == plan.uid);
    (!ours).then(|| Blocked::Foreign { kind, name }.to_string())
}

/// Whether a certificate has to be made: there is none of this authority with these names, or most of its life is over.
fn is_due(data: &Data, authority: &Pair, names: &[String], now: i64) -> bool {
    let mut by_authority = data.clone();
    let pem = ByteString(authority.certificate.clone().into_bytes());
    by_authority.insert(AUTHORITIES_KEY.to_owned(), pem);
    read(&by_authority, names, now).map_or(true, |certificate| certificate.span.is_old(now))
}
