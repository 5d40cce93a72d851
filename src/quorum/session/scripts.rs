//! Publishes Events of scripts that kept a member from voting (rule 11). Every replica publishes its own acts, because each replica can
//! end a script.

use std::sync::Arc;

use super::{MemberLink, QuorumSession, ScriptNews};
use crate::quorum::model::events::QuorumEvent;

/// Publishes new Events in separate tasks.
pub(super) fn publish_ends(session: &Arc<QuorumSession>) {
    for link in session.links().iter() {
        let Some(news) = link.take_script_news() else { continue };
        let (session, event) = (session.clone(), event(link, news));
        tokio::spawn(async move {
            let quorum = session.quorum();
            session.context.event(quorum.as_ref(), event.means(), event.to_string()).await;
        });
    }
}

fn event(link: &MemberLink, news: ScriptNews) -> QuorumEvent {
    let member = link.name().to_string();
    match news {
        ScriptNews::Killed => QuorumEvent::ScriptKilled { member },
        ScriptNews::Unkillable => QuorumEvent::ScriptUnkillable { member, pod: link.plan().pod_name() },
    }
}
