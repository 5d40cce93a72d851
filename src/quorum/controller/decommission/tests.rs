use serde_json::json;

use super::*;
use crate::api::test_util::{self, parsed};
use crate::quorum::controller::tests::{World, denial, pod, quorum};

#[test]
fn an_invalid_specification_does_not_prevent_the_end() {
    let resources = json!({"limits": {"memory": "16Mi"}});
    let quorum = test_util::quorum(json!({"members": 3, "pod": {"resources": resources}}), json!(null));
    assert!(plan::validate(&quorum).is_err());
    assert!(plan_of_existing_members(&quorum).is_some());
}

#[tokio::test]
async fn a_member_that_cannot_be_closed_is_published_with_the_cause() {
    let names = ["main-0", "main-1", "main-2"];
    let admitted = names.map(|name| json!({"name": name, "state": "Admitted", "runID": name, "podUID": name}));
    let mut quorum = quorum(&admitted);
    quorum.metadata.deletion_timestamp = Some(parsed(json!("2026-01-01T00:00:00Z")));
    let code = |request: &str| (!request.starts_with("PUT")).then_some(403);
    let pods = names.map(|name| pod(name, &json!({"running": {}})));
    let world = World::denying(quorum, pods.into(), code);
    world.until_members_fail().await;
    let cluster = world.cluster();
    end(&world.observer(&cluster).sources).await.unwrap();
    let published = world.requests("PUT");
    assert!(published.len() == 1 && published[0].contains("cannot be closed (unreachable: "), "{published:?}");
}

#[tokio::test]
async fn a_member_that_was_added_again_is_closed_again() {
    let member = json!({"name": "main-0", "state": "Fenced", "reason": "Leaving", "runID": "r"});
    let world = World::new(quorum(&[member]), Vec::new(), |_| denial(403));
    let cluster = world.cluster();
    world.memory.closed.lock().insert("r".to_owned(), cluster.now());
    remove_members(&world.observer(&cluster)).await.unwrap();
    assert!(world.memory.closed.lock().is_empty(), "a later removal would take it for closed");
}
