//! How near a member is to its limits, who takes it there, and how to get that peer off it. Nothing here is guarded by the epoch or
//! runs in a transaction: a full member refuses transactions, and closing is right whichever replica does it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redis::{Pipeline, Value, cmd};

use super::slow::{ENTRIES, ScriptKill, Senders, field, is_own};
use super::{AdminConnection, kill, number};
use crate::redis_member::acl::{CLOSED, OPERATOR_USER};
use crate::redis_member::{Endpoint, Machine, wire};
use crate::redlock::MemberError;

/// Connections that have not logged in are this user's.
pub const NOBODY: &str = "default";
/// What `PTTL` says of a key that is not there.
const GONE: i64 = -2;
/// Bytes of the longest `CLIENT LIST` that is read: some 10,000 connections.
const LONGEST_LIST: usize = 4 << 20;

/// What a member uses of what it may use. Zero as a limit: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connections.
    pub connections: u64,
    /// `maxclients`.
    pub most_connections: u64,
    /// Bytes.
    pub memory: u64,
    /// `maxmemory`, bytes.
    pub most_memory: u64,
    /// Bytes that scripts take which clients have run or loaded: their texts, and what Lua has made of them. Redis keeps them until it is
    /// told not to, and what is Lua's counts for no limit.
    pub scripts: u64,
}

/// What a member runs out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strain {
    /// Connections: soon the operator could not connect.
    Connections,
    /// Memory: it refuses votes and the operator's transactions.
    Memory,
    /// Time, by scripts: no client is served meanwhile.
    Time,
}

impl fmt::Display for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Time => "time",
        })
    }
}

impl Load {
    pub(super) fn read(info: &str) -> Self {
        let field = |name| wire::info_field(info, name).and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        Self {
            connections: field("connected_clients"),
            most_connections: field("maxclients"),
            memory: field("used_memory"),
            most_memory: field("maxmemory"),
            scripts: field("used_memory_vm_eval") + field("used_memory_scripts_eval"),
        }
    }

    /// Whether what scripts take is worth throwing away: a client that uses one loads it again. A fifth of the limit; the libraries' and the
    /// operator's scripts take some 100 KB.
    pub fn is_full_of_scripts(&self) -> bool {
        self.most_memory > 0 && self.scripts.saturating_mul(5) >= self.most_memory
    }

    /// What has to be freed: memory at 95 % of its limit, connections at 80 %.
    pub fn strain(&self) -> Option<Strain> {
        let beyond =
            |used: u64, most: u64, percent: u64| most > 0 && used.saturating_mul(100) >= most.saturating_mul(percent);
        if beyond(self.memory, self.most_memory, 95) {
            Some(Strain::Memory)
        } else if beyond(self.connections, self.most_connections, 80) {
            Some(Strain::Connections)
        } else {
            None
        }
    }
}

/// The connections of each user: how many, and the bytes of their buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections(BTreeMap<String, (u64, u64)>);

impl Connections {
    fn read(list: &str) -> Self {
        let mut users = BTreeMap::<String, (u64, u64)>::new();
        for line in list.lines() {
            let Some(user) = field(line, "user") else { continue };
            let (count, bytes) = users.entry(user.to_owned()).or_default();
            *count += 1;
            *bytes += field(line, "tot-mem").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        }
        Self(users)
    }

    /// Who takes most of what a member runs out of, the operator's own users left out. [`NOBODY`] stands for all that have not logged
    /// in. Of time the list says nothing.
    pub fn heaviest(&self, strain: Strain) -> Option<&str> {
        let others = self.0.iter().filter(|(user, _)| !is_own(user) && strain != Strain::Time);
        let takes = |(count, bytes): (u64, u64)| if strain == Strain::Memory { bytes } else { count };
        others.max_by_key(|(_, of)| takes(**of)).map(|(user, _)| user.as_str())
    }
}

