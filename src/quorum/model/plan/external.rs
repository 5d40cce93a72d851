//! The external members.

use kube::ResourceExt;

use super::{MemberPlan, ensure};
use crate::api::{ExternalStatus, RedisQuorum};
use crate::quorum::model::invalid::Invalid;
use crate::quorum::model::lists::{Lists, MOST};

/// The external member with this name.
///
/// If the status has such a member, the address in the status applies, because that member votes. With TLS the result has a server name, by
/// default the host of the address.
pub(super) fn member(quorum: &RedisQuorum, name: &str) -> Option<MemberPlan> {
    let specified = quorum.spec.external.iter().find(|member| member.name == name).map(ExternalStatus::from);
    let published = quorum.member(name).and_then(|member| member.external.clone());
    let is_same_place = |new: &ExternalStatus| published.as_ref().is_none_or(|old| old.address == new.address);
    let mut master = specified.filter(is_same_place).or_else(|| published.clone())?;
    if let Some(tls) = &mut master.tls {
        tls.server_name.get_or_insert_with(|| host_of(&master.address).to_owned());
    }
    Some(MemberPlan { index: MOST, name: name.to_owned(), external: Some(master) })
}

/// The host in `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The list in the records: members by address, sorted, separated by spaces.
///
/// An own member has the quorum's UID as well. In another cluster another process has the same address.
///
/// While a change is joint it is the former list, because promises under that list can still live.
pub fn shared_list(quorum: &RedisQuorum) -> String {
    let (namespace, uid) = (quorum.namespace().unwrap_or_default(), quorum.uid().unwrap_or_default());
    let lists = Lists::of(quorum);
    let members = lists.token_list().iter().filter_map(|name| super::member(quorum, name));
    let text = |member: MemberPlan| match member.is_external() {
        true => member.address(&namespace),
        false => format!("{}/{uid}", member.address(&namespace)),
    };
    let mut list: Vec<String> = members.map(text).collect();
    list.sort();
    list.join(" ")
}

/// Checks the names and addresses of external members.
///
/// Names and addresses must be unique. No name can be that of one of the operator's own members, or belong to another
/// master.
pub(super) fn check(quorum: &RedisQuorum) -> Result<(), Invalid> {
    let specified = &quorum.spec.external;
    for (position, member) in specified.iter().enumerate() {
        let require = |holds, what| ensure(holds, Invalid::External(member.name.clone(), what));
        let before = &specified[..position];
        require(before.iter().all(|other| other.name != member.name), "another external member has this name")?;
        require(
            before.iter().all(|other| other.address != member.address),
            "another external member has this address",
        )?;
        let rest = member.name.strip_prefix(&quorum.name_any()).and_then(|rest| rest.strip_prefix('-'));
        let is_own = rest.is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|c| c.is_ascii_digit()));
        require(!is_own, "the operator's own members are named like this")?;
        for recorded in quorum.members() {
            let Some(external) = &recorded.external else { continue };
            let (same_name, same_address) = (recorded.name == member.name, external.address == member.address);
            require(!same_name || same_address, "a master at another address has this name: set another name")?;
            require(same_name || !same_address, "this master has another name until it has left: set that name")?;
        }
    }
    Ok(())
}
