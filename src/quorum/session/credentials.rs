//! Reads the users of external masters, and the authorities of their certificates, from their Secrets: by name, without list
//! or watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret as SecretObject;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use super::QuorumSession;
use super::auth_reader::secrets;
use crate::api::requests::{SHORT_TIMEOUT, within};
use crate::api::server_time::ServerTime;
use crate::api::{ExternalStatus, QUORUM_LABEL, RedisQuorum, SecretRef};
use crate::quorum::model::plan::recorded_members;
use crate::quorum::model::tls::{AUTHORITIES_KEY, is_lent};
use crate::redis_member::{Authorities, Endpoint, Secret};

const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(10);

/// Follows the Secrets until the session is gone.
pub(super) async fn follow(session: Weak<QuorumSession>) {
    let of = |session: Arc<QuorumSession>| {
        (secrets(&session), session.newest.subscribe(), session.context.server_time.clone())
    };
    let Some((api, mut quorums, server_time)) = session.upgrade().map(of) else { return };
    loop {
        let quorum = quorums.borrow().clone();
        let (name, members) = (quorum.name_any(), externals(&quorum));
        let mut users = BTreeMap::new();
        for (member, external) in &members {
            users.insert(member.clone(), read(&api, &name, external, &server_time).await);
        }
        let wait = if users.values().all(Result::is_ok) { REREAD } else { RETRY };
        let Some(session) = session.upgrade() else { return };
        session.set_credentials(&users);
        drop(session);
        // The wait ends early if another member or Secret is needed.
        let others = quorums.wait_for(|quorum| externals(quorum) != members);
        if let Ok(Err(_)) = timeout(wait, others).await {
            return;
        }
    }
}

/// The external members, by name.
fn externals(quorum: &RedisQuorum) -> Vec<(String, ExternalStatus)> {
    recorded_members(quorum).into_iter().filter_map(|member| Some((member.name, member.external?))).collect()
}

/// Reads the user of an external master. It has no name if the master needs no password.
async fn read(
    api: &Api<SecretObject>,
    quorum: &str,
    external: &ExternalStatus,
    server_time: &Arc<ServerTime>,
) -> Result<Endpoint, String> {
    let (username, password) = match &external.secret_ref {
        None => (String::new(), Secret::new("")),
        Some(SecretRef { name }) => user(&get(api, quorum, name).await?)?,
    };
    let endpoint = Endpoint { address: external.address.clone(), username, password, tls: None };
    let Some(plan) = &external.tls else { return Ok(endpoint) };
    let authorities = match &plan.secret_ref {
        None => Authorities::of_the_system().map_err(|error| format!("TLS: {error}"))?,
        Some(SecretRef { name }) => authorities(&get(api, quorum, name).await?)?,
    };
    let server_name = plan.server_name.as_deref().unwrap_or_default();
    let tls = authorities.judged_by(server_time.clone()).server(server_name);
    Ok(Endpoint { tls: Some(tls.map_err(|error| error.to_string())?), ..endpoint })
}

/// Reads a Secret in the namespace of the quorum with this name.
async fn get(api: &Api<SecretObject>, quorum: &str, name: &str) -> Result<SecretObject, String> {
    match within(SHORT_TIMEOUT, api.get_opt(name)).await {
        Ok(Some(secret)) => lent(secret, quorum),
        Ok(None) => Err(format!("there is no Secret {name} in this namespace: create it")),
        Err(_) => Err(format!("Secret {name} could not be read from the API server")),
    }
}

/// The Secret, if its owner permits its use by this quorum.
///
/// Otherwise the author of a quorum could send the content of any Secret to any address.
fn lent(secret: SecretObject, quorum: &str) -> Result<SecretObject, String> {
    if is_lent(&secret, quorum) {
        return Ok(secret);
    }
    let name = secret.name_any();
    Err(format!("Secret {name} is not for this RedisQuorum: set the label {QUORUM_LABEL}: {quorum} on the Secret"))
}

fn user(secret: &SecretObject) -> Result<(String, Secret), String> {
    let field = |name: &str| {
        let value = secret.data.as_ref()?.get(name)?;
        String::from_utf8(value.0.clone()).ok().filter(|text| !text.is_empty())
    };
    let missing = || format!("Secret {} has no username and password: set both, and not empty", secret.name_any());
    let (username, password) = field("username").zip(field("password")).ok_or_else(missing)?;
    Ok((username, Secret::new(password)))
}

fn authorities(secret: &SecretObject) -> Result<Authorities, String> {
    let name = secret.name_any();
    let text = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES_KEY));
    let text =
        text.ok_or_else(|| format!("Secret {name} has no {AUTHORITIES_KEY}: set it to the authorities in PEM"))?;
    Authorities::from_pem(&text.0).map_err(|error| format!("{AUTHORITIES_KEY} of Secret {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_without_user_or_password_is_none() {
        let read = |data| user(&serde_json::from_value(json!({"data": data})).unwrap());
        let found = read(json!({"username": "cmVkbG9jaw==", "password": "cw=="})).unwrap();
        assert_eq!((found.0.as_str(), found.1.expose()), ("redlock", "s"));
        assert!(!format!("{found:?}").contains("\"s\""));
        for data in [json!({}), json!({"username": "cmVkbG9jaw=="}), json!({"username": "", "password": "cw=="})] {
            assert!(read(data.clone()).unwrap_err().contains("set both, and not empty"), "{data}");
        }
    }

    #[test]
    fn a_secret_is_used_only_by_the_quorum_that_its_label_names() {
        let secret = |labels| serde_json::from_value(json!({"metadata": {"name": "s", "labels": labels}})).unwrap();
        assert!(lent(secret(json!({QUORUM_LABEL: "main"})), "main").is_ok());
        for labels in [json!({}), json!({QUORUM_LABEL: "other"}), json!({QUORUM_LABEL: ""})] {
            let why = lent(secret(labels), "main").unwrap_err();
            assert!(why.contains("set the label redlock-operator.io/quorum: main"), "{why}");
        }
    }

    #[test]
    fn tls_needs_authorities() {
        let read = |data| {
            let secret = serde_json::from_value(json!({"metadata": {"name": "ca"}, "data": data})).unwrap();
            authorities(&secret).unwrap_err()
        };
        assert!(read(json!({})).contains("Secret ca has no ca.crt"));
        let nonsense = read(json!({"ca.crt": "eA=="}));
        assert!(nonsense.contains("BEGIN CERTIFICATE"), "{nonsense}");
    }
}
