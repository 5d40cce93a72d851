//! The configuration of members: redis.conf, the ACL files, and limits that follow from the memory.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ResourceRequirements, Secret};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Transport, own_secret};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::expose::PORT;
use crate::quorum::model::plan::{MemberPlan, Plan, config_name};
use crate::quorum::model::quantity::bytes;
use crate::quorum::model::tls::{AUTHORITIES_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY};
use crate::redis_member::acl::{self, OPERATOR_USER, UserRule};

/// The name of the resource memory.
const MEMORY: &str = "memory";
/// Memory of a member, in bytes, for each connection that it accepts.
/// A member of the default size accepts 512.
const MEMORY_PER_CLIENT: u64 = 192 << 10;
/// The minimum number of connections, for a quorum with a few clients and small members.
const LEAST_CLIENTS: u64 = 128;
/// The default of Redis.
const MOST_CLIENTS: u64 = 10_000;

/// The directory at which pods mount the members' certificates.
pub const TLS_DIRECTORY: &str = "/etc/redis-tls";

/// Key of the configuration with TLS or without.
///
/// Both always exist, because during a change of TLS processes in both kinds of pods can restart.
pub(super) const fn conf_key(tls: bool) -> &'static str {
    if tls { "redis-tls.conf" } else { "redis.conf" }
}

/// Key of the ACL file that a member's pod mounts.
///
/// After a loss of the secrets, it names the new ones. The template then changes. The pod shows the secrets of its first
/// process, and that process cannot start with an older file.
pub fn mounted_acl_key(auth: &Auth, member: &MemberPlan) -> String {
    auth.id().map_or_else(|| member.acl_key(), |id| format!("users-{}-{id}.acl", member.index))
}

/// The key of the password that a member's readiness probe reads.
///
/// After a loss of the secrets it is another key, like that of the ACL file.
pub(super) fn readiness_key(auth: &Auth, member: &MemberPlan) -> String {
    auth.id().map_or_else(|| format!("readiness-{}", member.index), |id| format!("readiness-{}-{id}", member.index))
}

/// The config Secret: redis.conf, and for each member an ACL file and a password of its probe.
///
/// The ACL file of a member is the closed state of its fence. The authorities are for the operator's own replicas. They
/// have verified members' certificates, even if the Secret has changed since.
pub(super) fn config_secret(plan: &Plan, auth: &Auth, transport: &Transport) -> Secret {
    let conf = |tls: bool| (conf_key(tls).to_owned(), ByteString(redis_conf(tls).into_bytes()));
    let mut data = BTreeMap::from([conf(false), conf(true)]);
    if let Some(authorities) = &transport.authorities {
        data.insert(AUTHORITIES_KEY.to_owned(), ByteString(authorities.clone().into_bytes()));
    }
    for member in &plan.members {
        // The plain name exists as well. It records which users have rights, and earlier pods read it when their process restarts.
        for key in [member.acl_key(), mounted_acl_key(auth, member)] {
            data.insert(key, ByteString(users_acl(plan, auth, member).into_bytes()));
        }
        let password = auth.probe_password(&member.name);
        data.insert(readiness_key(auth, member), ByteString(password.expose().as_bytes().to_vec()));
    }
    own_secret(plan, config_name(&plan.name), data)
}

/// Resources of a member, which holds keys and little else.
///
/// A member always has a memory limit. It prevents that a flood of keys affects the node, and Redis' own limits follow from it.
pub(super) fn resources(plan: &Plan) -> ResourceRequirements {
    let quantity = |amount: &str| Quantity(amount.to_owned());
    let default = || ResourceRequirements {
        requests: Some(BTreeMap::from([("cpu".to_owned(), quantity("100m"))])),
        ..ResourceRequirements::default()
    };
    let mut resources = plan.pod.resources.clone().unwrap_or_else(default);
    resources.limits.get_or_insert_default().entry(MEMORY.to_owned()).or_insert_with(|| {
        let requests = resources.requests.get_or_insert_default();
        let request = requests.entry(MEMORY.to_owned()).or_insert_with(|| quantity("64Mi"));
        let usual = quantity("128Mi");
        // The API server refuses a pod that requests more than its limit.
        if bytes(request) > bytes(&usual) { request.clone() } else { usual }
    });
    resources
}

