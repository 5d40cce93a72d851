//! A look at keys and how long they live.

use super::{AdminConnection, number};
use crate::redis_member::wire;
use crate::redlock::MemberError;
use redis::{Value, cmd};
use std::time::Duration;

/// What `PTTL` says of a key that is not there.
const GONE: i64 = -2;

/// One page of a walk over all keys.
#[derive(Clone, PartialEq, Eq)]
pub struct TtlSample {
    /// Where to go on; 0 when the walk is over.
    pub cursor: u64,
    /// Keys, by the first 200 bytes of their names, and their time to live if they have one.
    pub keys: Vec<(String, Option<Duration>)>,
}

impl AdminConnection {
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
}
