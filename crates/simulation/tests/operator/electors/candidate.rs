//! The loop of client-go's leaderelection: acquire, renew, and end the process at the deadline.

use serde_json::{Value, json};

use crate::rng::Rng;
use crate::time::At;
use redlock_simulation::kube::api::Shared;
use redlock_simulation::kube::cluster::Running;

/// leaseDurationSeconds.
///
/// The other times are in microseconds.
pub(super) const DURATION: i64 = 5;
const DEADLINE: u64 = 2_000_000;
const RETRY: u64 = 660_000;
/// The timeout of one request, half of the deadline, as NewFromKubeconfig sets it.
const LIMIT: u64 = 1_000_000;

/// A request on its way to the API server.
pub(super) struct Flight {
    pub(super) arrives: At,
    pub(super) candidate: String,
    pub(super) pod_uid: String,
    pub(super) number: u64,
    /// The Lease that the decision is based on, and the new specification.
    ///
    /// `None` is a read.
    pub(super) write: Option<(Option<Shared>, Value)>,
    /// The delay of the response, or `None` if it is lost.
    pub(super) back: Option<u64>,
}

pub(super) enum Answer {
    Lease(Option<Shared>),
    Refused,
}

enum Step {
    Rests {
        until: At,
    },
    Reads {
        number: u64,
        until: At,
    },
    /// A read permits a write.
    Decided,
    Writes {
        number: u64,
        until: At,
        is_quick: bool,
    },
}

/// One process.
pub(super) struct Candidate {
    /// Its container.
    pub(super) name: String,
    /// The name that it writes into the Lease.
    pub(super) identity: String,
    pub(super) pod_uid: String,
    /// Whether none of its messages arrives.
    pub(super) is_cut: bool,
    pub(super) leads: bool,
    /// Whether the policy compared its last write with the lock.
    pub(super) is_gated: bool,
    /// The error of its wall clock, in microseconds.
    wrong: i64,
    rng: Rng,
    step: Step,
    number: u64,
    /// When the current attempt began, by the wall clock of this process.
    began: i64,
    /// The time at which a leader stops to lead.
    deadline: At,
    /// The last Lease that it has read or written, and the time since when it has not changed.
    observed: Option<(Shared, At)>,
    /// Whether its network is slow.
    is_slow: bool,
}

fn text(wall: i64) -> String {
    jiff::Timestamp::from_microsecond(wall).map(|at| format!("{at:.6}")).unwrap_or_default()
}

