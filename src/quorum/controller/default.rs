//! Creates the default quorum from a chart value.
//!
//! It is no object of the chart, so `helm uninstall` does not delete it with its locks.

use anyhow::Context;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};

use crate::api::requests::{RequestError, as_operator, request};
use crate::api::{DEFAULT_QUORUM_ANNOTATION, NamespacesFrom, RedisQuorum, RedisQuorumSpec};

/// Creates the quorum for this installation, if there is none of that name.
///
/// An existing quorum stays unchanged, because it belongs to its users.
///
/// # Errors
/// If `spec_json` is not a valid specification, or the API server refuses it or does not answer.
pub async fn ensure_default_quorum(
    client: &Client,
    spec_json: &str,
    wanted: &ObjectRef<RedisQuorum>,
    installation: &str,
) -> anyhow::Result<()> {
    let (name, namespace) = (wanted.name.as_str(), wanted.namespace.as_deref().unwrap_or_default());
    let mut quorum =
        default_quorum(spec_json, name, namespace).context("the specification of the default quorum is not valid")?;
    installation.clone_into(&mut quorum.spec.installation);
    let api: Api<RedisQuorum> = Api::namespaced(client.clone(), namespace);
    match request(api.create(&as_operator(), &quorum)).await {
        Ok(_) => tracing::info!(namespace, name, "created the default quorum"),
        // It exists.
        Err(RequestError::Conflict) => {}
        Err(error) => return Err(error).context("the API server did not create the default quorum"),
    }
    Ok(())
}

fn default_quorum(spec_json: &str, name: &str, namespace: &str) -> Result<RedisQuorum, serde_json::Error> {
    let given: serde_json::Value = serde_json::from_str(spec_json)?;
    let mut spec: RedisQuorumSpec = serde_json::from_value(given.clone())?;
    if let Some(field) = unknown(&given, &serde_json::to_value(&spec)?, "spec") {
        return Err(serde::de::Error::custom(format!("{field} is no field of a RedisQuorum")));
    }
    // Locks live in other namespaces than the operator. A default quorum that refuses all of them would be useless.
    if given.get("allowedNamespaces").is_none() {
        spec.allowed_namespaces.from = NamespacesFrom::All;
    }
    let mut quorum = RedisQuorum::new(name, spec);
    quorum.metadata.namespace = Some(namespace.to_owned());
    quorum.annotations_mut().insert(DEFAULT_QUORUM_ANNOTATION.to_owned(), "true".to_owned());
    Ok(quorum)
}

/// The first field that was not read.
fn unknown(given: &serde_json::Value, read: &serde_json::Value, path: &str) -> Option<String> {
    given.as_object()?.iter().find_map(|(name, value)| {
        let path = format!("{path}.{name}");
        let is_field = value.is_null() || read.get(name).is_some();
        if is_field { unknown(value, read.get(name)?, &path) } else { Some(path) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_quorum_allows_all_namespaces_by_default() {
        let quorum = default_quorum(r#"{"members": 5}"#, "main", "redlock-system").unwrap();
        assert_eq!((quorum.spec.members, quorum.spec.allowed_namespaces.from), (5, NamespacesFrom::All));
        assert_eq!(quorum.annotations()[DEFAULT_QUORUM_ANNOTATION], "true");
        assert_eq!(quorum.namespace().as_deref(), Some("redlock-system"));
        let own = default_quorum(r#"{"allowedNamespaces": {"from": "Same"}}"#, "main", "a").unwrap();
        assert_eq!(own.spec.allowed_namespaces.from, NamespacesFrom::Same);
        assert!(default_quorum("members: 3", "main", "a").is_err());
        let misspelt = default_quorum(r#"{"tls": {"mod": "Managed"}}"#, "main", "a").unwrap_err().to_string();
        assert!(misspelt.contains("spec.tls.mod is no field"), "{misspelt}");
        let maps = r#"{"pod": {"nodeSelector": {"disk": "ssd"}, "resources": {"requests": {"cpu": "1"}}}}"#;
        assert!(default_quorum(maps, "main", "a").is_ok());
    }
}
