//! No answer of a member causes a panic, and only the exact shape of a vote is a vote.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::encoded_requests::EncodedRequests;
use super::pipeline::Pipeline;
use super::request_queue::Request;
use super::resp::Value;
use super::rights::Rights;
use super::wire;
use crate::redlock::{AnswerSlot, Command, FencingToken, LockKey, LockValue, Reply};
use crate::time::UnixMicros;

/// Texts, so that values can borrow from them.
fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let valid = ["missing", "string", "other", "1", "-1", "9223372036854775808"];
    let text = prop_oneof![
        vec(any::<u8>(), 0..24),
        "[0-9]{1,19}".prop_map(String::into_bytes),
        prop::sample::select(valid.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
    ];
    vec(text, 8)
}

/// The kind of a value, and the index of its text.
fn shapes() -> impl Strategy<Value = Vec<(u8, usize, i64)>> {
    vec((0..6_u8, 0..8_usize, prop_oneof![-2..3_i64, any::<i64>()]), 1..8)
}

fn answer<'t>(texts: &'t [Vec<u8>], shapes: &[(u8, usize, i64)], is_array: bool) -> Value<'t> {
    let leaf = |(kind, text, number): &(u8, usize, i64)| match kind {
        0 => Value::Nil,
        1 => Value::Simple(&texts[*text]),
        2 => Value::Int(*number),
        3 => Value::Error(&texts[*text]),
        _ => Value::Bulk(&texts[*text]),
    };
    if is_array { Value::Array(shapes.iter().map(leaf).collect()) } else { leaf(&shapes[0]) }
}

fn commands() -> [Command; 8] {
    let (key, value) = (LockKey::new("k"), LockValue::from_text("v"));
    let (ttl, px) = (Duration::from_secs(1), Duration::from_secs(1));
    [
        Command::Acquire { key: key.clone(), value: value.clone(), ttl, token: true, not_after: None },
        Command::RaiseCounter { key: key.clone(), value: value.clone(), token: FencingToken::ZERO, behind: 0 },
        Command::Extend { key: key.clone(), value: value.clone(), ttl },
        Command::Repair { key: key.clone(), value: value.clone(), px, until: UnixMicros(2), not_after: UnixMicros(1) },
        Command::Seal { key: key.clone(), value: value.clone(), sealed: value.clone(), lock_delay: ttl, least: ttl },
        Command::Release { key: key.clone(), value },
        Command::Announce { key: key.clone(), number: 1 },
        Command::Inspect { key },
    ]
}

proptest! {
    #[test]
    fn any_answer_is_read(texts in texts(), shapes in shapes(), is_array: bool) {
        let value = answer(&texts, &shapes, is_array);
        let first = match &value {
            Value::Array(elements) => elements.first().cloned(),
            other => Some(other.clone()),
        };
        for command in commands() {
            let reply = wire::decode(&command, &value);
            if matches!(reply, Reply::Acquired { .. } | Reply::Extended { .. } | Reply::Raised | Reply::Sealed { .. }) {
                prop_assert_eq!(&first, &Some(Value::Int(1)), "{:?} is no yes to {:?}", &value, command);
            }
        }
    }

    #[test]
    fn any_bytes_end_a_connection_or_are_read(bytes in vec(prop_oneof![any::<u8>(), prop::sample::select(b"+-:$*0123\r\n".to_vec())], 0..80)) {
        let clock = std::sync::Arc::new(crate::time::SystemClock);
        for rights in [Rights::Full, Rights::Direct, Rights::Reader] {
            let mut pipeline = Pipeline::new(clock.clone(), rights, "alias".into());
            let [.., release, _, _] = commands();
            let commands = commands().into_iter().chain(vec![release; 5]);
            let requests = commands.map(|command| Request { commands: [command].into(), slot: AnswerSlot::detached() });
            pipeline.write(requests, Vec::new(), &mut EncodedRequests::default());
            if let Ok(used) = pipeline.read(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