fn holder(lease: &Shared) -> &str {
    lease.value["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

impl Candidate {
    pub(super) fn new(it: &Running, is_named_by_pod: bool, wrong: i64, mut rng: Rng, now: At) -> Self {
        let (name, pod_uid) = (it.container.clone(), it.pod_uid.clone());
        let uuid = format!("{:08x}-0000-4000-8000-{:012x}", rng.below(1 << 32), rng.below(1 << 48));
        let identity = if is_named_by_pod { it.pod.clone() } else { format!("{}_{uuid}", it.pod) };
        let (step, is_slow) = (Step::Rests { until: now + rng.below(RETRY) }, rng.percent(30));
        let (deadline, observed) = (now, None);
        Self {
            name,
            identity,
            pod_uid,
            wrong,
            rng,
            step,
            is_slow,
            deadline,
            observed,
            is_cut: false,
            leads: false,
            is_gated: false,
            number: 0,
            began: 0,
        }
    }

    fn wall(&self, now: At) -> i64 {
        now.unix_micros() + self.wrong
    }

    /// Advances the candidate.
    ///
    /// Returns the request that it sends.
    pub(super) fn step(&mut self, now: At) -> Option<Flight> {
        if self.leads && now >= self.deadline {
            // The process ends. Its restarted container begins here again.
            self.leads = false;
            self.observed = None;
            self.step = Step::Rests { until: now + RETRY };
            return None;
        }
        match self.step {
            Step::Rests { until } if now >= until => {
                self.began = self.wall(now);
                let observed = self.observed.as_ref().map(|(lease, _)| lease.clone());
                match observed.filter(|_| self.leads) {
                    Some(lease) => Some(self.write(Some(lease), true, now)),
                    None => Some(self.read(now)),
                }
            }
            Step::Decided => {
                let observed = self.observed.as_ref().map(|(lease, _)| lease.clone());
                Some(self.write(observed, false, now))
            }
            Step::Writes { until, is_quick: true, .. } if now >= until => Some(self.read(now)),
            Step::Reads { until, .. } | Step::Writes { until, .. } if now >= until => {
                self.rest(now);
                None
            }
            _ => None,
        }
    }

    /// The last request of a process that ends.
    ///
    /// Half of the leaders release the Lease, as with `ReleaseOnCancel`.
    pub(super) fn release(&mut self, now: At) -> Option<Flight> {
        let (lease, _) = self.observed.clone().filter(|_| self.leads && self.rng.percent(50))?;
        let time = text(self.wall(now));
        let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time, "renewTime": time,
            "leaseTransitions": lease.value["spec"]["leaseTransitions"]});
        Some(self.send(Some((Some(lease), spec)), now))
    }

    fn rest(&mut self, now: At) {
        // A candidate adds jitter.
        let jitter = if self.leads { 0 } else { self.rng.below(RETRY * 6 / 5) };
        self.step = Step::Rests { until: now + RETRY + jitter };
    }

    /// Handles a successful attempt.
    ///
    /// The next attempt begins after the retry period, and has the whole deadline.
    fn succeeds(&mut self, now: At) {
        self.leads = true;
        self.step = Step::Rests { until: now + RETRY };
        self.deadline = now + RETRY + DEADLINE;
    }

    fn read(&mut self, now: At) -> Flight {
        let flight = self.send(None, now);
        self.step = Step::Reads { number: flight.number, until: now + LIMIT };
        flight
    }

    fn write(&mut self, before: Option<Shared>, is_quick: bool, now: At) -> Flight {
        let spec = before.as_ref().map(|lease| lease.value["spec"].clone()).unwrap_or_default();
        let is_own = spec["holderIdentity"].as_str() == Some(&self.identity);
        let renewed = text(self.began);
        let acquired = if is_own { spec["acquireTime"].clone() } else { json!(renewed) };
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(!is_own);
        let spec = json!({"holderIdentity": self.identity, "leaseDurationSeconds": DURATION, "acquireTime": acquired,
            "renewTime": renewed, "leaseTransitions": transitions});
        let flight = self.send(Some((before, spec)), now);
        self.step = Step::Writes { number: flight.number, until: now + LIMIT, is_quick };
        flight
    }

    fn send(&mut self, write: Option<(Option<Shared>, Value)>, now: At) -> Flight {
        self.number += 1;
        let most = if self.is_slow && self.rng.percent(20) { LIMIT } else { 20_000 };
        let (out, back) = (self.rng.between(300, most), self.rng.between(300, most));
        let is_lost = self.is_cut || self.rng.percent(1);
        // TCP sends a lost segment again, so it can arrive after its sender has given up.
        let out = if is_lost { out + self.rng.below(6_000_000) } else { out };
        let back = (!is_lost).then_some(back);
        let arrives = now + out;
        Flight {
            arrives,
            candidate: self.name.clone(),
            pod_uid: self.pod_uid.clone(),
            number: self.number,
            write,
            back,
        }
    }

    pub(super) fn answered(&mut self, answered: u64, answer: Answer, now: At) {
        match (&self.step, answer) {
            (Step::Reads { number, until }, Answer::Lease(lease)) if *number == answered && now < *until => {
                self.has_read(lease, now);
            }
            (Step::Writes { number, until, .. }, Answer::Lease(Some(lease))) if *number == answered && now < *until => {
                self.observed = Some((lease, now));
                if !self.leads || now < self.deadline {
                    self.succeeds(now);
                }
            }
            // A read follows the quick attempt of a leader immediately.
            (Step::Writes { number, is_quick, .. }, _) if *number == answered => {
                let is_quick = *is_quick;
                if is_quick { self.step = Step::Writes { number: 0, until: now, is_quick } } else { self.rest(now) }
            }
            _ => {}
        }
    }

    /// Decides after a read.
    fn has_read(&mut self, lease: Option<Shared>, now: At) {
        if let Some(lease) = lease {
            let same = self.observed.take().filter(|(before, _)| before.value["spec"] == lease.value["spec"]);
            let since = same.map_or(now, |(_, since)| since);
            let seconds = lease.value["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0);
            let is_other = !holder(&lease).is_empty() && holder(&lease) != self.identity;
            self.observed = Some((lease, since));
            if is_other && now < since + seconds * 1_000_000 {
                return self.rest(now);
            }
        }
        self.step = Step::Decided;
    }
}
