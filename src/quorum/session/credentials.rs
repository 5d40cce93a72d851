//! Reads the users of masters that others run from their Secrets: by name, without list or watch.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret as SecretObject;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::QuorumSession;
use super::link::Credentials;
use crate::quorum::plan::{ExternalPlan, external_members};
use crate::redis_member::Secret;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(10);

/// Follows the Secrets until the session is gone.
pub(super) async fn follow(client: Client, namespace: String, session: Weak<QuorumSession>) {
    let api: Api<SecretObject> = Api::namespaced(client, &namespace);
    loop {
        let Some(members) = session.upgrade().map(|session| external_members(&session.quorum())) else { return };
        if members.is_empty() {
            sleep(REREAD).await;
            continue;
        }
        let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for member in members {
            let Some(external) = &member.external else { continue };
            match read(&api, external).await {
                Ok(credentials) => drop(found.insert(member.name, credentials)),
                Err(trouble) => drop(missing.insert(member.name, trouble)),
            }
        }
        let wait = if missing.is_empty() { REREAD } else { RETRY };
        let Some(session) = session.upgrade() else { return };
        session.set_credentials(found, &missing);
        drop(session);
        sleep(wait).await;
    }
}

async fn read(api: &Api<SecretObject>, external: &ExternalPlan) -> Result<Credentials, String> {
    let Some(name) = &external.secret else {
        return Ok(Credentials { username: String::new(), password: Secret::new("") });
    };
    let found = timeout(REQUEST_TIMEOUT, api.get_opt(name)).await;
    match found {
        Ok(Ok(Some(secret))) => credentials(&secret)
            .ok_or_else(|| format!("Secret {name} has no username and password: write both, and not empty")),
        Ok(Ok(None)) => {
            Err(format!("there is no Secret {name} in this namespace: create it with username and password"))
        }
        Ok(Err(_)) | Err(_) => Err(format!("Secret {name} could not be read from the API server")),
    }
}

fn credentials(secret: &SecretObject) -> Option<Credentials> {
    let field = |name: &str| {
        let value = secret.data.as_ref()?.get(name)?;
        String::from_utf8(value.0.clone()).ok().filter(|text| !text.is_empty())
    };
    Some(Credentials { username: field("username")?, password: Secret::new(field("password")?) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_without_user_or_password_is_none() {
        let read = |data| credentials(&serde_json::from_value(json!({"data": data})).unwrap());
        let found = read(json!({"username": "cmVkbG9jaw==", "password": "cw=="})).unwrap();
        assert_eq!((found.username.as_str(), found.password.expose()), ("redlock", "s"));
        assert!(!format!("{found:?}").contains("\"s\""));
        for data in [json!({}), json!({"username": "cmVkbG9jaw=="}), json!({"username": "", "password": "cw=="})] {
            assert_eq!(read(data.clone()), None, "{data}");
        }
    }
}
