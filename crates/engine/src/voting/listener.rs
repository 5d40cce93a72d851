//! Hints: a connection of its own to each member, on which the member passes on what clients tell of keys. It carries no votes.

use super::connect::CONNECT_DEADLINE;
use super::endpoint::login;
use super::resp::{self, Value};
use super::{Endpoint, Machine, Stream};
use crate::redlock::{LockKey, jittered};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// For each write.
const DEADLINE: Duration = Duration::from_secs(1);
/// The wait before the next connection attempt, doubled up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// A member that refuses to be listened to is asked again after so long.
const REFUSED: Duration = Duration::from_secs(60);
/// How often a connection is looked after.
const TICK: Duration = Duration::from_secs(1);
/// Ticks without any answer after which the connection is given up.
const SILENT_TICKS: u32 = 2;
/// Ticks for which a connection is kept that nothing is listened for on.
const UNUSED_TICKS: u32 = 10;

/// The keys that are listened for.
pub type Wanted = Arc<BTreeSet<LockKey>>;

/// Listens at one member, while there are keys to listen for.
pub struct Listener<F> {
    endpoint: watch::Receiver<Endpoint>,
    machine: Machine,
    wanted: watch::Receiver<Wanted>,
    heard: F,
}

/// What a member passes on, or how it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A client tells a number of a key.
    Number(&'a LockKey, i64),
    /// From now on the member passes on what is told of the key.
    Begins(&'a LockKey),
    /// It does so no longer.
    Ends(&'a LockKey),
    /// The connection has ended: it passes on nothing.
    EndsAll,
}

/// How a connection has ended.
enum End {
    Unused,
    Broken,
    /// The user may not subscribe, or the server cannot.
    Refused,
}

impl<F: Fn(Heard<'_>) + Send> Listener<F> {
    /// `heard` is called with all that the member tells.
    pub const fn new(
        endpoint: watch::Receiver<Endpoint>,
        machine: Machine,
        wanted: watch::Receiver<Wanted>,
        heard: F,
    ) -> Self {
        Self { endpoint, machine, wanted, heard }
    }

    /// Ends when nobody can want a key any more.
    pub async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        while self.wanted.wait_for(|keys| !keys.is_empty()).await.is_ok() {
            let end = self.listen(&mut backoff).await;
            (self.heard)(Heard::EndsAll);
            match end {
                End::Unused => {}
                End::Broken => {
                    sleep(jittered(backoff * 3 / 4, backoff / 4, rand::random())).await;
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
                End::Refused => {
                    tracing::debug!(
                        "the member refuses SUBSCRIBE: this client asks again after a pause to find out when a key is free"
                    );
                    sleep(REFUSED).await;
                }
            }
        }
    }

    async fn listen(&mut self, backoff: &mut Duration) -> End {
        let endpoint = self.endpoint.borrow().clone();
        let login = login(&endpoint, &*self.machine.network);
        let Ok(Ok(mut stream)) = timeout(CONNECT_DEADLINE, login).await else { return End::Broken };
        let mut subscribed = Wanted::default();
        let mut input = Vec::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut silent, mut unused) = (0, 0);
        loop {
            let wanted = Arc::clone(&self.wanted.borrow_and_update());
            let request = difference(&subscribed, &wanted);
            subscribed = wanted;
            if !write(&mut *stream, &request).await {
                return End::Broken;
            }
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() {
                    return End::Unused;
                },
                read = stream.read_buf(&mut input) => {
                    if !matches!(read, Ok(1..)) {
                        return End::Broken;
                    }
                    if let Err(end) = self.take(&mut input) {
                        return end;
                    }
                    (silent, *backoff) = (0, FIRST_BACKOFF);
                }
                _ = ticks.tick() => {
                    unused = if subscribed.is_empty() { unused + 1 } else { 0 };
                    if unused > UNUSED_TICKS {
                        return End::Unused;
                    }
                    silent += 1;
                    if silent > SILENT_TICKS || !write(&mut *stream, &ping()).await {
                        return End::Broken;
                    }
                }
            }
        }
    }

    /// Takes all complete replies from the buffer.
    fn take(&self, input: &mut Vec<u8>) -> Result<(), End> {
        let mut used = 0;
        while let Some((value, length)) = resp::parse(&input[used..]).map_err(|_| End::Broken)? {
            match value {
                Value::Error(line) if is_refusal(line) => return Err(End::Refused),
                // A process that loads its data or executes a slow script listens a moment later.
                Value::Error(_) => return Err(End::Broken),
                Value::Array(parts) => {
                    if let Some((key, number)) = announcement(&parts) {
                        (self.heard)(Heard::Number(&key, number));
                    } else if let [Value::Bulk(kind), Value::Bulk(channel), _] = &parts[..]
                        && let Some(key) = key_of(channel)
                    {
                        match *kind {
                            b"subscribe" => (self.heard)(Heard::Begins(&key)),
                            b"unsubscribe" => (self.heard)(Heard::Ends(&key)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            used += length;
        }
        input.drain(..used);
        Ok(())
    }
}

/// Whether the user has no right to subscribe, or the server does not know how.
fn is_refusal(line: &[u8]) -> bool {
    line.starts_with(b"NOPERM") || line.starts_with(b"ERR unknown command")
}

fn key_of(channel: &[u8]) -> Option<LockKey> {
    LockKey::of_channel(std::str::from_utf8(channel).ok()?)
}

/// What is told of which key.
fn announcement(parts: &[Value<'_>]) -> Option<(LockKey, i64)> {
    let [Value::Bulk(b"message"), Value::Bulk(channel), Value::Bulk(number)] = parts else { return None };
    let key = key_of(channel)?;
    Some((key, std::str::from_utf8(number).ok()?.parse().ok()?))
}

fn difference(subscribed: &BTreeSet<LockKey>, wanted: &BTreeSet<LockKey>) -> Vec<u8> {
    let mut request = Vec::new();
    let lists = [("SUBSCRIBE", wanted.difference(subscribed)), ("UNSUBSCRIBE", subscribed.difference(wanted))];
    for (name, keys) in lists {
        for key in keys {
            resp::command(&mut request, &[name, &key.channel()]);
        }
    }
    request
}

fn ping() -> Vec<u8> {
    let mut request = Vec::new();
    resp::command(&mut request, &["PING"]);
    request
}

/// Whether it was written.
async fn write(stream: &mut dyn Stream, bytes: &[u8]) -> bool {
    let written = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    bytes.is_empty() || matches!(timeout(DEADLINE, written).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_asked_for() {
        let keys = |names: &[&str]| names.iter().map(|name| LockKey::from(*name)).collect::<BTreeSet<_>>();
        let text =
            |before: &[&str], after: &[&str]| String::from_utf8(difference(&keys(before), &keys(after))).unwrap();
        assert_eq!(text(&["a", "b"], &["a", "b"]), "");
        let changed = text(&["a", "b"], &["b", "c"]);
        assert_eq!(
            changed,
            "*2\r\n$9\r\nSUBSCRIBE\r\n$26\r\nredisson_lock__channel:{c}\r\n\
             *2\r\n$11\r\nUNSUBSCRIBE\r\n$26\r\nredisson_lock__channel:{a}\r\n"
        );
    }

    #[test]
    fn only_a_lasting_refusal_ends_the_hints() {
        for (line, is_lasting) in [
            (&b"NOPERM this user has no permissions"[..], true),
            (b"ERR unknown command 'SUBSCRIBE'", true),
            (b"LOADING Redis is loading the dataset in memory", false),
            (b"BUSY Redis is busy running a script", false),
        ] {
            assert_eq!(is_refusal(line), is_lasting, "{line:?}");
        }
    }

    #[test]
    fn a_message_tells_a_number_of_a_key() {
        let message = |kind: &'static [u8], channel: &'static [u8], text: &'static [u8]| {
            announcement(&[Value::Bulk(kind), Value::Bulk(channel), Value::Bulk(text)])
        };
        let channel = b"redisson_lock__channel:{shop/a}";
        assert_eq!(message(b"message", channel, b"-12"), Some(("shop/a".into(), -12)));
        for (kind, channel, text) in [
            (&b"message"[..], &channel[..], &b"no number"[..]),
            (b"subscribe", channel, b"1"),
            (b"message", b"another", b"12"),
            (b"message", b"redisson_lock__channel:{\xff}", b"12"),
        ] {
            assert_eq!(message(kind, channel, text), None);
        }
    }
}
