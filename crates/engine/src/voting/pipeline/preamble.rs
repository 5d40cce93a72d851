//! The preamble of a connection: it loads the scripts and identifies the process.

use super::Pipeline;
use crate::redlock::MemberError;
use crate::voting::pending_replies::PendingReply;
use crate::voting::resp::{self, Value};
use crate::voting::rights::Rights;
use crate::voting::unfit::unfit_reason;
use crate::voting::wire;

impl Pipeline {
    pub(super) fn write_preamble(&mut self) {
        if self.rights == Rights::Reader {
            resp::command(&mut self.out, &["PING"]);
            return self.pending.push_back(PendingReply::Identity);
        }
        let replies = wire::add_preamble(&mut self.out, &self.rights);
        if self.rights.allow_info() {
            self.pending.extend((0..replies - 2).map(|_| PendingReply::ScriptLoaded));
            self.pending.extend([PendingReply::Identity, PendingReply::Ignored]);
        } else {
            self.pending.extend((0..replies - 1).map(|_| PendingReply::ScriptLoaded));
            // A user without INFO has no identity of the process. The reply to the last script proves that the process
            // is open for this user.
            self.pending.push_back(PendingReply::Identity);
        }
    }

    pub(super) fn on_identity(&mut self, value: &Value<'_>) {
        let process = match value {
            Value::Error(line) => Err(wire::error(line)),
            Value::Simple(_) if self.rights == Rights::Reader => Ok(self.alias.clone()),
            Value::Bulk(_) if !self.rights.allow_info() => Ok(self.alias.clone()),
            Value::Bulk(info) => wire::run_id(info).ok_or_else(MemberError::unexpected),
            _ => Err(MemberError::unexpected()),
        };
        let unfit = match value {
            Value::Bulk(info) if self.rights == Rights::Full => unfit_reason(info).map(MemberError::Unfit),
            _ => None,
        };
        // A script that was not loaded is missing for the whole life of the connection.
        match unfit.or(self.not_loaded.take()).map_or(process, Err) {
            Ok(run_id) => {
                if self.run_id.replace(run_id).is_none() {
                    // Refusals before this answer came from a fenced process. Now the user can have the rights.
                    self.announces = true;
                    self.merging.is_allowed = true;
                }
            }
            Err(error) if error.is_lasting() => self.lasting_error = Some(error),
            Err(error) => self.identity_error = error,
        }
    }
}
