use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::api::RedisQuorumStatus;
use crate::api::conditions::{CommonReason, QuorumCondition, find_condition};
use crate::api::test_util::{parsed, quorum};
use crate::quorum::model::lists::{Lists, wanted};
use crate::quorum::model::problems::Problem;
use crate::quorum::model::rollout::Progress;
use crate::redlock::MemberError;

/// The conditions as `type=status/reason`.
fn summary(members: serde_json::Value, overview: &Overview) -> Vec<String> {
    let quorum = quorum(json!({}), json!({"members": members}));
    let lists = Lists::of_status(quorum.status.as_ref(), wanted(&quorum));
    let mut status = quorum.status.unwrap();
    conditions(&mut status, &lists, overview, (Some(1), Timestamp::UNIX_EPOCH));
    words(&status)
}

fn words(status: &RedisQuorumStatus) -> Vec<String> {
    status.conditions.iter().map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)).collect()
}

fn members(states: &[&str]) -> serde_json::Value {
    let states = states.iter().enumerate();
    states.map(|(index, state)| json!({"name": format!("main-{index}"), "state": state, "runID": "x"})).collect()
}

#[test]
fn conditions_follow_the_number_of_admitted_members() {
    let calm = Overview::default();
    let all = summary(members(&["Admitted", "Admitted", "Admitted"]), &calm);
    let expected = "Ready=True/AllAdmitted QuorumAvailable=True/AllAdmitted FaultTolerant=True/AllAdmitted \
        Progressing=False/Settled ClientsReady=True/AsExpected";
    assert_eq!(all.join(" "), expected);
    let two = summary(members(&["Admitted", "Fenced", "Admitted"]), &calm);
    let expected = "Ready=False/MembersFenced QuorumAvailable=True/MajorityAdmitted \
        FaultTolerant=False/MembersMissing Progressing=True/MembersFenced";
    assert_eq!(two[..4].join(" "), expected);
    let one = summary(members(&["Admitted", "Unreachable", "Pending"]), &calm);
    assert_eq!(one[..2], ["Ready=False/MembersStarting", "QuorumAvailable=False/MajorityLost"]);
}

#[test]
fn a_member_without_a_connection_is_named_with_the_cause() {
    let mut members = members(&["Admitted", "Unreachable", "Admitted"]);
    members[1]["message"] = json!(MemberError::TimedOut.to_string());
    let quorum = quorum(json!({}), json!({"members": members}));
    let (lists, mut status) = (Lists::of(&quorum), quorum.status.unwrap());
    conditions(&mut status, &lists, &Overview::default(), (Some(1), Timestamp::UNIX_EPOCH));
    let ready = find_condition(&status.conditions, QuorumCondition::Ready).unwrap();
    assert_eq!(ready.message, "main-1 accepts no connection from the operator: no answer in time");
}

#[test]
fn old_templates_blocked_clients_and_obstacles_are_named() {
    let overview = Overview {
        rollout: Some(Progress { paused: false, message: "main-1 is next".into() }),
        blocked_clients: vec!["Secret shop/x exists and does not belong to this RedisQuorum".into()],
        obstacle: Some(Problem::InTheWay { objects: "Service main-0 exists".into() }),
        ..Overview::default()
    };
    let all = summary(members(&["Admitted", "Admitted", "Admitted"]), &overview);
    assert_eq!(all[0], "Ready=False/InvalidSpec");
    assert_eq!(all[3..], ["Progressing=True/Updating", "ClientsReady=False/ClientSecretBlocked"]);
}

#[test]
fn a_quorum_in_disagreement_grants_nothing_and_reports_it() {
    let agreement = |holds, reason| {
        Some(Condition { type_: QuorumCondition::QuorumAgrees, holds, reason, message: "locks/x".into() })
    };
    let condition_of = |agreement| summary(members(&["Admitted"; 3]), &Overview { agreement, ..Overview::default() });
    let blocked = condition_of(agreement(crate::api::conditions::Status::False, CommonReason::OtherMemberList));
    assert_eq!(blocked[..2], ["Ready=False/OtherMemberList", "QuorumAvailable=False/OtherMemberList"]);
    assert_eq!(blocked[5], "QuorumAgrees=False/OtherMemberList");
    let fine = condition_of(agreement(crate::api::conditions::Status::True, CommonReason::AsExpected));
    assert_eq!(fine[..2], ["Ready=True/AllAdmitted", "QuorumAvailable=True/AllAdmitted"]);
}

