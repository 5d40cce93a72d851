//! The link to an external master. It connects to an address, as a user of the locking path. It writes the record by
//! which operators that share the master agree.

use super::MemberLink;
use crate::quorum::model::unanswered::Unanswered;
use crate::redis_member::{self, AdminConnection};
use crate::redlock::MemberError;

/// Whether the user of the connection has the rights for votes. The status names the missing ones.
///
/// A master without such a check shows a missing right at the first vote.
pub(super) async fn check_rights(link: &MemberLink, admin: &mut AdminConnection) -> bool {
    match redis_member::missing_rights(admin).await {
        Ok(missing) if missing.is_empty() => true,
        Ok(missing) => {
            link.note_missed(&Unanswered::RightsMissing { rules: missing.join(" ") }.to_string());
            false
        }
        Err(error @ MemberError::Fenced) => {
            link.note_unanswered(&error);
            false
        }
        // The master is alive, and the next probe checks it again.
        Err(MemberError::Busy | MemberError::Loading) => false,
        Err(_no_check) => true,
    }
}

/// Reads the claims of other operators on the process, and makes or renews the claim of this quorum.
pub(super) async fn read_record(link: &MemberLink, admin: &mut AdminConnection) {
    let run_id = admin.run_id().clone();
    // The time is read before the request, because the validity of the claim starts there.
    let now = link.shared.machine.clock.boottime();
    let question = link.shared.agreement.lock().question(&link.name, &run_id, now);
    let Some((claim, write)) = question else { return };
    match redis_member::read_record(admin, &claim, write).await {
        Ok(state) => {
            let since = Some((run_id.clone(), state.since));
            let before = std::mem::replace(&mut link.state.lock().record_since, since.clone());
            // Another time on the same process means that it was emptied.
            let is_emptied = before != since && before.is_some_and(|(of, _)| of == run_id);
            if link.shared.agreement.lock().read(&link.name, &run_id, &claim, &state, now) || is_emptied {
                link.shared.announce();
            }
        }
        // The master is alive, and the next probe reads it again.
        Err(MemberError::Busy | MemberError::Loading) => {}
        Err(error @ MemberError::Fenced) => link.note_unanswered(&error),
        Err(error) => link.note_missed(&format!("the record of its operators was not read: {error}")),
    }
}
