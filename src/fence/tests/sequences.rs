//! Random sequences of what can happen, against the rule itself.

use proptest::prelude::*;

use super::*;

/// Events of one member, as its replica and its leader observe them.
#[derive(Clone, Debug)]
enum Happening {
    Pass(u64),
    Probe,
    Restart,
    Silence,
    /// An administrator opens or closes the process without the operator.
    Meddle(bool),
    NewLeader,
    NewReplica,
    OpeningFails,
    PredecessorDead(bool),
    /// A script begins to keep the process busy, or ends.
    Stuck(bool),
    Decide,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1_u64..20_000).prop_map(Happening::Pass),
        6 => Just(Happening::Probe),
        2 => Just(Happening::Restart),
        1 => Just(Happening::Silence),
        1 => any::<bool>().prop_map(Happening::Meddle),
        1 => Just(Happening::NewLeader),
        1 => Just(Happening::NewReplica),
        1 => Just(Happening::OpeningFails),
        2 => any::<bool>().prop_map(Happening::PredecessorDead),
        1 => any::<bool>().prop_map(Happening::Stuck),
        8 => Just(Happening::Decide),
    ]
}

/// The real state, which the operator knows only in part.
struct World {
    now: u64,
    process: u32,
    open: bool,
    /// When the leading replica first observed the running process, or last observed it open.
    /// The process is not admitted before the delay after that.
    must_wait_from: Option<u64>,
    watch: ProcessWatch,
    record: Record,
    fenced_since: Option<u64>,
    opening_fails: bool,
    recorded_dead: bool,
    must_restart: bool,
}

impl World {
    fn new() -> Self {
        Self {
            now: 1_000,
            process: 0,
            open: false,
            must_wait_from: None,
            watch: ProcessWatch::default(),
            record: Record::default(),
            fenced_since: None,
            opening_fails: false,
            recorded_dead: false,
            must_restart: false,
        }
    }

    fn name(&self) -> String {
        format!("p{}", self.process)
    }

    fn probe(&mut self) {
        let users = if self.open { Users::Open } else { Users::Closed };
        if self.open || self.must_wait_from.is_none() {
            self.must_wait_from = Some(self.now);
        }
        self.watch.observe(&run(&self.name()), users, at(self.now));
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Pass(millis) => self.now += millis,
            Happening::Probe => self.probe(),
            Happening::Restart => self.restart(),
            Happening::Silence => self.watch.lost(at(self.now)),
            Happening::Meddle(open) => self.open = *open,
            // Every replica watches every member and every status, so another leader has the same data.
            Happening::NewLeader => {}
            Happening::NewReplica => {
                (self.watch, self.must_wait_from, self.fenced_since) = (ProcessWatch::default(), None, None);
            }
            Happening::OpeningFails => self.opening_fails = true,
            Happening::PredecessorDead(dead) => self.recorded_dead = *dead,
            Happening::Stuck(stuck) => self.must_restart = *stuck,
            Happening::Decide => self.decide(),
        }
    }

    fn restart(&mut self) {
        (self.process, self.open, self.must_wait_from) = (self.process + 1, false, None);
        (self.must_restart, self.recorded_dead) = (false, false);
        self.watch.lost(at(self.now));
    }

    fn verdict(&self) -> Verdict {
        let seen = self.watch.last().map(|answering| &answering.run_id);
        match self.record.threat_to(seen) {
            None => Verdict::None,
            Some(_) if self.recorded_dead => Verdict::Dead(Evidence::Terminated),
            Some(_) => unconfirmed_until(None),
        }
    }

    /// Executes one decision, and panics if it breaks the rule.
    fn decide(&mut self) {
        let (reach, verdict) = (self.watch.reach(true, at(self.now)), self.verdict());
        let input = input(self.now, &self.record, &reach, &verdict, self.fenced_since);
        let step = decide(&FenceInput { must_restart: self.must_restart, ..input });
        let running = process(&self.name());
        if let Reach::Answering(answering) = &reach
            && answering.run_id != running.run_id
        {
            // The process restarted after the probe. Closing and admitting check the run_id on their own connection.
            return;
        }
        if step == FenceStep::Admit {
            let from = self.must_wait_from.expect("admitted before its first observation");
            assert!(self.now >= from + 30_660, "admitted {} ms after {from}", self.now - from);
            assert!(!matches!(verdict, Verdict::Unconfirmed { .. }), "the predecessor can still run");
            self.open = !self.opening_fails;
            self.opening_fails = false;
        }
        let visible = matches!(reach, Reach::Answering(_)).then_some(&running);
        self.record = self.record.after(step, visible, &verdict);
        if step == FenceStep::RestartProcess {
            return self.restart();
        }
        // A busy process executes no command.
        let closes = matches!(step, FenceStep::WriteFenced { reason, close: true, .. } if reason != Reason::Busy);
        if closes {
            self.open = false;
            self.must_wait_from = Some(self.now);
            self.fenced_since = Some(self.now);
        }
        if step == FenceStep::Admit || closes {
            self.probe();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_sequence_of_observations_admits_a_process_early(happenings in prop::collection::vec(happening(), 1..120)) {
        let mut world = World::new();
        for happening in &happenings {
            world.happen(happening);
        }
    }

    #[test]
    fn a_member_that_is_left_alone_is_admitted(happenings in prop::collection::vec(happening(), 0..60)) {
        let mut world = World::new();
        for happening in &happenings {
            world.happen(happening);
        }
        (world.opening_fails, world.must_restart) = (false, false);
        for _ in 0..60 {
            // The end of this process counts as a death as well.
            world.recorded_dead = true;
            for happening in [Happening::Probe, Happening::Decide, Happening::Decide, Happening::Pass(1_000)] {
                world.happen(&happening);
            }
        }
        world.happen(&Happening::Decide);
        prop_assert_eq!(world.record.state, State::Admitted);
        prop_assert!(world.open);
    }
}
