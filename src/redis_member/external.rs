//! What is done on a master that others run. There is no admin credential for it: all of this is what the locking path's user
//! may do, see [`super::acl::external_user`].

use std::time::Duration;

use redis::{Value, cmd};

use super::AdminConnection;
use super::wire;
use crate::redlock::{FencingToken, MemberError, TOKEN_KEY};

/// Where operators that share a master say what they are: one string, JSON, by the UID of the RedisQuorum.
pub const RECORD_KEY: &str = "#quorum";

/// What one operator says of its quorum. Durations are whole milliseconds on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// `namespace/name` of the RedisQuorum, for people.
    pub name: String,
    /// All members, by address, sorted, separated by spaces.
    pub list: String,
    /// Membership epoch.
    pub epoch: i64,
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
    /// Its members.
    pub list: String,
    /// The longest time to live that its fences wait for.
    pub fence: Duration,
    /// The longest time to live that it may have given a lock.
    pub uses: Duration,
    /// How long this counts when it is not said again.
    pub left: Duration,
}

/// The record of one process, after one look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLook {
    /// The caller's claim stands, and every operator that has come later has seen it: up to this time to live.
    pub kept: Option<Duration>,
    /// A claim of the caller's quorum with the same list stood before, by one who had seen it on every external member.
    pub stood: bool,
    /// The claims of others.
    pub others: Vec<OtherClaim>,
}

impl AdminConnection {
    /// Reads the claims of others and, with `uses`, makes or renews the caller's for at most this time to live (and at least the
    /// one that is used already), both at once. It
    /// is not made against another list, nor by one whose fences do not wait for what somebody uses.
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
            claim.generation.to_string(),
            millis(claim.fence).to_string(),
            millis(uses.unwrap_or(claim.used)).to_string(),
            millis(claim.used).to_string(),
            millis(claim.lives).to_string(),
            u8::from(claim.joined).to_string(),
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
        let script = include_str!("scripts/restore_counter.lua");
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
    let [Value::Int(kept), uses, Value::Int(stood), Value::Array(others)] = parts.as_slice() else { return None };
    Some(RecordLook {
        kept: if *kept == 1 { Some(duration(uses)?) } else { None },
        stood: *stood == 1,
        others: others.iter().map(read_other).collect::<Option<_>>()?,
    })
}

fn read_other(value: &Value) -> Option<OtherClaim> {
    let Value::Array(parts) = value else { return None };
    let [uid, name, list, fence, uses, left] = parts.as_slice() else { return None };
    Some(OtherClaim {
        uid: wire::text(uid)?,
        name: wire::text(name)?,
        list: wire::text(list)?,
        fence: duration(fence)?,
        uses: duration(uses)?,
        left: duration(left)?,
    })
}
