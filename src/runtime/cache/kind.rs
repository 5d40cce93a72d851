//! A kind of objects that can be watched, and what of it is kept in memory.

use std::fmt;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::lenient::Unreadable;

/// A kind of objects that can be watched.
pub trait Kind: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// Maximum number of objects in one answer to a list.
    ///
    /// An object can have more than a megabyte, and the client reads an answer as a whole.
    const PAGE: u32 = 50;

    /// Removes the fields that the operator does not read, before the object is parsed.
    fn slim(_object: &mut Value) {}

    /// The readable part of an unreadable object, if that is enough to judge it.
    fn lenient(_raw: &Unreadable) -> Option<Self> {
        None
    }

    /// The keys for [`Cache::under`](super::Cache::under).
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// The part of a deleted object that the cache keeps, if it keeps any.
    fn last_state(&self) -> Option<Self> {
        None
    }
}
