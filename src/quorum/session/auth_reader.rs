//! Reads the auth Secret, and whom to trust, without list or watch on Secrets: until it is there, every five minutes (with TLS
//! every minute), and when no member accepts what is known. Reads only, but for one case: a leader that has no copy of a Secret that
//! is gone says so in the status, and a replica that has one writes it back.

use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use super::QuorumSession;
use crate::{
    api::{
        FIELD_MANAGER, RedisQuorum, TlsMode,
        conditions::{CommonReason, QuorumCondition, find_condition},
    },
    quorum::model::{
        auth::Auth,
        build::auth_secret,
        plan::{auth_name, config_name, validate},
        tls::AUTHORITIES_KEY,
    },
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(300);
const REREAD_TLS: Duration = Duration::from_secs(60);
const REREAD_UNAUTHENTICATED: Duration = Duration::from_secs(10);

/// Follows the Secrets until the session is gone.
pub(super) async fn follow(client: Client, namespace: String, name: String, uid: String, session: Weak<QuorumSession>) {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
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
        rest(&session, wait).await;
    }
}

/// The Secret as this replica would write it, if the leader has none and members accept what is in it.
fn copy(session: &QuorumSession) -> Option<Secret> {
    let quorum = session.quorum();
    let wanted = says_lost(&quorum) && quorum.metadata.deletion_timestamp.is_none();
    let auth = session.auth().filter(|_| wanted && session.is_authenticated())?;
    Some(auth_secret(&validate(&quorum).ok()?, &auth))
}

/// Makes the Secret, if nobody has in the meantime.
async fn write_back(api: &Api<Secret>, secret: &Secret) {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match timeout(REQUEST_TIMEOUT, api.create(&params, secret)).await {
        Ok(Ok(_)) => tracing::warn!(secret = secret.name_any(), "the auth Secret was gone, written back from memory"),
        Ok(Err(error)) => tracing::info!(secret = secret.name_any(), %error, "the auth Secret was not written back"),
        Err(_elapsed) => tracing::info!(secret = secret.name_any(), "the auth Secret was not written back in time"),
    }
}

/// Whether the status says that the leader has no secrets, or that members run with lost ones.
pub(crate) fn says_lost(quorum: &RedisQuorum) -> bool {
    let conditions = quorum.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = find_condition(conditions, QuorumCondition::Ready);
    ready.is_some_and(|ready| ready.reason == CommonReason::AuthLost.to_string())
}

/// Waits, and less if somebody wants to know more. The session may end meanwhile.
async fn rest(session: &Weak<QuorumSession>, wait: Duration) {
    let Some(wanted) = session.upgrade().map(|session| session.read_secrets.clone()) else { return };
    // At most once in a second, however often it is asked for.
    tokio::time::sleep(RETRY).await;
    let _ = timeout(wait.saturating_sub(RETRY), wanted.notified()).await;
}

/// Takes what was read; when to read again.
fn take(session: &QuorumSession, read: Option<Auth>) -> Duration {
    match (read, session.auth()) {
        (Some(read), None) => {
            session.set_auth(read);
            REREAD_UNAUTHENTICATED
        }
        // The leader has rotated passwords, or made lost ones anew. Otherwise the members were started with what is known; an edited Secret is written back by the leader. Only when nobody
        // accepts what is known can the other one be right.
        (Some(read), Some(known))
            if read.supersedes(&known)
                || (read != known && !known.supersedes(&read) && !session.is_authenticated()) =>
        {
            session.set_auth(read);
            REREAD_UNAUTHENTICATED
        }
        (_, None) => RETRY,
        (_, Some(_)) if !session.is_authenticated() => REREAD_UNAUTHENTICATED,
        (_, Some(_)) => REREAD,
    }
}

/// The leader writes them before any member serves a certificate of theirs.
fn take_authorities(session: &QuorumSession, read: Option<&str>) -> Duration {
    if let Some(pem) = read
        && let Err(error) = session.set_authorities(pem)
    {
        tracing::warn!(quorum = %session.reference(), %error, "the authorities in the config Secret are of no use");
    }
    let quorum = session.quorum();
    match (speaks_tls(&quorum), session.is_distrustful()) {
        (_, true) => REREAD_UNAUTHENTICATED,
        (true, _) => REREAD_TLS,
        _ => REREAD,
    }
}

fn speaks_tls(quorum: &RedisQuorum) -> bool {
    quorum.spec.tls.mode != TlsMode::Disabled
}

/// `Ok(None)`: the API server says that there is none.
async fn read(api: &Api<Secret>, name: &str) -> Result<Option<Secret>, Unread> {
    match timeout(REQUEST_TIMEOUT, api.get_opt(name)).await {
        Ok(Ok(secret)) => Ok(secret),
        Ok(Err(error)) => {
            tracing::debug!(secret = name, %error, "Secret not read");
            Err(Unread)
        }
        Err(_) => Err(Unread),
    }
}

/// Nothing is known of a Secret.
struct Unread;

fn is_owned(secret: &Secret, uid: &str) -> bool {
    secret.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Whose certificates members are checked by, in the config Secret of the quorum with this UID.
pub(crate) fn authorities_of(secret: &Secret, uid: &str) -> Option<String> {
    let pem = secret.data.as_ref()?.get(AUTHORITIES_KEY).filter(|_| is_owned(secret, uid))?;
    String::from_utf8(pem.0.clone()).ok()
}

/// The secrets in an auth Secret that belongs to the quorum with this UID. One that somebody else made would give them the
/// passwords.
pub(crate) fn auth_of(secret: &Secret, uid: &str) -> Option<Auth> {
    Auth::from_data(secret.data.as_ref()?).filter(|_| is_owned(secret, uid))
}