/// The configuration of every member.
///
/// It has no persistence, so a started member has always forgotten its locks. The fence relies on this alone.
pub fn redis_conf(tls: bool) -> String {
    let mut lines = listening(tls);
    lines.extend([
        // Users and their passwords guard the members. The address of a client does not matter.
        "protected-mode no".to_owned(),
        "aclfile /etc/redis/users.acl".to_owned(),
        "dir /".to_owned(),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
        // An evicted lock would be a lost lock. A full member refuses new locks instead.
        "maxmemory-policy noeviction".to_owned(),
        // The operator can kill a script that runs for longer than this.
        "busy-reply-threshold 200".to_owned(),
        "tcp-keepalive 10".to_owned(),
        "timeout 0".to_owned(),
        "enable-debug-command no".to_owned(),
        "enable-module-command no".to_owned(),
        "logfile \"\"".to_owned(),
        "loglevel notice".to_owned(),
        // The commands and replies of a lock have some hundred bytes. These limits are three to four orders of magnitude
        // above them, and far below the amount that fills or kills a member.
        // The first one is the longest argument. Redis allocates the announced length, and 26 bytes can announce half a gigabyte.
        "proto-max-bulk-len 1mb".to_owned(),
        "client-query-buffer-limit 1mb".to_owned(),
        // Redis does not count unread replies in maxmemory.
        "client-output-buffer-limit normal 1mb 256kb 5".to_owned(),
        "client-output-buffer-limit pubsub 1mb 256kb 5".to_owned(),
        String::new(),
    ]);
    lines.join("\n")
}

/// Settings of Redis that follow from the memory limit, which belongs to the pod.
///
/// They are arguments of its process. In redis.conf a raised limit would reach the restarted processes of pods with the lower one.
pub fn memory_settings(plan: &Plan) -> Vec<(&'static str, u64)> {
    let limit = resources(plan).limits.and_then(|limits| max_memory(limits.get(MEMORY)?));
    let Some(bytes) = limit else { return Vec::new() };
    vec![
        ("maxmemory", bytes),
        // Above this limit Redis closes the connections that use most. The operator's connections are exempt (CLIENT NO-EVICT).
        ("maxmemory-clients", bytes / 4),
        // An idle connection needs about 24 KB.
        ("maxclients", (bytes / MEMORY_PER_CLIENT).clamp(LEAST_CLIENTS, MOST_CLIENTS)),
    ]
}

/// The port lines. With TLS there is no plain port, so a client without TLS is refused.
fn listening(tls: bool) -> Vec<String> {
    let plain = ["bind * -::*".to_owned(), format!("port {}", if tls { 0 } else { PORT })];
    let encrypted = [
        format!("tls-port {PORT}"),
        format!("tls-cert-file {TLS_DIRECTORY}/{CERTIFICATE_KEY}"),
        format!("tls-key-file {TLS_DIRECTORY}/{PRIVATE_KEY_KEY}"),
        // Clients authenticate with their passwords.
        "tls-auth-clients no".to_owned(),
    ];
    plain.into_iter().chain(encrypted.into_iter().filter(|_| tls)).collect()
}

/// Three quarters of the container's memory limit. The rest is for connections and the process itself.
pub fn max_memory(limit: &Quantity) -> Option<u64> {
    Some(bytes(limit)? / 4 * 3).filter(|bytes| *bytes > 0)
}

/// The ACL file of a member, in which every voting user is closed.
pub fn users_acl(plan: &Plan, auth: &Auth, member: &MemberPlan) -> String {
    let mut users = plan.user_rules(auth, &member.name);
    users.push(UserRule::probe(&auth.probe_password(&member.name)));
    acl::users_acl(&auth.accepted(&member.name, OPERATOR_USER), &users)
}
