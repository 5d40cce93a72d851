//! The plan of a RedisQuorum: its specification parsed once, so that later code needs no further checks.

mod external;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

use super::effective;
use super::expose::{ExposePlan, PORT, SUFFIX};
use super::invalid::Invalid;
use super::lists::{Lists, MOST};
use super::quantity::bytes;
use crate::api::{ClientAccess, ExternalStatus, MemberPod, RedisQuorum, TlsMode};
use crate::redis_member::acl::{KeyPrefix, UserRule};
use crate::redlock::Settings;

pub use external::shared_list;

/// Minimum memory limit of a member, in bytes.
///
/// With less, neither the sandbox of the pod nor Redis starts.
const LEAST_MEMORY: u64 = 32 * 1024 * 1024;

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlan {
    /// The position among the operator's own members, from 0. All external members have the same number.
    pub index: usize,
    /// Its name: `<quorum>-<index>`, also the name of its StatefulSet and Service.
    pub name: String,
    /// An external master. Pods, StatefulSets, Services and ACL files belong to the operator's own members only.
    pub external: Option<ExternalStatus>,
}

impl MemberPlan {
    /// Whether it is external.
    pub const fn is_external(&self) -> bool {
        self.external.is_some()
    }

    /// Whether it is the same member at the same place. Its other fields can change at any time.
    pub fn is_same(&self, other: &Self) -> bool {
        let address = |member: &Self| member.external.as_ref().map(|external| external.address.clone());
        self.name == other.name && address(self) == address(other)
    }

    /// The address that clients use. Operators that share masters identify an external member by it.
    pub fn address(&self, namespace: &str) -> String {
        match &self.external {
            Some(external) => external.address.clone(),
            None => format!("{}:{PORT}", self.dns_name(namespace)),
        }
    }

    /// Name of its only pod.
    pub fn pod_name(&self) -> String {
        format!("{}-0", self.name)
    }

    /// The name that clients in the cluster resolve.
    pub fn dns_name(&self, namespace: &str) -> String {
        format!("{}.{namespace}.svc", self.name)
    }

    /// Name of the Service that exposes it outside the cluster.
    pub fn external_name(&self) -> String {
        format!("{}{SUFFIX}", self.name)
    }

    /// Key of its ACL file in the config Secret.
    pub fn acl_key(&self) -> String {
        format!("users-{}.acl", self.index)
    }
}

/// One client outside the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPlan {
    /// Its name.
    pub name: String,
    /// The namespace of its pods.
    pub namespace: String,
    /// The allowed keys.
    pub key_prefix: KeyPrefix,
    /// Its rights on these keys.
    pub access: ClientAccess,
}

impl ClientPlan {
    /// Its Redis user in this membership epoch.
    pub fn user(&self, epoch: i64) -> String {
        match self.access {
            ClientAccess::ReadWrite => UserRule::client_name(&self.name, epoch),
            ClientAccess::Read => UserRule::reader_name(&self.name),
        }
    }
}

/// The source of the members' certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPlan {
    /// The Secret that members mount.
    pub secret: String,
    /// Whether the operator writes it.
    pub managed: bool,
}

/// A valid specification.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name of the RedisQuorum.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The owner of all objects in the same namespace.
    pub owner: OwnerReference,
    /// The operator's own members that vote now or will vote, by index.
    ///
    /// Members that leave are not included.
    pub members: Vec<MemberPlan>,
    /// The external members that vote now or will vote.
    pub external: Vec<MemberPlan>,
    /// The member lists that decide whose votes count, now and after a change.
    pub lists: Lists,
    /// Container image.
    pub image: String,
    /// The settings of the engine.
    pub settings: Settings,
    /// The maxTTL that clients can use now.
    pub max_ttl: Duration,
    /// Clients, by name.
    pub clients: Vec<ClientPlan>,
    /// The plan of TLS, if members use it.
    pub tls: Option<TlsPlan>,
    /// How members are exposed outside the cluster, if they are.
    pub expose: Option<ExposePlan>,
    /// Pod settings.
    pub pod: MemberPod,
}

impl Plan {
    /// All members, the external ones last.
    pub fn all_members(&self) -> impl Iterator<Item = &MemberPlan> {
        self.members.iter().chain(&self.external)
    }

    /// The member with this name, if it votes now or will vote.
    pub fn member(&self, name: &str) -> Option<&MemberPlan> {
        self.all_members().find(|member| member.name == name)
    }

    /// The names that the members' certificate must prove. Clients and the operator check them.
    pub fn server_names(&self) -> Vec<String> {
        let given = self.expose.iter().flat_map(|expose| &expose.addresses).map(|address| address.host.clone());
        self.members.iter().map(|member| member.dns_name(&self.namespace)).chain(given).collect()
    }

    /// All names in a certificate that the operator makes. `others` are hosts of load balancers.
    pub fn issued_names(&self, others: &[String]) -> Vec<String> {
        let long = self.members.iter().map(|member| format!("{}.cluster.local", member.dns_name(&self.namespace)));
        let mut names = self.server_names();
        names.extend(long.chain(others.iter().cloned()));
        names
    }

    /// Name of a client's Secret.
    pub fn client_secret_name(&self, client: &str) -> String {
        format!("{}-client-{client}", self.name)
    }
}

/// Name of the Secret with redis.conf and the ACL files.
pub fn config_name(quorum: &str) -> String {
    format!("{quorum}-config")
}

