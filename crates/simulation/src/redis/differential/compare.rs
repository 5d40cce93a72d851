//! Reads replies, and compares them.

use std::fmt;
use std::io::BufRead;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(String),
    Nil,
    NilArray,
    Array(Vec<Read>),
    /// No reply: the connection has ended.
    Closed,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

pub(super) fn read(from: &mut impl BufRead) -> Read {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line).is_err() || !line.ends_with(b"\r\n") {
        return Read::Closed;
    }
    let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
    match line[0] {
        b'+' => Read::Status(text),
        b'-' => Read::Error(text),
        b':' => Read::Int(text.parse().unwrap()),
        b'$' if text == "-1" => Read::Nil,
        b'$' => {
            let mut bytes = vec![0; text.parse::<usize>().unwrap() + 2];
            if from.read_exact(&mut bytes).is_err() {
                return Read::Closed;
            }
            Read::Bulk(String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned())
        }
        b'*' if text == "-1" => Read::NilArray,
        b'*' => Read::Array((0..text.parse().unwrap()).map(|_| read(from)).collect()),
        other => panic!("no answer: {other}"),
    }
}

/// The difference between the replies to a request, if there is one.
pub(super) fn differ(request: &[Vec<u8>], real: &Read, model: &Read) -> Option<&'static str> {
    let word = |at: usize| request.get(at).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
    let (name, sub) = (word(0).unwrap_or_default(), word(1).unwrap_or_default());
    match (name.as_str(), sub.as_str()) {
        // Client IDs differ.
        ("CLIENT", "ID") if matches!((real, model), (Read::Int(_), Read::Int(_))) => return None,
        ("CLIENT", "LIST" | "INFO") if matches!((real, model), (Read::Bulk(_), Read::Bulk(_))) => return None,
        _ => {}
    }
    let unordered = name == "KEYS";
    let (real, model) = (usual(real, unordered), usual(model, unordered));
    (!same(&real, &model)).then_some("they differ")
}

/// Sorts unordered replies, and removes a script's line number from errors.
///
/// The state machine cannot determine this line after a tail call.
fn usual(answer: &Read, unordered: bool) -> Read {
    match answer {
        Read::Error(text) => Read::Error(match text.split_once(", on @user_script:") {
            Some((text, _)) => text.to_owned(),
            None => text.clone(),
        }),
        Read::Bulk(text) if text.contains("@all") => {
            let mut arguments: Vec<&str> = text.split(' ').collect();
            arguments.sort_unstable();
            Read::Bulk(arguments.join(" "))
        }
        Read::Array(parts) => {
            let mut parts: Vec<Read> = parts.iter().map(|part| usual(part, unordered)).collect();
            // This is a page of SCAN. A reply to EXEC can contain one.
            if let [Read::Bulk(_), Read::Array(keys)] = &mut parts[..] {
                keys.sort_by_key(|key| format!("{key:?}"));
            }
            if unordered {
                parts.sort_by_key(|part| format!("{part:?}"));
            }
            Read::Array(parts)
        }
        other => other.clone(),
    }
}

fn same(real: &Read, model: &Read) -> bool {
    match (real, model) {
        // Times to live, from clocks that were read at different moments.
        (Read::Int(real), Read::Int(model)) if *real > 1_000 && *model > 1_000 => real.abs_diff(*model) < 5_000,
        (Read::Bulk(real), Read::Bulk(model)) if real.starts_with("# ") => same_info(real, model),
        (Read::Array(real), Read::Array(model)) => {
            real.len() == model.len()
                && (same_times(real, model) || real.iter().zip(model).all(|(real, model)| same(real, model)))
        }
        _ => real == model,
    }
}

/// Compares replies whose last two elements are those of TIME.
fn same_times(real: &[Read], model: &[Read]) -> bool {
    let time = |parts: &[Read]| match parts {
        [.., Read::Bulk(seconds), Read::Bulk(micros)] => {
            let (seconds, micros) = (seconds.parse::<i64>().ok()?, micros.parse::<i64>().ok()?);
            (seconds > 1_000_000_000).then_some(seconds * 1_000_000 + micros)
        }
        _ => None,
    };
    let (Some(real_time), Some(model_time)) = (time(real), time(model)) else { return false };
    let rest = |parts: &[Read]| parts[..parts.len() - 2].to_vec();
    real_time.abs_diff(model_time) < 5_000_000 && rest(real).iter().zip(&rest(model)).all(|(r, m)| same(r, m))
}

/// Compares the modelled fields of INFO.
fn same_info(real: &str, model: &str) -> bool {
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    };
    let compared = ["redis_version", "redis_mode", "role", "aof_enabled", "maxmemory", "maxmemory_policy", "loading"];
    let there = ["run_id", "uptime_in_seconds", "used_memory", "connected_clients", "master_replid"];
    compared.iter().all(|name| field(real, name) == field(model, name))
        && there.iter().all(|name| field(real, name).is_some() == field(model, name).is_some())
}
