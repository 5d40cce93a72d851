//! The condition QuorumAgrees: do all operators that share masters list the same members, and wait for each other's locks?

use super::said::{Agreed, Said};
use crate::quorum::model::agreement::{Agreement, Conflict, Sharing};
use crate::quorum::model::condition::Condition;
use crate::quorum::model::plan::Plan;
use crate::redis_member::{Claim, OtherClaim, relied_on};
use crate::time::Boottime;

/// What is known at `now`.
pub fn quorum_agrees(agreement: &Agreement, plan: &Plan, now: Boottime) -> Condition {
    let said = match (agreement.sharing(now), agreement.claim()) {
        (Sharing::NotShared, _) => Said::NotShared,
        (_, None) => Said::NothingInForce,
        (Sharing::Conflict(Conflict::List(other)), Some(own)) => {
            Said::OtherList { other: other.name, theirs: other.list, ours: own.list.clone() }
        }
        (Sharing::Conflict(Conflict::Longer(other)), Some(own)) => {
            Said::LargerMaxTtl { other: other.name, theirs: other.uses.into(), ours: own.fence.into() }
        }
        (Sharing::Joining(members), _) => {
            let named =
                |name: &_| agreement.trouble(name).map_or_else(|| format!("{name}"), |why| format!("{name} ({why})"));
            Said::Joining { members: members.iter().map(named).collect::<Vec<_>>().join(", ") }
        }
        (Sharing::Agreed(others), Some(own)) => {
            Said::Agrees { agreed: agreed(plan, own, &others, &agreement.behind(now)) }
        }
    };
    said.condition()
}

/// The list that a claim comes to.
fn newest(list: &str) -> &str {
    relied_on(list, true).next().unwrap_or_default()
}

fn agreed(plan: &Plan, own: &Claim, others: &[OtherClaim], behind: &[OtherClaim]) -> String {
    let names: Vec<&str> = plan.external.iter().map(|member| member.name.as_str()).collect();
    let mut parts = vec![match others {
        [] => Said::NotShared.to_string(),
        others => {
            let others: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
            Agreed::SameMembers { others: others.join(", ") }.to_string()
        }
    }];
    for other in others.iter().filter(|other| newest(&other.list) != newest(&own.list)) {
        let (other_name, list) = (other.name.clone(), newest(&other.list).to_owned());
        let change = match behind.contains(other) {
            true => Agreed::Behind { other: other_name },
            false => Agreed::Ahead { other: other_name, list },
        };
        parts.push(change.to_string());
    }
    if let Some(shortest) = others.iter().filter(|other| other.fence < own.fence).min_by_key(|other| other.fence) {
        let (other, max_ttl, theirs) = (shortest.name.clone(), own.fence.into(), shortest.fence.into());
        parts.push(Agreed::AwaitsFences { other, max_ttl, theirs }.to_string());
    }
    parts.push(Agreed::OperatorsOnly { members: names.join(", ") }.to_string());
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::RedisQuorum;
    use crate::api::conditions::{CommonReason, Status};
    use crate::quorum::model::plan::validate;
    use crate::redis_member::RecordLook;
    use crate::redlock::{MemberName, RunId};

    fn plan() -> Plan {
        let spec = r#"{"members": 0, "external": [{"name": "vm", "address": "vm.example:6379"}]}"#;
        let mut quorum = RedisQuorum::new("main", serde_json::from_str(spec).unwrap());
        (quorum.metadata.namespace, quorum.metadata.uid) = (Some("locks".into()), Some("uid".into()));
        validate(&quorum).unwrap()
    }

    fn say(kept: bool, fence: u64, other: Option<(&str, u64, u64)>) -> Condition {
        let now = Boottime::new(Duration::from_secs(100));
        let vm = MemberName::from("vm");
        let mut agreement = Agreement::new([vm.clone()]);
        agreement.set_claim(Some(Claim {
            uid: "uid".into(),
            name: "locks/main".into(),
            list: "vm.example:6379".into(),
            newest: false,
            epoch: 1,
            phase: 3,
            generation: 1,
            fence: Duration::from_secs(fence),
            used: Duration::from_secs(fence),
            lives: Duration::from_secs(70),
            joined: false,
        }));
        let others = other.map(|(list, fence, uses)| OtherClaim {
            uid: "x".into(),
            name: "shop/theirs".into(),
            list: list.into(),
            newest: false,
            fence: Duration::from_secs(fence),
            uses: Duration::from_secs(uses),
            left: Duration::from_secs(9),
        });
        let kept = kept.then(|| Duration::from_secs(fence));
        let look = RecordLook { kept, others: others.into_iter().collect(), ..RecordLook::default() };
        agreement.saw(&vm, &RunId::new("r"), &look, now);
        quorum_agrees(&agreement, &plan(), now)
    }

    fn has(agreement: &Condition, holds: Status, reason: CommonReason, parts: &[&str]) {
        assert_eq!((agreement.holds, agreement.reason), (holds, reason), "{agreement:?}");
        for part in parts {
            assert!(agreement.message.contains(part), "{agreement:?}");
        }
    }

    #[test]
    fn who_disagrees_is_named_with_both_sides() {
        let list = say(false, 30, Some(("other.example:6379", 30, 30)));
        let parts = ["shop/theirs", "other.example:6379", "vm.example:6379"];
        has(&list, Status::False, CommonReason::OtherMemberList, &parts);
        let longer = say(false, 10, Some(("vm.example:6379", 30, 30)));
        has(
            &longer,
            Status::False,
            CommonReason::LargerMaxTTL,
            &["shop/theirs", "ttls of up to 30s", "wait for 10s", "maxTTL to 30s"],
        );
        has(&say(false, 30, None), Status::Unknown, CommonReason::Joining, &["vm"]);
    }

    #[test]
    fn agreement_says_for_whom_the_fence_does_not_hold() {
        let parts = ["fence of vm", "outside the guarantee"];
        has(&say(true, 30, None), Status::True, CommonReason::AsExpected, &parts);
        let shared = say(true, 30, Some(("vm.example:6379", 10, 10)));
        has(&shared, Status::True, CommonReason::AsExpected, &["shop/theirs", "maxTTL 30s comes into force", "10s"]);
        let changes = say(true, 30, Some(("new.example:6379|vm.example:6379", 30, 30)));
        let parts = ["shop/theirs changes to new.example:6379: set the same addresses here"];
        has(&changes, Status::True, CommonReason::AsExpected, &parts);
        let alone = quorum_agrees(&Agreement::new([]), &plan(), Boottime::default());
        has(&alone, Status::True, CommonReason::NotShared, &[]);
    }
}
