//! Merges consecutive releases of a batch into one script call.
//!
//! The call is the largest part of what a release costs a member.

use super::Pipeline;
use crate::redlock::{Command, MemberError, Reply};
use crate::time::Boottime;
use crate::voting::encoded_requests::EncodedRequests;
use crate::voting::pending_replies::PendingReply;
use crate::voting::request_queue::Request;
use crate::voting::resp::{Value, bulk};
use crate::voting::scripts::Script;
use crate::voting::wire;

/// Minimum number of releases to merge.
///
/// The script for many costs more than two calls of the script for one.
const MIN_MERGED: usize = 4;
/// Maximum number of releases in one call, so that it does not delay the member.
const MAX_MERGED: usize = 64;

/// The state of merged releases.
pub(super) struct Merging {
    /// False after a refused merged call.
    ///
    /// The first identity of the process sets it again.
    pub(super) is_allowed: bool,
    /// Consecutive releases that are not written yet.
    run: Vec<Request>,
    /// Additional requests that are answered by the replies of merged calls.
    pub(super) shared: usize,
}

impl Default for Merging {
    fn default() -> Self {
        Self { is_allowed: true, run: Vec::new(), shared: 0 }
    }
}

impl Pipeline {
    /// Delays a release until the number of releases behind it is known.
    ///
    /// Returns any other request, after the delayed releases are written.
    pub(super) fn defer_release(
        &mut self,
        request: Request,
        sent: Boottime,
        encoded: &mut EncodedRequests,
    ) -> Option<Request> {
        if !matches!(&*request.commands, [Command::Release { .. }]) {
            self.write_releases(sent, encoded);
            return Some(request);
        }
        self.merging.run.push(request);
        if self.merging.run.len() == MAX_MERGED {
            self.write_releases(sent, encoded);
        }
        None
    }

    /// Writes the delayed releases.
    pub(super) fn write_releases(&mut self, sent: Boottime, encoded: &mut EncodedRequests) {
        let mut run = std::mem::take(&mut self.merging.run);
        if self.merging.is_allowed && run.len() >= MIN_MERGED {
            encode(&mut self.out, &self.rights.scripts().release_all, &run);
            self.merging.shared += run.len() - 1;
            return self.pending.push_back(PendingReply::Releases(sent, run));
        }
        for request in run.drain(..) {
            self.write_request(request, sent, encoded);
        }
        self.merging.run = run;
    }

    /// Handles the answer to a merged call.
    pub(super) fn on_releases(
        &mut self,
        sent: Boottime,
        requests: Vec<Request>,
        value: &Value<'_>,
        received: Boottime,
    ) {
        self.merging.shared -= requests.len() - 1;
        if matches!(value, Value::Error(line) if wire::error(line) == MemberError::Fenced) {
            // This user has no permission for one of the keys, and the member does not name it. So each release is sent
            // alone.
            self.merging.is_allowed = false;
            let again = self.clock.boottime();
            for request in requests {
                self.write_request(request, again, &mut EncodedRequests::default());
            }
            return;
        }
        for (index, request) in requests.into_iter().enumerate() {
            let own = match value {
                Value::Array(elements) => elements.get(index).unwrap_or(&Value::Nil),
                all => all,
            };
            let reply = match &*request.commands {
                [release] => {
                    let reply = wire::decode(release, own);
                    self.on_command_reply(release, &reply);
                    reply
                }
                _ => Reply::Failed(MemberError::unexpected()),
            };
            self.answer(request, sent, reply.into(), received);
        }
    }
}

/// Encodes one call for the releases of these requests.
fn encode(out: &mut Vec<u8>, script: &Script, run: &[Request]) {
    let locks = run.iter().flat_map(|request| &*request.commands).filter_map(|command| match command {
        Command::Release { key, value } => Some((key.as_str(), value.expose())),
        _ => None,
    });
    let (keys, values): (Vec<_>, Vec<_>) = locks.unzip();
    wire::call(out, script, &keys, values.len());
    values.into_iter().for_each(|value| bulk(out, value));
}
