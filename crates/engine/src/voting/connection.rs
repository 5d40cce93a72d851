//! One connection, from its first command to its end: bytes in, bytes and answers out. It does no IO and knows no timer.

use super::copies::Copies;
use super::due::{Due, Inspection, Pending, raised};
use super::job::{Job, Link};
use super::owed::Owed;
use super::resp::{self, Value};
use super::unfit;
use super::wire::{self, Rights};
use crate::redlock::{Answers, Command, KeyState, MemberError, Replies, Reply, RunId};
use crate::time::{Boottime, Clock};
use releases::Merging;
use std::collections::VecDeque;
use std::sync::Arc;

mod releases;
mod votes;

#[cfg(test)]
mod tests;

pub(super) struct Connection {
    clock: Arc<dyn Clock>,
    rights: Rights,
    /// Releases may be announced.
    announces: bool,
    /// Known once the preamble was answered; it never changes on one connection.
    run_id: Option<RunId>,
    /// Why it is not known.
    unknown: MemberError,
    /// Why this server never votes, whatever it is asked.
    useless: Option<MemberError>,
    /// Why a script of the preamble was not loaded.
    not_loaded: Option<MemberError>,
    loads_again: bool,
    /// Stands for the process where it may not be asked who it is.
    alias: RunId,
    due: VecDeque<Due>,
    /// Plain votes of the batch that is being read. They count with its time only.
    untimed: Vec<(Pending, Reply)>,
    /// Bytes to be written.
    pub(super) out: Vec<u8>,
    /// Releases that the member has refused for the moment.
    refused: Owed,
    answered: bool,
    merging: Merging,
}

impl Connection {
    pub(super) fn new(clock: Arc<dyn Clock>, rights: Rights, alias: RunId) -> Self {
        let unknown = MemberError::Unreachable("connection closed".to_owned());
        Self {
            clock,
            rights,
            announces: true,
            run_id: None,
            unknown,
            useless: None,
            not_loaded: None,
            loads_again: false,
            alias,
            due: VecDeque::new(),
            untimed: Vec::new(),
            out: Vec::new(),
            refused: Owed::default(),
            answered: false,
            merging: Merging::default(),
        }
    }

    pub(super) const fn was_answered(&self) -> bool {
        self.answered
    }

    /// Whether an answer is outstanding.
    pub(super) fn is_busy(&self) -> bool {
        !self.due.is_empty()
    }

    /// Replies that are outstanding.
    pub(super) fn in_flight(&self) -> usize {
        self.due.len() + self.merging.shared
    }

    pub(super) fn link(&self) -> Link {
        self.run_id.clone().map_or(Link::Fenced, Link::Open)
    }

    /// Writes everything behind all that was written before. Until the process is known, it is asked who it is first: the first votes
    /// after the member was opened count already.
    pub(super) fn write(&mut self, jobs: impl IntoIterator<Item = Job>, owed: Vec<Command>, copies: &mut Copies) {
        let sent = self.clock.boottime();
        let before = self.due.len();
        if self.run_id.is_none() || std::mem::take(&mut self.loads_again) {
            self.write_preamble();
        }
        for release in owed {
            wire::encode(&mut self.out, &release, &self.rights);
            self.due.push_back(Due::Owed(release));
        }
        let mut is_timed = false;
        for job in jobs {
            if let Some(job) = self.put_off(job, sent, copies) {
                is_timed |= self.write_job(job, sent, copies);
            }
        }
        self.write_releases(sent, copies);
        if is_timed && self.rights.allow_time() {
            resp::command(&mut self.out, &["TIME"]);
            self.due.push_back(Due::Time);
        }
        if self.due.len() == before {
            self.ping();
        }
    }

    fn ping(&mut self) {
        resp::command(&mut self.out, &["PING"]);
        self.due.push_back(Due::Ignored);
    }

