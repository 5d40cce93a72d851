//! The Secrets of a quorum: its seeds, its certificates, and the credentials of its clients.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{INSTANCE_LABEL, Transport, owned};
use crate::api::{CLIENT_LABEL, ClientAccess, GoDuration, QUORUM_NAMESPACE_LABEL};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::plan::{ClientPlan, MemberPlan, Plan, auth_name};
use crate::quorum::model::tls::authority::Pair;
use crate::quorum::model::tls::{AUTHORITIES_KEY, CERTIFICATE_KEY, Data, PRIVATE_KEY_KEY};
use crate::redlock::Settings;

/// A Secret of the type `Opaque`.
fn opaque(metadata: ObjectMeta, data: Data) -> Secret {
    Secret { metadata, data: Some(data), type_: Some("Opaque".into()), ..Secret::default() }
}

/// A Secret of the quorum with this name and content.
pub fn own_secret(plan: &Plan, name: String, data: Data) -> Secret {
    opaque(owned(plan, name, &[]), data)
}

/// The Secret that holds the seeds of a quorum.
pub fn auth_secret(plan: &Plan, auth: &Auth) -> Secret {
    own_secret(plan, auth_name(&plan.name), auth.data())
}

/// A certificate in cert-manager's layout.
pub fn certificate_data(made: &Pair, trusted: &str) -> Data {
    let entry = |key: &str, text: &str| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
    [entry(CERTIFICATE_KEY, &made.certificate), entry(PRIVATE_KEY_KEY, &made.key), entry(AUTHORITIES_KEY, trusted)]
        .into()
}

/// Key of the addresses of the former members, for a client that only reads.
const FORMER_URLS_KEY: &str = "formerUrls";

/// The rules of the quorum, for its clients.
///
/// With them every promise of a client ends before the fence, and the client sends its requests to as many members as the
/// operator does. External members have no clients, so all restarted members are fenced.
fn rules(plan: &Plan) -> [(&'static str, String); 5] {
    let Settings { drift, node_timeout } = plan.settings;
    let text = |duration: Duration| GoDuration::from(duration).to_string();
    [
        ("maxTTL", text(plan.max_ttl)),
        ("clockDrift", format!("{}ppm {}", drift.ppm, text(drift.floor))),
        ("nodeTimeout", text(node_timeout)),
        ("quorum", plan.lists.majority().to_string()),
        ("fenced", "true".to_owned()),
    ]
}

/// The Secret with the data for a client.
///
/// It has the client's user, its key prefix, one URL per voting member, and with TLS the trusted authorities. In another
/// namespace it has only labels and no owner. Garbage collection treats an owner in another namespace as missing, and would
/// delete the Secret immediately.
///
/// A client that only reads continues while two lists of members are in force, so it gets both.
pub fn client_secret(plan: &Plan, auth: &Auth, transport: &Transport, client: &ClientPlan, namespace: &str) -> Secret {
    let user = client.user(plan.lists.epoch);
    let url = |(position, member): (usize, &MemberPlan)| {
        let password = auth.password(&member.name, &user);
        let tls = transport.tls.get(position).copied().unwrap_or_default();
        let scheme = if tls { "rediss" } else { "redis" };
        let given = transport.addresses.get(position).and_then(Option::as_ref);
        let address = given.map_or_else(|| member.address(&plan.namespace), ToString::to_string);
        format!("{scheme}://{user}:{}@{address}\n", password.expose())
    };
    let urls = |list: &[String]| -> String {
        let members = plan.members.iter().enumerate();
        members.filter(|(_, member)| list.contains(&member.name)).map(url).collect()
    };
    // These labels identify the owner of a Secret in every namespace.
    let labels = [(QUORUM_NAMESPACE_LABEL, plan.namespace.as_str()), (CLIENT_LABEL, client.name.as_str())];
    let mut metadata = owned(plan, plan.client_secret_name(&client.name), &labels);
    if namespace != plan.namespace {
        metadata.namespace = Some(namespace.to_owned());
        metadata.owner_references = None;
        // Argo CD deletes an object with the label of an application whose list does not have it.
        metadata.labels.get_or_insert_default().remove(INSTANCE_LABEL);
    }
    let key_prefix = client.key_prefix.as_str().to_owned();
    let own = [("username", user.clone()), ("keyPrefix", key_prefix), ("urls", urls(&plan.lists.voters))];
    let former = plan.lists.former.as_ref().filter(|_| client.access == ClientAccess::Read);
    let former = former.map(|former| (FORMER_URLS_KEY, urls(former)));
    let authorities = transport.authorities.clone().map(|authorities| (AUTHORITIES_KEY, authorities));
    let data = own.into_iter().chain(rules(plan)).chain(former).chain(authorities);
    opaque(metadata, data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).collect())
}