/// Name of the Secret with the seed of all passwords.
pub fn auth_name(quorum: &str) -> String {
    format!("{quorum}-auth")
}

/// The operator's own members that vote now or will vote, and such external members.
fn members(quorum: &RedisQuorum) -> (Vec<MemberPlan>, Vec<MemberPlan>) {
    let names = Lists::of(quorum).members();
    names.iter().filter_map(|name| member(quorum, name)).partition(|member| !member.is_external())
}

/// The external members that vote now or will vote.
pub fn external_members(quorum: &RedisQuorum) -> Vec<MemberPlan> {
    members(quorum).1
}

/// All existing members, including those that leave until the status drops them.
pub fn recorded_members(quorum: &RedisQuorum) -> Vec<MemberPlan> {
    let (mut members, external) = members(quorum);
    members.extend(external);
    let leaving = quorum.members().iter().filter(|recorded| !members.iter().any(|member| member.name == recorded.name));
    let leaving: Vec<_> = leaving.filter_map(|recorded| member(quorum, &recorded.name)).collect();
    members.extend(leaving);
    members
}

/// The member with this name, even if the specification no longer has it.
fn member(quorum: &RedisQuorum, name: &str) -> Option<MemberPlan> {
    own_member(quorum, name).or_else(|| external::member(quorum, name))
}

/// The member with this name, if it is one of the operator's own.
fn own_member(quorum: &RedisQuorum, name: &str) -> Option<MemberPlan> {
    let digits = name.strip_prefix(&quorum.name_any())?.strip_prefix('-')?;
    let index = digits.parse().ok().filter(|index: &usize| *index < MOST && digits.len() == 1)?;
    Some(MemberPlan { index, name: name.to_owned(), external: None })
}

/// Refuses the specification with this reason, unless the condition holds.
fn ensure(holds: bool, invalid: Invalid) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(invalid) }
}

/// Parses a specification.
pub fn validate(quorum: &RedisQuorum) -> Result<Plan, Invalid> {
    let spec = &quorum.spec;
    let (own, external) = members(quorum);
    let size = spec.members.saturating_add(i32::try_from(spec.external.len()).unwrap_or(i32::MAX));
    ensure((0..=9).contains(&spec.members) && [1, 3, 5, 7, 9].contains(&size), Invalid::Members(size))?;
    external::check(quorum)?;
    ensure(spec.external.is_empty() || spec.clients.is_empty(), Invalid::ClientsOfExternal)?;
    let name = quorum.metadata.name.clone().ok_or(Invalid::Incomplete("name"))?;
    ensure(name.len() <= 40, Invalid::Name)?;
    ensure((1..=3600).contains(&spec.max_ttl.get().as_secs()), Invalid::Range("maxTTL"))?;
    ensure((0..=100_000).contains(&spec.clock_drift.ppm), Invalid::Range("clockDrift.ppm"))?;
    // Redis without a limit would be killed when the memory is full, and lose every lock.
    let memory = || spec.pod.as_ref()?.resources.as_ref()?.limits.as_ref()?.get("memory");
    if let Some(memory) = memory().filter(|memory| bytes(memory).is_none_or(|bytes| bytes < LEAST_MEMORY)) {
        return Err(Invalid::Memory(memory.0.clone()));
    }
    // While the last external members leave, the operator cannot make users on them.
    let clients = spec.clients.iter().filter(|_| external.is_empty());
    let mut clients = clients.map(client).collect::<Result<Vec<_>, _>>()?;
    clients.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Plan {
        namespace: quorum.namespace().ok_or(Invalid::Incomplete("namespace"))?,
        owner: quorum.controller_owner_ref(&()).ok_or(Invalid::Incomplete("UID"))?,
        tls: tls(quorum)?,
        members: own,
        external,
        image: spec.image.clone(),
        settings: effective::settings(quorum),
        max_ttl: effective::promised(quorum),
        lists: Lists::of(quorum),
        clients,
        expose: ExposePlan::new(&spec.expose)?,
        pod: spec.pod.clone().unwrap_or_default(),
        name,
    })
}

/// The plan of TLS for the operator's own members, including those that leave.
///
/// External masters have their own settings.
fn tls(quorum: &RedisQuorum) -> Result<Option<TlsPlan>, Invalid> {
    let tls = &quorum.spec.tls;
    if recorded_members(quorum).iter().all(MemberPlan::is_external) {
        return Ok(None);
    }
    Ok(match (tls.mode, &tls.secret_ref) {
        (TlsMode::Disabled, _) => None,
        (TlsMode::Managed, _) => Some(TlsPlan { secret: format!("{}-tls", quorum.name_any()), managed: true }),
        (TlsMode::Secret, Some(secret)) => Some(TlsPlan { secret: secret.name.clone(), managed: false }),
        (TlsMode::Secret, None) => return Err(Invalid::Incomplete("spec.tls.secretRef")),
    })
}

fn client(client: &crate::api::QuorumClient) -> Result<ClientPlan, Invalid> {
    let name_ok = !client.name.is_empty()
        && client.name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !["operator", "probe", "locker", "default"].contains(&client.name.as_str());
    ensure(name_ok, Invalid::ClientName(client.name.clone()))?;
    let key_prefix = KeyPrefix::parse(&client.key_prefix).ok_or_else(|| Invalid::KeyPrefix(client.name.clone()))?;
    Ok(ClientPlan { name: client.name.clone(), namespace: client.namespace.clone(), key_prefix, access: client.access })
}