    fn write_preamble(&mut self) {
        if self.rights == Rights::Reader {
            resp::command(&mut self.out, &["PING"]);
            return self.due.push_back(Due::Process);
        }
        let replies = wire::add_preamble(&mut self.out, &self.rights);
        if self.rights.allow_info() {
            self.due.extend((0..replies - 2).map(|_| Due::Loaded));
            self.due.extend([Due::Process, Due::Ignored]);
        } else {
            self.due.extend((0..replies - 1).map(|_| Due::Loaded));
            // Who may not ask is told by the last script that this process has opened for it.
            self.due.push_back(Due::Process);
        }
    }

    /// Whether TIME has to stand at the end of the batch.
    fn write_job(&mut self, job: Job, sent: Boottime, copies: &mut Copies) -> bool {
        let commands = Arc::clone(&job.commands);
        let pending = Pending { sent, replies: Vec::new(), job };
        match &*commands {
            [] => {
                resp::command(&mut self.out, &["PING"]);
                self.due.push_back(Due::Alive(pending));
            }
            [Command::Acquire { key, value, ttl, token, not_after: None }] if self.rights.allow_plain_votes() => {
                copies.write(&mut self.out, &commands, true, |out| {
                    wire::plain_acquire(out, key, value.expose(), *ttl, *token);
                });
                self.due.push_back(Due::Set(pending));
                return true;
            }
            [Command::Announce { .. }] if !self.announces => {
                self.answer(pending.job, sent, Reply::Failed(MemberError::Fenced).into(), sent);
            }
            [Command::Inspect { key }] if !self.rights.allow_info() => {
                wire::plain_inspect(&mut self.out, key);
                self.due.push_back(Due::Read(pending, Inspection::default()));
            }
            [Command::RaiseCounter { key, behind, token, .. }] if !self.rights.allow_info() => {
                wire::increments(&mut self.out, key, *behind);
                self.due.extend((1..*behind).map(|_| Due::Ignored));
                let (stored, at_once) = (token.get(), *behind == 0);
                self.due.push_back(if at_once { Due::Inspect(pending, Ok(stored)) } else { Due::Raised(pending) });
            }
            scripts => {
                copies.write(&mut self.out, &commands, false, |out| {
                    scripts.iter().for_each(|command| wire::encode(out, command, &self.rights));
                });
                self.due.push_back(Due::Script(pending));
            }
        }
        false
    }

