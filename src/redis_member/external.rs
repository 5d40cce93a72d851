//! Operations on an external master.
//!
//! The operator has no admin credential for it, so all operations use the rights of the locking user, see [`super::acl::external_user`].

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use redlock_engine::voting::RESTORE_COUNTER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::acl::EXTERNAL_RIGHTS;
use super::{AdminConnection, RECORD_KEY, wire};
use crate::redlock::{FencingToken, MemberError, TOKEN_KEY};

/// A key in the form of lock keys, for the check of rights.
const SOME_KEY: &str = "redlock-operator/rights";
/// Maximum length of a member list: nine members, each with a host name and a port.
const LONGEST_LIST: usize = 9 * (253 + 7);
/// Maximum length of a name: a namespace and a name.
const LONGEST_NAME: usize = 63 + 1 + 253;
/// Maximum number of records of other operators.
const MOST_OTHERS: usize = 16;

/// The claim of one operator for its quorum. A message has its durations in whole milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// `namespace/name` of the RedisQuorum, for users.
    pub name: String,
    /// The addresses of its members, sorted, separated by spaces.
    pub list: String,
    /// The maximum time to live of its locks, for which its fences wait.
    #[serde(serialize_with = "millis")]
    pub ttl: Duration,
    /// See [`crate::quorum::model::lists::Lists::record_epoch`].
    pub epoch: i64,
    /// All holds of earlier epochs have expired.
    pub ended: bool,
    /// Generation of the specification that the claim is from.
    pub generation: i64,
    /// How long the claim is valid without a renewal.
    #[serde(serialize_with = "millis")]
    pub lives: Duration,
    /// The claim was recorded on every external member.
    pub joined: bool,
}

impl Claim {
    /// Whether both claims have the same list, time to live and epoch.
    ///
    /// A record with one of them is valid for the other.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.list, self.ttl, self.epoch) == (&other.list, other.ttl, other.epoch)
    }
}

/// The claim of another operator. Its texts come from the master, so their length is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherClaim {
    /// UID of its RedisQuorum.
    pub uid: String,
    /// `namespace/name` of its RedisQuorum, in its cluster.
    pub name: String,
    /// Its members, as in [`Claim::list`].
    pub list: String,
    /// The maximum time to live of its locks, for which its fences wait.
    pub ttl: Duration,
    /// How long the claim is valid without a renewal.
    pub left: Duration,
}

/// The state of the record on one process, at one moment, as `quorum.lua` returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RecordState {
    /// The record contains the caller's claim. Every later operator has read it.
    pub kept: bool,
    /// An earlier claim of the caller's quorum with this list was recorded on every external member.
    pub stood: bool,
    /// The claims of other operators.
    #[serde(deserialize_with = "others")]
    pub others: Vec<OtherClaim>,
    /// The epoch of the caller's quorum in the record. A vote with an earlier epoch is invalid.
    pub epoch: i64,
    /// When the record first contained the caller's quorum, in milliseconds of the process's clock.
    pub since: i64,
}

/// The request to `quorum.lua`.
#[derive(Serialize)]
struct Question<'a> {
    #[serde(flatten)]
    claim: &'a Claim,
    write: bool,
}

/// The claim of another operator in the answer. Its UID is the key, and its durations are in milliseconds.
#[derive(Deserialize)]
struct Other {
    name: String,
    list: String,
    ttl: u64,
    left: u64,
}

/// Reads the other claims and, with `write`, makes or renews the caller's claim in the same step.
///
/// It makes no claim if another operator's claim has another list or another time to live.
///
/// # Errors
/// If there is no answer in time, or the record is unreadable.
pub async fn read_record(admin: &mut AdminConnection, claim: &Claim, write: bool) -> Result<RecordState, MemberError> {
    let question = serde_json::to_string(&Question { claim, write }).map_err(|_| wire::unexpected())?;
    let answer = run_script(admin, include_str!("scripts/quorum.lua"), &[RECORD_KEY], &[&question]).await?;
    let answer = wire::text(&answer).ok_or_else(wire::unexpected)?;
    serde_json::from_str(&answer).map_err(|_| wire::unexpected())
}

fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn others<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OtherClaim>, D::Error> {
    let others = BTreeMap::<String, Other>::deserialize(deserializer)?.into_iter().take(MOST_OTHERS);
    let claims = others.map(|(uid, other)| OtherClaim {
        uid: plain(&uid, LONGEST_NAME),
        name: plain(&other.name, LONGEST_NAME),
        list: plain(&other.list, LONGEST_LIST),
        ttl: Duration::from_millis(other.ttl),
        left: Duration::from_millis(other.left),
    });
    Ok(claims.collect())
}

/// The beginning of a text from a master, without control characters.
fn plain(text: &str, longest: usize) -> String {
    text.chars().filter(|char| !char.is_control()).take(longest).collect()
}

/// Raises the token counter to `token` if it is lower, and returns its new value.
///
/// It runs with the rights of the locking user, and before the process is admitted. An external master has no users to open, so its votes
/// are valid from the admission.
///
/// # Errors
/// If there is no answer in time.
pub async fn raise_counter(admin: &mut AdminConnection, token: FencingToken) -> Result<FencingToken, MemberError> {
    let answer = run_script(admin, RESTORE_COUNTER, &[TOKEN_KEY], &[&token.get().to_string()]).await?;
    FencingToken::new(wire::read(&answer)?).ok_or_else(wire::unexpected)
}

/// The missing ACL rules of this connection's user for votes, such as `+set` or `~*`.
///
/// It changes nothing.
///
/// # Errors
/// If there is no answer in time, or the master does not support this check.
pub async fn missing_rights(admin: &mut AdminConnection) -> Result<Vec<String>, MemberError> {
    let keys = [SOME_KEY, TOKEN_KEY, RECORD_KEY];
    let missing = run_script(admin, include_str!("scripts/missing_rights.lua"), &[], &keys).await?;
    let Value::Array(missing) = missing else { return Err(wire::unexpected()) };
    let is_rule = |rule: &String| rule == "~*" || EXTERNAL_RIGHTS.split(' ').any(|right| right == rule);
    Ok(missing.iter().filter_map(wire::text).filter(is_rule).collect())
}

/// Loads and runs a script.
///
/// It loads the script each time, because the scripts of an external master can be flushed at any time.
async fn run_script(
    admin: &mut AdminConnection,
    code: &str,
    keys: &[&str],
    arguments: &[&str],
) -> Result<Value, MemberError> {
    let mut pipeline = redis::Pipeline::new();
    pipeline.cmd("SCRIPT").arg("LOAD").arg(code);
    pipeline.cmd("EVALSHA").arg(redis::Script::new(code).get_hash()).arg(keys.len()).arg(keys).arg(arguments);
    admin.ask_all(&pipeline).await?.pop().ok_or_else(wire::unexpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_master_is_cut_and_has_no_control_characters() {
        assert_eq!(plain(&format!("a\u{1b}[31m\n{}", "x".repeat(100_000)), 8), "a[31mxxx");
        assert_eq!(plain("shop/theirs", LONGEST_NAME), "shop/theirs");
    }
}
