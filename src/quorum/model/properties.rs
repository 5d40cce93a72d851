//! Any RedisQuorum that can be read is judged without a panic, and what is known of its members survives being published.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::auth::Auth;
use super::build::{Transport, build, operator_pods};
use super::record::{Stamps, publish, record_of};
use super::{effective, plan, users};
use crate::api::RedisQuorum;
use crate::time::Monotonic;
use redlock_api::test_util::{accepted, config, object};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_quorum_is_judged(value in prop_oneof![object("RedisQuorum"), accepted("RedisQuorum", 0.4)], held: bool, now in 0..1_u64 << 40) {
        let Ok(mut quorum) = serde_json::from_value::<RedisQuorum>(value) else { return Ok(()) };
        if let Ok(plan) = plan::validate(&quorum) {
            let _objects = build(&plan, &Auth::random(), operator_pods("operator", &BTreeMap::new()), &Transport::default());
            prop_assert!([1, 3, 5, 7, 9].contains(&plan.lists.wanted.len()));
        }
        let _all = (users::voting_users(&quorum, "fuzz-0"), effective::settings(&quorum), effective::clock_rule(&quorum));
        let before = effective::rejoin_delay_of(&quorum);
        let mut count = None;
        let (max_ttl, again) = effective::next(&quorum, &mut count, held, Monotonic::new(Duration::from_millis(now)));
        prop_assert!(again.is_none_or(|again| again >= Monotonic::new(Duration::from_millis(now))));
        effective::publish(quorum.status.get_or_insert_default(), max_ttl);
        // The first check lowers no value, and no fence waits for less than the value in force.
        prop_assert!(before == Duration::MAX || effective::rejoin_delay_of(&quorum) >= before);
    }

    #[test]
    fn any_record_survives_being_published(value in object("RedisQuorum")) {
        let Ok(quorum) = serde_json::from_value::<RedisQuorum>(value) else { return Ok(()) };
        for member in quorum.status.into_iter().flat_map(|status| status.members) {
            let record = record_of(&member);
            let mut published = member.clone();
            let stamps = Stamps { admitted_at: crate::api::MilliTime::from_millis(1), ..Stamps::default() };
            publish(&mut published, &record, stamps);
            // A record without a process has no place. A reason without its own place is replaced by another.
            prop_assert_eq!(record_of(&published), record);
        }
    }
}
