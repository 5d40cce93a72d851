//! An object that is possibly unreadable for this version of the operator.
//!
//! A list is parsed as a whole. Without this guard one object with an invalid field would keep the cache of its kind empty, on every
//! replica.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Kind;
use crate::api::lenient::{Unreadable, read_object};

/// An object of kind `K`, or its raw content if it is unreadable.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Guarded<K> {
    /// A readable object.
    Read(K),
    /// The raw content of an unreadable object, which the operator never writes as a whole.
    #[serde(skip)]
    Unreadable(Box<Unreadable>),
}

impl<K: Kind> Guarded<K> {
    /// The object, as far as it can be read.
    pub fn object(self) -> Option<K> {
        match self {
            Self::Read(object) => Some(object),
            Self::Unreadable(raw) => K::lenient(&raw),
        }
    }
}

impl<'de, K: Kind> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        K::slim(&mut object);
        Ok(read_object(object).map_or_else(Self::Unreadable, Self::Read))
    }
}

/// The same resource as `K`.
impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable(raw) => &raw.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Unreadable(raw) => &mut raw.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;
    use crate::api::DistributedLock;

    fn lock(name: &str, ttl: &str) -> Value {
        json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": name, "uid": name, "resourceVersion": "7", "managedFields": []},
            "spec": {"claim": {"identity": "me"}, "ttlAfterFinished": ttl},
            "status": {"transitions": 3, "ending": {"reason": "Suspended", "since": "2026-01-01T00:00:00Z"}}})
    }

    #[test]
    fn odd_times_in_metadata_leave_an_objects_identity_readable() {
        let mut odd = lock("odd", "1h");
        // The API server takes this time from the client that writes the object.
        odd["metadata"]["managedFields"] = json!([{"manager": "m", "time": "9999-12-31T23:59:59Z"}]);
        assert!(serde_json::from_value::<DistributedLock>(odd.clone()).is_err());
        let read: Guarded<DistributedLock> = serde_json::from_value(odd.clone()).unwrap();
        assert!(matches!(read, Guarded::Read(_)));
        odd["metadata"]["creationTimestamp"] = json!("9999-12-31T23:59:59Z");
        odd["metadata"]["deletionTimestamp"] = json!("9999-12-31T23:59:59Z");
        odd["metadata"]["finalizers"] = json!(["f"]);
        let read: Guarded<DistributedLock> = serde_json::from_value(odd).unwrap();
        let metadata = read.meta();
        assert!(matches!(read, Guarded::Unreadable(_)));
        assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("odd"), Some("7")));
        assert_eq!((metadata.deletion_timestamp.is_some(), &metadata.finalizers), (true, &Some(vec!["f".to_owned()])));
    }

    #[test]
    fn an_unreadable_object_does_not_make_the_list_unreadable() {
        let list = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "metadata": {},
            "items": [lock("good", "1h"), lock("bad", "9999999h")]});
        let listed: ObjectList<Guarded<DistributedLock>> = serde_json::from_value(list).unwrap();
        let [Guarded::Read(good), Guarded::Unreadable(bad)] = listed.items.as_slice() else {
            panic!("{:?}", listed.items)
        };
        assert_eq!(good.metadata.name.as_deref(), Some("good"));
        assert_eq!((bad.metadata.uid.as_deref(), bad.metadata.resource_version.as_deref()), (Some("bad"), Some("7")));
        assert_eq!(bad.status("ending").and_then(|ending| ending.get("reason")), Some(&json!("Suspended")));
        assert!(bad.error.contains("9999999h"), "{}", bad.error);
    }
}
