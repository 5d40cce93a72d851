//! The members and their fence: `fence::decide` for each member, and its published results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_operator::fence::{Evidence, FenceInput, FenceStep, Process, ProcessWatch, Record, Users, Verdict, decide};
use redlock_operator::redlock::{ClockCheck, ClockSample, Drift, RunId, rejoin_delay};
use redlock_operator::time::{Boottime, Clock, Monotonic, UnixMicros};
use tokio::time::sleep;

use super::clock::SimClock;
use super::history::History;
use super::rng::Rng;
use super::server::Server;

pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const FLOOR_STEP: i64 = 64;

/// The content of the status, for every reader.
#[derive(Default)]
pub(crate) struct Status {
    pub(crate) admitted: Vec<Option<RunId>>,
    pub(crate) floor: i64,
}

pub(crate) struct Quorum {
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) status: Mutex<Status>,
    /// Whether there is a fence.
    ///
    /// Without one a process votes as soon as it runs.
    pub(crate) fence: bool,
    pub(crate) history: Arc<History>,
    clocks: Arc<Clocks>,
}

impl Quorum {
    pub(crate) fn new(servers: Vec<Arc<Server>>, fence: bool, history: Arc<History>) -> Arc<Self> {
        let status = Status { admitted: vec![None; servers.len()], floor: 0 };
        Arc::new(Self { servers, status: Mutex::new(status), fence, history, clocks: Arc::default() })
    }

    pub(crate) fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    pub(crate) fn clock_check(&self) -> Arc<dyn ClockCheck> {
        self.clocks.clone()
    }

    /// Raises the floor before a token above it is published, like `QuorumSession::ensure_token_floor`.
    pub(crate) fn ensure_floor(&self, token: i64) {
        let mut status = self.status.lock().unwrap();
        if token > status.floor {
            status.floor = token + FLOOR_STEP;
        }
    }

    /// The restored counter by rule 7, like in `controller::admit`.
    ///
    /// It leaves out Unix time, which would hide a mistake in the rest.
    fn restored(&self, member: usize, rng: &mut Rng) -> i64 {
        let status = self.status.lock().unwrap();
        let admitted = |(index, server): &(usize, &Arc<Server>)| {
            *index != member && server.process().up && status.admitted[*index].as_ref() == Some(&server.run_id())
        };
        let others = self.servers.iter().enumerate().filter(admitted);
        let counters: Vec<i64> = others.map(|(_, server)| server.process().master.counter).collect();
        let needed = self.servers.len() - self.majority() + 1;
        // Sometimes the counters are not available.
        let enough = counters.len() >= needed && rng.percent(70);
        let highest = counters.iter().copied().max().filter(|_| enough);
        highest.unwrap_or(0).max(status.floor)
    }

    fn admit(&self, member: usize, counter: i64, clock: &SimClock) {
        let server = &self.servers[member];
        let mut status = self.status.lock().unwrap();
        status.floor = status.floor.max(counter + FLOOR_STEP);
        status.admitted[member] = Some(server.run_id());
        self.clocks.note(server, clock.boottime());
        let mut process = server.process();
        process.master.counter = process.master.counter.max(counter);
        process.open = true;
    }

    /// Observes and admits one member until the end of the run.
    pub(crate) async fn keep(self: Arc<Self>, member: usize, mut rng: Rng) {
        let clock = SimClock::new(0);
        let server = self.servers[member].clone();
        let (mut watch, mut record) = (ProcessWatch::default(), Record::default());
        let mut fenced_since: Option<(RunId, Monotonic)> = None;
        loop {
            sleep(rng.millis(50, 250)).await;
            if !server.process().up {
                watch.lost(clock.monotonic());
                continue;
            }
            server.thaw().await;
            if !self.fence && !server.process().open {
                self.admit(member, 0, &clock);
                continue;
            }
            for _ in 0..8 {
                let (run_id, now) = (server.run_id(), clock.monotonic());
                let open = server.process().open;
                watch.observe(&run_id, if open { Users::Open } else { Users::Closed }, now);
                // The member's only pod restarts in place, so the end of the earlier process is always known.
                let dead = Verdict::Dead(Evidence::Terminated);
                let verdict = if record.threat_to(Some(&run_id)).is_some() { dead } else { Verdict::None };
                let fenced = fenced_since.as_ref().filter(|(process, _)| *process == run_id).map(|(_, since)| *since);
                let step = decide(&FenceInput {
                    now,
                    record: &record,
                    reach: &watch.reach(true, now),
                    predecessor: &verdict,
                    rejoin_delay: rejoin_delay(TTL, Drift::default(), NODE_TIMEOUT),
                    fenced_since: fenced,
                    epoch_raised: true,
                    clock_jumped: false,
                    must_restart: false,
                    unreported: false,
                    process: None,
                    forgot: false,
                    unfit: false,
                });
                if matches!(step, FenceStep::Nothing | FenceStep::Wait { .. }) {
                    break;
                }
                sleep(rng.millis(0, 5)).await;
                if server.run_id() != run_id || !server.process().up {
                    break;
                }
                let process = Process {
                    run_id: run_id.clone(),
                    pod_uid: "pod".into(),
                    container_id: Some(run_id.to_string()),
                    node_name: Some("node".into()),
                    node: None,
                };
                let next = record.after(step, Some(&process), &verdict);
                match step {
                    FenceStep::Admit => {
                        let counter = self.restored(member, &mut rng);
                        self.admit(member, counter, &clock);
                        self.history.note(&format!("{run_id} is admitted, its counter is {counter}"));
                        self.history.count(|counts| counts.admissions += 1);
                    }
                    FenceStep::WriteFenced { close, .. } => {
                        self.status.lock().unwrap().admitted[member] = None;
                        if close {
                            server.process().open = false;
                        }
                    }
                    _ => {}
                }
                if next.restarts_count(&record, &run_id) {
                    fenced_since = Some((run_id, clock.monotonic()));
                }
                record = next;
            }
        }
    }
}

/// Replaces the operator's clock watch, which compares any two readings.
///
/// Here one of them is the member's clock at its admission.
#[derive(Default)]
struct Clocks(Mutex<BTreeMap<RunId, (i64, Boottime)>>);

impl Clocks {
    fn note(&self, server: &Server, now: Boottime) {
        self.0.lock().unwrap().insert(server.run_id(), (server.time().0, now));
    }
}

impl ClockCheck for Clocks {
    fn steady(&self, run_id: &RunId, sample: &ClockSample) -> bool {
        let Some((time, at)) = self.0.lock().unwrap().get(run_id).copied() else { return false };
        let drift = Drift::default();
        let moved = sample.time.0 - time;
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap();
        let (least, most) = (sample.sent.since(at), sample.received.since(at));
        moved >= micros(least) - micros(drift.allowance(least)) && moved <= micros(most) + micros(drift.allowance(most))
    }

    fn earliest(&self, run_id: &RunId, at: Boottime) -> Option<UnixMicros> {
        let (time, noted) = self.0.lock().unwrap().get(run_id).copied()?;
        let since = at.since(noted);
        Some(UnixMicros(time).plus(since.saturating_sub(Drift::default().allowance(since))))
    }
}
