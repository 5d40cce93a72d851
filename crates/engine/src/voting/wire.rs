//! Encodes commands, and decodes replies in [`decode`](mod@decode).

mod decode;

pub(super) use decode::{decode, number, remaining, run_id, value_of};
pub use decode::{error, is_full};

use std::time::Duration;

use super::guard::{Guard, RECORD_KEY};
use super::resp::{begin, bulk, bulk_number, command};
use super::rights::Rights;
use super::scripts::Script;
use crate::redlock::{Command, LockKey, TOKEN_KEY};

/// Loads the scripts and requests the `run_id`.
///
/// Returns the number of replies.
///
/// A loaded script stays for the life of the connection, because that does not outlive the process.
pub(super) fn add_preamble(out: &mut Vec<u8>, rights: &Rights) -> usize {
    let load = |out: &mut Vec<u8>, scripts: &[&Script]| {
        scripts.iter().for_each(|script| command(out, &["SCRIPT", "LOAD", script.code]));
        scripts.len()
    };
    if !rights.allow_info() {
        return load(out, &rights.scripts().of_clients());
    }
    let loaded = load(out, &rights.scripts().all());
    // The whole INFO: a list of sections needs version 7.
    command(out, &["INFO"]);
    // The member keeps the operator's connections longest when it runs out of memory for its clients. An external master can refuse this
    // command.
    command(out, &["CLIENT", "NO-EVICT", "ON"]);
    loaded + 2
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Adds `SET key value NX PX ttl`, and `INCR #token` right behind it if the vote takes a token.
pub(super) fn plain_acquire(out: &mut Vec<u8>, key: &LockKey, value: &str, ttl: Duration, token: bool) {
    begin(out, 6);
    bulk(out, "SET");
    bulk(out, key.as_str());
    bulk(out, value);
    bulk(out, "NX");
    bulk(out, "PX");
    bulk_number(out, millis(ttl));
    if token {
        command(out, &["INCR", TOKEN_KEY]);
    }
}

/// Adds GET, PTTL and GET again, for [`super::pending_replies::Inspection`].
pub(super) fn plain_inspect(out: &mut Vec<u8>, key: &LockKey) {
    for name in ["GET", "PTTL", "GET"] {
        command(out, &[name, key.as_str()]);
    }
}

/// Adds INCRs, and a GET of the key behind them: a client's way to raise a counter.
pub(super) fn increments(out: &mut Vec<u8>, key: &LockKey, missing: u32) {
    for _ in 0..missing {
        command(out, &["INCR", TOKEN_KEY]);
    }
    command(out, &["GET", key.as_str()]);
}

/// Adds PUBLISH on the key's channel.
fn announcement(out: &mut Vec<u8>, key: &LockKey, number: i64) {
    begin(out, 3);
    bulk(out, "PUBLISH");
    bulk(out, key.channel());
    bulk(out, number.to_string());
}

/// Begins a script call with its keys.
///
/// The caller adds this number of arguments.
pub(super) fn call(out: &mut Vec<u8>, script: &Script, keys: &[&str], arguments: usize) {
    begin(out, 3 + keys.len() + arguments);
    bulk(out, "EVALSHA");
    bulk(out, &script.sha1);
    bulk_number(out, keys.len() as u64);
    keys.iter().for_each(|key| bulk(out, key));
}

/// Adds one script call or one announcement.
///
/// The script checks the record only for votes, because a late release or seal does no harm.
pub(super) fn encode(out: &mut Vec<u8>, asked: &Command, rights: &Rights) {
    let (scripts, guard) = (rights.scripts(), rights.guard());
    let vote = |out: &mut Vec<u8>, script: &Script, keys: &[&str], arguments: usize| match guard {
        Some(_) => call(out, script, &[keys, &[RECORD_KEY][..]].concat(), arguments + 3),
        None => call(out, script, keys, arguments),
    };
    let guarded = |out: &mut Vec<u8>| {
        if let Some(Guard { uid, epoch, since }) = guard {
            bulk(out, uid);
            bulk(out, epoch.to_string());
            bulk(out, since.map(|since| since.to_string()).unwrap_or_default());
        }
    };
    match asked {
        Command::Acquire { key, value, ttl, not_after, .. } => {
            vote(out, &scripts.acquire, &[key.as_str(), TOKEN_KEY], 3);
            bulk(out, value.expose());
            bulk_number(out, millis(*ttl));
            bulk(out, not_after.map_or(i64::MAX, |time| time.0).to_string());
            guarded(out);
        }
        Command::RaiseCounter { key, value, token, .. } => {
            call(out, &scripts.raise_counter, &[key.as_str(), TOKEN_KEY], 2);
            bulk(out, value.expose());
            bulk(out, token.get().to_string());
        }
        Command::Extend { key, value, ttl } => {
            vote(out, &scripts.extend, &[key.as_str()], 2);
            bulk(out, value.expose());
            bulk_number(out, millis(*ttl));
            guarded(out);
        }
        Command::Repair { key, value, px, until, not_after } => {
            call(out, &scripts.repair, &[key.as_str()], 4);
            bulk(out, value.expose());
            bulk_number(out, millis(*px));
            bulk(out, until.0.to_string());
            bulk(out, not_after.0.to_string());
        }
        Command::Seal { key, value, sealed, lock_delay, least } => {
            call(out, &scripts.seal, &[key.as_str()], 4);
            bulk(out, value.expose());
            bulk(out, sealed.expose());
            bulk_number(out, millis(*lock_delay));
            bulk_number(out, millis(*least));
        }
        Command::Release { key, value } => {
            call(out, &scripts.release, &[key.as_str()], 1);
            bulk(out, value.expose());
        }
        Command::Announce { key, number } => announcement(out, key, *number),
        Command::Restore { token } => {
            call(out, &scripts.restore, &[TOKEN_KEY], 1);
            bulk(out, token.get().to_string());
        }
        Command::Inspect { key } => call(out, &scripts.inspect, &[key.as_str()], 0),
    }
}
