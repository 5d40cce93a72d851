//! The leader reports the objects that this version of the operator cannot read in an Event, and in the condition of a quorum.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use crate::api::RedisQuorum;
use crate::api::conditions::{CommonReason, QuorumCondition, Status, set_condition};
use crate::api::lenient::Unreadable;
use crate::api::requests::request;
use crate::runtime::cache::{Cache, Guarded, Kind};
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::time::{Boottime, UnixMillis};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Minimum time between two Events about one object, even if it changes often.
const PER_OBJECT: Duration = Duration::from_secs(600);
/// Maximum number of Events for all objects of one kind in that time.
///
/// The metric and the log include all objects.
const PER_KIND: usize = 100;

/// The time of the last Event of each object, by kind and UID.
type ReportedObjects = HashMap<(String, String), Boottime>;

/// Reports unreadable objects until the term ends.
pub(super) async fn report(context: Context, term: Term) {
    let reporting = async {
        let mut reported = ReportedObjects::new();
        loop {
            let now = context.clock.boottime();
            reported.retain(|_, at| now.since(*at) < PER_OBJECT);
            report_kind(&context, &context.locks, &mut reported, now).await;
            report_kind(&context, &context.quorums, &mut reported, now).await;
            report_kind(&context, &context.pods, &mut reported, now).await;
            report_kind(&context, &context.nodes, &mut reported, now).await;
            report_kind(&context, &context.namespaces, &mut reported, now).await;
            if let Some(jobs) = &context.jobs {
                report_kind(&context, jobs, &mut reported, now).await;
            }
            let quorums = context.quorums.unreadable();
            for quorum in quorums.iter().filter(|quorum| context.replica.settings.serves_unreadable(quorum)) {
                write_quorum_condition(&context, quorum).await;
            }
            tokio::time::sleep(ROUND).await;
        }
    };
    term.bound(&*context.clock, reporting).await.unwrap_or(())
}

async fn report_kind<K: Kind>(context: &Context, cache: &Cache<K>, reported: &mut ReportedObjects, now: Boottime) {
    let kind = K::kind(&()).into_owned();
    for raw in cache.unreadable() {
        let object_id = (kind.clone(), raw.metadata.uid.clone().unwrap_or_default());
        if reported.contains_key(&object_id) || reported.keys().filter(|(other, _)| *other == kind).count() >= PER_KIND
        {
            continue;
        }
        reported.insert(object_id, now);
        let note = message(&raw);
        let object = Guarded::<K>::Unreadable(Box::new((*raw).clone()));
        context.event(&object, (CommonReason::Unreadable.as_str(), EventType::Warning), note, None).await;
    }
}

/// This version of the operator cannot read the object: {error}. Its other objects are served. Change what the message names, or delete the
/// object. A deleted RedisQuorum stays until an operator can read it
#[derive(displaydoc::Display)]
struct Unread {
    error: String,
}

fn message(raw: &Unreadable) -> String {
    Unread { error: raw.error.chars().take(512).collect() }.to_string()
}

/// Writes the condition into the quorum's status, if it is not there yet.
async fn write_quorum_condition(context: &Context, raw: &Unreadable) {
    let Some(patch) = quorum_patch(raw, context.api_now()) else { return };
    let namespace = raw.metadata.namespace.as_deref().unwrap_or_default();
    let quorums: Api<Guarded<RedisQuorum>> = Api::namespaced(context.client.clone(), namespace);
    let name = raw.metadata.name.as_deref().unwrap_or_default();
    if let Err(error) = request(quorums.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))).await {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(namespace, name, error, "no condition reports yet that this quorum cannot be read");
    }
}

fn quorum_patch(raw: &Unreadable, now: UnixMillis) -> Option<Value> {
    let reason = CommonReason::Unreadable.as_str();
    let items = raw.status("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> =
        items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect();
    let now = Timestamp::from_millisecond(now.0).unwrap_or_default();
    let (ready, generation) = (QuorumCondition::Ready.as_str(), raw.metadata.generation);
    set_condition(&mut conditions, ready, Status::False, reason, message(raw), (generation, now));
    let (conditions, metadata) = (json!(conditions), &raw.metadata);
    let metadata = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
    let is_new = raw.status("conditions") != Some(&conditions);
    is_new.then(|| json!({"metadata": metadata, "status": {"conditions": conditions}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_names_the_unreadable_value_once() {
        let object = json!({"metadata": {"name": "q", "namespace": "ns", "uid": "u", "resourceVersion": "4", "generation": 2},
            "spec": {"maxTTL": "9999999h"},
            "status": {"conditions": [{"type": "QuorumAvailable", "status": "True", "reason": "AsExpected", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}, {"type": "of a later version"}]}});
        let Guarded::Unreadable(mut raw) = serde_json::from_value::<Guarded<RedisQuorum>>(object).unwrap() else {
            panic!("it can be read")
        };
        let patch = quorum_patch(&raw, UnixMillis(1_767_225_600_000)).unwrap();
        assert_eq!(patch.pointer("/metadata/resourceVersion"), Some(&json!("4")));
        let conditions = patch.pointer("/status/conditions").and_then(Value::as_array).unwrap();
        let [available, ready] = conditions.as_slice() else { panic!("{conditions:?}") };
        assert_eq!(available["type"], "QuorumAvailable");
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Unreadable")));
        assert!(ready["message"].as_str().unwrap().contains("9999999h"), "{ready}");
        raw.object["status"] = patch["status"].clone();
        assert_eq!(quorum_patch(&raw, UnixMillis(1_767_225_700_000)), None);
    }
}
