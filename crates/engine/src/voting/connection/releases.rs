//! Releases that stand one behind the other in a batch are asked for by one call of a script: most of what a release costs a member
//! is the call.

use super::Connection;
use crate::redlock::{Command, MemberError, Reply};
use crate::time::Boottime;
use crate::voting::copies::Copies;
use crate::voting::due::Due;
use crate::voting::job::Job;
use crate::voting::resp::{Value, word};
use crate::voting::scripts::Script;
use crate::voting::wire;

/// Fewer are asked for one by one: the script for many costs more than two calls of the one for one.
const FEWEST: usize = 4;
/// No more in one call, so that it does not hold up the member.
const MOST: usize = 64;

/// What is known of the calls for many releases.
pub(super) struct Merging {
    /// Until the member has refused one.
    is_allowed: bool,
    /// Releases that wait for what is written behind them.
    run: Vec<Job>,
    /// Answers that come with those of others.
    pub(super) shared: usize,
}

impl Default for Merging {
    fn default() -> Self {
        Self { is_allowed: true, run: Vec::new(), shared: 0 }
    }
}

impl Connection {
    /// Puts a release off until it is known how many follow it. Gives back any other job, once those releases are written.
    pub(super) fn put_off(&mut self, job: Job, sent: Boottime, copies: &mut Copies) -> Option<Job> {
        if !matches!(&*job.commands, [Command::Release { .. }]) {
            self.write_releases(sent, copies);
            return Some(job);
        }
        self.merging.run.push(job);
        if self.merging.run.len() == MOST {
            self.write_releases(sent, copies);
        }
        None
    }

    /// Writes those that were put off.
    pub(super) fn write_releases(&mut self, sent: Boottime, copies: &mut Copies) {
        let mut run = std::mem::take(&mut self.merging.run);
        if self.merging.is_allowed && run.len() >= FEWEST {
            encode(&mut self.out, &self.rights.scripts().release_all, &run);
            self.merging.shared += run.len() - 1;
            return self.due.push_back(Due::Releases(sent, run));
        }
        for job in run.drain(..) {
            self.write_job(job, sent, copies);
        }
        self.merging.run = run;
    }

    /// The answer to a call for many.
    pub(super) fn on_releases(&mut self, sent: Boottime, jobs: Vec<Job>, value: &Value<'_>, received: Boottime) {
        self.merging.shared -= jobs.len() - 1;
        if matches!(value, Value::Error(line) if wire::error(line) == MemberError::Fenced) {
            // One of the keys may be forbidden to this user, and the member does not say which: each is asked for by itself.
            self.merging.is_allowed = false;
            let again = self.clock.boottime();
            for job in jobs {
                self.write_job(job, again, &mut Copies::default());
            }
            return;
        }
        for (index, job) in jobs.into_iter().enumerate() {
            let own = match value {
                Value::Array(parts) => parts.get(index).unwrap_or(&Value::Nil),
                all => all,
            };
            let reply = match &*job.commands {
                [release] => {
                    let reply = wire::decode(release, own);
                    self.look_at(release, &reply);
                    reply
                }
                _ => Reply::Failed(wire::unexpected()),
            };
            self.answer(job, sent, reply.into(), received);
        }
    }
}

/// One call for the releases of these jobs.
fn encode(out: &mut Vec<u8>, script: &Script, run: &[Job]) {
    let locks = run.iter().flat_map(|job| &*job.commands).filter_map(|command| match command {
        Command::Release { key, value } => Some((key.as_str(), value.expose())),
        _ => None,
    });
    let (keys, values): (Vec<_>, Vec<_>) = locks.unzip();
    wire::call(out, script, &keys, values.len());
    values.into_iter().for_each(|value| word(out, value));
}
