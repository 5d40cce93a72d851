//! Copies of clients' Secrets in other namespaces. The operator cannot list Secrets, so the status records the places
//! of copies. The status lists a place before the copy is written there, and until it is deleted.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};

use super::cluster::Cluster;
use super::error::{Error, Result};
use super::observe::Observer;
use crate::api::requests::request;
use crate::api::{
    CLIENT_LABEL, ClientCopy, FIELD_MANAGER, MOST_COPIES, QUORUM_LABEL, QUORUM_NAMESPACE_LABEL, RedisQuorum,
};
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::build::{Transport, client_secret};
use crate::quorum::model::plan::{ClientPlan, Plan};

/// Keeps copies of clients' Secrets in the clients' own namespaces, and returns the obstacles.
///
/// Copies exist only in the namespaces that the administrator lists.
pub(super) async fn keep(observer: &Observer<'_>, transport: &Transport) -> Result<Vec<String>> {
    let (context, cluster, plan) = (observer.sources.context, observer.sources.cluster, observer.plan);
    let exists = |name: &str| {
        context.namespaces.cluster_named(name).is_some_and(|found| found.metadata.deletion_timestamp.is_none())
    };
    let accepts = |namespace: &str| context.replica.settings.takes_copies(namespace) && exists(namespace);
    let (wanted, stale) = split(plan, &observer.sources.session.quorum(), accepts);
    let (mut blocked, mut left) = (Vec::new(), Vec::new());
    for copy in stale {
        if let Err(error) = delete(cluster, plan, &copy, &[403]).await {
            let (name, error) = (full_name(plan, &copy), error.to_string());
            blocked.push(Blocked::NotDeleted { name, error }.to_string());
            left.push(copy);
        }
    }
    let (recorded, waiting) = recorded(&wanted, left);
    cluster.replace(&observer.sources.session.quorum(), |status| status.client_copies.clone_from(&recorded)).await?;
    for copy in &wanted {
        if waiting.contains(copy) {
            blocked.push(Blocked::Waits { name: full_name(plan, copy) }.to_string());
        } else if let Some(client) = plan.clients.iter().find(|client| client.name == copy.client) {
            blocked.extend(write(observer, transport, client).await?.map(|obstacle| obstacle.to_string()));
        }
    }
    Ok(blocked)
}

/// Deletes all copies, because they have no owner whose deletion would remove them.
///
/// A copy that an admission policy or webhook protects stays.
pub(super) async fn delete_all(cluster: &Cluster<'_>, quorum: &RedisQuorum, plan: &Plan) -> Result<()> {
    let (_, stale) = split(plan, quorum, |_| false);
    for copy in stale {
        delete(cluster, plan, &copy, &[400, 403, 422]).await?;
    }
    Ok(())
}

async fn write(observer: &Observer<'_>, transport: &Transport, client: &ClientPlan) -> Result<Option<Blocked>> {
    let (cluster, plan) = (observer.sources.cluster, observer.plan);
    let desired = client_secret(plan, observer.auth, transport, client, &client.namespace);
    let secret = desired.name_any();
    let name = format!("{}/{secret}", client.namespace);
    let found: Option<Secret> = cluster.get(&client.namespace, &secret).await?;
    if found.is_some_and(|found| !is_copy(&found, plan, &client.name)) {
        return Ok(Some(Blocked::ForeignCopy { name }));
    }
    let (params, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(&desired));
    let written = request(cluster.api::<Secret>(&client.namespace).patch(&secret, &params, &patch)).await;
    Ok(written.err().map(|error| Blocked::NotWritten { name, error: error.to_string() }))
}

/// Deletes a Secret, if it is a copy of ours.
///
/// The copy stays if the API server refuses with one of the codes `tolerated`. Every caller tolerates 403. The operator then has no right to
/// delete the copy, because the administrator removed the namespace from the list. The quorum does not wait for that deletion.
async fn delete(cluster: &Cluster<'_>, plan: &Plan, copy: &ClientCopy, tolerated: &[u16]) -> Result<()> {
    let secret = full_name(plan, copy);
    let deleted = async {
        let found: Option<Secret> = cluster.get(&copy.namespace, &plan.client_secret_name(&copy.client)).await?;
        match found.filter(|found| is_copy(found, plan, &copy.client)) {
            Some(found) => cluster.delete(&found).await,
            None => Ok(false),
        }
    };
    match deleted.await {
        Ok(true) => tracing::info!(secret, "deleted the copy of a client's Secret"),
        Err(Error::Request(error)) if error.refusal(tolerated).is_some() => {
            tracing::warn!(secret, %error, "the API server refused to delete this copy of a client's Secret");
        }
        outcome => drop(outcome?),
    }
    Ok(())
}

/// Splits the copies into those for clients in accepted namespaces, and stale ones.
///
/// A stale copy is in the status, and no client needs it there.
/// The quorum's own namespace has no copies, even if a user wrote one there.
fn split(plan: &Plan, quorum: &RedisQuorum, accepts: impl Fn(&str) -> bool) -> (Vec<ClientCopy>, Vec<ClientCopy>) {
    let wanted = plan.clients.iter().map(|client| (client.name.clone(), client.namespace.clone()));
    let wanted = wanted.map(|(client, namespace)| ClientCopy { client, namespace });
    let wanted: Vec<_> = wanted.filter(|copy| copy.namespace != plan.namespace && accepts(&copy.namespace)).collect();
    let recorded = quorum.status.iter().flat_map(|status| &status.client_copies);
    let stale = recorded.filter(|copy| copy.namespace != plan.namespace && !wanted.contains(copy)).cloned().collect();
    (wanted, stale)
}

