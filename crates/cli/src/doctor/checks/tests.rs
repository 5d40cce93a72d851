use serde_json::json;

use super::*;
use crate::cluster::objects::fake::{held, now, waiting};

#[test]
fn an_old_api_server_and_a_wrong_clock_are_found() {
    assert_eq!(server("https://c", "1", "33").state, State::Fine);
    assert_eq!(server("https://c", "1", "29+").state, State::Broken);
    assert_eq!(clock(1_000_500, Some((1_000_000, 1_001_000))).state, State::Fine);
    let ahead = clock(1_006_500, Some((1_000_000, 1_001_000)));
    assert_eq!(ahead.text, "This machine's clock is 5.5s ahead of the API server's.");
    assert!(clock(990_000, Some((1_000_000, 1_001_000))).text.contains("10s behind"));
    assert!(ahead.state == State::Broken && ahead.mend.is_some());
    assert_eq!(clock(0, None).state, State::Unknown);
}

#[test]
fn the_differences_to_another_crd_version_are_named() {
    let ours = redlock_api::crds();
    assert_eq!(definition("distributedlocks", &ours[0], &ours[0]).state, State::Fine);
    let mut older = ours[0].clone();
    let schema = older.spec.versions[0].schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()).unwrap();
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties.as_mut().unwrap().remove("lockDelay");
    let found = definition("distributedlocks", &ours[0], &older);
    assert_eq!(found.text, "distributedlocks is older than this command: it has no spec.lockDelay.");
    let newer = definition("distributedlocks", &older, &ours[0]);
    assert!(newer.state == State::Warning && newer.text.contains("spec.lockDelay"));
    assert_eq!(served(&["distributedlocks".into(), "redisquorums".into()]).state, State::Fine);
    assert!(served(&["distributedlocks".into()]).text.contains("redisquorums is not installed"));
}

#[test]
fn a_right_that_is_missing_names_its_role() {
    let answers: Vec<_> = RIGHTS.iter().map(|right| (right, right.verb == "list")).collect();
    let found = rights(&answers, "shop");
    assert!(found[0].text.contains("list, status, explain, history, top; quorum status"), "{found:#?}");
    let watch = found.iter().find(|finding| finding.text.contains("cannot watch")).unwrap();
    assert_eq!(watch.state, State::Broken);
    let breaks = found.iter().find(|finding| finding.text.contains("cannot break")).unwrap();
    assert_eq!(breaks.mend.as_deref(), Some("If you need it, ask for the role redlock-operator-break and -edit."));
}

#[test]
fn operators_that_do_not_work_are_found() {
    assert_eq!(leader("a/b", &Leader::Silent(120_000)).state, State::Broken);
    assert_eq!(leader("a/b", &Leader::Works("p".into())).state, State::Fine);
    assert_eq!((no_operator(0, true).state, no_operator(1, true).state), (State::Warning, State::Broken));
    assert_eq!((no_operator(0, false).state, no_operator(0, false).mend), (State::Unknown, None));
    let pod = |ready: &str, image: &str| -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "operator", "image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        .unwrap()
    };
    let state = |pods: &[Pod]| operator_pods("redlock-system", pods, "0.1.0").state;
    assert_eq!(state(&[pod("True", "r/o:0.1.0"), pod("True", "r/o:0.1.0")]), State::Fine);
    assert_eq!(state(&[pod("True", "r/o:0.1.0"), pod("False", "r/o:0.1.0")]), State::Warning);
    assert_eq!(state(&[pod("True", "r/o:0.2.0")]), State::Warning, "another version");
    let digest = "@sha256:45b23dee08af5e43a7fea6c4cf9c25ccf269ee113168c19722f87876677c5cb2";
    assert_eq!(state(&[pod("True", &format!("r:5000/o:0.1.0{digest}"))]), State::Fine);
    assert_eq!(state(&[pod("True", &format!("r:5000/o{digest}"))]), State::Fine, "no tag");
    assert_eq!(state(&[pod("True", &format!("r/o:0.2.0{digest}"))]), State::Warning, "another version");
    assert_eq!(state(&[pod("True", "r/o:dev")]), State::Fine, "a tag that is no version");
    assert_eq!(state(&[]), State::Broken);
}

#[test]
fn locks_in_trouble_are_named() {
    assert_eq!(locks(&[held("a"), waiting("b", "Queued", "", Some(1))], now()).state, State::Fine);
    let troubled = locks(&[held("a"), waiting("b", "NoQuorum", "", None)], now());
    assert_eq!(troubled.text, "2 locks, 1 of them held. In trouble: shop/reindex (NoQuorum).");
    assert!(troubled.mend.is_some_and(|mend| mend.starts_with("See why: redlock explain shop/reindex.")));
    let orphaned = waiting("b", "NoCandidate", "", None);
    assert_eq!(locks(std::slice::from_ref(&orphaned), now()).state, State::Warning, "no candidate for an hour");
    let since = orphaned.status.conditions.iter().map(|condition| condition.last_transition_time.0).max().unwrap();
    assert_eq!(locks(&[orphaned], since.into()).state, State::Fine, "pods need a moment");
    let mut deleted = held("a");
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    assert_eq!(locks(&[deleted], now()).state, State::Broken);
    let refused = Problem { code: Some(403), ..Problem::new("failed to list locks: no", "Ask.") };
    assert_eq!(problem("locks", refused).state, State::Unknown);
    assert_eq!(problem("locks", Problem::new("failed to ask", "")).text, "Failed to ask.");
}
