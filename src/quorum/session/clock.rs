//! The clocks of the members as this replica reads them: which votes count, whose clock was stepped (rule 9), and the quorum's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::fence::Users;
use crate::fence::clock::{Attribution, ClockWatch, Judgement, OwnClocks, Rule, Step, attribute};
use crate::quorum::model::status::ClockReport;
use crate::quorum::model::timekeeping::{Testimony, reckon};
use crate::redlock::{ClockCheck, ClockSample, MemberName, RunId};
use crate::runtime::api_time::ApiTime;
use crate::time::{Boottime, ClockOffset, UnixMicros, time_at};

/// What the status says of the clocks of admitted processes: what has to be added to `TIME`.
pub(crate) type RecordedClocks = BTreeMap<MemberName, (RunId, Option<i64>)>;

/// What is known of the clocks of one quorum; shared by the links, which read them, and by the votes.
pub struct ClockGuard {
    state: Mutex<State>,
    api_time: Option<Arc<ApiTime>>,
}

struct State {
    members: usize,
    rule: Rule,
    watched: BTreeMap<MemberName, Watched>,
    own: Option<OwnClocks>,
    together: Option<(Step, Boottime)>,
    recorded: Option<RecordedClocks>,
    /// Processes of which something was recorded since they were heard.
    /// A leader that perhaps knew more has recorded it.
    news: BTreeSet<RunId>,
    /// The quorum's clock, once it was known.
    quorum: Option<Known>,
}

/// The quorum's clock as this replica knows it.
#[derive(Clone, Copy)]
struct Known {
    /// Less our boot-time clock, microseconds.
    offset: i64,
    /// When members last told it. From there on it is carried by our own clock, which may run away from it.
    told: Boottime,
}

impl Known {
    /// The earliest time that the quorum's clock may show.
    ///
    /// A replica that hears no member may carry the clock for long, and a validity that it publishes must not be later
    /// than the members' memory.
    fn earliest(self, at: Boottime, ppm: u32) -> UnixMicros {
        let carried = ClockOffset::exactly(self.offset, self.told).aged(at, ppm);
        time_at(carried.least(), at)
    }
}

/// The clock of the process that a member is.
struct Watched {
    run_id: RunId,
    users: Users,
    clock: ClockWatch,
    /// Its clock against ours, as all readings together tell it.
    reading: ClockOffset,
    answers: bool,
    /// The step is this process's own. It stays so until another process takes its place.
    convicted: Option<Step>,
}

impl ClockGuard {
    /// For a quorum of so many members.
    pub const fn new(members: usize, rule: Rule) -> Self {
        let state = State {
            members,
            rule,
            watched: BTreeMap::new(),
            own: None,
            together: None,
            recorded: None,
            news: BTreeSet::new(),
            quorum: None,
        };
        Self { state: Mutex::new(state), api_time: None }
    }

    /// Where the processes leave a doubt about the quorum's clock this one settles it.
    pub fn witnessed_by(self, api_time: Arc<ApiTime>) -> Self {
        Self { api_time: Some(api_time), ..self }
    }

    /// What the status says of the clocks from now on.
    pub(crate) fn set_recorded(&self, recorded: RecordedClocks) {
        let mut state = self.state();
        // What a replica finds at its start is old.
        if let Some(before) = &state.recorded {
            let is_new = |(member, record): &(&MemberName, &(RunId, Option<i64>))| before.get(*member) != Some(*record);
            let written: Vec<RunId> = recorded.iter().filter(is_new).map(|(_, (run_id, _))| run_id.clone()).collect();
            state.news.extend(written);
            state.news.retain(|run_id| recorded.values().any(|(admitted, _)| admitted == run_id));
        }
        state.recorded = Some(recorded);
        self.reckon(&mut state);
    }

    /// The earliest time that the quorum's clock may show at this moment of our boot-time clock.
    ///
    /// `None` while it is not known.
    pub fn quorum_time(&self, at: Boottime) -> Option<UnixMicros> {
        let state = self.state();
        Some(state.quorum?.earliest(at, state.rule.drift.ppm))
    }

    /// What the quorum's clock is reckoned from, as it is known at `now`.
    ///
    /// The second value is the quorum's clock less our boot-time clock.
    pub(crate) fn testimonies(&self, now: Boottime) -> (Vec<Testimony>, Option<i64>) {
        let state = self.state();
        (state.testimonies(Some(now)), state.quorum.map(|known| known.offset))
    }

    /// The clock of this process less our boot-time clock, from all its readings.
    pub(crate) fn reading_of(&self, run_id: &RunId) -> Option<ClockOffset> {
        Some(self.state().watched.values().find(|watched| watched.run_id == *run_id)?.reading)
    }

    fn reckon(&self, state: &mut State) {
        let api = self.api_time.as_ref().and_then(|api_time| api_time.known_offset());
        let told = state.testimonies(None);
        let (known, heard) = (state.quorum, told.iter().map(|process| process.reading.at()).min());
        let offset = reckon(&told, known.map(|known| known.offset), api.map(ClockOffset::middle));
        state.quorum = offset.and_then(|offset| Some(Known { offset, told: heard.or(known.map(|known| known.told))? }));
        for process in told {
            state.news.remove(&process.run_id);
        }
    }

    /// So many members there are from now on.
    pub fn set_members(&self, members: usize) {
        self.state().members = members;
    }