/// The copies for the status, and the wanted copies without a place in it.
///
/// The copies that could not be deleted come first, because without a place in the status they would stay.
fn recorded(wanted: &[ClientCopy], left: Vec<ClientCopy>) -> (Vec<ClientCopy>, &[ClientCopy]) {
    let room = MOST_COPIES.saturating_sub(left.len()).min(wanted.len());
    let (kept, waiting) = wanted.split_at(room);
    let mut recorded = [left, kept.to_vec()].concat();
    recorded.sort();
    (recorded, waiting)
}

fn full_name(plan: &Plan, copy: &ClientCopy) -> String {
    format!("{}/{}", copy.namespace, plan.client_secret_name(&copy.client))
}

fn is_copy(secret: &Secret, plan: &Plan, client: &str) -> bool {
    let has = |label: &str, value: &str| secret.labels().get(label).is_some_and(|found| found == value);
    has(QUORUM_LABEL, &plan.name) && has(QUORUM_NAMESPACE_LABEL, &plan.namespace) && has(CLIENT_LABEL, client)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokio::sync::broadcast;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::quorum::model::plan::validate;
    use crate::quorum::session::QuorumSession;
    use crate::runtime::fake_api;

    fn copy(client: &str, namespace: &str) -> ClientCopy {
        ClientCopy { client: client.into(), namespace: namespace.into() }
    }

    fn quorum(clients: &[(&str, &str)], copies: &[ClientCopy]) -> (RedisQuorum, Plan) {
        let client = |(name, namespace): &(&str, &str)| json!({"name": name, "namespace": namespace, "keyPrefix": format!("{namespace}/")});
        let clients: Vec<_> = clients.iter().map(client).collect();
        let metadata = json!({"name": "q", "namespace": "own", "uid": "u"});
        let (spec, status) = (json!({"clients": clients}), json!({"clientCopies": copies}));
        let quorum = parsed(json!({"metadata": metadata, "spec": spec, "status": status}));
        let plan = validate(&quorum).unwrap();
        (quorum, plan)
    }

    fn sorted(clients: &[(&str, &str)], copies: &[ClientCopy], accepting: &[&str]) -> [Vec<ClientCopy>; 2] {
        let (quorum, plan) = quorum(clients, copies);
        split(&plan, &quorum, |namespace| accepting.contains(&namespace)).into()
    }

    #[test]
    fn a_copy_is_removed_with_its_client_namespace_or_acceptance() {
        let (a, b) = (copy("ci", "a"), copy("ci", "b"));
        let recorded = std::slice::from_ref(&a);
        assert_eq!(sorted(&[("ci", "a")], recorded, &["a"]), [vec![a.clone()], vec![]]);
        assert_eq!(sorted(&[("ci", "a")], recorded, &[]), [vec![], vec![a.clone()]], "no longer accepted");
        assert_eq!(sorted(&[], recorded, &["a"]), [vec![], vec![a.clone()]], "removed");
        assert_eq!(sorted(&[("ci", "b")], recorded, &["a", "b"]), [vec![b], vec![a.clone()]], "moved");
        assert_eq!(sorted(&[("ci", "own")], recorded, &["own"]), [vec![], vec![a]], "moved to the quorum's namespace");
        assert_eq!(sorted(&[("ci", "own")], &[copy("ci", "own")], &["own"]), [vec![], vec![]], "it is no copy");
    }

    #[test]
    fn copies_are_identified_by_their_labels() {
        let (_, plan) = quorum(&[], &[]);
        let secret = |quorum: &str, namespace: &str, client: &str| -> Secret {
            let labels = json!({QUORUM_LABEL: quorum, QUORUM_NAMESPACE_LABEL: namespace, CLIENT_LABEL: client});
            parsed(json!({"metadata": {"labels": labels}}))
        };
        assert!(is_copy(&secret("q", "own", "ci"), &plan, "ci"));
        for foreign in
            [secret("r", "own", "ci"), secret("q", "other", "ci"), secret("q", "own", "x"), Secret::default()]
        {
            assert!(!is_copy(&foreign, &plan, "ci"));
        }
    }

    #[tokio::test]
    async fn a_protected_copy_does_not_keep_a_deleted_quorum() {
        let (quorum, plan) = quorum(&[], &[copy("ci", "a")]);
        let labels = json!({QUORUM_LABEL: "q", QUORUM_NAMESPACE_LABEL: "own", CLIENT_LABEL: "ci"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ci", "namespace": "a", "labels": labels}});
        for (code, is_ended) in [(422, true), (400, true), (403, true), (500, false)] {
            let secret = secret.clone();
            let context = fake_api::context(move |request| match request.method() == "DELETE" {
                true => fake_api::failure(code, "", ""),
                false => (200, secret.clone()),
            });
            let announcements = broadcast::channel(1).0;
            let session = QuorumSession::start(&context, Arc::new(quorum.clone()), announcements).unwrap();
            let deleted = delete_all(&Cluster::new(&context, &session), &quorum, &plan).await;
            assert_eq!(deleted.is_ok(), is_ended, "{code}: {deleted:?}");
        }
    }

    #[test]
    fn no_more_copies_are_made_than_can_be_recorded() {
        let of =
            |count: usize, namespace: &str| (0..count).map(|n| copy(&format!("c{n}"), namespace)).collect::<Vec<_>>();
        let (a, left) = (of(64, "a"), of(100, "b"));
        let (all, none) = recorded(&a, of(64, "b"));
        assert_eq!((all.len(), none.len()), (MOST_COPIES, 0));
        let (all, waiting) = recorded(&a, left.clone());
        assert_eq!((all.len(), waiting.len()), (MOST_COPIES, 36));
        assert!(left.iter().all(|left| all.contains(left)));
        assert!(waiting.iter().all(|waits| !all.contains(waits)));
    }
}
