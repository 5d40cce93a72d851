//! Whatever a member answers, nothing panics, and nothing but the exact shape of a vote is a vote.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redis::Value;

use super::wire;
use crate::redlock::{Command, FencingToken, LockKey, LockValue, Reply};
use crate::time::UnixMicros;

fn bytes() -> BoxedStrategy<Vec<u8>> {
    let known = ["missing", "string", "other", "1", "-1", "9223372036854775808"];
    prop_oneof![
        vec(any::<u8>(), 0..24),
        "[0-9]{1,19}".prop_map(String::into_bytes),
        prop::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
    ]
    .boxed()
}

fn answer() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        Just(Value::Okay),
        prop_oneof![-2..3_i64, any::<i64>()].prop_map(Value::Int),
        bytes().prop_map(Value::BulkString),
        ".{0,8}".prop_map(Value::SimpleString),
        any::<f64>().prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
    ];
    leaf.prop_recursive(2, 12, 6, |inner| vec(inner, 0..7).prop_map(Value::Array)).boxed()
}

fn commands() -> [Command; 7] {
    let (key, value) = (LockKey::new("k"), LockValue::from_text("v"));
    let (ttl, px) = (Duration::from_secs(1), Duration::from_secs(1));
    [
        Command::Acquire { key: key.clone(), value: value.clone(), ttl, hint: FencingToken::ZERO },
        Command::RaiseCounter { key: key.clone(), value: value.clone(), token: FencingToken::ZERO },
        Command::Extend { key: key.clone(), value: value.clone(), ttl },
        Command::Repair { key: key.clone(), value: value.clone(), px, not_after: UnixMicros(1) },
        Command::Seal { key: key.clone(), value: value.clone(), sealed: value.clone(), lock_delay: ttl },
        Command::Release { key: key.clone(), value },
        Command::Inspect { key },
    ]
}

proptest! {
    #[test]
    fn any_answer_is_read(value in answer()) {
        let first = match &value {
            Value::Array(parts) => parts.first().cloned(),
            other => Some(other.clone()),
        };
        for command in commands() {
            let reply = wire::decode(&command, &value);
            if matches!(reply, Reply::Acquired { .. } | Reply::Extended { .. } | Reply::Raised | Reply::Sealed { .. }) {
                prop_assert_eq!(&first, &Some(Value::Int(1)), "{:?} is no yes to {:?}", &value, command);
            }
        }
        let _ = wire::read_preamble(std::slice::from_ref(&value));
    }
}
