//! The condition QuorumAgrees: do all operators that share masters have the same list and maxTTL?

use super::messages::{Condition, QuorumMessage};
use crate::quorum::model::agreement::{Agreement, Sharing};
use crate::quorum::model::plan::Plan;
use crate::time::Boottime;

/// The condition at `now`.
pub fn quorum_agrees(agreement: &Agreement, plan: &Plan, now: Boottime) -> Condition {
    let message = match (agreement.sharing(now), agreement.claim()) {
        (Sharing::NotShared, _) => QuorumMessage::NotShared,
        (_, None) => QuorumMessage::NothingInForce,
        (Sharing::Conflict(other), Some(own)) if other.list != own.list => {
            QuorumMessage::OtherList { other: other.name, theirs: other.list, ours: own.list.clone() }
        }
        (Sharing::Conflict(other), Some(own)) => {
            QuorumMessage::OtherMaxTtl { other: other.name, theirs: other.ttl.into(), ours: own.ttl.into() }
        }
        (Sharing::Paused, _) => QuorumMessage::ListChanges,
        (Sharing::Joining(members), _) => {
            let named =
                |name: &_| agreement.trouble(name).map_or_else(|| format!("{name}"), |why| format!("{name} ({why})"));
            QuorumMessage::Joining { members: members.iter().map(named).collect::<Vec<_>>().join(", ") }
        }
        (Sharing::Agreed(others), Some(_)) => {
            let names: Vec<&str> = plan.external.iter().map(|member| member.name.as_str()).collect();
            let others: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
            match (names.join(", "), others.is_empty()) {
                (members, true) => QuorumMessage::AgreesAlone { members },
                (members, false) => QuorumMessage::Agrees { others: others.join(", "), members },
            }
        }
    };
    message.condition()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::conditions::{CommonReason, Status};
    use crate::api::test_util::quorum;
    use crate::quorum::model::agreement::tests::{claim, other};
    use crate::quorum::model::plan::validate;
    use crate::redis_member::{Claim, RecordState};
    use crate::redlock::{MemberName, RunId};
    use crate::tests::boottime;

    fn plan() -> Plan {
        let external = json!([{"name": "vm", "address": "vm.example:6379"}]);
        validate(&quorum(json!({"members": 0, "external": external}), json!(null))).unwrap()
    }

    fn condition_of(kept: bool, paused: bool, theirs: Option<(&str, u64)>) -> Condition {
        let now = boottime(100);
        let vm = MemberName::from("vm");
        let mut agreement = Agreement::default();
        agreement.set_members(vec![vm.clone()], [vm.clone()], paused);
        let claim = Claim { list: "vm.example:6379".into(), ..claim(30) };
        agreement.set_claim(Some(claim.clone()));
        let others = theirs.into_iter().map(|(list, ttl)| other(list, ttl)).collect();
        let state = RecordState { kept, others, ..RecordState::default() };
        agreement.read(&vm, &RunId::new("r"), &claim, &state, now);
        quorum_agrees(&agreement, &plan(), now)
    }

    fn has(agreement: &Condition, holds: Status, reason: CommonReason, texts: &[&str]) {
        assert_eq!((agreement.holds, agreement.reason), (holds, reason), "{agreement:?}");
        for text in texts {
            assert!(agreement.message.contains(text), "{agreement:?}");
        }
    }

    #[test]
    fn an_operator_that_disagrees_is_named_with_both_values() {
        let list = condition_of(false, false, Some(("other.example:6379", 30)));
        let texts = ["shop/theirs", "other.example:6379", "vm.example:6379"];
        has(&list, Status::False, CommonReason::OtherMemberList, &texts);
        let ttl = condition_of(false, false, Some(("vm.example:6379", 60)));
        has(&ttl, Status::False, CommonReason::OtherMaxTTL, &["shop/theirs", "maxTTL 1m", "wait for 30s"]);
        has(&condition_of(false, false, None), Status::Unknown, CommonReason::Joining, &["vm"]);
        has(&condition_of(true, true, None), Status::Unknown, CommonReason::MembersChanging, &["no lock is granted"]);
    }

    #[test]
    fn the_agreement_condition_names_the_limit_of_the_guarantee() {
        let texts = ["fence of vm", "outside the guarantee"];
        has(&condition_of(true, false, None), Status::True, CommonReason::AsExpected, &texts);
        let shared = condition_of(true, false, Some(("vm.example:6379", 30)));
        has(&shared, Status::True, CommonReason::AsExpected, &["shop/theirs", "fence of vm"]);
        let alone = quorum_agrees(&Agreement::default(), &plan(), Boottime::default());
        has(&alone, Status::True, CommonReason::NotShared, &[]);
    }
}
