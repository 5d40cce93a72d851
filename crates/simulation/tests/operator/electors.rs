//! Programs in pods that elect by a Lease like client-go.
//!
//! The chart's policy is a pure function here.
//!
//! Times are a third of those in docs/any-controller.md. The error of a clock is at most the reserve of one second, and
//! each request has a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use redlock_api::{LEASE_LABEL, LEASE_TOKEN_ANNOTATION};
use serde_json::{Value, json};

use crate::rng::{Rng, hash};
use crate::time::At;
use crate::users::SHOP;
use crate::world::World;
use candidate::{Answer, Candidate, Flight};
use redlock_simulation::kube::api::{By, Change, Entry, Kind, Part, Shared, millis};

mod candidate;
mod gate;

/// The election whose pods run such programs.
///
/// Its Lease has the same name.
pub(crate) const ELECTION: &str = "e";
const LEASE: &str = "controller";
/// The election's ttl, in milliseconds.
const TTL: u64 = 10_000;
/// Maximum age of the policy's copy of a lock, in microseconds.
///
/// The first value applies to two thirds of the seeds, the second one to the rest.
const LAGS: (u64, u64) = (300_000, 2_000_000);
/// A refused candidate retries within this time.
const AGAIN: u64 = 2_500_000;

/// The election, for pods with this label.
pub(crate) fn election() -> Value {
    json!({"key": "x/k0", "ttl": format!("{TTL}ms"), "quorumRef": {"name": "q", "namespace": SHOP},
        "election": {"selector": {"matchLabels": {"app": "led"}}, "lease": {"name": LEASE}}})
}

/// The name that the policy admitted last, its container, and the hold at that time.
struct Admitted {
    name: String,
    container: String,
    hold: String,
    at: At,
}

/// Refusals of a pod that holds the lock.
struct Refused {
    nonce: String,
    since: At,
    last: At,
}

/// All candidates, and their requests on the way to the API server.
#[derive(Default)]
pub(crate) struct Electors {
    candidates: BTreeMap<String, Candidate>,
    flights: Vec<Flight>,
    answers: Vec<(At, String, u64, Answer)>,
    /// The versions of the lock that the policy's cache receives.
    cached: Vec<(At, Value)>,
    admitted: Option<Admitted>,
    /// When a candidate last wrote the Lease after its duration.
    revived: Option<At>,
    refused: Option<Refused>,
    /// Whether the current write comes from a candidate instead of the operator.
    writing: bool,
}

fn nonce(lock: &Value) -> &str {
    lock["status"]["holder"]["nonce"].as_str().unwrap_or_default()
}

/// The maximum age of the policy's copy of a lock in this seed, in microseconds.
fn lag(seed: u64) -> u64 {
    if hash(seed, [62]).is_multiple_of(3) { LAGS.1 } else { LAGS.0 }
}

/// Whether the processes of a pod have the pod's name as identity.
///
/// In the other seeds each process has an identity of its own.
fn is_named_by_pod(seed: u64) -> bool {
    hash(seed, [61]).is_multiple_of(2)
}

impl Electors {
    /// The lock in the policy's cache.
    fn params(&self, now: At) -> Value {
        self.cached.iter().rev().find(|(at, _)| *at <= now).map_or(Value::Null, |(_, lock)| lock.clone())
    }

    fn leaders(&self) -> Vec<&Candidate> {
        self.candidates.values().filter(|candidate| candidate.leads).collect()
    }
}

impl World {
    /// Advances the candidates to the current time.
    pub(crate) fn electors_step(&mut self) {
        if !self.plan.electors {
            return;
        }
        self.candidates_come_and_go();
        let mut flights = take(&mut self.electors.flights);
        flights.sort_by_key(|flight| (flight.arrives, flight.number));
        let (arrived, under_way): (Vec<_>, Vec<_>) = flights.into_iter().partition(|flight| flight.arrives <= self.now);
        self.electors.flights = under_way;
        arrived.into_iter().for_each(|flight| self.request_arrives(flight));
        let now = self.now;
        let Electors { candidates, answers, flights, .. } = &mut self.electors;
        let mut due: Vec<_> = answers.extract_if(.., |(at, ..)| *at <= now).collect();
        due.sort_by_key(|(at, _, number, _)| (*at, *number));
        for (_, name, number, answer) in due {
            if let Some(candidate) = candidates.get_mut(&name) {
                candidate.answered(number, answer, now);
            }
        }
        candidates.values_mut().for_each(|candidate| flights.extend(candidate.step(now)));
        self.judge_leaders();
    }