/// One page of a walk over all keys.
#[derive(Clone, PartialEq, Eq)]
pub struct TtlSample {
    /// Where to go on; 0 when the walk is over.
    pub cursor: u64,
    /// Keys, by the first 200 bytes of their names, and their time to live if they have one.
    pub keys: Vec<(String, Option<Duration>)>,
}

impl AdminConnection {
    /// Whose connections there are.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn connections(&mut self) -> Result<Connections, MemberError> {
        self.incoming.expect(LONGEST_LIST);
        let list = self.ask(cmd("CLIENT").arg("LIST")).await?;
        Ok(Connections::read(&wire::text(&list).ok_or_else(wire::unexpected)?))
    }

    /// Ends all connections of a user.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn cut_off(&mut self, user: &str) -> Result<(), MemberError> {
        self.ask(&kill(user)).await.map(drop)
    }

    /// Closes a user and ends its connections, whatever its memory says and whichever replica leads. Its opening is decided elsewhere.
    ///
    /// # Errors
    /// If there is no answer in time: it may or may not be closed.
    pub async fn shut_out(&mut self, user: &str) -> Result<(), MemberError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ACL").arg("SETUSER").arg(user).arg("clearselectors").arg(CLOSED.split(' ').collect::<Vec<_>>());
        pipeline.add_command(kill(user));
        self.ask_all(&pipeline).await.map(drop)
    }

    /// Throws away all scripts that the process keeps; a client that uses one loads it again. The operator gives itself the one command for
    /// this one moment: a user that may change users can do so anyway.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn forget_scripts(&mut self) -> Result<(), MemberError> {
        let rule = |rule| ["SETUSER", OPERATOR_USER, rule];
        let mut pipeline = Pipeline::new();
        pipeline.cmd("ACL").arg(&rule("+script|flush"));
        pipeline.cmd("SCRIPT").arg("FLUSH").arg("ASYNC");
        pipeline.cmd("ACL").arg(&rule("-script|flush"));
        self.ask_all(&pipeline).await.map(drop)
    }

    /// One page of about `count` keys and their times to live, from `cursor` (0 at first) on.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn sample_ttls(&mut self, cursor: u64, count: u32) -> Result<TtlSample, MemberError> {
        let script = include_str!("../scripts/sample.lua");
        let page = self.ask(cmd("EVAL").arg(script).arg(0).arg(cursor).arg(count)).await?;
        // Others' keys may be any bytes.
        let (cursor, found): (u64, Vec<Value>) = redis::from_redis_value(page).map_err(|_| wire::unexpected())?;
        let mut sample = TtlSample { cursor, keys: Vec::with_capacity(found.len() / 2) };
        let (pairs, _) = found.as_chunks::<2>();
        for [key, ttl] in pairs {
            let Value::BulkString(key) = key else { return Err(wire::unexpected()) };
            // -1: for ever. -2: gone in between.
            match number(ttl)? {
                Some(GONE) => {}
                millis => {
                    let ttl = millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
                    sample.keys.push((String::from_utf8_lossy(key).into_owned(), ttl));
                }
            }
        }
        Ok(sample)
    }

    /// Ends a script that has made a member BUSY. A connection of its own, since a busy process does not say who it is.
    ///
    /// # Errors
    /// If there is no connection or no answer in time, or the script has written and cannot be ended (`UNKILLABLE`).
    pub async fn kill_busy_script(
        endpoint: &Endpoint,
        machine: impl Into<Machine>,
        deadline: Duration,
    ) -> Result<ScriptKill, MemberError> {
        Self::open_connection(endpoint, machine.into(), deadline).await?.script_kill().await
    }

    /// Ends a running script.
    ///
    /// # Errors
    /// If there is no answer in time, or the script has written and cannot be ended (`UNKILLABLE`).
    pub async fn script_kill(&mut self) -> Result<ScriptKill, MemberError> {
        match self.ask(cmd("SCRIPT").arg("KILL")).await {
            Ok(_) => Ok(ScriptKill::Killed),
            Err(MemberError::Other(code)) if code == "NOTBUSY" => Ok(ScriptKill::NotBusy),
            Err(error) => Err(error),
        }
    }

    /// Ends a running script and looks who has sent long ones, in one step.
    ///
    /// Where the next script begins at once there is no other moment to look. `None`: the member was busy, or does not
    /// let the operator look.
    ///
    /// The operator may not read the log of slow commands, so it gives itself the one command for this one moment. A
    /// user that may change users can do so anyway.
    ///
    /// # Errors
    /// If there is no answer in time, or the script has written and cannot be ended (`UNKILLABLE`).
    pub async fn end_script(&mut self) -> Result<(ScriptKill, Option<Senders>), MemberError> {
        let rule = |rule| ["SETUSER", OPERATOR_USER, rule];
        let mut pipeline = Pipeline::new();
        pipeline.add_command(cmd("SCRIPT").arg("KILL").clone());
        pipeline.cmd("ACL").arg(&rule("+slowlog|get"));
        pipeline.cmd("SLOWLOG").arg("GET").arg(ENTRIES);
        pipeline.cmd("ACL").arg(&rule("-slowlog|get"));
        pipeline.cmd("TIME").cmd("CLIENT").arg("LIST");
        self.incoming.expect(LONGEST_LIST);
        let answers = self.exchange(&pipeline).await?;
        let [killed, _, log, _, time, list] = answers.as_slice() else { return Err(wire::unexpected()) };
        let killed = match killed {
            Value::ServerError(failure) => match wire::error(&failure.clone().into()) {
                MemberError::Other(code) if code == "NOTBUSY" => ScriptKill::NotBusy,
                error => return Err(error),
            },
            _ => ScriptKill::Killed,
        };
        let now = match time {
            Value::Array(parts) => parts.first().and_then(|seconds| number(seconds).ok().flatten()),
            _ => None,
        };
        let senders = wire::text(list).zip(now).filter(|_| matches!(log, Value::Array(_)));
        Ok((killed, senders.map(|(list, now)| Senders::read(log, &list, now))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_strained_shortly_before_it_refuses() {
        let load = |connections, memory| Load {
            connections,
            most_connections: 500,
            memory,
            most_memory: 1_000,
            ..Load::default()
        };
        assert_eq!(load(399, 949).strain(), None);
        assert_eq!(load(400, 949).strain(), Some(Strain::Connections));
        assert_eq!(load(400, 950).strain(), Some(Strain::Memory));
        assert_eq!(Load { connections: 9_000, memory: 9_000, ..Load::default() }.strain(), None, "no limits");
        let info = "used_memory:17\r\nmaxmemory:100\r\nconnected_clients:3\r\nmaxclients:512\r\n\
                    used_memory_vm_eval:12\r\nused_memory_scripts_eval:7\r\n";
        let read = Load { connections: 3, most_connections: 512, memory: 17, most_memory: 100, scripts: 19 };
        assert!(!read.is_full_of_scripts() && Load { scripts: 20, ..read }.is_full_of_scripts());
        assert!(!Load { scripts: 20, most_memory: 0, ..read }.is_full_of_scripts(), "no limit");
        assert_eq!(Load::read(info), read);
    }

    #[test]
    fn who_takes_most_is_named_and_the_operator_is_not() {
        let line = |user: &str, bytes: u64| format!("id=3 addr=10.0.0.1:5 tot-mem={bytes} user={user} resp=2\n");
        let mut list = line("operator", 900_000) + &line("locker-e7", 900_000) + &line("readiness", 800_000);
        assert_eq!(Connections::read(&list).heaviest(Strain::Memory), None);
        list += &(line("billing-e7", 10) + &line("billing-e7", 10) + &line("shop-e7", 70_000));
        let connections = Connections::read(&list);
        assert_eq!(connections.heaviest(Strain::Memory), Some("shop-e7"));
        assert_eq!(connections.heaviest(Strain::Connections), Some("billing-e7"));
        list += &line("default", 1).repeat(3);
        assert_eq!(Connections::read(&list).heaviest(Strain::Connections), Some(NOBODY));
    }
}
