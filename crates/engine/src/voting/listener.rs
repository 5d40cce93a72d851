//! Receives hints: notifications of clients about keys, over a second connection to each member.
//!
//! It carries no votes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::connect::CONNECT_DEADLINE;
use super::endpoint::login;
use super::resp::{self, Value};
use super::{Endpoint, Machine, Stream};
use crate::redlock::{LockKey, jittered};

/// Deadline of each write.
const DEADLINE: Duration = Duration::from_secs(1);
/// The wait before the next connection attempt, doubled up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Pause before the next attempt at a member that refuses subscriptions.
const REFUSAL_PAUSE: Duration = Duration::from_secs(60);
/// Interval of checks of a connection.
const TICK: Duration = Duration::from_secs(1);
/// Ticks without any answer after which the listener closes the connection.
const SILENT_TICKS: u32 = 2;
/// Ticks after which a connection without subscriptions is closed.
const UNUSED_TICKS: u32 = 10;

/// The keys with a subscription.
pub type Wanted = Arc<BTreeSet<LockKey>>;

/// Subscribes to keys at one member, while there are wanted keys.
pub struct Listener<F> {
    endpoint: watch::Receiver<Endpoint>,
    machine: Machine,
    wanted: watch::Receiver<Wanted>,
    on_notification: F,
}

/// An event on the connection to one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification<'a> {
    /// A client has published a number for the key.
    Published(&'a LockKey, i64),
    /// The member has confirmed the subscription to the key.
    Subscribed(&'a LockKey),
    /// The member has ended the subscription to the key.
    Unsubscribed(&'a LockKey),
    /// The connection has ended, with all its subscriptions.
    Disconnected,
}

/// The reason for the end of a connection.
enum End {
    Unused,
    Broken,
    /// The user has no permission to subscribe, or the server cannot.
    Refused,
}

impl<F: Fn(Notification<'_>) + Send> Listener<F> {
    /// Makes a listener that calls `on_notification` with each event.
    pub const fn new(
        endpoint: watch::Receiver<Endpoint>,
        machine: Machine,
        wanted: watch::Receiver<Wanted>,
        on_notification: F,
    ) -> Self {
        Self { endpoint, machine, wanted, on_notification }
    }

    /// Runs until all senders of wanted keys are dropped.
    pub async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        while self.wanted.wait_for(|keys| !keys.is_empty()).await.is_ok() {
            let end = self.listen(&mut backoff).await;
            (self.on_notification)(Notification::Disconnected);
            match end {
                End::Unused => {}
                End::Broken => {
                    sleep(jittered(backoff * 3 / 4, backoff / 4, rand::random())).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                End::Refused => {
                    tracing::debug!(
                        "the member refuses SUBSCRIBE: this client asks again after a pause to find out when a key is free"
                    );
                    sleep(REFUSAL_PAUSE).await;
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

    /// Consumes all complete replies in the buffer.
    fn take(&self, input: &mut Vec<u8>) -> Result<(), End> {
        let mut used = 0;
        while let Some((value, length)) = resp::parse(&input[used..]).map_err(|_| End::Broken)? {
            match value {
                Value::Error(line) if is_refusal(line) => return Err(End::Refused),
                // A process that loads its data or executes a slow script accepts subscriptions later.
                Value::Error(_) => return Err(End::Broken),
                Value::Array(elements) => {
                    if let Some((key, number)) = published(&elements) {
                        (self.on_notification)(Notification::Published(&key, number));
                    } else if let [Value::Bulk(kind), Value::Bulk(channel), _] = &elements[..]
                        && let Some(key) = key_of(channel)
                    {
                        match *kind {
                            b"subscribe" => (self.on_notification)(Notification::Subscribed(&key)),
                            b"unsubscribe" => (self.on_notification)(Notification::Unsubscribed(&key)),
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

/// Returns true if the user has no permission to subscribe, or the server lacks the command.
fn is_refusal(line: &[u8]) -> bool {
    line.starts_with(b"NOPERM") || line.starts_with(b"ERR unknown command")
}

fn key_of(channel: &[u8]) -> Option<LockKey> {
    LockKey::of_channel(std::str::from_utf8(channel).ok()?)
}

/// The key and the number of a published message.
fn published(elements: &[Value<'_>]) -> Option<(LockKey, i64)> {
    let [Value::Bulk(b"message"), Value::Bulk(channel), Value::Bulk(number)] = elements else { return None };
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

/// Returns true if the bytes were written.
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
    fn only_changed_keys_are_subscribed_or_unsubscribed() {
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
    fn a_published_message_has_a_key_and_a_number() {
        let message = |kind: &'static [u8], channel: &'static [u8], text: &'static [u8]| {
            published(&[Value::Bulk(kind), Value::Bulk(channel), Value::Bulk(text)])
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
