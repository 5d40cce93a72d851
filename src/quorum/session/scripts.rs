//! Tells people of scripts that kept a member from voting (rule 11). Every replica tells what it did itself: the one that ends a
//! script need not be the leader.

use std::sync::Arc;

use kube::runtime::events::EventType;

use super::{MemberLink, QuorumSession, ScriptNews};

/// Tells what is new, beside whatever else is done.
pub(super) fn tell(session: &Arc<QuorumSession>) {
    for link in session.links().iter() {
        let Some(news) = link.take_script_news() else { continue };
        let (session, (reason, note)) = (session.clone(), words(link, news));
        tokio::spawn(async move {
            session.context.event(session.quorum().as_ref(), EventType::Warning, reason, note).await;
        });
    }
}

fn words(link: &MemberLink, news: ScriptNews) -> (&'static str, String) {
    let name = link.name();
    match news {
        ScriptNews::Killed => (
            "ScriptKilled",
            format!("a client's script kept member {name} busy for too long, and the operator ended it"),
        ),
        ScriptNews::Unkillable => (
            "ScriptUnkillable",
            format!(
                "a client's script keeps member {name} busy, and cannot be ended because it has written: if it does not end within \
                 seconds, the operator deletes pod {}",
                link.plan().pod_name()
            ),
        ),
    }
}
