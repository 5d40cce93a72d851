//! The certificates of the members: read or made, trusted, and served.
//!
//! The config Secret names the trusted authorities before any member serves a certificate of theirs. It keeps the
//! earlier authorities until no member serves a certificate of one of them. Every replica can therefore always connect to every member.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use super::cluster::Cluster;
use super::error::{RESYNC, Result};
use super::memory::{ReadTls, SECRETS_PERIOD};
use super::observe::{Observed, Observer};
use super::owned::{refusal, write_secret};
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::build::{TLS_DIRECTORY, Transport, certificate_data, own_secret};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::plan::{MemberPlan, Plan, config_name};
use crate::quorum::model::problems::Problem;
use crate::quorum::model::tls::authority::{Authority, Pair, advance};
use crate::quorum::model::tls::{
    AUTHORITIES_KEY, CERTIFICATE_KEY, Certificate, Data, PRIVATE_KEY_KEY, Span, Unfit, is_lent, issue, read, union,
};
use crate::quorum::session::authorities_of;
use crate::time::Monotonic;

/// The pause between two checks of a member that serves an older certificate.
const RELOAD_PERIOD: Duration = Duration::from_secs(3);

/// The certificate to serve, or its fault.
type Found = Result<Certificate, String>;

/// The state of TLS in one reconciliation.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) transport: Transport,
    /// `None` if members use plain TCP.
    certificate: Option<Found>,
}

impl Tls {
    /// The obstacle to creating and updating members.
    pub(super) fn obstacle(&self) -> Option<Problem> {
        let certificate = self.certificate.as_ref()?.as_ref().err()?.clone();
        Some(Problem::Certificate { certificate })
    }
}

/// Reads or makes the certificate, and adds it to the trusted ones of this replica.
pub(super) async fn ensure(observer: &Observer<'_>) -> Result<Tls> {
    let (session, observed) = (observer.sources.session, &observer.observe());
    let plan = observed.plan;
    // Whether a member's pod uses TLS, or will use it after its creation.
    let speaks = |member: &MemberPlan| observed.uses_tls(&member.name).unwrap_or(plan.tls.is_some());
    let tls: Vec<bool> = plan.members.iter().map(speaks).collect();
    let is_used = plan.tls.is_some() || tls.contains(&true);
    let read = if is_used { Some(read_again(observer.sources.cluster, observed).await?) } else { None };
    observer.sources.memory.tls.lock().clone_from(&read);
    let expires = read.as_ref().and_then(|read| read.expires);
    observer.sources.context.metrics.certificate_expires(session.reference(), expires);
    let Some(ReadTls { certificate, published, .. }) = read else {
        return Ok(Tls { transport: Transport { tls, ..Transport::default() }, certificate: None });
    };
    let authorities = match &certificate {
        Some(Ok(certificate)) if all_serve(observed, certificate, &tls) => Some(certificate.authorities.clone()),
        Some(Ok(certificate)) => Some(union(&certificate.authorities, published.as_deref().unwrap_or_default())),
        _ => published,
    };
    if let Some(pem) = &authorities
        && let Err(error) = session.set_authorities(pem)
    {
        tracing::warn!(quorum = %session.reference(), %error, "no certificate authority can be read");
    }
    Ok(Tls { transport: Transport { tls, authorities, addresses: observed.given_addresses() }, certificate })
}

/// Whether no member serves an older certificate than this one.
///
/// If the certificate of a member is unknown, the member possibly serves an older one.
fn all_serve(observed: &Observed<'_>, certificate: &Certificate, tls: &[bool]) -> bool {
    let served = |name: &str| observed.link(name).and_then(|(_, state)| state.certificate());
    observed.own().iter().zip(tls).all(|(member, tls)| !tls || served(&member.name) == Some(certificate.fingerprint))
}

/// Returns the last reading if it is fresh, and reads again otherwise.
async fn read_again(cluster: &Cluster<'_>, observed: &Observed<'_>) -> Result<ReadTls> {
    let (plan, memory, at) = (observed.plan, observed.sources.memory, cluster.now());
    let last = memory.tls.lock().clone();
    let names = plan.issued_names(&observed.balancer_hosts());
    let of_plan = (plan.tls.clone(), names.clone());
    if let Some(read) = last.clone().filter(|read| read.plan == of_plan && at < read.at + SECRETS_PERIOD) {
        return Ok(read);
    }
    let config: Option<Secret> = cluster.get(&plan.namespace, &config_name(&plan.name)).await?;
    let published = config.and_then(|config| authorities_of(&config, &plan.owner.uid));
    let Some(tls) = &plan.tls else {
        return Ok(ReadTls { plan: of_plan, certificate: None, published, expires: None, at });
    };
    let secret: Option<Secret> = cluster.get(&plan.namespace, &tls.secret).await?;
    let last_expiry = last.and_then(|read| read.expires).or_else(|| secret.as_ref().and_then(stored_expiry));
    let certificate = if tls.managed {
        match authority(cluster, plan, &memory.authority).await? {
            Ok(authority) => issued(cluster, plan, &tls.secret, &names, &authority, secret.as_ref()).await?,
            Err(fault) => Err(fault),
        }
    } else {
        given(plan, &tls.secret, secret, cluster.api_now().0 / 1000)
    };
    let expires = expiry(&certificate, last_expiry);
    Ok(ReadTls { plan: of_plan, certificate: Some(certificate), published, expires, at })
}