    /// What was known of a member's clock counts no more.
    pub fn forget(&self, member: &MemberName) {
        self.state().watched.remove(member);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Judges by this from now on.
    pub fn set_rule(&self, rule: Rule) {
        self.state().rule = rule;
    }

    /// A regular reading of a member's clock, and of our own. Whether something became known that others should act on.
    pub fn saw(&self, member: &MemberName, run_id: &RunId, users: Users, sample: ClockSample, own: OwnClocks) -> bool {
        let mut state = self.state();
        let suspended = state.own.is_some_and(|before| own.were_suspended_since(before));
        state.own = Some(own);
        if suspended {
            tracing::info!("this machine was suspended: the members' clocks are judged from now on");
            state.begin_anew();
        }
        let rule = state.rule;
        let reading = ClockOffset::of_reading(sample.time, Duration::ZERO, sample.sent, sample.received);
        let known = state.watched.get_mut(member).filter(|watched| watched.run_id == *run_id);
        let reading = known.as_ref().map_or(reading, |known| known.reading.narrowed_by(reading, rule.drift.ppm));
        // Opened a moment ago: a step since the admission would be in what was recorded of its clock.
        let is_opened = |watched: &Watched| users == Users::Open && watched.clock.jump().is_none();
        let goes_on = |watched: &Watched| watched.convicted.is_some() || watched.users == users || is_opened(watched);
        match known.filter(|watched| goes_on(watched)) {
            Some(watched) => {
                watched.clock.saw(sample, rule);
                (watched.answers, watched.users, watched.reading) = (true, users, reading);
            }
            // Another process, or fenced only now; or a step from before its admission, which is in none of its keys.
            None => {
                let clock = ClockWatch::begin(sample);
                let run_id = run_id.clone();
                let watched = Watched { run_id, users, clock, reading, answers: true, convicted: None };
                state.watched.insert(member.clone(), watched);
            }
        }
        let news = state.attribute(sample.received);
        self.reckon(&mut state);
        news
    }

    /// A member does not answer, so it is no witness.
    pub fn lost(&self, member: &MemberName) {
        let mut state = self.state();
        if let Some(watched) = state.watched.get_mut(member) {
            watched.answers = false;
        }
        self.reckon(&mut state);
    }

    /// The step of this process's clock, if it was its own.
    pub fn step_of(&self, run_id: &RunId) -> Option<Step> {
        self.state().watched.values().find(|watched| watched.run_id == *run_id)?.convicted
    }

    /// What is known, for people, at `now`.
    pub fn report(&self, now: Boottime) -> ClockReport {
        let state = self.state();
        let stepped = state.watched.iter().filter_map(|(name, watched)| Some((name.to_string(), watched.convicted?)));
        let recent = |(step, at): (Step, Boottime)| (now.since(at) < state.rule.window).then_some(step);
        ClockReport {
            read: state.watched.values().filter(|watched| watched.answers).count(),
            stepped: stepped.collect(),
            together: state.together.and_then(recent),
            // Told by who knows the counters.
        }
    }
}

impl State {
    /// What the admitted processes tell that answer and whose votes count. A step that was found but is not yet known to be
    /// theirs is enough to leave them out.
    fn testimonies(&self, now: Option<Boottime>) -> Vec<Testimony> {
        let told = self.watched.iter().filter_map(|(member, watched)| {
            let (run_id, recorded) = self.recorded.as_ref()?.get(member)?;
            let counts = watched.answers && watched.convicted.is_none() && watched.clock.jump().is_none();
            let reading = now.map_or(watched.reading, |now| watched.reading.aged(now, self.rule.drift.ppm));
            (counts && watched.run_id == *run_id).then(|| Testimony {
                run_id: run_id.clone(),
                reading,
                recorded: *recorded,
                news: self.news.contains(run_id),
            })
        });
        told.collect()
    }

    /// Each clock is judged from its next reading on; what was found to be a process's own stays.
    fn begin_anew(&mut self) {
        self.watched.retain(|_, watched| watched.convicted.is_some());
    }

    fn attribute(&mut self, now: Boottime) -> bool {
        // Those whose step is known are judged no more, and a silent one can neither show a step nor the lack of one.
        let open: Vec<_> = self.watched.values().filter(|one| one.answers && one.convicted.is_none()).collect();
        let clocks: Vec<&ClockWatch> = open.iter().map(|watched| &watched.clock).collect();
        match attribute(&clocks, self.members) {
            Attribution::Nobody | Attribution::Open => false,
            Attribution::Observer(step) => {
                tracing::warn!(%step, "all members' clocks moved alike against this machine's: they are judged from now on");
                self.begin_anew();
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
                // It holds no votes yet.
                watched.clock = ClockWatch::begin(*watched.clock.last());
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
    /// Without a baseline nothing is known against a clock: this replica has just connected.
    fn steady(&self, run_id: &RunId, sample: &ClockSample) -> bool {
        let mut state = self.state();
        let rule = state.rule;
        let watched = state.watched.values_mut().find(|watched| watched.run_id == *run_id);
        watched.is_none_or(|watched| watched.clock.check(sample, rule) == Judgement::Steady)
    }

    fn earliest(&self, run_id: &RunId, at: Boottime) -> Option<UnixMicros> {
        let state = self.state();
        let watched = state.watched.values().find(|watched| watched.run_id == *run_id)?;
        Some(time_at(watched.reading.aged(at, state.rule.drift.ppm).least(), at))
    }
}

#[cfg(test)]
mod tests;
