//! Records which replica could renew which hold, ten times a second.
//!
//! Standbys exist so that a lock survives a dead leader. A lost hold therefore needs a cause. All replicas that had its
//! state were out, a majority of its members was out, or none of those replicas could also lead.

use std::collections::{BTreeMap, VecDeque};

use crate::process::Pace;
use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Kind, Shared};

use super::fences::counted_masters;

/// A quorum's namespace and name.
pub(crate) type Place = (String, String);

/// A replica that has followed the API server for this time has all earlier writes.
const CATCHES_UP: u64 = 3_000_000;
/// A replica that has been healthy for this time has its connections again, and renews.
const RECOVERS: u64 = 3_000_000;
/// The minimum time between two hand-overs by the same leader.
const HAND_OVERS: u64 = 10_000_000;
/// Messages with a longer delay count as unreachable.
const SLOW: u64 = 20_000;
/// How long samples are kept.
const MEMORY: u64 = 120_000_000;

/// The current reachability of one replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    life: u32,
    /// Since when each of these has been true without interruption.
    started: At,
    runs: Option<At>,
    follows: Option<At>,
    reaches: BTreeMap<Place, At>,
    /// Since when each voting member that it reaches has voted.
    reached: BTreeMap<Place, Vec<At>>,
    /// The time before which it has received all writes.
    informed: Option<At>,
}

/// A replica that could renew on one quorum.
#[derive(Clone, Debug)]
struct Able {
    process: usize,
    started: At,
    informed: Option<At>,
    /// Whether it reaches the API server, so it can lead.
    leads: bool,
    /// Since when each member that it reaches has voted.
    reached: Vec<At>,
}

/// The replicas that could renew on a quorum at one moment.
#[derive(Debug)]
struct Sample {
    at: At,
    place: Place,
    able: Vec<Able>,
    /// The replica that holds the Lease.
    leader: Option<usize>,
}

/// The state at the grant of a hold.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) at: At,
    /// The leader at that time.
    pub(super) by: Option<usize>,
    /// The shortest ttl since then, in microseconds.
    pub(super) ttl: u64,
    /// Whether the hold ends without publications, which only the leader makes.
    pub(super) is_published: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reach {
    replicas: BTreeMap<usize, Replica>,
    /// Since when each external master has voted without interruption, by its address.
    ///
    /// The operator restarts its own members only when all keys are on a majority of the other ones.
    voters: BTreeMap<String, At>,
    samples: VecDeque<Sample>,
}

/// Since when a condition has been true without interruption.
fn since(known: Option<At>, is: bool, now: At) -> Option<At> {
    is.then(|| known.unwrap_or(now))
}

impl Reach {
    /// The longest gaps of a hold, in microseconds.
    ///
    /// During the first no replica could renew it. During the second neither the leader nor another replica that can
    /// lead could renew it.
    fn longest_gaps(&self, place: &Place, from: At, granted: &Granted, needed: usize) -> (u64, u64) {
        let knows = |at: At, able: &Able| {
            // A member that votes again has the key after the next renewal.
            let has_key = |since: &&At| **since <= granted.at || **since + granted.ttl / 2 <= at;
            if able.reached.iter().filter(has_key).count() < needed {
                return false;
            }
            let led = granted.by == Some(able.process) && able.started <= granted.at;
            led || able.informed.is_some_and(|informed| informed >= granted.at + CATCHES_UP)
        };
        let longest = |is_well: &dyn Fn(&Sample, &Able) -> bool| {
            let (mut longest, mut well) = (0, from);
            for sample in self.samples.iter().filter(|sample| sample.at >= from && sample.place == *place) {
                if sample.able.iter().any(|able| is_well(sample, able)) {
                    well = sample.at;
                }
                longest = longest.max(sample.at.0 - well.0);
            }
            longest
        };
        let led = |sample: &Sample, able: &Able| {
            let is_leader = sample.leader == Some(able.process);
            if granted.is_published { able.leads && is_leader } else { able.leads || is_leader }
        };
        let known = longest(&|sample, able| knows(sample.at, able));
        (known, longest(&|sample, able| led(sample, able) && knows(sample.at, able)))
    }

