//! The condition QuorumAgrees: do all operators that share masters list the same members, and wait for each other's locks?

use crate::api::GoDuration;
use crate::api::conditions::{CommonReason, QuorumCondition, Status};
use crate::quorum::model::agreement::{Agreement, Conflict, Sharing};
use crate::quorum::model::condition::Condition;
use crate::quorum::model::plan::Plan;
use crate::redis_member::{Claim, OtherClaim, relied_on};
use crate::time::Boottime;

/// What is known at `now`.
pub fn quorum_agrees(agreement: &Agreement, plan: &Plan, now: Boottime) -> Condition {
    let (holds, reason, message) = match (agreement.sharing(now), agreement.claim()) {
        (Sharing::NotShared, _) => {
            (Status::True, CommonReason::NotShared, "no other operator uses these members".to_owned())
        }
        (_, None) => (Status::Unknown, CommonReason::Unknown, "nothing is in force yet".to_owned()),
        (Sharing::Conflict(Conflict::List(other)), Some(own)) => {
            (Status::False, CommonReason::OtherMemberList, other_list(own, &other))
        }
        (Sharing::Conflict(Conflict::Longer(other)), Some(own)) => {
            (Status::False, CommonReason::LargerMaxTTL, longer(own, &other))
        }
        (Sharing::Joining(members), _) => {
            let names: Vec<String> = members
                .iter()
                .map(|name| agreement.trouble(name).map_or_else(|| name.to_string(), |why| format!("{name} ({why})")))
                .collect();
            let message = format!(
                "the quorum votes once every external member has shown that no other operator disagrees; these have not: {}",
                names.join(", ")
            );
            (Status::Unknown, CommonReason::Joining, message)
        }
        (Sharing::Agreed(others), Some(own)) => {
            (Status::True, CommonReason::AsExpected, agreed(plan, own, &others, &agreement.behind(now)))
        }
    };
    Condition { type_: QuorumCondition::QuorumAgrees, holds, reason, message }
}

fn other_list(own: &Claim, other: &OtherClaim) -> String {
    format!(
        "RedisQuorum {} uses some of these members with another list, so majorities need not meet, and this one does not vote. \
         Its list: {}. This one's: {}. Write the same addresses in both. When it is gone, its list counts for as long as its \
         locks may live",
        other.name, other.list, own.list
    )
}

fn longer(own: &Claim, other: &OtherClaim) -> String {
    format!(
        "RedisQuorum {} uses these members with times to live up to {}, and the fences of this one wait for {} only, so this one \
         does not vote: write maxTTL: {} here, or lower it there first",
        other.name,
        GoDuration::from(other.uses),
        GoDuration::from(own.fence),
        GoDuration::from(other.uses),
    )
}

/// The list that a claim comes to.
fn newest(list: &str) -> &str {
    relied_on(list, true).next().unwrap_or_default()
}

fn agreed(plan: &Plan, own: &Claim, others: &[OtherClaim], behind: &[OtherClaim]) -> String {
    let names: Vec<&str> = plan.external.iter().map(|member| member.name.as_str()).collect();
    let mut message = if others.is_empty() {
        "no other operator uses these members".to_owned()
    } else {
        let others: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        format!("RedisQuorum {} lists the same members", others.join(", "))
    };
    for other in others.iter().filter(|other| newest(&other.list) != newest(&own.list)) {
        message += &if behind.contains(other) {
            format!("; {} does not count the new ones yet: write the same addresses there", other.name)
        } else {
            format!("; {} changes to {}: write the same addresses here", other.name, newest(&other.list))
        };
    }
    if let Some(shortest) = others.iter().filter(|other| other.fence < own.fence).min_by_key(|other| other.fence) {
        message += &format!(
            "; maxTTL {} comes into force when the fences of {} wait for more than {}",
            GoDuration::from(own.fence),
            shortest.name,
            GoDuration::from(shortest.fence)
        );
    }
    format!(
        "{message}; the fence of {} holds for the locks of operators only: clients outside that use them directly are outside the \
         guarantee",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        api::RedisQuorum,
        quorum::model::plan::validate,
        redis_member::RecordLook,
        redlock::{MemberName, RunId},
    };

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
            &["shop/theirs", "up to 30s", "wait for 10s", "maxTTL: 30s"],
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
        let parts = ["shop/theirs changes to new.example:6379: write the same addresses here"];
        has(&changes, Status::True, CommonReason::AsExpected, &parts);
        let alone = quorum_agrees(&Agreement::new([]), &plan(), Boottime::default());
        has(&alone, Status::True, CommonReason::NotShared, &[]);
    }
}
