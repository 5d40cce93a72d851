//! The clocks of the members as this replica reads them: which votes count, and whose clock was stepped (rule 9).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fence::Users;
use crate::fence::clock::{Attribution, ClockWatch, Judgement, OwnClocks, Rule, Step, attribute};
use crate::quorum::status::ClockReport;
use crate::redlock::{ClockCheck, ClockSample, MemberName, RunId};
use crate::time::Boottime;

/// What is known of the clocks of one quorum; shared by the links, which read them, and by the votes.
pub struct ClockGuard {
    state: Mutex<State>,
}

struct State {
    members: usize,
    rule: Rule,
    watched: BTreeMap<MemberName, Watched>,
    own: Option<OwnClocks>,
    together: Option<(Step, Boottime)>,
}

/// The clock of the process that a member is.
struct Watched {
    run_id: RunId,
    users: Users,
    clock: ClockWatch,
    answers: bool,
    /// The step is this process's own. It stays so until another process takes its place.
    convicted: Option<Step>,
}

impl ClockGuard {
    /// For a quorum of so many members.
    #[must_use]
    pub const fn new(members: usize, rule: Rule) -> Self {
        let state = State { members, rule, watched: BTreeMap::new(), own: None, together: None };
        Self { state: Mutex::new(state) }
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            tracing::info!("this machine was suspended: the members' clocks are judged from now on anew");
            state.begin_anew();
        }
        let rule = state.rule;
        let known = state.watched.get_mut(member).filter(|watched| watched.run_id == *run_id);
        match known.filter(|watched| watched.convicted.is_some() || watched.users == users) {
            Some(watched) => {
                watched.clock.saw(sample, rule);
                (watched.answers, watched.users) = (true, users);
            }
            // Another process, or admitted only now: what its clock did before is in none of its keys.
            None => {
                let clock = ClockWatch::begin(sample);
                let watched = Watched { run_id: run_id.clone(), users, clock, answers: true, convicted: None };
                state.watched.insert(member.clone(), watched);
            }
        }
        state.attribute(sample.received)
    }

    /// A member does not answer, so it is no witness.
    pub fn lost(&self, member: &MemberName) {
        if let Some(watched) = self.state().watched.get_mut(member) {
            watched.answers = false;
        }
    }

    /// The step of this process's clock, if it was its own.
    #[must_use]
    pub fn step_of(&self, run_id: &RunId) -> Option<Step> {
        self.state().watched.values().find(|watched| watched.run_id == *run_id)?.convicted
    }

    /// What is known, for people, at `now`.
    #[must_use]
    pub fn report(&self, now: Boottime) -> ClockReport {
        let state = self.state();
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
                tracing::warn!(%step, "all members' clocks moved alike against ours: judged from now on anew");
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::redlock::Drift;
    use crate::time::{TokioClock, UnixMicros};

    const RULE: Rule =
        Rule { drift: Drift { ppm: 10_000, floor: Duration::from_millis(2) }, window: Duration::from_secs(30) };
    const MINUTE: i64 = 60_000_000;

    struct Observer {
        guard: ClockGuard,
        own: OwnClocks,
    }

    fn sample(millis: u64, ahead: i64) -> ClockSample {
        let sent = Boottime::new(Duration::from_millis(millis));
        let time = UnixMicros(i64::try_from(millis * 1_000).unwrap() + 1_767_225_600_000_000 + ahead);
        ClockSample { time, sent, received: sent + Duration::from_micros(300) }
    }

    fn run_id(member: &str) -> RunId {
        RunId::new(member)
    }

    impl Observer {
        fn new(members: usize) -> Self {
            Self { guard: ClockGuard::new(members, RULE), own: OwnClocks::read(&TokioClock::new()) }
        }

        /// Reads the clocks of `m0`, `m1` and so on, one after the other; whether there was news.
        fn reads(&self, millis: u64, aheads: &[i64], users: Users) -> bool {
            let mut news = false;
            for (index, ahead) in (0..).zip(aheads) {
                let member = format!("m{index}");
                let sample = sample(millis + index, *ahead);
                news |= self.guard.saw(&member.as_str().into(), &run_id(&member), users, sample, self.own);
            }
            news
        }

        fn steady(&self, member: &str, millis: u64, ahead: i64) -> bool {
            self.guard.steady(&run_id(member), &sample(millis, ahead))
        }

        fn stepped(&self) -> Vec<String> {
            let now = Boottime::new(Duration::from_secs(10));
            self.guard.report(now).stepped.into_iter().map(|(name, step)| format!("{name} {step}")).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vote_after_a_step_does_not_count_before_any_probe() {
        let observer = Observer::new(3);
        assert!(observer.steady("m0", 500, MINUTE), "nothing is known of it");
        observer.reads(1_000, &[0, 0, 0], Users::Open);
        assert!(observer.steady("m0", 1_200, 0));
        assert!(!observer.steady("m0", 1_300, MINUTE));
        assert!(!observer.steady("m0", 1_400, 0), "stepped back, and its keys are gone");
        assert!(observer.steady("m1", 1_400, 0));
        assert_eq!(observer.guard.step_of(&run_id("m0")), None, "not yet compared with the others");
        assert!(observer.reads(1_500, &[0, 0, 0], Users::Open), "news");
        assert_eq!(observer.stepped(), ["m0 +60.000 s"]);
        // Until another process is there.
        observer.reads(2_000, &[MINUTE, 0, 0], Users::Closed);
        assert_eq!(observer.stepped(), ["m0 +60.000 s"]);
        let name = "m0".into();
        observer.guard.saw(&name, &run_id("next"), Users::Closed, sample(3_000, MINUTE), observer.own);
        assert!(observer.stepped().is_empty() && observer.steady("next", 3_100, MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_moved_together_nobody_is_to_blame() {
        let observer = Observer::new(3);
        observer.reads(1_000, &[0, 0, 0], Users::Open);
        assert!(observer.reads(1_500, &[MINUTE, MINUTE, MINUTE], Users::Open), "news");
        assert!(observer.stepped().is_empty());
        let report = observer.guard.report(Boottime::new(Duration::from_secs(10)));
        assert_eq!(report.together.map(|step| step.to_string()).as_deref(), Some("+60.000 s"));
        assert_eq!(observer.guard.report(Boottime::new(Duration::from_secs(40))).together, None);
        // Judged from there on.
        observer.reads(2_000, &[MINUTE, MINUTE, MINUTE], Users::Open);
        assert!(observer.steady("m0", 2_200, MINUTE) && !observer.steady("m1", 2_200, 2 * MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fenced_process_is_a_witness_and_no_culprit() {
        let observer = Observer::new(3);
        observer.reads(1_000, &[0, 0, 0], Users::Closed);
        observer.reads(1_500, &[MINUTE, 0, 0], Users::Closed);
        observer.reads(2_000, &[MINUTE, 0, 0], Users::Closed);
        assert!(observer.stepped().is_empty());
        // Admitted: its baseline is what it was admitted with.
        observer.reads(2_500, &[MINUTE, 0, 0], Users::Open);
        assert!(observer.steady("m0", 2_600, MINUTE) && !observer.steady("m0", 2_600, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_member_is_not_waited_for() {
        let observer = Observer::new(3);
        observer.reads(1_000, &[0, 0, 0], Users::Open);
        observer.reads(1_500, &[-MINUTE, 0], Users::Open);
        assert!(observer.stepped().is_empty(), "m2 may show the same");
        observer.guard.lost(&"m2".into());
        observer.reads(2_000, &[-MINUTE, 0], Users::Open);
        assert_eq!(observer.stepped(), ["m0 -60.000 s"]);
    }
}