    /// Whether this process has run and reached the members of `place` for this time.
    fn reaches(&self, process: usize, place: &Place, now: At, length: u64) -> bool {
        let Some(replica) = self.replicas.get(&process) else { return false };
        let long = |since: Option<At>| since.is_some_and(|since| since + length <= now);
        long(replica.runs) && long(replica.reaches.get(place).copied())
    }

    /// Whether this process has followed the API server and reached the members of `place` for this time.
    fn is_well(&self, process: usize, place: Option<&Place>, now: At, length: u64) -> bool {
        let Some(replica) = self.replicas.get(&process) else { return false };
        let long = |since: Option<At>| since.is_some_and(|since| since + length <= now);
        let reaches = place.is_none_or(|place| self.reaches(process, place, now, length));
        long(replica.runs) && long(replica.follows) && reaches
    }
}

impl World {
    /// Records the current reachability of each replica.
    pub(crate) fn check_replicas(&mut self) {
        let quorums: Vec<Shared> = self.api.server.objects(Kind::RedisQuorum).cloned().collect();
        let voting: Vec<(Place, Vec<String>, usize)> = quorums.iter().map(|quorum| self.voting(quorum)).collect();
        let now = self.now;
        let before = std::mem::take(&mut self.oracle.reach.voters);
        let external = self.servers.all.iter().filter(|server| server.is_external).map(|server| &server.host);
        let voters = external.filter(|host| voting.iter().any(|(_, hosts, _)| hosts.contains(host)));
        let voters = voters.map(|host| (host.clone(), before.get(host).copied().unwrap_or(now)));
        self.oracle.reach.voters = voters.collect();
        for process in 0..self.plan.replicas.len() {
            let (life, runs) = (self.processes[process].life, self.processes[process].lives());
            let runs = runs && self.processes[process].pace == Pace::Running;
            let follows = runs && self.api.weather.get(&process).is_none_or(|weather| weather.is_fair());
            let (network, voters) = (&self.network, &self.oracle.reach.voters);
            let reached = |hosts: &[String]| -> Vec<At> {
                let reached = hosts.iter().filter(|host| network.reaches(process, host, SLOW));
                reached.map(|host| voters.get(host).copied().unwrap_or_default()).collect()
            };
            let reached: Vec<(Place, Vec<At>, bool)> = voting
                .iter()
                .map(|(place, hosts, members)| (place.clone(), reached(hosts), members / 2))
                .map(|(place, reached, minority)| (place, reached.len() > minority && runs, reached))
                .map(|(place, reaches, reached)| (place, reached, reaches))
                .collect();
            let replica = self.oracle.reach.replicas.entry(process).or_default();
            if replica.life != life {
                *replica = Replica { life, started: now, ..Replica::default() };
            }
            replica.runs = since(replica.runs, runs, now);
            replica.follows = since(replica.follows, follows, now);
            replica.reached = reached.iter().map(|(place, reached, _)| (place.clone(), reached.clone())).collect();
            let before = std::mem::take(&mut replica.reaches);
            let reaches = reached.into_iter().filter(|(.., reaches)| *reaches);
            replica.reaches = reaches
                .map(|(place, ..)| (before.get(&place).copied().unwrap_or(now), place))
                .map(|(at, place)| (place, at))
                .collect();
            if replica.follows.is_some_and(|follows| follows + CATCHES_UP <= now) {
                replica.informed = Some(now);
            }
        }
        let leader = self.leading();
        let reach = &mut self.oracle.reach;
        for (place, ..) in voting {
            let well = |replica: &Replica| {
                let long = |since: Option<At>| since.is_some_and(|since| since + RECOVERS <= now);
                long(replica.runs) && long(replica.reaches.get(&place).copied())
            };
            let able = reach.replicas.iter().filter(|(_, replica)| well(replica));
            let able = able.map(|(process, replica)| Able {
                process: *process,
                started: replica.started,
                informed: replica.informed,
                leads: replica.follows.is_some_and(|since| since + RECOVERS <= now),
                reached: replica.reached.get(&place).cloned().unwrap_or_default(),
            });
            let able = able.collect();
            reach.samples.push_back(Sample { at: now, place, able, leader });
        }
        while reach.samples.front().is_some_and(|sample| sample.at + MEMORY < now) {
            reach.samples.pop_front();
        }
    }

