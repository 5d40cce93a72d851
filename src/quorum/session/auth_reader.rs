//! Reads the auth Secret, without list or watch on Secrets: until it is there, every five minutes, and when no member accepts
//! what is known.

use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::time::{sleep, timeout};

use super::QuorumSession;
use crate::quorum::auth::{Auth, SEED_KEY};
use crate::quorum::plan::auth_name;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(300);
const REREAD_UNAUTHENTICATED: Duration = Duration::from_secs(10);

/// Follows the Secret until the session is gone.
pub(super) async fn follow(client: Client, namespace: String, name: String, uid: String, session: Weak<QuorumSession>) {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    loop {
        let read = read(&api, &name, &uid).await;
        let Some(session) = session.upgrade() else { return };
        let wait = match (read, session.auth()) {
            (Some(read), None) => {
                session.set_auth(read);
                REREAD_UNAUTHENTICATED
            }
            // The members were started with what is known; an edited Secret is written back by the leader. Only when nobody
            // accepts what is known can the other one be right.
            (Some(read), Some(known)) if read != known && !session.is_authenticated() => {
                session.set_auth(read);
                REREAD_UNAUTHENTICATED
            }
            (_, None) => RETRY,
            (_, Some(_)) if !session.is_authenticated() => REREAD_UNAUTHENTICATED,
            (_, Some(_)) => REREAD,
        };
        drop(session);
        sleep(wait).await;
    }
}

async fn read(api: &Api<Secret>, name: &str, uid: &str) -> Option<Auth> {
    match timeout(REQUEST_TIMEOUT, api.get_opt(&auth_name(name))).await {
        Ok(Ok(secret)) => auth_of(&secret?, uid),
        Ok(Err(error)) => {
            tracing::debug!(quorum = name, %error, "auth Secret not read");
            None
        }
        Err(_) => None,
    }
}

/// The secrets in an auth Secret that belongs to the quorum with this UID. One that somebody else made would give them the
/// passwords.
pub(crate) fn auth_of(secret: &Secret, uid: &str) -> Option<Auth> {
    let owned = secret.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid);
    let seed = secret.data.as_ref()?.get(SEED_KEY)?;
    Auth::from_seed(&seed.0).filter(|_| owned)
}
