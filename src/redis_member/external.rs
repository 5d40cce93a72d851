//! What is done on a master that others run. There is no admin credential for it: all of this is what the locking path's user
//! may do, see [`super::acl::external_user`].

use redlock_client::voting::RESTORE_COUNTER;
use std::time::Duration;

use redis::{Value, cmd};

use super::AdminConnection;
use super::RECORD_KEY;
use super::wire;
use crate::redlock::{FencingToken, MemberError, TOKEN_KEY};

/// What one operator says of its quorum. Durations are whole milliseconds on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// `namespace/name` of the RedisQuorum, for people.
    pub name: String,
    /// The lists of which every promise that may still live has a majority: one or two, the newest first, separated by `|`. A list
    /// is its members by address, sorted, separated by spaces.
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
#[must_use]
pub fn share(one: &str, other: &str) -> bool {
    relied_on(one, false).any(|list| relied_on(other, false).any(|other| other == list))
}

/// The record of one process, after one look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLook {
    /// The caller's claim stands, and every operator that has come later has seen it: up to this time to live.
    pub kept: Option<Duration>,
    /// A claim of the caller's quorum that shares a list stood before, by one who had seen it on every external member.
    pub stood: bool,
    /// The claims of others.
    pub others: Vec<OtherClaim>,
    /// The membership epoch that the record knows of the caller's quorum; 0 if it knows none. Nobody votes under an earlier one.
    pub epoch: i64,
    /// The lists of the claim that stands; empty if none does.
    pub list: String,
    /// Its [`Claim::newest`].
    pub newest: bool,
    /// Since when the record has told of the caller's quorum, in the process's own milliseconds; 0 if it told of it before anybody noted
    /// that, or does not.
    pub since: i64,
}

impl AdminConnection {
    /// Reads the claims of others and, with `uses`, makes or renews the caller's for at most this time to live (and at least the
    /// one that is used already), both at once. It
    /// is not made against other lists, nor by one whose fences do not wait for what somebody uses.
    ///
    /// # Errors
    /// If there is no answer in time, or the record cannot be read.
    pub async fn look_at_record(&mut self, claim: &Claim, uses: Option<Duration>) -> Result<RecordLook, MemberError> {
        let arguments = [
            claim.uid.clone(),
            u8::from(uses.is_some()).to_string(),
            claim.name.clone(),
            claim.list.clone(),
            claim.epoch.to_string(),
            claim.phase.to_string(),
            claim.generation.to_string(),
            millis(claim.fence).to_string(),
            millis(uses.unwrap_or(claim.used)).to_string(),
            millis(claim.used).to_string(),
            millis(claim.lives).to_string(),
            u8::from(claim.joined).to_string(),
            u8::from(claim.newest).to_string(),
        ];
        let answer = self.run_script(include_str!("scripts/quorum.lua"), RECORD_KEY, &arguments).await?;
        read_look(&answer).ok_or_else(wire::unexpected)
    }

    /// Raises the counter of tokens to `token` if it is lower, and returns what it is then. As the user of the locking path, and
    /// before the process is admitted: there is nothing to open, so the admission itself is what makes its votes count.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn raise_counter(&mut self, token: FencingToken) -> Result<FencingToken, MemberError> {
        let script = RESTORE_COUNTER;
        let answer = self.run_script(script, TOKEN_KEY, &[token.get().to_string()]).await?;
        let Value::Int(counter) = answer else { return Err(wire::unexpected()) };
        FencingToken::new(counter).ok_or_else(wire::unexpected)
    }

    /// Loaded each time: somebody may flush the scripts of a master that is not ours.
    async fn run_script(&mut self, code: &str, key: &str, arguments: &[String]) -> Result<Value, MemberError> {
        let mut pipeline = redis::Pipeline::new();
        pipeline.cmd("SCRIPT").arg("LOAD").arg(code);
        let mut call = cmd("EVALSHA");
        call.arg(redis::Script::new(code).get_hash()).arg(1).arg(key).arg(arguments);
        pipeline.add_command(call);
        self.ask_all(&pipeline).await?.pop().ok_or_else(wire::unexpected)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn duration(value: &Value) -> Option<Duration> {
    let Value::Int(millis) = value else { return None };
    u64::try_from(*millis).ok().map(Duration::from_millis)
}

fn read_look(answer: &Value) -> Option<RecordLook> {
    let Value::Array(parts) = answer else { return None };
    let [
        Value::Int(kept),
        uses,
        Value::Int(stood),
        Value::Array(others),
        Value::Int(epoch),
        Value::Int(newest),
        list,
        Value::Int(since),
    ] = parts.as_slice()
    else {
        return None;
    };
    Some(RecordLook {
        kept: if *kept == 1 { Some(duration(uses)?) } else { None },
        stood: *stood == 1,
        others: others.iter().map(read_other).collect::<Option<_>>()?,
        epoch: *epoch,
        list: wire::text(list)?,
        newest: *newest == 1,
        since: *since,
    })
}

fn read_other(value: &Value) -> Option<OtherClaim> {
    let Value::Array(parts) = value else { return None };
    let [uid, name, list, fence, uses, left, Value::Int(newest)] = parts.as_slice() else { return None };
    Some(OtherClaim {
        uid: wire::text(uid)?,
        name: wire::text(name)?,
        list: wire::text(list)?,
        fence: duration(fence)?,
        uses: duration(uses)?,
        left: duration(left)?,
        newest: *newest == 1,
    })
}
