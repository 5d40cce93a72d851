//! Passwords, lock values and the signing key are only in Secrets and on the members.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hmac::{Hmac, KeyInit as _, Mac as _};
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::{
    quorum::model::auth::{Auth, SEED_KEY},
    redis_member::acl::OPERATOR_USER,
};
use sha2::Sha256;

use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim},
    operators,
    quorums::{Quorum, client_urls},
};

const MAX_TTL: Duration = Duration::from_secs(3);

/// A secret text that must not be found, and its description.
struct Needle {
    what: String,
    text: String,
}

pub(crate) async fn no_secret_is_in_logs_events_or_statuses(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    // Each fault of a lock occurs once, so that its messages are checked: a foreign holder, a foreign key without time to
    // live, a lost vote.
    let held = Lock::take(&bench, claim("held", "held", Some("q"), MAX_TTL)).await?;
    let foreign = format!("SET {}/taken foreign-secret-value NX PX 2000", bench.namespace);
    client.shell(&format!("redis 0 {foreign}; redis 1 {foreign}")).await?;
    let taken = Lock::create(&bench, claim("taken", "taken", Some("q"), MAX_TTL)).await?;
    taken.reason("HeldByOther", SOON).await?;
    let foreign = Needle { what: "a foreign client's lock value".into(), text: "foreign-secret-value".into() };
    let mut needles = vec![foreign, lock_value(&bench, &client, "held").await?];
    client.redis(0, &["DEL", &format!("{}/held", bench.namespace)]).await?;
    held.renewed(MAX_TTL).await.context("where a vote was lost")?;
    taken.held(SOON).await?;
    needles.push(lock_value(&bench, &client, "taken").await?);

    let here = needles_of(bench.api::<Secret>().get("q-auth").await?, "q")?;
    // The needles must include the client's passwords in its Secret, so that the search works.
    let urls = client_urls(&bench).await?;
    ensure!(urls.len() == 3, "not one URL for each member");
    let are_found = urls.iter().all(|url| here.iter().any(|needle| url.contains(&needle.text)));
    ensure!(are_found, "the derivation of passwords has changed, so the needles are wrong");
    needles.extend(here);
    needles.extend(needles_of(bench.cluster.operator_api::<Secret>().get("main-auth").await?, "main")?);

    for (place, text) in places(&bench).await? {
        ensure!(!text.trim().is_empty(), "{place}: no text");
        for Needle { what, text: secret } in &needles {
            let found = text.lines().find(|line| line.to_lowercase().contains(&secret.to_lowercase()));
            ensure!(found.is_none(), "{what} is in {place}: {}", found.unwrap_or_default());
        }
    }
    Ok(())
}

/// The half of a held lock's value that is not its published nonce.
///
/// Only a majority must have the value, because the third vote can come after the grant.
async fn lock_value(bench: &Bench, client: &Client, key: &str) -> anyhow::Result<Needle> {
    let key = format!("{}/{key}", bench.namespace);
    let is_ours = |value: &str| value.len() == 40 && value.bytes().all(|c| c.is_ascii_hexdigit());
    for member in 0..3 {
        let value = client.redis(member, &["GET", &key]).await?;
        if is_ours(&value) {
            let text = value[20..].to_owned();
            return Ok(Needle { what: format!("the signed half of the value of lock {key}"), text });
        }
    }
    bail!("no member has a value of the operator under {key}")
}

/// All secret texts of a quorum, each as it is, in hex and in base64.
///
/// They are the seed, the passwords of all users and members, and the signing key.
fn needles_of(secret: Secret, quorum: &str) -> anyhow::Result<Vec<Needle>> {
    let data = secret.data.unwrap_or_default();
    let seed = data.get(SEED_KEY).context("the auth Secret has no seed")?.0.clone();
    let auth = Auth::from_data(&data).context("the auth Secret is not as the operator writes it")?;
    let mut needles = encodings(&format!("the seed of {quorum}"), &seed);
    let mut key = Hmac::<Sha256>::new_from_slice(&seed)?;
    key.update(b"lock values\0");
    needles.extend(encodings(&format!("the signing key of {quorum}"), &key.finalize().into_bytes()));
    for member in 0..3 {
        for user in [OPERATOR_USER, "locker-e1", "outside-e1"] {
            let member = format!("{quorum}-{member}");
            let password = auth.password(&member, user);
            needles.extend(encodings(&format!("the password of {user} on {member}"), password.expose().as_bytes()));
        }
    }
    Ok(needles)
}

fn encodings(what: &str, bytes: &[u8]) -> Vec<Needle> {
    let needle = |text: String| Needle { what: what.to_owned(), text };
    let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    // The encoding of a text does not depend on the bytes that follow, up to the last whole group of three bytes.
    let base64 = encoded.as_str().unwrap_or_default();
    let whole_groups = base64.get(..bytes.len() / 3 * 4).unwrap_or(base64);
    let mut all = vec![needle(bytes.iter().map(|b| format!("{b:02x}")).collect()), needle(whole_groups.to_owned())];
    all.extend(std::str::from_utf8(bytes).ok().map(|text| needle(text.to_owned())));
    all
}

/// Everything that a user without access to Secrets can read.
async fn places(bench: &Bench) -> anyhow::Result<Vec<(&'static str, String)>> {
    let cluster = &bench.cluster;
    let kubectl = async |arguments: &'static [&'static str]| cluster.kubectl(arguments).await;
    let mut places = vec![
        ("the log of the operator", operators::log_since(cluster, 24 * 3600).await?),
        ("Events", kubectl(&["get", "events", "-A", "-o", "yaml"]).await?),
        ("new Events", kubectl(&["get", "events.events.k8s.io", "-A", "-o", "yaml"]).await?),
        ("locks and quorums", kubectl(&["get", "rq,dlock", "-A", "-o", "yaml"]).await?),
        ("workloads", kubectl(&["get", "pods,statefulsets,deployments,services,leases", "-A", "-o", "yaml"]).await?),
    ];
    for pod in ["q-0-0", "q-1-0", "q-2-0"] {
        places.push(("the log of a member", bench.kubectl(&["logs", pod]).await?));
    }
    Ok(places)
}