    /// Starts and ends one program in each container of a pod that can lead.
    fn candidates_come_and_go(&mut self) {
        let is_led = |uid: &str, name: &str| {
            let pod = self.api.server.get(Kind::Pod, SHOP, name);
            pod.is_none_or(|pod| pod.uid() != uid || pod.label("app") == Some("led"))
        };
        let truth = self.cluster.cluster.truth();
        let running = truth.running().filter(|it| it.namespace == SHOP && it.name == "app");
        let running: Vec<_> = running.filter(|it| is_led(&it.pod_uid, &it.pod)).cloned().collect();
        let machines: Vec<_> =
            running.iter().map(|it| (truth.is_cut(it.machine), truth.clock_error(it.machine))).collect();
        let (seed, wrong, now) = (self.seed, self.api.wrong * 1_000, self.now);
        let Electors { candidates, flights, .. } = &mut self.electors;
        candidates.retain(|name, candidate| {
            let runs = running.iter().any(|it| it.container == *name);
            flights.extend((!runs).then(|| candidate.release(now)).flatten());
            runs
        });
        for (it, (is_cut, clock_error)) in running.into_iter().zip(machines) {
            let made = self.electors.candidates.entry(it.container.clone()).or_insert_with(|| {
                let rng = Rng::of(hash(seed, it.container.bytes().map(u64::from)), "elector");
                // The error is within the reserve of the policy.
                Candidate::new(&it, is_named_by_pod(seed), wrong + clock_error * 1_000, rng, now)
            });
            made.is_cut = is_cut;
        }
    }

    fn request_arrives(&mut self, flight: Flight) {
        let answer = match &flight.write {
            None => Answer::Lease(self.api.server.get(Kind::Lease, SHOP, LEASE)),
            Some(write) => self.write_arrives(&flight, write.clone()),
        };
        let Flight { candidate, number, back, .. } = flight;
        if let Some(back) = back {
            self.electors.answers.push((self.now + back, candidate, number, answer));
        }
    }

