//! The quorum of a hold, by its record: as the caches have it, and the session of this replica with it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::HeldQuorum;
use crate::quorum::session::{QuorumSession, Sessions};
use crate::runtime::context::Context;

/// Whether this very quorum object still exists. One that this replica cannot read does.
pub fn exists(context: &Context, quorum: &HeldQuorum) -> bool {
    let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(quorum.uid.as_str());
    context.quorums.get(&quorum.reference()).is_some_and(|present| is_it(&present.metadata))
        || context.quorums.unreadable().iter().any(|present| is_it(&present.metadata))
}

/// The session of this very quorum object.
pub fn session(sessions: &Sessions, quorum: &HeldQuorum) -> Option<Arc<QuorumSession>> {
    sessions.get(&quorum.reference()).filter(|session| session.uid() == quorum.uid)
}
