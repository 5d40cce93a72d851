//! No answer of a member causes a panic. The tests of the library cover votes.

use proptest::collection::vec;
use proptest::prelude::*;
use redis::Value;

use super::acl::CLOSED;
use super::admin::is_open;
use super::wire;
use crate::redlock::ValueSigner;
use crate::time::UnixMicros;

fn bytes() -> BoxedStrategy<Vec<u8>> {
    let commands = ["missing", "string", "other", "1", "-1", "9223372036854775808", "commands", "selectors", CLOSED];
    prop_oneof![
        vec(any::<u8>(), 0..24),
        "[0-9]{1,19}".prop_map(String::into_bytes),
        prop::sample::select(commands.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
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

proptest! {
    #[test]
    fn any_number_is_read(value in answer()) {
        let _both = (wire::read::<Option<i64>>(&value), wire::time(&value));
    }

    #[test]
    fn any_info_is_read(info in "([ -~]|\r\n|run_id:|:|é){0,30}", name in "[a-z_]{0,8}") {
        let _both = (wire::info_field(&info, &name), wire::identity(&info, "run_id"));
    }

    #[test]
    fn a_field_is_found_among_others(
        fields in prop::collection::btree_map("[a-z_]{1,12}", "[ -~]{0,20}", 1..9),
        pick: prop::sample::Index,
    ) {
        let info: String = fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        let (name, value) = fields.iter().nth(pick.index(fields.len())).unwrap();
        prop_assert_eq!(wire::info_field(&info, name), Some(value.as_str()));
        prop_assert_eq!(wire::info_field(&info, &format!("{name}x")).is_some(), fields.contains_key(&format!("{name}x")));
    }

    #[test]
    fn a_time_is_read_back(seconds in 0..4_000_000_000_i64, micros in 0..1_000_000_i64) {
        let bulk = |number: i64| Value::BulkString(number.to_string().into_bytes());
        let answer = Value::Array(vec![bulk(seconds), bulk(micros)]);
        prop_assert_eq!(wire::time(&answer), Ok(UnixMicros(seconds * 1_000_000 + micros)));
    }

    /// Checks that a user with one more command, a selector or another text is open.
    ///
    /// Only a user that does not exist, or has exactly the commands of a closed user, is not open.
    #[test]
    fn a_user_that_is_not_closed_to_the_letter_is_open(
        commands in prop_oneof![Just(CLOSED.to_owned()), ".{0,30}", " ?[+][a-z]{3,5}".prop_map(|more| CLOSED.to_owned() + &more)],
        selectors in vec(answer(), 0..2),
        others in vec((bytes(), answer()), 0..3),
    ) {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let is_closed = commands == CLOSED && selectors.is_empty();
        let others = others.into_iter().filter(|(name, _)| name != b"commands" && name != b"selectors");
        let mut fields: Vec<_> = others.flat_map(|(name, value)| [Value::BulkString(name), value]).collect();
        fields.extend([bulk("commands"), bulk(&commands), bulk("selectors"), Value::Array(selectors)]);
        prop_assert_eq!(is_open(&Value::Array(fields)), !is_closed);
    }

    #[test]
    fn any_other_answer_about_a_user_is_open(value in answer()) {
        prop_assert_eq!(is_open(&value), value != Value::Nil);
    }

    #[test]
    fn only_signed_values_are_recognised(value in bytes(), key in bytes(), uid in ".{0,40}") {
        let signer = ValueSigner::new(&key);
        let text = String::from_utf8_lossy(&value);
        prop_assert_eq!(signer.recognise(&uid, &text), None, "a peer cannot guess a value");
        let nonce = crate::redlock::Nonce::random();
        let ours = signer.value(&uid, &nonce);
        prop_assert_eq!(signer.recognise(&uid, ours.expose()), Some(nonce));
        prop_assert!(signer.recognise_sealed(&uid, &nonce, signer.sealed(&ours).expose()));
        prop_assert!(!signer.recognise_sealed(&uid, &nonce, &text));
    }
}