    /// The addresses of a quorum's voting members, and its number of members.
    fn voting(&self, quorum: &Shared) -> (Place, Vec<String>, usize) {
        let masters: Vec<&str> = counted_masters(&quorum.value).collect();
        let of = |server: &&crate::servers::RedisHost| {
            if server.is_external {
                let counts = masters.contains(&server.server.run_id().as_str());
                return counts && server.is_up() && !server.server.is_frozen();
            }
            let member = server.member();
            let uid = self.oracle.admitted.get(&server.server.run_id());
            let its_own = member.rsplit_once('-').is_some_and(|(of, _)| of == quorum.name());
            let is_member = || its_own && self.has_pod(quorum.namespace(), server);
            is_member() && server.is_up() && !server.server.is_frozen() && uid.is_some_and(|uid| uid == quorum.uid())
        };
        let votes = |server: &&crate::servers::RedisHost| server.server.takes_votes();
        let hosts = self.servers.all.iter().filter(of).filter(votes).map(|server| server.host.clone()).collect();
        let members = usize::try_from(quorum.value["spec"]["members"].as_u64().unwrap_or(3)).unwrap_or_default();
        let members = members + quorum.value["spec"]["external"].as_array().map_or(0, Vec::len);
        ((quorum.namespace().to_owned(), quorum.name().to_owned()), hosts, members)
    }

    /// Whether the pod of this process exists.
    ///
    /// The operator closes a process whose pod is gone or has failed.
    fn has_pod(&self, namespace: &str, server: &crate::servers::RedisHost) -> bool {
        self.api.server.get(Kind::Pod, namespace, &server.name).is_some_and(|pod| {
            let status = &pod.value["status"];
            status["podIP"] == server.host.as_str() && !matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"))
        })
    }

    /// The process that holds the Lease.
    pub(super) fn leading(&self) -> Option<usize> {
        (0..self.plan.replicas.len()).find(|process| self.processes[*process].name == self.oracle.leader)
    }

    /// Whether one replica has led for this time, and has followed the API server and reached `place`.
    pub(crate) fn leader_is_well(&self, place: Option<&Place>, length: u64) -> bool {
        let led = self.oracle.leads_since + length <= self.now;
        let well = |process| self.oracle.reach.is_well(process, place, self.now, length);
        led && self.leading().is_some_and(well)
    }

    /// Checks a hold that was lost.
    ///
    /// `needed` is the number of members that had to answer, including members that lacked the key.
    pub(super) fn judge_loss(&mut self, name: &str, place: &Place, granted: &Granted, needed: usize) {
        if self.plan.is_drastic() || self.oracle.forced.contains(place) {
            return;
        }
        // A new leader can detect late that a hold has expired.
        let back = 2 * granted.ttl + 15_000_000;
        let from = At(self.now.0.saturating_sub(back)).max(granted.at);
        let (gap, unled) = self.oracle.reach.longest_gaps(place, from, granted, needed);
        // A leader that does not reach the members for a ttl ends the hold. The exceptions: another replica can lead at
        // that time, and the last hand-over was not recent.
        let has_just_begun = self.oracle.leads_since + HAND_OVERS > self.now;
        let reaches = |process| self.oracle.reach.reaches(process, place, self.now, RECOVERS);
        let led = has_just_begun && !self.leading().is_some_and(reaches);
        if gap < granted.ttl / 3 && unled < granted.ttl * 2 / 3 && !led {
            let what = format!(
                "{name} was lost at {} without a cause: since {from} a replica that knew of it reached a majority, but for {gap} us",
                self.now
            );
            self.oracle.violated(what);
        }
    }
}
