//! The quorum of a hold by its record: the cached object, and the session of this replica.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::HeldQuorum;
use crate::quorum::session::{QuorumSession, Sessions};
use crate::redlock::ValueSigner;
use crate::runtime::context::Context;

/// Whether the quorum object with this UID exists. This includes an unreadable one.
///
/// It is true for quorums of namespaces that this operator does not serve, because it does not watch all of them.
pub fn exists(context: &Context, quorum: &HeldQuorum) -> bool {
    let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(quorum.uid.as_str());
    !context.replica.settings.quorums.contains(&quorum.namespace)
        || context.quorums.get(&quorum.reference()).is_some_and(|present| is_it(&present.metadata))
        || context.quorums.unreadable().iter().any(|present| is_it(&present.metadata))
}

/// The session with the quorum object of this UID.
pub fn session(sessions: &Sessions, quorum: &HeldQuorum) -> Option<Arc<QuorumSession>> {
    sessions.get(&quorum.reference()).filter(|session| session.uid() == quorum.uid)
}

/// The session and the signer, if this replica can sign values of the quorum.
pub fn signed(sessions: &Sessions, quorum: &HeldQuorum) -> Option<(Arc<QuorumSession>, ValueSigner)> {
    let session = session(sessions, quorum)?;
    let signer = session.signer()?;
    Some((session, signer))
}
