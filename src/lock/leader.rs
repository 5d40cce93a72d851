//! On the leader: observe, decide and act, until a lock needs no further step.
//!
//! `controller` starts a reconcile. `reconcile` observes a lock by `observation`, and `model::decide` returns the next step. Other modules carry
//! out that step: `grant`, `publish_grant`, `release`, `seal`, `status`, `labels`, `lease_sync` and `job_sync`.
//! `leader_context` has the state of a term. The parameters of a step are the parts of that state which the step uses.

mod contender;
pub mod controller;
mod default;
mod due_renewals;
mod grant;
mod index;
mod job_sync;
mod key_mutexes;
mod labels;
mod leader_context;
mod lease_sync;
mod lock_store;
mod member_access;
mod memory;
mod observation;
mod other_installation;
mod peers;
mod progress;
mod publish_grant;
mod publish_renewals;
mod reachability;
mod reconcile;
mod release;
mod seal;
mod status;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::due_renewals::DueRenewals;
    use super::leader_context::LeaderContext;
    use super::member_access::MemberAccess;
    use crate::quorum::session::Sessions;
    use crate::runtime::context::Context;
    use crate::runtime::leader::Term;

    /// A leader without quorums, in its first term.
    pub(super) fn leader(context: Context) -> LeaderContext {
        let (sessions, _follow_quorums) = Sessions::start(context.clone());
        let members = MemberAccess { context: context.clone(), sessions, holds: Arc::default() };
        LeaderContext::new(context, members, Term::new(1), DueRenewals::new().0)
    }
}