    /// Takes what was read, and tells how much of it was used. An error means the end of the connection.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<usize, MemberError> {
        let mut used = 0;
        let received = self.clock.boottime();
        while !self.due.is_empty() || used < input.len() {
            let parsed = resp::parse(&input[used..]);
            let Some((value, length)) = parsed.map_err(|_| wire::unexpected())? else { break };
            used += length;
            self.answered = true;
            let due = self.due.pop_front().ok_or_else(wire::unexpected)?;
            self.on_reply(due, &value, received);
        }
        self.useless.take().map_or(Ok(used), Err)
    }

    fn on_reply(&mut self, due: Due, value: &Value<'_>, received: Boottime) {
        match due {
            Due::Ignored => {}
            Due::Alive(Pending { job, sent, replies }) => self.answer(job, sent, replies.into(), received),
            Due::Loaded => {
                if let Value::Error(line) = value {
                    self.not_loaded = Some(wire::error(line));
                }
            }
            Due::Process => self.on_process(value),
            Due::Owed(release) => {
                let reply = wire::decode(&release, value);
                self.look_at(&release, &reply);
            }
            Due::Releases(sent, jobs) => self.on_releases(sent, jobs, value, received),
            Due::Script(pending) => self.on_script(pending, value, received),
            Due::Set(pending) => self.on_set(pending, value, received),
            Due::Increment(pending, set) => self.on_increment(pending, set, value, received),
            Due::Raised(pending) => {
                let number = match value {
                    Value::Int(number) => Ok(*number),
                    Value::Error(line) => Err(wire::error(line)),
                    _ => Err(wire::unexpected()),
                };
                self.due.push_front(Due::Inspect(pending, number));
            }
            Due::Inspect(pending, number) => {
                let reply = raised(&pending, number, value);
                self.finish(pending, reply, received);
            }
            Due::Remaining(pending) => {
                let remaining = if let Value::Int(millis) = value { wire::remaining(*millis) } else { None };
                let holder = KeyState::OtherType { name: String::new(), remaining };
                self.finish(pending, Reply::Refused { holder, time: None }, received);
            }
            Due::Holder(pending) => self.on_holder(pending, value, received),
            Due::Read(pending, look) => match look.take(value) {
                Ok(reply) => self.finish(pending, reply, received),
                Err(look) => self.due.push_front(Due::Read(pending, look)),
            },
            Due::Time => self.on_time(wire::time_of(value), received),
        }
    }

    fn on_process(&mut self, value: &Value<'_>) {
        let process = match value {
            Value::Error(line) => Err(wire::error(line)),
            Value::Simple(_) if self.rights == Rights::Reader => Ok(self.alias.clone()),
            Value::Bulk(_) if !self.rights.allow_info() => Ok(self.alias.clone()),
            Value::Bulk(info) => wire::run_id(info).ok_or_else(wire::unexpected),
            _ => Err(wire::unexpected()),
        };
        let unfit = match value {
            Value::Bulk(info) if self.rights == Rights::Full => unfit::judge(info).map(MemberError::Unfit),
            _ => None,
        };
        // A script that was not loaded is missing for the whole life of the connection.
        match unfit.or(self.not_loaded.take()).map_or(process, Err) {
            Ok(run_id) => self.run_id = Some(run_id),
            Err(error) if error.is_lasting() => self.useless = Some(error),
            Err(error) => self.unknown = error,
        }
    }

    fn on_script(&mut self, mut pending: Pending, value: &Value<'_>, received: Boottime) {
        let Some(command) = pending.command() else { return };
        let reply = wire::decode(command, value);
        let command = command.clone();
        self.look_at(&command, &reply);
        if pending.replies.len() + 1 < pending.job.commands.len() {
            pending.replies.push(reply);
            self.due.push_front(Due::Script(pending));
        } else {
            self.finish(pending, reply, received);
        }
    }

    /// The last reply of a job.
    fn finish(&mut self, pending: Pending, reply: Reply, received: Boottime) {
        let Pending { job, sent, mut replies } = pending;
        let replies = if replies.is_empty() {
            Replies::from(reply)
        } else {
            replies.push(reply);
            Replies::from(replies)
        };
        self.answer(job, sent, replies, received);
    }

    fn answer(&self, job: Job, sent: Boottime, replies: Replies, received: Boottime) {
        job.slot.answer(match &self.run_id {
            Some(run_id) => Ok(Answers { run_id: run_id.clone(), sent, received, replies }),
            // Without the process's name no answer is a vote.
            None => Err(self.unknown.clone()),
        });
    }

    /// Takes note of what a reply says about the connection, and of a release that was refused.
    fn look_at(&mut self, command: &Command, reply: &Reply) {
        if let Reply::Failed(error) = reply {
            if *error == MemberError::Other("NOSCRIPT".to_owned()) {
                // Another client flushed the scripts of a master that is not ours: they are loaded again.
                self.loads_again = true;
            }
            if matches!(command, Command::Announce { .. }) && *error == MemberError::Fenced {
                // Asked each time, the member would log each refusal.
                self.announces = false;
            }
            self.refused.refused(command.clone(), error);
        }
    }

    /// Something to say on an idle connection: releases that were refused, the question who the process is, or PING.
    pub(super) fn has_something_to_say(&self) -> bool {
        self.run_id.is_none() || self.loads_again || !self.refused.is_empty()
    }

    pub(super) fn speak(&mut self) {
        let refused = self.refused.take();
        self.write([], refused, &mut Copies::default());
    }

    /// What was never answered: owed releases, and jobs.
    pub(super) fn into_unanswered(mut self) -> (Vec<Command>, Vec<Job>) {
        let mut owed = self.refused.take();
        let mut jobs: Vec<Job> = self.untimed.into_iter().map(|(pending, _)| pending.job).collect();
        self.due.into_iter().for_each(|due| due.into_unanswered(&mut owed, &mut jobs));
        (owed, jobs)
    }
}