/// The end of the validity of the certificate in a Secret, even if it is unfit.
fn stored_expiry(secret: &Secret) -> Option<i64> {
    let pem = secret.data.as_ref()?.get(CERTIFICATE_KEY)?;
    Some(Span::of_pem(&pem.0)?.not_after)
}

/// The end of the validity to publish, in seconds of Unix time.
///
/// While the certificate has a fault, members serve the last one. An alert on its expiry must not end when it has expired.
fn expiry(certificate: &Found, last: Option<i64>) -> Option<i64> {
    certificate.as_ref().map_or(last, |certificate| Some(certificate.span.not_after))
}

/// The certificate that a user or cert-manager made.
fn given(plan: &Plan, name: &str, secret: Option<Secret>, now: i64) -> Found {
    let (name, names) = (name.to_owned(), plan.server_names());
    let certificate = match secret {
        None => return Err(Blocked::NoCertificate { name, names: names.join(", ") }.to_string()),
        Some(secret) if is_lent(&secret, &plan.name) => read(&secret.data.unwrap_or_default(), &names, now),
        Some(_) => Err(Unfit::NotLent { quorum: plan.name.clone() }),
    };
    certificate.map_err(|unfit| Blocked::UnfitCertificate { name, unfit }.to_string())
}

/// The operator's own authority after all steps that are due, or what is in its way.
///
/// `memory` has the last one, which is written back if its Secret was deleted.
async fn authority(cluster: &Cluster<'_>, plan: &Plan, memory: &Mutex<Authority>) -> Result<Result<Authority, String>> {
    let (now, name) = (cluster.api_now().0 / 1000, format!("{}-ca", plan.name));
    let found: Option<Secret> = cluster.get(&plan.namespace, &name).await?;
    if let Some(refusal) = found.as_ref().and_then(|found| refusal(found, plan, false)) {
        return Ok(Err(refusal));
    }
    let stored = stored_authority(found.as_ref(), &memory.lock());
    let authority = match advance(stored.clone(), now, || issue::authority(&plan.name, now)) {
        Ok(authority) => authority,
        Err(error) => return Ok(Err(Blocked::NoAuthorityMade { error: error.to_string() }.to_string())),
    };
    if found.is_none() || authority != stored {
        let secret = own_secret(plan, name.clone(), authority.data());
        if let Some(refused) = write_secret(cluster, plan, secret, found.as_ref()).await? {
            return Ok(Err(refused));
        }
        if authority == stored {
            tracing::warn!(quorum = %plan.name, "the authority's Secret was gone, written back from memory");
        } else {
            let event = match found {
                Some(_) => QuorumEvent::AuthorityRenewed { secret: name },
                None => QuorumEvent::AuthorityCreated { secret: name },
            };
            cluster.publish_event(event).await;
        }
    }
    memory.lock().clone_from(&authority);
    Ok(Ok(authority))
}

/// The authority in its Secret, or the last one if the Secret was deleted.
fn stored_authority(found: Option<&Secret>, last: &Authority) -> Authority {
    let data = |found: &Secret| found.data.as_ref().map(Authority::from_data).unwrap_or_default();
    found.map_or_else(|| last.clone(), data)
}

