use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::api::MEMBER_LABEL;
use crate::quorum::controller::tests::{World, denial, quorum};

#[test]
fn an_invalid_specification_does_not_prevent_the_end() {
    let spec = r#"{"members": 3, "pod": {"resources": {"limits": {"memory": "16Mi"}}}}"#;
    let mut quorum = RedisQuorum::new("main", serde_json::from_str(spec).unwrap());
    (quorum.metadata.namespace, quorum.metadata.uid) = (Some("locks".into()), Some("uid".into()));
    assert!(plan::validate(&quorum).is_err());
    assert!(plan_of_what_is(&quorum).is_some());
}

#[tokio::test]
async fn a_member_that_cannot_be_closed_is_published_with_the_cause() {
    let names = ["main-0", "main-1", "main-2"];
    let admitted = names.map(|name| json!({"name": name, "state": "Admitted", "runID": name, "podUID": name}));
    let mut quorum = quorum(&admitted);
    quorum.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let pod = |name: &str| -> Pod {
        let metadata = json!({"name": format!("{name}-0"), "namespace": "locks", "uid": name,
            "labels": {MEMBER_LABEL: name}});
        let container = json!({"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"running": {}}});
        let status = json!({"podIP": "10.0.0.1", "containerStatuses": [container]});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    };
    let stored = serde_json::to_value(&quorum).unwrap();
    let answer = move |request: &str| if request.starts_with("PUT") { (200, stored.clone()) } else { denial(403) };
    let world = World::new(quorum, names.map(pod).into(), answer);
    for link in world.session.links().iter() {
        while link.state().failure.is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    }
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
