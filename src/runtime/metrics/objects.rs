//! The objects from which a scrape computes gauges.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::ObjectRef;

use crate::api::{DistributedLock, RedisQuorum};
use crate::time::UnixMillis;

/// The objects in the caches at one moment.
#[derive(Debug)]
pub struct Objects<'a> {
    /// All locks.
    pub locks: &'a [Arc<DistributedLock>],
    /// All quorums.
    pub quorums: &'a [Arc<RedisQuorum>],
    /// All pods. Only pods of members are recorded.
    pub pods: &'a [Arc<Pod>],
    /// The quorum of locks that name no quorum.
    pub default_quorum: Option<ObjectRef<RedisQuorum>>,
    /// The API server's time.
    pub now: UnixMillis,
    /// Whether this replica leads.
    pub leads: bool,
    /// Whether each lock has a series.
    pub per_lock: bool,
}
