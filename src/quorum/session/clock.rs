//! The clocks of the members as this replica reads them: which votes count, and whose clock was stepped (rule 9).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::fence::Users;
use crate::fence::clock::{Attribution, ClockWatch, OwnClocks, Rule, Step, attribute};
use crate::quorum::model::status::ClockReport;
use crate::redlock::{ClockCheck, ClockSample, MemberName, RunId};
use crate::time::{Boottime, ClockOffset, UnixMicros};

/// The clocks of one quorum's members. The links write their readings, and the votes use them.
pub struct ClockGuard(Mutex<State>);

struct State {
    members: usize,
    rule: Rule,
    watched: BTreeMap<MemberName, Watched>,
    own: Option<OwnClocks>,
    together: Option<(Step, Boottime)>,
    /// Members whose links have ended. A reading that was under way then is dropped.
    former: BTreeSet<MemberName>,
}

/// The clock of the current process of a member.
struct Watched {
    run_id: RunId,
    users: Users,
    clock: ClockWatch,
    /// The offset of its clock to ours, from all readings together.
    reading: ClockOffset,
    answers: bool,
    /// The step of this process, if it was its own clock. It stays until another process replaces this one.
    convicted: Option<Step>,
}

impl ClockGuard {
    /// The clocks of a quorum with this number of members.
    pub const fn new(members: usize, rule: Rule) -> Self {
        let watched = BTreeMap::new();
        let former = BTreeSet::new();
        Self(Mutex::new(State { members, rule, watched, own: None, together: None, former }))
    }

    /// Sets the number of members, and the rule by which clocks are judged.
    pub fn set(&self, members: usize, rule: Rule) {
        let mut state = self.0.lock();
        (state.members, state.rule) = (members, rule);
    }

    /// Drops the readings of a member's clock.
    pub fn forget(&self, member: &MemberName) {
        self.0.lock().watched.remove(member);
    }

    /// Drops the readings of a member whose link has ended, until a link with its name begins.
    pub fn end(&self, member: &MemberName) {
        let mut state = self.0.lock();
        state.watched.remove(member);
        state.former.insert(member.clone());
    }

    /// A link of a member with this name begins.
    pub fn begin(&self, member: &MemberName) {
        self.0.lock().former.remove(member);
    }

    /// Records a regular reading of a member's clock, and of this replica's clocks.
    ///
    /// Returns whether another task must react to it.
    pub fn observe(
        &self,
        member: &MemberName,
        run_id: &RunId,
        users: Users,
        sample: ClockSample,
        own: OwnClocks,
    ) -> bool {
        let mut state = self.0.lock();
        if state.former.contains(member) {
            return false;
        }
        let suspended = state.own.is_some_and(|before| own.were_suspended_since(before));
        state.own = Some(own);
        if suspended {
            tracing::info!("this machine was suspended, so the members' clocks are compared from now on");
            state.reset_baselines();
        }
        let rule = state.rule;
        let reading = ClockOffset::of_reading(sample.time, Duration::ZERO, sample.sent, sample.received);
        let before = state.watched.get_mut(member).filter(|watched| watched.run_id == *run_id);
        let reading = before.as_ref().map_or(reading, |before| before.reading.narrowed_by(reading, rule.drift.ppm));
        // It was opened a moment ago. A step since the admission would already be recorded.
        let is_opened = |watched: &Watched| users == Users::Open && watched.clock.jump().is_none();
        let goes_on = |watched: &Watched| watched.convicted.is_some() || watched.users == users || is_opened(watched);
        match before.filter(|watched| goes_on(watched)) {
            Some(watched) => {
                watched.clock.observe(sample, rule);
                (watched.answers, watched.users, watched.reading) = (true, users, reading);
            }
            // Another process, or one that was fenced now, starts again. So does one with a step from before its admission, which affects no key.
            None => {
                let clock = ClockWatch::begin(sample);
                let run_id = run_id.clone();
                let watched = Watched { run_id, users, clock, reading, answers: true, convicted: None };
                state.watched.insert(member.clone(), watched);
            }
        }
        state.attribute(sample.received)
    }

    /// Records that a member does not answer, so that it is no witness.
    pub fn lost(&self, member: &MemberName) {
        if let Some(watched) = self.0.lock().watched.get_mut(member) {
            watched.answers = false;
        }
    }

    /// The step of this process's clock, if the process caused it.
    pub fn step_of(&self, run_id: &RunId) -> Option<Step> {
        self.0.lock().watched.values().find(|watched| watched.run_id == *run_id)?.convicted
    }

    /// The report for users at `now`.
    pub fn report(&self, now: Boottime) -> ClockReport {
        let state = self.0.lock();
        let stepped = state.watched.iter().filter_map(|(name, watched)| Some((name.to_string(), watched.convicted?)));
        let recent = |(step, at): (Step, Boottime)| (now.since(at) < state.rule.window).then_some(step);
        ClockReport {
            read: state.watched.values().filter(|watched| watched.answers).count(),
            stepped: stepped.collect(),
            together: state.together.and_then(recent),
        }
    }
}

impl State {
    /// Judges each clock from its next reading on. Steps that were attributed to a process stay.
    fn reset_baselines(&mut self) {
        self.watched.retain(|_, watched| watched.convicted.is_some());
    }

    fn attribute(&mut self, now: Boottime) -> bool {
        // Clocks with an attributed step are no longer judged. A silent member shows neither a step nor the lack of one.
        let open: Vec<_> = self.watched.values().filter(|one| one.answers && one.convicted.is_none()).collect();
        let clocks: Vec<&ClockWatch> = open.iter().map(|watched| &watched.clock).collect();
        match attribute(&clocks, self.members) {
            Attribution::NoClock | Attribution::Open => false,
            Attribution::Observer(step) => {
                tracing::warn!(%step, "the clocks of all members moved equally against this machine's clock, so they are compared from now on");
                self.reset_baselines();
                self.together = Some((step, now));
                true
            }
            Attribution::Members => self.convict(),
        }
    }

    fn convict(&mut self) -> bool {
        let mut news = false;
        for (member, watched) in &mut self.watched {
            let Some(jump) = watched.clock.jump().copied().filter(|_| watched.convicted.is_none()) else { continue };
            if watched.users == Users::Closed {
                // It has no votes yet.
                watched.clock = ClockWatch::begin(watched.clock.last);
                continue;
            }
            tracing::warn!(%member, run_id = %watched.run_id, step = %jump.step, "the member's clock was stepped");
            watched.convicted = Some(jump.step);
            news = true;
        }
        news
    }
}

impl ClockCheck for ClockGuard {
    /// Without a baseline the clock counts as steady, because this replica has just connected.
    fn steady(&self, run_id: &RunId, sample: &ClockSample) -> bool {
        let mut state = self.0.lock();
        let rule = state.rule;
        let watched = state.watched.values_mut().find(|watched| watched.run_id == *run_id);
        watched.is_none_or(|watched| watched.clock.check(sample, rule).is_none())
    }

    fn earliest(&self, run_id: &RunId, at: Boottime) -> Option<UnixMicros> {
        let state = self.0.lock();
        let watched = state.watched.values().find(|watched| watched.run_id == *run_id)?;
        Some(watched.reading.aged(at, state.rule.drift.ppm).earliest(at))
    }
}

#[cfg(test)]
mod tests;
