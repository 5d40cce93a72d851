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
use super::link::Credentials;
use crate::api::requests::{SHORT_TIMEOUT, within};
use crate::api::server_time::ServerTime;
use crate::api::{ExternalStatus, ExternalTls, QUORUM_LABEL, RedisQuorum, SecretRef};
use crate::quorum::model::plan::{MemberPlan, recorded_members};
use crate::quorum::model::tls::{AUTHORITIES_KEY, is_lent};
use crate::redis_member::{Authorities, Secret, TlsClient};

const RETRY: Duration = Duration::from_secs(1);
const REREAD: Duration = Duration::from_secs(10);

/// Follows the Secrets until the session is gone.
pub(super) async fn follow(session: Weak<QuorumSession>) {
    let of = |session: Arc<QuorumSession>| (secrets(&session), session.watch(), session.context.server_time.clone());
    let Some((api, mut quorums, server_time)) = session.upgrade().map(of) else { return };
    loop {
        let of = |session: Arc<QuorumSession>| (session.quorum().name_any(), externals(&session.quorum()));
        let Some((quorum, members)) = session.upgrade().map(of) else { return };
        let secrets = Secrets { api: &api, quorum: &quorum };
        let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for member in &members {
            let Some(external) = &member.external else { continue };
            match read(&secrets, external, &server_time).await {
                Ok(credentials) => drop(found.insert(member.name.clone(), credentials)),
                Err(trouble) => drop(missing.insert(member.name.clone(), trouble)),
            }
        }
        let wait = if missing.is_empty() { REREAD } else { RETRY };
        let Some(session) = session.upgrade() else { return };
        session.set_credentials(found, &missing);
        drop(session);
        // The wait ends early if another member or Secret is needed.
        let others = quorums.wait_for(|quorum| externals(quorum) != members);
        if let Ok(Err(_)) = timeout(wait, others).await {
            return;
        }
    }
}

fn externals(quorum: &RedisQuorum) -> Vec<MemberPlan> {
    recorded_members(quorum).into_iter().filter(MemberPlan::is_external).collect()
}

/// The Secrets in the namespace of a quorum.
struct Secrets<'a> {
    api: &'a Api<SecretObject>,
    quorum: &'a str,
}

async fn read(
    secrets: &Secrets<'_>,
    external: &ExternalStatus,
    server_time: &Arc<ServerTime>,
) -> Result<Credentials, String> {
    let user = match &external.secret_ref {
        None => (String::new(), Secret::new("")),
        Some(SecretRef { name }) => user(&secrets.get(name).await?)
            .ok_or_else(|| format!("Secret {name} has no username and password: set both, and not empty"))?,
    };
    let tls = match &external.tls {
        None => None,
        Some(plan) => {
            let given = match &plan.secret_ref {
                None => None,
                Some(SecretRef { name }) => Some((name.as_str(), secrets.get(name).await?)),
            };
            Some(tls(plan, given, server_time.clone())?)
        }
    };
    Ok(Credentials { username: user.0, password: user.1, tls })
}

impl Secrets<'_> {
    async fn get(&self, name: &str) -> Result<SecretObject, String> {
        match within(SHORT_TIMEOUT, self.api.get_opt(name)).await {
            Ok(Some(secret)) => lent(secret, self.quorum),
            Ok(None) => Err(format!("there is no Secret {name} in this namespace: create it")),
            Err(_) => Err(format!("Secret {name} could not be read from the API server")),
        }
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

fn user(secret: &SecretObject) -> Option<(String, Secret)> {
    let field = |name: &str| {
        let value = secret.data.as_ref()?.get(name)?;
        String::from_utf8(value.0.clone()).ok().filter(|text| !text.is_empty())
    };
    Some((field("username")?, Secret::new(field("password")?)))
}

fn tls(
    plan: &ExternalTls,
    given: Option<(&str, SecretObject)>,
    server_time: Arc<ServerTime>,
) -> Result<TlsClient, String> {
    let authorities = match &given {
        None => Authorities::of_the_system().map_err(|error| format!("TLS: {error}"))?,
        Some((name, secret)) => {
            let text = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES_KEY));
            let text = text
                .ok_or_else(|| format!("Secret {name} has no {AUTHORITIES_KEY}: set it to the authorities in PEM"))?;
            Authorities::from_pem(&text.0).map_err(|error| format!("{AUTHORITIES_KEY} of Secret {name}: {error}"))?
        }
    };
    authorities
        .judged_by(server_time)
        .server(plan.server_name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
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
            assert_eq!(read(data.clone()), None, "{data}");
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
    fn tls_needs_authorities_and_a_name() {
        let plan = |name: &str| ExternalTls { secret_ref: None, server_name: Some(name.to_owned()) };
        let secret = |data| Some(("ca", serde_json::from_value::<SecretObject>(json!({"data": data})).unwrap()));
        let time = || Arc::new(ServerTime::new(Arc::new(crate::time::SystemClock), 0));
        assert!(tls(&plan("vm.example"), secret(json!({})), time()).unwrap_err().contains("Secret ca has no ca.crt"));
        let nonsense = tls(&plan("vm.example"), secret(json!({"ca.crt": "eA=="})), time()).unwrap_err();
        assert!(nonsense.contains("BEGIN CERTIFICATE"), "{nonsense}");
    }
}
