//! The protocol of one connection, from its first command to its end.
//!
//! It turns requests into bytes, and bytes into answers. It does no IO and has no timer. `MemberConnection` drives it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::encoded_requests::EncodedRequests;
use super::pending_releases::PendingReleases;
use super::pending_replies::{Inspection, PendingReply, PendingRequest, raised};
use super::request_queue::Request;
use super::resp::{self, Value};
use super::rights::Rights;
use super::wire;
use crate::redlock::{Answers, Command, KeyState, MemberError, Replies, Reply, RunId};
use crate::time::{Boottime, Clock};
use merged_releases::Merging;

mod merged_releases;
mod plain_votes;
mod preamble;

#[cfg(test)]
mod tests;

/// The state of a voting connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not connected: commands fail at once.
    Down(MemberError),
    /// Connected to a process that has not identified itself, with the reason. A process that is fenced for this user answers
    /// [`MemberError::Fenced`].
    Unidentified(MemberError),
    /// Connected to this process.
    Open(RunId),
}

/// The error of a new connection.
pub(super) fn not_identified_yet() -> MemberError {
    MemberError::Unreachable("connected, but without an answer".to_owned())
}

/// The protocol state of one connection.
pub(super) struct Pipeline {
    clock: Arc<dyn Clock>,
    rights: Rights,
    /// False after a refused announcement.
    ///
    /// The first identity of the process sets it again, because a fenced process refuses everything.
    announces: bool,
    /// The `run_id` from the preamble.
    ///
    /// It never changes on one connection.
    run_id: Option<RunId>,
    /// The reason why there is no `run_id`.
    identity_error: MemberError,
    /// The reason why this server never votes.
    lasting_error: Option<MemberError>,
    /// The error of a preamble script that was not loaded.
    not_loaded: Option<MemberError>,
    must_reload: bool,
    /// The identity of the process, if the user has no permission to read its `run_id`.
    alias: RunId,
    pending: VecDeque<PendingReply>,
    /// Bytes to be written.
    pub(super) out: Vec<u8>,
    /// Releases that the member has refused for now.
    refused_releases: PendingReleases,
    answered: bool,
    merging: Merging,
}

impl Pipeline {
    pub(super) fn new(clock: Arc<dyn Clock>, rights: Rights, alias: RunId) -> Self {
        let identity_error = not_identified_yet();
        Self {
            clock,
            rights,
            announces: true,
            run_id: None,
            identity_error,
            lasting_error: None,
            not_loaded: None,
            must_reload: false,
            alias,
            pending: VecDeque::new(),
            out: Vec::new(),
            refused_releases: PendingReleases::default(),
            answered: false,
            merging: Merging::default(),
        }
    }

    pub(super) const fn was_answered(&self) -> bool {
        self.answered
    }

    /// Returns true if an answer is outstanding.
    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number of outstanding replies.
    pub(super) fn in_flight(&self) -> usize {
        self.pending.len() + self.merging.shared
    }

    pub(super) fn link(&self) -> Link {
        self.run_id.clone().map_or_else(|| Link::Unidentified(self.identity_error.clone()), Link::Open)
    }

    /// Writes requests and kept releases behind all earlier bytes.
    ///
    /// Before the process is identified, each batch begins with the preamble, so that the first votes after the member
    /// was opened are valid.
    pub(super) fn write(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        releases: Vec<Command>,
        encoded: &mut EncodedRequests,
    ) {
        let sent = self.clock.boottime();
        let before = self.pending.len();
        if self.run_id.is_none() || std::mem::take(&mut self.must_reload) {
            self.write_preamble();
        }
        for release in releases {
            wire::encode(&mut self.out, &release, &self.rights);
            self.pending.push_back(PendingReply::RepeatedRelease(release));
        }
        for request in requests {
            if let Some(request) = self.defer_release(request, sent, encoded) {
                self.write_request(request, sent, encoded);
            }
        }
        self.write_releases(sent, encoded);
        if self.pending.len() == before {
            self.ping();
        }
    }

    fn ping(&mut self) {
        resp::command(&mut self.out, &["PING"]);
        self.pending.push_back(PendingReply::Ignored);
    }

    fn write_request(&mut self, request: Request, sent: Boottime, encoded: &mut EncodedRequests) {
        let commands = Arc::clone(&request.commands);
        let pending = PendingRequest { sent, replies: Vec::new(), request };
        match &*commands {
            // An empty request gets no reply from the member.
            [] => self.answer(pending.request, sent, Replies::from(Vec::<Reply>::new()), sent),
            [Command::Acquire { key, value, ttl, token, not_after: None }] if self.rights.allow_plain_votes() => {
                encoded.write(&mut self.out, &commands, true, |out| {
                    wire::plain_acquire(out, key, value.expose(), *ttl, *token);
                });
                self.pending.push_back(PendingReply::Set(pending));
            }
            [Command::Announce { .. }] if !self.announces => {
                self.answer(pending.request, sent, Reply::Failed(MemberError::Fenced).into(), sent);
            }
            [Command::Inspect { key }] if !self.rights.allow_info() => {
                wire::plain_inspect(&mut self.out, key);
                self.pending.push_back(PendingReply::Read(pending, Inspection::default()));
            }
            [Command::RaiseCounter { key, behind, token, .. }] if !self.rights.allow_info() => {
                wire::increments(&mut self.out, key, *behind);
                self.pending.extend((1..*behind).map(|_| PendingReply::Ignored));
                let (stored, at_once) = (token.get(), *behind == 0);
                self.pending.push_back(if at_once {
                    PendingReply::Inspect(pending, Ok(stored))
                } else {
                    PendingReply::Raised(pending)
                });
            }
            scripts => {
                encoded.write(&mut self.out, &commands, false, |out| {
                    scripts.iter().for_each(|command| wire::encode(out, command, &self.rights));
                });
                self.pending.push_back(PendingReply::Script(pending));
            }
        }
    }

