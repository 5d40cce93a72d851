//! Reads the auth Secret and the trusted authorities, without list or watch on Secrets.
//!
//! It reads every second until the Secret exists, then every five minutes (with TLS every minute). It also reads when no
//! member accepts the current secrets. It writes in one case only. A leader without a copy of a deleted Secret records the loss in the
//! status, and a replica with a copy writes it back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use tokio::time::{sleep, timeout};

use super::QuorumSession;
use crate::api::conditions::{CommonReason, QuorumCondition};
use crate::api::requests::{RequestError, SHORT_TIMEOUT, as_operator, is_ours, within};
use crate::api::{RedisQuorum, TlsMode};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::auth_secret;
use crate::quorum::model::plan::{auth_name, config_name, validate};
use crate::quorum::model::tls::AUTHORITIES_KEY;

const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(300);
const REREAD_TLS: Duration = Duration::from_secs(60);
const REREAD_UNAUTHENTICATED: Duration = Duration::from_secs(10);

/// Follows the Secrets until the session is gone.
pub(super) async fn follow(session: Weak<QuorumSession>) {
    let of = |session: Arc<QuorumSession>| (secrets(&session), session.quorum(), session.read_secrets.clone());
    let Some((api, quorum, requests)) = session.upgrade().map(of) else { return };
    let (name, uid) = (quorum.name_any(), quorum.uid().unwrap_or_default());
    loop {
        let auth = read(&api, &auth_name(&name)).await;
        let authorities = read(&api, &config_name(&name)).await.ok().flatten();
        let authorities = authorities.and_then(|secret| authorities_of(&secret, &uid));
        let Some(current) = session.upgrade() else { return };
        let wanted = matches!(auth, Ok(None)).then(|| copy(&current)).flatten();
        let auth = auth.ok().flatten().and_then(|secret| auth_of(&secret, &uid));
        let wait = take(&current, auth).min(take_authorities(&current, authorities.as_deref()));
        drop(current);
        if let Some(secret) = wanted {
            write_back(&api, &secret).await;
        }
        // The pause is at least one second, even with many requests.
        sleep(RETRY).await;
        let _ = timeout(wait.saturating_sub(RETRY), requests.notified()).await;
    }
}

/// The Secrets in the namespace of a quorum.
pub(super) fn secrets(session: &QuorumSession) -> Api<Secret> {
    let namespace = session.reference().namespace.as_deref().unwrap_or_default();
    Api::namespaced(session.context.client.clone(), namespace)
}

/// The Secret to write back, if the leader has none and members accept the secrets of this replica.
fn copy(session: &QuorumSession) -> Option<Secret> {
    let quorum = session.quorum();
    let wanted = records_loss(&quorum) && quorum.metadata.deletion_timestamp.is_none();
    let auth = session.auth().filter(|_| wanted && session.is_authenticated())?;
    Some(auth_secret(&validate(&quorum).ok()?, &auth))
}

/// Creates the Secret, unless another replica was faster.
async fn write_back(api: &Api<Secret>, secret: &Secret) {
    match within(SHORT_TIMEOUT, api.create(&as_operator(), secret)).await {
        Ok(_) => tracing::warn!(secret = secret.name_any(), "the auth Secret was gone, written back from memory"),
        Err(error) => tracing::info!(secret = secret.name_any(), %error, "the auth Secret was not written back"),
    }
}

/// Whether the status records that the leader has no secrets, or that members run with lost ones.
pub(crate) fn records_loss(quorum: &RedisQuorum) -> bool {
    let ready = quorum.condition(QuorumCondition::Ready);
    ready.is_some_and(|ready| ready.reason == CommonReason::AuthLost.to_string())
}

/// Takes the read secrets, and returns when to read again.
fn take(session: &QuorumSession, read: Option<Auth>) -> Duration {
    let current = session.auth();
    // The leader has rotated passwords, or replaced lost ones. Otherwise the members were started with the known secrets, and the leader
    // restores an edited Secret. The other secrets can be right only if no member accepts the known ones.
    let replaces = |read: &Auth, current: &Auth| {
        read.supersedes(current) || (read != current && !current.supersedes(read) && !session.is_authenticated())
    };
    match (read, current) {
        (Some(read), current) if current.as_ref().is_none_or(|current| replaces(&read, current)) => {
            session.set_auth(read);
            REREAD_UNAUTHENTICATED
        }
        (_, None) => RETRY,
        (_, Some(_)) if !session.is_authenticated() => REREAD_UNAUTHENTICATED,
        (_, Some(_)) => REREAD,
    }
}

/// Takes the authorities. The leader writes them before any member serves a certificate of theirs.
fn take_authorities(session: &QuorumSession, read: Option<&str>) -> Duration {
    if let Some(pem) = read
        && let Err(error) = session.set_authorities(pem)
    {
        tracing::warn!(quorum = %session.reference(), %error, "the authorities in the config Secret cannot be read");
    }
    let quorum = session.quorum();
    match (quorum.spec.tls.mode != TlsMode::Disabled, session.is_distrustful()) {
        (_, true) => REREAD_UNAUTHENTICATED,
        (true, _) => REREAD_TLS,
        _ => REREAD,
    }
}

/// Reads a Secret. `Ok(None)` if the API server has none.
async fn read(api: &Api<Secret>, name: &str) -> Result<Option<Secret>, RequestError> {
    let found = within(SHORT_TIMEOUT, api.get_opt(name)).await;
    found.inspect_err(|error| tracing::debug!(secret = name, %error, "Secret not read"))
}

/// The authorities that verify members' certificates, from the config Secret of this UID.
pub(crate) fn authorities_of(secret: &Secret, uid: &str) -> Option<String> {
    let pem = secret.data.as_ref()?.get(AUTHORITIES_KEY).filter(|_| is_ours(secret, uid))?;
    String::from_utf8(pem.0.clone()).ok()
}

/// The secrets in an auth Secret that belongs to the quorum with this UID.
///
/// A Secret of another party would give that party the passwords.
pub(crate) fn auth_of(secret: &Secret, uid: &str) -> Option<Auth> {
    Auth::from_data(secret.data.as_ref()?).filter(|_| is_ours(secret, uid))
}
