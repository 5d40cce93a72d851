//! A kind of objects that can be watched, and what of it is kept in memory.

use std::fmt;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of objects that can be watched.
pub trait Kind: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// Removes what the operator does not read, before the object is parsed.
    fn slim(_object: &mut Value) {}

    /// The keys for [`Cache::under`](super::Cache::under).
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is remembered of a deleted object, if anything is.
    fn last_state(&self) -> Option<Self> {
        None
    }
}