    fn write_arrives(&mut self, flight: &Flight, (before, spec): (Option<Shared>, Value)) -> Answer {
        let params = self.electors.params(self.now);
        let is_admitted = gate::admits(&params, before.as_ref().map(|lease| &lease.value), &spec, &flight.pod_uid);
        let lock = self.api.server.get(Kind::DistributedLock, SHOP, ELECTION);
        let lock = lock.map(|lock| lock.value.clone()).unwrap_or_default();
        self.judge_answer(&lock, &flight.pod_uid, is_admitted);
        if !is_admitted {
            return Answer::Refused;
        }
        let by = By { now: self.api.clock(self.now), manager: "elector" };
        let version = before.as_ref().map(|lease| lease.version().to_owned());
        let written = match before {
            Some(before) => {
                let mut lease = before.value.clone();
                lease["spec"] = spec;
                self.api.server.replace(Kind::Lease, (SHOP, LEASE), lease, Part::Main, by)
            }
            None => {
                let lease = json!({"metadata": {"name": LEASE}, "spec": spec});
                self.api.server.create(Kind::Lease, SHOP, lease, by)
            }
        };
        let Ok(written) = written else { return Answer::Refused };
        if let Some(candidate) = self.electors.candidates.get_mut(&flight.candidate) {
            candidate.is_gated = !params.is_null() && written.label(LEASE_LABEL).is_some();
        }
        let name = written.value["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        self.note(format_args!("the Lease names {name} under {}", nonce(&params)));
        // The policy compares nothing before a lock exists.
        let hold = Some(nonce(&params)).filter(|hold| !hold.is_empty()).map(str::to_owned);
        let container = flight.candidate.clone();
        if self.is_lease_idle(ELECTION) {
            self.electors.revived = Some(self.now);
        }
        // A repeated write of the same content is no renewal for any reader.
        let is_same = version.is_some_and(|version| version == written.version());
        let at = self.electors.admitted.take().filter(|_| is_same).map_or(self.now, |earlier| earlier.at);
        self.electors.admitted = hold.map(|hold| Admitted { name, container, hold, at });
        self.electors.writing = true;
        self.api_changed();
        self.electors.writing = false;
        Answer::Lease(Some(written))
    }

    /// Checks that the policy does not refuse the holding pod for longer than one ttl.
    ///
    /// The limit also includes the age of the policy's copy of the lock.
    fn judge_answer(&mut self, lock: &Value, pod_uid: &str, is_admitted: bool) {
        let (now, api_now) = (self.now, self.api.clock(self.now));
        let is_valid = lock["status"]["validUntil"].as_str().and_then(millis).is_some_and(|until| until > api_now);
        if !is_valid
            || lock["status"]["ending"].is_object()
            || lock["status"]["holder"]["podUID"].as_str() != Some(pod_uid)
        {
            return;
        }
        let before = self.electors.refused.take();
        if is_admitted {
            return;
        }
        let same = before.filter(|before| before.nonce == nonce(lock) && now.0 - before.last.0 <= AGAIN);
        let since = same.map_or(now, |before| before.since);
        let took = now.0 - since.0;
        // A new leader waits for the duration of the Lease before it marks it.
        if took > TTL * 1_000 + lag(self.seed) && self.leader_is_well(None, TTL * 1_000) {
            let what = format!("the policy refuses the pod that holds {ELECTION} for {took} us, at {now}");
            self.oracle.violated_once(what, &format!("refused {}", nonce(lock)));
        }
        self.electors.refused = Some(Refused { nonce: nonce(lock).to_owned(), since, last: now });
    }

    /// Checks that at most one candidate leads.
    ///
    /// If the kubelet has lost a running container, two processes of one pod with the same identity can both lead. No rule of a Lease prevents that.
    /// While a pod holds the lock, no process of another pod leads that the policy has compared with the lock.
    fn judge_leaders(&mut self) {
        let lock = self.api.server.get(Kind::DistributedLock, SHOP, ELECTION);
        let holder = lock.and_then(|lock| lock.value["status"]["holder"]["podUID"].as_str().map(str::to_owned));
        let truth = self.cluster.cluster.truth();
        let is_lost = |leader: &Candidate| truth.get(&leader.name).is_none_or(|running| running.lost);
        let other = |leader: &&&Candidate| {
            leader.is_gated && !is_lost(leader) && holder.as_ref().is_some_and(|uid| *uid != leader.pod_uid)
        };
        let without = self.electors.leaders().iter().find(other).map(|leader| leader.identity.clone());
        if let Some(without) = without {
            let what = format!("{without} leads at {}, and another pod holds {ELECTION}", self.now);
            self.oracle.violated_once(what, &format!("without {without}"));
        }
        let identities = self.electors.leaders().into_iter().map(|leader| leader.identity.clone());
        let leaders: BTreeSet<String> = identities.collect();
        self.oracle.counts.led += u64::from(!leaders.is_empty());
        if leaders.len() > 1 {
            let what = format!("two candidates lead at {}: {leaders:?}", self.now);
            self.oracle.violated_once(what, &format!("two lead {leaders:?}"));
        }
    }

    /// Observes a write of the election's lock, or of its Lease.
    pub(crate) fn observe_lease(&mut self, entry: &Entry) {
        if !self.plan.electors || entry.object.namespace() != SHOP {
            return;
        }
        if entry.kind == Kind::DistributedLock && entry.object.name() == ELECTION {
            let is_found = entry.change != Change::Deleted && entry.object.label(LEASE_LABEL).is_some();
            let lock = if is_found { entry.object.value.clone() } else { Value::Null };
            let lag = hash(self.seed, [60, self.electors.cached.len() as u64]) % lag(self.seed);
            let last = self.electors.cached.last().map_or(self.now, |(at, _)| *at);
            self.electors.cached.push(((self.now + lag).max(last), lock));
        }
        if entry.kind == Kind::Lease && entry.object.name() == LEASE && !self.electors.writing {
            self.judge_written_over(&entry.object);
        }
    }

    /// Checks that the operator does not replace a name that the policy admitted under the current hold.
    fn judge_written_over(&mut self, lease: &Shared) {
        let Some(Admitted { name, container, hold, at }) = self.electors.admitted.take() else { return };
        let named = lease.value["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let stamp = lease.annotation(LEASE_TOKEN_ANNOTATION).unwrap_or("no token");
        self.note(format_args!("the operator writes {named:?} and {stamp} into the Lease"));
        if named == name {
            self.electors.admitted = Some(Admitted { name, container, hold, at });
            return;
        }
        let lock = self.api.server.get(Kind::DistributedLock, SHOP, ELECTION);
        let holds = lock.is_some_and(|lock| nonce(&lock.value) == hold && lock.value["status"]["ending"].is_null());
        // Any candidate can replace a name that was not renewed for its duration.
        let is_renewed = self.now.0 - at.0 < candidate::DURATION.unsigned_abs() * 1_000_000;
        let runs = self.cluster.cluster.truth().get(&container).is_some_and(|running| !running.lost);
        if holds && is_renewed && runs {
            self.oracle.violated_once(
                format!("at {} the operator wrote {named:?} over {name}, which holds {ELECTION}", self.now),
                &format!("over {hold}"),
            );
        }
    }

    /// Whether this is the election with a Lease, and no candidate had written the Lease for its duration until lately.
    pub(crate) fn was_lease_idle(&self, lock: &str) -> bool {
        let is_lately = |at: At| self.now.0 - at.0 < 1_000_000;
        self.is_lease_idle(lock) || lock == ELECTION && self.electors.revived.is_some_and(is_lately)
    }

    fn is_lease_idle(&self, lock: &str) -> bool {
        let is_late = |written: &Admitted| self.now.0 - written.at.0 >= candidate::DURATION.unsigned_abs() * 1_000_000;
        lock == ELECTION && self.plan.electors && self.electors.admitted.as_ref().is_none_or(is_late)
    }

    /// Checks that a candidate leads when its pod has held the lock for a while.
    pub(crate) fn unrest_of_electors(&self) -> Vec<String> {
        let lock = self.api.server.get(Kind::DistributedLock, SHOP, ELECTION);
        let Some(lock) = lock.filter(|_| self.plan.electors) else { return Vec::new() };
        let holder = lock.value["status"]["holder"]["podUID"].as_str().unwrap_or_default();
        let leads = self.electors.leaders().iter().any(|leader| leader.pod_uid == holder);
        let (lease, wanted) = (self.api.server.get(Kind::Lease, SHOP, LEASE), !holder.is_empty() && !leads);
        let lease = lease.map(|lease| lease.value["spec"].clone()).unwrap_or_default();
        if wanted {
            vec![format!("the pod that holds {ELECTION} does not lead, the Lease is {lease}")]
        } else {
            Vec::new()
        }
    }
}