/// The operator's own certificate with these names. It is made again when its renewal is due.
///
/// `found` has the last one.
async fn issued(
    cluster: &Cluster<'_>,
    plan: &Plan,
    name: &str,
    names: &[String],
    authority: &Authority,
    found: Option<&Secret>,
) -> Result<Found> {
    let now = cluster.api_now().0 / 1000;
    if let Some(refusal) = found.and_then(|found| refusal(found, plan, false)) {
        return Ok(Err(refusal));
    }
    let Some(current) = &authority.current else {
        return Ok(Err(Blocked::NoAuthority { name: name.to_owned() }.to_string()));
    };
    let mut data = found.and_then(|found| found.data.clone()).unwrap_or_default();
    let (before, trusted) = (data.clone(), authority.trusted());
    let is_due = is_due(&data, current, names, now);
    if is_due {
        let made = match issue::certificate(current, names, now) {
            Ok(made) => made,
            Err(error) => return Ok(Err(Blocked::NoCertificateMade { error: error.to_string() }.to_string())),
        };
        data = certificate_data(&made, &trusted);
    } else {
        data.insert(AUTHORITIES_KEY.to_owned(), ByteString(trusted.into_bytes()));
    }
    let secret = own_secret(plan, name.to_owned(), data.clone());
    if data != before
        && let Some(refused) = write_secret(cluster, plan, secret, found).await?
    {
        return Ok(Err(refused));
    }
    if is_due {
        cluster.publish_event(QuorumEvent::CertificateIssued { secret: name.to_owned() }).await;
    }
    let unfit = |unfit| Blocked::UnfitOwnCertificate { name: name.to_owned(), unfit }.to_string();
    Ok(read(&data, names, now).map_err(unfit))
}

/// Makes members with an older certificate load the new one, and returns when to check again.
pub(super) async fn reload(observer: &Observer<'_>, tls: &Tls) -> Monotonic {
    let (cluster, observed) = (observer.sources.cluster, observer.observe());
    let mut due = cluster.after(RESYNC);
    let Some(Ok(certificate)) = &tls.certificate else { return due };
    let newest = certificate.fingerprint;
    let [certificate_file, key_file] = [CERTIFICATE_KEY, PRIVATE_KEY_KEY].map(|file| format!("{TLS_DIRECTORY}/{file}"));
    for (member, _) in observed.own().iter().zip(&tls.transport.tls).filter(|(_, tls)| **tls) {
        let older = observed.answering(&member.name).filter(|(_, state)| state.certificate() != Some(newest));
        let Some((link, _)) = older else { continue };
        let reloaded = link.reload_certificate(newest, &certificate_file, &key_file).await;
        if reloaded == Ok(true) {
            cluster.publish_event(QuorumEvent::CertificateReloaded { member: link.name.to_string() }).await;
        } else {
            tracing::debug!(member = %link.name, ?reloaded, "certificate not reloaded yet");
            due = cluster.after(RELOAD_PERIOD);
        }
    }
    due
}

/// Whether the operator must make a certificate.
///
/// This is the case if no certificate of this authority has these names, or if most of its life has passed.
fn is_due(data: &Data, authority: &Pair, names: &[String], now: i64) -> bool {
    let mut by_authority = data.clone();
    let pem = ByteString(authority.certificate.clone().into_bytes());
    by_authority.insert(AUTHORITIES_KEY.to_owned(), pem);
    read(&by_authority, names, now).map_or(true, |certificate| certificate.span.is_old(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::model::tls::authority::CERTIFICATE_LIFE;

    const NOW: i64 = 1_800_000_000;
    const NAME: &str = "q-0.shop.svc";

    /// The Secret with a certificate that was issued at this time.
    fn secret(issued: i64) -> Secret {
        let authority = issue::authority("q", issued).unwrap();
        let own = issue::certificate(&authority, &[NAME.to_owned()], issued).unwrap();
        Secret { data: Some(certificate_data(&own, &authority.certificate)), ..Secret::default() }
    }

    /// The certificate in a Secret, or its fault.
    fn found(secret: &Secret) -> Found {
        read(secret.data.as_ref().unwrap(), &[NAME.to_owned()], NOW).map_err(|unfit| unfit.to_string())
    }

    #[test]
    fn a_deleted_authority_is_taken_from_memory() {
        let make = || issue::authority("q", NOW);
        let last = advance(Authority::default(), NOW, make).unwrap();
        let after = |found: Option<&Secret>| advance(stored_authority(found, &last), NOW, make).unwrap();
        assert_eq!(after(None), last);
        let edited = after(Some(&Secret::default()));
        assert!(edited.current.is_some() && edited != last, "an edited Secret is not restored");
    }

    #[test]
    fn the_expiry_of_a_certificate_stays_while_it_has_a_fault() {
        let expires = |secret: &Secret, last| expiry(&found(secret), last);
        let (fit, expired) = (secret(NOW), secret(NOW - 2 * CERTIFICATE_LIFE));
        assert_eq!(stored_expiry(&fit), Some(NOW + CERTIFICATE_LIFE));
        assert_eq!(expires(&fit, Some(7)), stored_expiry(&fit));
        assert!(found(&expired).is_err());
        assert_eq!(expires(&expired, Some(7)), Some(7));
        // A leader that starts after the expiry reads it from the Secret.
        assert_eq!(stored_expiry(&expired), Some(NOW - CERTIFICATE_LIFE));
        assert_eq!(stored_expiry(&Secret::default()), None);
    }
}
