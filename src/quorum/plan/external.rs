//! The members that others run, as specified.

use kube::ResourceExt;

use super::{Invalid, MemberPlan, members};
use crate::api::{ExternalMember, RedisQuorum};

/// Where a master is that others run, and who knows its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPlan {
    /// `host:port`.
    pub address: String,
    /// Name of the Secret with the user.
    pub secret: Option<String>,
    /// With TLS or without.
    pub tls: Option<ExternalTlsPlan>,
}

/// TLS to a master that others run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalTlsPlan {
    /// Name of the Secret with the authorities; those of the system without one.
    pub secret: Option<String>,
    /// The name that its certificate has to carry.
    pub server_name: String,
}

/// The members of a quorum that others run.
#[must_use]
pub fn external_members(quorum: &RedisQuorum) -> Vec<MemberPlan> {
    let first = members(quorum).len();
    let plan = |(position, member): (usize, &ExternalMember)| MemberPlan {
        index: first + position,
        name: member.name.clone(),
        external: Some(ExternalPlan {
            address: member.address.clone(),
            secret: member.secret_ref.as_ref().map(|secret| secret.name.clone()),
            tls: member.tls.as_ref().map(|tls| ExternalTlsPlan {
                secret: tls.secret_ref.as_ref().map(|secret| secret.name.clone()),
                server_name: tls.server_name.clone().unwrap_or_else(|| host_of(&member.address).to_owned()),
            }),
        }),
    };
    quorum.spec.external.iter().enumerate().map(plan).collect()
}

/// The host in `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// All members of a quorum, those of others last.
#[must_use]
pub fn all_members(quorum: &RedisQuorum) -> Vec<MemberPlan> {
    let mut all = members(quorum);
    all.extend(external_members(quorum));
    all
}

/// The member list as operators that share members compare it.
#[must_use]
pub fn shared_list(quorum: &RedisQuorum) -> String {
    let namespace = quorum.namespace().unwrap_or_default();
    let mut list: Vec<String> = all_members(quorum).iter().map(|member| member.address(&namespace)).collect();
    list.sort();
    list.join(" ")
}

/// Names and addresses are different, and no name is that of a member of the operator's own.
pub(super) fn check(external: &[MemberPlan], quorum: &str) -> Result<(), Invalid> {
    for (position, member) in external.iter().enumerate() {
        let refuse = |what| Err(Invalid::External(member.name.clone(), what));
        let before = &external[..position];
        if before.iter().any(|other| other.name == member.name) {
            return refuse("another external member has this name");
        }
        if before.iter().any(|other| same_address(other, member)) {
            return refuse("another external member has this address");
        }
        let rest = member.name.strip_prefix(quorum).and_then(|rest| rest.strip_prefix('-'));
        if rest.is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|c| c.is_ascii_digit())) {
            return refuse("the operator's own members are named like this");
        }
    }
    Ok(())
}

fn same_address(one: &MemberPlan, other: &MemberPlan) -> bool {
    one.external.as_ref().map(|one| &one.address) == other.external.as_ref().map(|other| &other.address)
}
