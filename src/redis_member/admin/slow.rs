//! Scripts that keep a member from voting: their end, and who sends one after the other.
//!
//! Redis logs what took long with the address of the client, and the list of connections says which user that is. Of the log only time,
//! duration, the name of the command and the address are read: its texts are scripts, keys and values of clients.

use std::collections::BTreeMap;

use redis::Value;

use super::number;
use crate::redis_member::acl::{LOCKER_CLIENT, OPERATOR_USER, PROBE_USER, UserRule};
use crate::redis_member::wire;

/// A script that took so long, microseconds, kept all others waiting. The operator ends them after 200 ms
/// (`busy-reply-threshold`).
const LONG: i64 = 180_000;
/// So far back they count, seconds.
const LOOK_BACK: i64 = 60;
/// So many in that time are no slip: each of them has kept the member busy until it was ended.
const TOO_MANY: usize = 5;
/// All that Redis keeps by default.
pub(super) const ENTRIES: usize = 128;

/// The outcome of `SCRIPT KILL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKill {
    /// A script was ended.
    Killed,
    /// None was running.
    NotBusy,
}

/// Long scripts of the last minute, by the user who sent them. A sender who has closed its connection is known by its host, where all
/// that is connected from there is one user's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders(BTreeMap<String, usize>);

impl Senders {
    /// `now`: the member's time, seconds.
    /// From the log of what took long, and the list of connections.
    pub(super) fn read(log: &Value, connections: &str, now: i64) -> Self {
        let (mut senders, users) = (BTreeMap::<String, usize>::new(), &users_by_address(connections));
        let Value::Array(entries) = log else { return Self::default() };
        for address in entries.iter().filter_map(|entry| long_script(entry, now)) {
            if let Some(user) = users.get(&address).map(String::as_str).or_else(|| only_user(users, host(&address))) {
                *senders.entry(user.to_owned()).or_default() += 1;
            }
        }
        Self(senders)
    }

    /// Who sends one after the other, the operator's own users left out.
    pub fn worst(&self) -> Option<&str> {
        let others = self.0.iter().filter(|(user, count)| !is_own(user) && **count >= TOO_MANY);
        others.max_by_key(|(_, count)| **count).map(|(user, _)| user.as_str())
    }
}

/// A field of a line of `CLIENT LIST`.
pub(super) fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// Who has logged in on each connection, by the address of the peer.
fn users_by_address(list: &str) -> BTreeMap<String, String> {
    let of_line = |line| Some((field(line, "addr")?.to_owned(), field(line, "user")?.to_owned()));
    list.lines().filter_map(of_line).collect()
}

/// The operator's users, and that of the probes.
pub(super) fn is_own(user: &str) -> bool {
    let locker = UserRule::split_name(user).is_some_and(|(name, _)| name == LOCKER_CLIENT);
    locker || [OPERATOR_USER, PROBE_USER].contains(&user)
}

/// Without the port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Whose connections all those of a host are, the operator's own left out.
fn only_user<'u>(users: &'u BTreeMap<String, String>, of: &str) -> Option<&'u str> {
    let of_host = users.iter().filter(|(address, user)| host(address) == of && !is_own(user));
    let mut there = of_host.map(|(_, user)| user.as_str());
    let first = there.next()?;
    there.all(|user| user == first).then_some(first)
}

/// Where a script came from that took long and is not long ago.
fn long_script(entry: &Value, now: i64) -> Option<String> {
    let Value::Array(fields) = entry else { return None };
    let [_, at, took, Value::Array(words), address, ..] = fields.as_slice() else { return None };
    let integer = |value| number(value).ok().flatten();
    let command = wire::text(words.first()?)?.to_ascii_lowercase();
    let is_script = command.starts_with("eval") || command.starts_with("fcall");
    let is_long = integer(took)? >= LONG && now.saturating_sub(integer(at)?) <= LOOK_BACK;
    wire::text(address).filter(|_| is_script && is_long)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(at: i64, took: i64, command: &str, address: &str) -> Value {
        let words = Value::Array(vec![bulk(command), bulk("secret text"), bulk("1"), bulk("shop/k")]);
        Value::Array(vec![Value::Int(7), Value::Int(at), Value::Int(took), words, bulk(address), bulk("")])
    }

    fn worst(entries: Vec<Value>) -> Option<String> {
        let list = "id=3 addr=10.0.0.1:5 user=billing-e7 resp=2\nid=4 addr=10.0.0.2:5 user=locker-e7 resp=2\n\
                    id=5 addr=10.0.0.4:5 user=billing-e7 resp=2\nid=6 addr=10.0.0.4:6 user=shop-e7 resp=2\n\
                    id=7 addr=[fd00::1]:5 user=shop-e7 resp=2\n";
        let senders = Senders::read(&Value::Array(entries), list, 1_000);
        assert!(!format!("{senders:?}").contains("secret"), "no text of a script is kept");
        senders.worst().map(str::to_owned)
    }

    #[test]
    fn who_sends_one_long_script_after_the_other_is_named() {
        let long = || entry(990, 200_300, "EVAL", "10.0.0.1:5");
        let sha = || entry(990, 200_300, "evalsha", "10.0.0.1:5");
        assert_eq!(worst(vec![long(), sha(), long(), sha(), long()]).as_deref(), Some("billing-e7"));
        assert_eq!(worst(vec![long(); 4]), None, "a slip");
        assert_eq!(worst(vec![entry(939, 200_300, "EVAL", "10.0.0.1:5"); 9]), None, "long ago");
        assert_eq!(worst(vec![entry(990, 90_000, "EVAL", "10.0.0.1:5"); 9]), None, "not long");
        assert_eq!(worst(vec![entry(990, 300_000, "SET", "10.0.0.1:5"); 9]), None, "no script: the machine was slow");
        assert_eq!(worst(vec![entry(990, 300_000, "EVAL", "10.0.0.3:5"); 9]), None, "gone, and no other is from there");
        let gone = |from: &str| worst(vec![entry(990, 300_000, "EVAL", from); 9]);
        assert_eq!(gone("10.0.0.1:9").as_deref(), Some("billing-e7"), "it has come again");
        assert_eq!(gone("[fd00::1]:9").as_deref(), Some("shop-e7"));
        assert_eq!(gone("10.0.0.4:9"), None, "one of two");
        assert_eq!(worst(vec![entry(990, 300_000, "EVALSHA", "10.0.0.2:5"); 9]), None, "the operator's own");
        assert_eq!(worst(vec![Value::Nil, Value::Array(vec![]), bulk("x")]), None);
    }
}
