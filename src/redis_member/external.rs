//! What is done on a master that others run. There is no admin credential for it: all of this is what the locking path's user
//! may do, see [`super::acl::external_user`].

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use redlock_engine::voting::RESTORE_COUNTER;
use serde_json::json;

use super::{AdminConnection, RECORD_KEY, wire};
use crate::redlock::{FencingToken, MemberError, TOKEN_KEY};

/// What one operator says of its quorum. Durations are whole milliseconds on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// `namespace/name` of the RedisQuorum, for people.
    pub name: String,
    /// The lists of which every promise that may still live has a majority.
    /// They are one or two, the newest first, separated by `|`. A list is its members by address, sorted, separated by
    /// spaces.
    pub list: String,
    /// Only the newest of them is to be relied on: the others are about to be given up.
    pub newest: bool,
    /// Membership epoch.
    pub epoch: i64,
    /// How far a change of the members is in this epoch; it only rises.
    pub phase: i64,
    /// Generation of the specification that this is from.
    pub generation: i64,
    /// The longest time to live that the operator's fences wait for.
    pub fence: Duration,
    /// The longest time to live that it may have given a lock already.
    pub used: Duration,
    /// How long this counts when it is not said again.
    pub lives: Duration,
    /// It has stood on every external member.
    pub joined: bool,
}

/// What another operator says of its quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherClaim {
    /// UID of its RedisQuorum.
    pub uid: String,
    /// `namespace/name` of its RedisQuorum, in its cluster.
    pub name: String,
    /// Its lists, as in [`Claim::list`].
    pub list: String,
    /// See [`Claim::newest`].
    pub newest: bool,
    /// The longest time to live that its fences wait for.
    pub fence: Duration,
    /// The longest time to live that it may have given a lock.
    pub uses: Duration,
    /// How long this counts when it is not said again.
    pub left: Duration,
}

/// Each list of a [`Claim::list`], the newest first; with [`Claim::newest`] that one alone.
pub fn relied_on(list: &str, newest: bool) -> impl Iterator<Item = &str> {
    list.split('|').take(if newest { 1 } else { usize::MAX })
}

/// Whether two claims have a list in common.
pub fn share(one: &str, other: &str) -> bool {
    relied_on(one, false).any(|list| relied_on(other, false).any(|other| other == list))
}

/// The record of one process, after one look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLook {
    /// Up to which time to live the caller's claim stands here, if it does.
    /// Every operator that has come later has seen the claim.
    pub kept: Option<Duration>,
    /// A claim of the caller's quorum that shares a list stood before.
    /// The operator that made it had seen it on every external member.
    pub stood: bool,
    /// The claims of others.
    pub others: Vec<OtherClaim>,
    /// The membership epoch that the record knows of the caller's quorum; 0 if it knows none. No vote counts under an earlier one.
    pub epoch: i64,
    /// The lists of the claim that stands; empty if none does.
    pub list: String,
    /// Its [`Claim::newest`].
    pub newest: bool,
    /// Since when the record has told of the caller's quorum, in the process's own milliseconds.
    /// It is 0 if the record told of it before that was noted, or does not tell of it.
    pub since: i64,
}

/// What `quorum.lua` answers. Its claims of others are by UID.
#[derive(serde::Deserialize)]
struct Answer {
    kept: bool,
    uses: i64,
    stood: bool,
    others: BTreeMap<String, Other>,
    epoch: i64,
    newest: bool,
    list: String,
    since: i64,
}

#[derive(serde::Deserialize)]
struct Other {
    name: String,
    list: String,
    fence: i64,
    uses: i64,
    left: i64,
    newest: bool,
}

/// Reads the claims of others and, with `uses`, makes or renews the caller's claim in the same step.
///
/// The claim is for at most this time to live, and at least for the one that is used already. It is not made against
/// other lists, nor by an operator whose fences do not wait for what another one uses.
///
/// # Errors
/// If there is no answer in time, or the record cannot be read.
pub async fn look_at_record(
    admin: &mut AdminConnection,
    claim: &Claim,
    uses: Option<Duration>,
) -> Result<RecordLook, MemberError> {
    let question = json!({
        "uid": claim.uid,
        "write": uses.is_some(),
        "name": claim.name,
        "list": claim.list,
        "newest": claim.newest,
        "epoch": claim.epoch,
        "phase": claim.phase,
        "generation": claim.generation,
        "fence": millis(claim.fence),
        "uses": millis(uses.unwrap_or(claim.used)),
        "used": millis(claim.used),
        "lives": millis(claim.lives),
        "joined": claim.joined,
    });
    let answer = run_script(admin, include_str!("scripts/quorum.lua"), RECORD_KEY, &question.to_string()).await?;
    let answer = wire::text(&answer).ok_or_else(wire::unexpected)?;
    let answer: Answer = serde_json::from_str(&answer).map_err(|_| wire::unexpected())?;
    let others = answer.others.into_iter().map(|(uid, Other { name, list, fence, uses, left, newest })| {
        let (fence, uses, left) = (duration(fence)?, duration(uses)?, duration(left)?);
        Some(OtherClaim { uid, name, list, newest, fence, uses, left })
    });
    let kept = if answer.kept { Some(duration(answer.uses).ok_or_else(wire::unexpected)?) } else { None };
    let Answer { stood, epoch, newest, list, since, .. } = answer;
    let others = others.collect::<Option<_>>().ok_or_else(wire::unexpected)?;
    Ok(RecordLook { kept, stood, others, epoch, list, newest, since })
}

/// Raises the counter of tokens to `token` if it is lower, and returns what it is then. As the user of the locking path, and
/// before the process is admitted: there is nothing to open, so the admission itself is what makes its votes count.
///
/// # Errors
/// If there is no answer in time.
pub async fn raise_counter(admin: &mut AdminConnection, token: FencingToken) -> Result<FencingToken, MemberError> {
    let script = RESTORE_COUNTER;
    let answer = run_script(admin, script, TOKEN_KEY, &token.get().to_string()).await?;
    let Value::Int(counter) = answer else { return Err(wire::unexpected()) };
    FencingToken::new(counter).ok_or_else(wire::unexpected)
}

/// Loaded each time: the scripts of a master that is not the operator's may be flushed at any time.
async fn run_script(admin: &mut AdminConnection, code: &str, key: &str, argument: &str) -> Result<Value, MemberError> {
    let mut pipeline = redis::Pipeline::new();
    pipeline.cmd("SCRIPT").arg("LOAD").arg(code);
    pipeline.cmd("EVALSHA").arg(redis::Script::new(code).get_hash()).arg(1).arg(key).arg(argument);
    admin.ask_all(&pipeline).await?.pop().ok_or_else(wire::unexpected)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn duration(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
