//! An administrator who inspects members with the operator's own password.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::{quorum::model::auth::Auth, redis_member::acl::OPERATOR_USER};

use crate::quorums::Quorum;

/// The administrator of one quorum without TLS.
pub(crate) struct Administrator<'a> {
    quorum: &'a Quorum,
    auth: Auth,
}

impl<'a> Administrator<'a> {
    /// Reads the passwords of the quorum.
    pub(crate) async fn of(quorum: &'a Quorum) -> anyhow::Result<Self> {
        let secret = quorum.bench.api::<Secret>().get(&format!("{}-auth", quorum.name)).await?;
        let auth = secret.data.as_ref().and_then(Auth::from_data).context("the Secret has no passwords")?;
        Ok(Self { quorum, auth })
    }

    /// The time until which a member certainly keeps a key, in milliseconds since boot.
    ///
    /// It reads the clock before the request, so the key stays longer by the request's latency. It returns `None` if
    /// there is no such key.
    pub(crate) async fn keeps_until(&self, member: usize, key: &str) -> anyhow::Result<Option<u64>> {
        let member = self.quorum.member(member);
        let password = self.auth.password(&member, OPERATOR_USER);
        let client = format!("redis-cli --no-auth-warning --user {OPERATOR_USER} --pass {}", password.expose());
        // The operator's user cannot read keys, so the administrator adds that right. Nothing removes the right, since
        // another test can read the same member at this moment.
        let grant = format!("{client} ACL SETUSER {OPERATOR_USER} '(~* -@all +pttl)' >/dev/null");
        let script = format!("{grant}; read up rest </proc/uptime; echo $up $({client} PTTL {key})");
        let exec = ["exec", &format!("{member}-0"), "-c", "redis", "--", "sh", "-c", &script];
        let answer = self.quorum.bench.kubectl(&exec).await?;
        let (up, left) = answer.trim().split_once(' ').with_context(|| answer.clone())?;
        let left: i64 = left.parse().with_context(|| answer.clone())?;
        Ok(u64::try_from(left).ok().map(|left| since_boot(up).unwrap_or_default() + left))
    }
}

/// The first number of `/proc/uptime`, in milliseconds.
///
/// All nodes of the local cluster have the same value.
pub(crate) fn since_boot(up: &str) -> Option<u64> {
    up.replace('.', "").parse::<u64>().ok().map(|hundredths| hundredths * 10)
}