    /// Consumes complete replies, and returns the number of bytes that they had.
    ///
    /// An error ends the connection.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<usize, MemberError> {
        let mut used = 0;
        let received = self.clock.boottime();
        while !self.pending.is_empty() || used < input.len() {
            let parsed = resp::parse(&input[used..]);
            let Some((value, length)) = parsed.map_err(|_| MemberError::unexpected())? else { break };
            used += length;
            self.answered = true;
            let reply_to = self.pending.pop_front().ok_or_else(MemberError::unexpected)?;
            self.on_reply(reply_to, &value, received);
        }
        self.lasting_error.take().map_or(Ok(used), Err)
    }

    fn on_reply(&mut self, reply_to: PendingReply, value: &Value<'_>, received: Boottime) {
        match reply_to {
            PendingReply::Ignored => {}
            PendingReply::ScriptLoaded => {
                if let Value::Error(line) = value {
                    self.not_loaded = Some(wire::error(line));
                }
            }
            PendingReply::Identity => self.on_identity(value),
            PendingReply::RepeatedRelease(release) => {
                let reply = wire::decode(&release, value);
                self.on_command_reply(&release, &reply);
            }
            PendingReply::Releases(sent, requests) => self.on_releases(sent, requests, value, received),
            PendingReply::Script(pending) => self.on_script(pending, value, received),
            PendingReply::Set(pending) => self.on_set(pending, value, received),
            PendingReply::Increment(pending, set) => self.on_vote(pending, set, wire::number(value), received),
            PendingReply::Raised(pending) => {
                self.pending.push_front(PendingReply::Inspect(pending, wire::number(value)));
            }
            PendingReply::Inspect(pending, number) => {
                let reply = raised(&pending, number, value);
                self.finish(pending, reply, received);
            }
            PendingReply::Remaining(pending) => {
                let remaining = if let Value::Int(millis) = value { wire::remaining(*millis) } else { None };
                let holder = KeyState::OtherType { name: String::new(), remaining };
                self.finish(pending, Reply::Refused { holder, time: None }, received);
            }
            PendingReply::Holder(pending) => self.on_holder(pending, value, received),
            PendingReply::Read(pending, inspection) => match inspection.take(value) {
                Ok(reply) => self.finish(pending, reply, received),
                Err(inspection) => self.pending.push_front(PendingReply::Read(pending, inspection)),
            },
        }
    }

    fn on_script(&mut self, mut pending: PendingRequest, value: &Value<'_>, received: Boottime) {
        let Some(command) = pending.command() else { return };
        let reply = wire::decode(command, value);
        let command = command.clone();
        self.on_command_reply(&command, &reply);
        if pending.replies.len() + 1 < pending.request.commands.len() {
            pending.replies.push(reply);
            self.pending.push_front(PendingReply::Script(pending));
        } else {
            self.finish(pending, reply, received);
        }
    }

    /// Answers a request with its last reply.
    fn finish(&mut self, pending: PendingRequest, reply: Reply, received: Boottime) {
        let PendingRequest { request, sent, mut replies } = pending;
        let replies = if replies.is_empty() {
            Replies::from(reply)
        } else {
            replies.push(reply);
            Replies::from(replies)
        };
        self.answer(request, sent, replies, received);
    }

    fn answer(&self, request: Request, sent: Boottime, replies: Replies, received: Boottime) {
        request.slot.answer(match &self.run_id {
            Some(run_id) => Ok(Answers { run_id: run_id.clone(), sent, received, replies }),
            // Without the identity of the process no answer is a vote.
            None => Err(self.identity_error.clone()),
        });
    }

    /// Records a failed command: lost scripts, refused announcements, and refused releases.
    fn on_command_reply(&mut self, command: &Command, reply: &Reply) {
        if let Reply::Failed(error) = reply {
            if *error == MemberError::Other("NOSCRIPT".to_owned()) {
                // Another client flushed the scripts of an external master, so they are loaded again.
                self.must_reload = true;
            }
            if matches!(command, Command::Announce { .. }) && *error == MemberError::Fenced {
                // The member would log the refusal of each announcement.
                self.announces = false;
            }
            self.refused_releases.keep_refused(command.clone(), error);
        }
    }

    /// Returns true if an idle connection has commands to write: refused releases, or the preamble.
    pub(super) fn needs_write(&self) -> bool {
        self.run_id.is_none() || self.must_reload || !self.refused_releases.is_empty()
    }

    pub(super) fn write_on_idle(&mut self) {
        let refused = self.refused_releases.take();
        self.write([], refused, &mut EncodedRequests::default());
    }

    /// Returns the releases and requests without an answer.
    pub(super) fn into_unanswered(mut self) -> (Vec<Command>, Vec<Request>) {
        let mut releases = self.refused_releases.take();
        let mut requests = Vec::new();
        self.pending.into_iter().for_each(|reply| reply.into_unanswered(&mut releases, &mut requests));
        (releases, requests)
    }
}
