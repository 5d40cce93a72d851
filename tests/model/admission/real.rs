//! Converts the model's compact state to the crate's types, and back.

use redlock_operator::fence::predecessor::{Facts, NODE_READY_FOR, NodeFacts, NodeIdentity, PresentNode, judge};
use redlock_operator::fence::{
    self, FenceInput, FenceStep, ObservedProcess, ProcessWatch, Reach, Record, RunId, Users, Verdict, decide,
};
use redlock_operator::time::Monotonic;

use super::super::core::{NOW, ago, fence_input};
use super::*;

fn run(number: u8) -> RunId {
    RunId::new(number.to_string())
}

fn number(run_id: &RunId) -> u8 {
    run_id.as_str().parse().unwrap()
}

fn users(open: bool) -> Users {
    if open { Users::Open } else { Users::Closed }
}

impl Observed {
    fn watch(self) -> ProcessWatch {
        let mut watch = ProcessWatch::default();
        let run_id = run(self.process);
        match self.closed {
            Some(closed) if closed < self.first => {
                watch.observe(&run_id, Users::Open, ago(self.first));
                watch.observe(&run_id, Users::Closed, ago(closed));
            }
            _ => watch.observe(&run_id, users(self.open), ago(self.first)),
        }
        watch
    }

    fn of(observed: &ObservedProcess, longest: u8) -> Self {
        let age = |since: Monotonic| u8::try_from(NOW.since(since).as_secs()).unwrap().min(longest);
        Self {
            process: number(&observed.run_id),
            first: age(observed.first_observed),
            open: observed.users == Users::Open,
            closed: observed.closed_since.map(age),
        }
    }

    /// The observation after a probe.
    pub(super) fn probed(last: Option<Self>, process: u8, open: bool, longest: u8) -> Self {
        let mut watch = last.map(Self::watch).unwrap_or_default();
        watch.observe(&run(process), users(open), NOW);
        Self::of(watch.last().unwrap(), longest)
    }
}

impl Published {
    fn record(&self, world: &World) -> Record {
        let process = |number: Option<u8>| number.map(|number| process(world, number));
        Record {
            state: self.state,
            reason: self.reason,
            run_id: self.run.map(run),
            admitted: self.admitted,
            process: process(self.process),
            predecessor: process(self.predecessor),
        }
    }

    fn of(record: &Record) -> Self {
        let process = |process: &Option<fence::Process>| process.as_ref().map(|process| number(&process.run_id));
        Self {
            state: record.state,
            reason: record.reason,
            run: record.run_id.as_ref().map(number),
            admitted: record.admitted,
            process: process(&record.process),
            predecessor: process(&record.predecessor),
        }
    }

    pub(super) fn restarts_count(&self, before: &Self, process: u8, world: &World) -> bool {
        self.record(world).restarts_count(&before.record(world), &run(process))
    }
}

fn process(world: &World, number: u8) -> fence::Process {
    fence::Process {
        run_id: run(number),
        pod_uid: format!("pod {}", world.processes[usize::from(number)].pod),
        container_id: Some(format!("container {number}")),
        node_name: Some("node".into()),
        node: Some(node(number)),
    }
}

/// The machine of a process.
///
/// It alone distinguishes nodes of one name.
fn node(process: u8) -> NodeIdentity {
    NodeIdentity { uid: format!("node {process}"), machine: None }
}

impl Admission {
    /// The verdict on the process whose death the observed process has to wait for.
    fn verdict(&self, world: &World, record: &Record, observed: &Observed) -> Verdict {
        let threat = record.threat_to(Some(&run(observed.process))).filter(|_| self.confirms_death);
        let Some(threat) = threat else { return Verdict::None };
        let threatening = number(&threat.run_id);
        let before = world.processes[usize::from(threatening)];
        let current = world.processes[usize::from(world.current)];
        let pod_uid = format!("pod {}", current.pod);
        let long_ago = NOW.saturating_sub(NODE_READY_FOR);
        let ready_since = (before.life == Life::NodeBack || before.renamed).then_some(long_ago);
        // The machine of the Node. Without the rule the name alone identifies it.
        let identity = if before.renamed && self.tells_machines_apart { node(MOST as u8) } else { node(threatening) };
        let present = PresentNode { identity, ready_since, out_of_service: false };
        judge(
            threat,
            &Facts {
                now: NOW,
                terminated: before.life == Life::Ended && pod_uid == threat.pod_uid,
                gone_since: (pod_uid != threat.pod_uid).then_some(long_ago),
                node: &NodeFacts { present: Some(present), deleted: Vec::new() },
                declared_dead: (before.life == Life::Declared).then_some(threat.pod_uid.as_str()),
            },
        )
    }

    /// The replica's decision on this record, and the record after it.
    pub(super) fn decide(
        &self,
        world: &World,
        replica: &Replica,
        record: &Published,
    ) -> Option<(FenceStep, Published)> {
        let observed = replica.observed?;
        let real = record.record(world);
        let verdict = self.verdict(world, &real, &observed);
        let reach = Reach::Answering(observed.watch().last().cloned()?);
        let fenced = replica.fenced.filter(|(process, _)| *process == observed.process);
        let step = decide(&FenceInput {
            fenced_since: fenced.map(|(_, since)| ago(since)),
            epoch_raised: replica.raised == Some(observed.process),
            ..fence_input(&real, &reach, &verdict, self.delay)
        });
        let next = real.after(step, Some(&process(world, observed.process)), &verdict);
        Some((step, Published::of(&next)))
    }
}