#[test]
fn the_condition_reports_a_paused_update() {
    let paused = Some(Progress { paused: true, message: "paused".into() });
    let overview = Overview { rollout: paused, ..Overview::default() };
    let progressing = |states: [&str; 3]| summary(members(&states), &overview).remove(3);
    assert_eq!(progressing(["Admitted"; 3]), "Progressing=False/RolloutPaused");
    assert_eq!(progressing(["Admitted", "Fenced", "Admitted"]), "Progressing=True/RolloutPaused");
}

#[test]
fn lost_passwords_are_reported_until_no_member_runs_with_them() {
    let overview = Overview { loss: Some("1 of 3 run with the new ones".into()), ..Overview::default() };
    let conditions = summary(members(&["Admitted", "Unreachable", "Unreachable"]), &overview);
    assert_eq!(conditions[..2], ["Ready=False/AuthLost", "QuorumAvailable=False/MajorityLost"]);
    assert_eq!(summary(members(&["Admitted", "Admitted", "Admitted"]), &overview)[0], "Ready=False/AuthLost");
}

#[test]
fn a_refused_quorum_has_an_unknown_availability() {
    let mut status = RedisQuorumStatus::default();
    let obstacle = Problem::PasswordsGone { secret: "main-auth".into() };
    refused(&mut status, &obstacle, (Some(2), Timestamp::UNIX_EPOCH));
    let state = |type_| find_condition(&status.conditions, type_).map(|one| one.status.clone());
    assert_eq!(state(QuorumCondition::Ready).as_deref(), Some("False"));
    assert_eq!(state(QuorumCondition::QuorumAvailable).as_deref(), Some("Unknown"));
}

/// The conditions while `voters` and `former` are in force.
fn summary_of_change(states: &[&str], voters: &[usize], former: &[usize]) -> Vec<String> {
    let names = |list: &[usize]| list.iter().map(|index| format!("main-{index}")).collect::<Vec<_>>();
    let status = json!({"members": members(states), "voters": names(voters), "formerVoters": names(former)});
    let mut status: RedisQuorumStatus = parsed(status);
    let lists = Lists::of_status(Some(&status), names(&[0, 1, 2]));
    let overview = Overview { change: Some("from 1 to 3 members".into()), ..Overview::default() };
    conditions(&mut status, &lists, &overview, (Some(1), Timestamp::UNIX_EPOCH));
    let mut summary = words(&status);
    summary.push(ready_column(&status, &lists));
    summary
}

#[test]
fn during_a_change_conditions_describe_the_voting_lists() {
    // Two members join. They have no vote, so nothing is missing, and the tolerance is not higher.
    let learning = summary_of_change(&["Admitted", "Fenced", "Admitted"], &[0], &[]);
    let expected = "Ready=True/AllAdmitted QuorumAvailable=True/AllAdmitted FaultTolerant=False/SingleMember \
        Progressing=True/MembersChanging ClientsReady=True/AsExpected 1/1";
    assert_eq!(learning.join(" "), expected);
    // Both lists are in force. Without the only old member there is no majority, with any number of new members.
    let joint = summary_of_change(&["Fenced", "Admitted", "Admitted"], &[0, 1, 2], &[0]);
    let expected = "Ready=False/MembersFenced QuorumAvailable=False/MajorityLost FaultTolerant=False/SingleMember \
        Progressing=True/MembersChanging ClientsReady=False/MembersChanging 2/3";
    assert_eq!(joint.join(" "), expected);
    // The member leaves, so its fence does not matter.
    let left = summary_of_change(&["Admitted", "Admitted", "Admitted", "Fenced"], &[0, 1, 2], &[]);
    let expected = "Ready=True/AllAdmitted QuorumAvailable=True/AllAdmitted FaultTolerant=True/AllAdmitted \
        Progressing=True/MembersFenced";
    assert_eq!(left[..4].join(" "), expected);
}
