//! Checks that a process whose admission was withdrawn votes again only after its next admission.

use std::collections::BTreeMap;

use redlock_api::GoDuration;
use serde_json::Value;

use crate::world::World;
use redlock_simulation::kube::api::{Entry, Kind};

use super::times::length;

/// The number of recorded admissions of each process, by its run ID.
#[derive(Default)]
pub(super) struct Fences {
    recorded: BTreeMap<String, u64>,
    /// The number at the last time when the process took votes.
    open: BTreeMap<String, u64>,
    /// The number at the time when the process stopped taking votes.
    closed: BTreeMap<String, u64>,
}

/// The admitted processes in the status of a quorum.
fn admitted(quorum: &Value) -> impl Iterator<Item = &str> {
    let members = quorum["status"]["members"].as_array().into_iter().flatten();
    members.filter(|member| member["state"] == "Admitted").filter_map(|member| member["runID"].as_str())
}

/// The processes of external masters whose votes count by the status of a quorum.
///
/// A process that does not answer keeps its admission.
pub(super) fn counted_masters(quorum: &Value) -> impl Iterator<Item = &str> {
    let members = quorum["status"]["members"].as_array().into_iter().flatten();
    let counts = |member: &&Value| match member["state"].as_str() {
        Some("Admitted") => true,
        Some("Unreachable") => member["admittedAt"].is_string(),
        _ => false,
    };
    members.filter(|member| member["external"].is_object()).filter(counts).filter_map(|member| member["runID"].as_str())
}

impl World {
    /// Whether the votes of a process of an external master count for a quorum.
    pub(crate) fn is_counted(&self, run_id: &str) -> bool {
        let mut quorums = self.api.server.objects(Kind::RedisQuorum);
        quorums.any(|quorum| counted_masters(&quorum.value).any(|counted| counted == run_id))
    }

    /// Counts the admissions that this write of a quorum records.
    pub(super) fn record_admissions(&mut self, entry: &Entry) {
        let is_joint =
            |quorum: &Value| quorum["status"]["formerVoters"].as_array().is_some_and(|list| !list.is_empty());
        let before = entry.before.as_ref().map(|before| &before.value);
        if is_joint(&entry.object.value) && !before.is_some_and(is_joint) {
            self.oracle.counts.changes += 1;
        }
        let mut admitted_now = Vec::new();
        for run_id in admitted(&entry.object.value) {
            if before.is_some_and(|before| admitted(before).any(|earlier| earlier == run_id)) {
                continue;
            }
            let number = self.oracle.fences.recorded.entry(run_id.to_owned()).or_default();
            *number += 1;
            self.oracle.counts.readmissions += u64::from(*number > 1);
            admitted_now.push(run_id.to_owned());
        }
        for run_id in admitted_now {
            self.judge_wait(&entry.object.value, &run_id);
        }
    }

    /// Checks that a process waits before its admission until every lock that it can have lost has expired.
    fn judge_wait(&mut self, quorum: &Value, run_id: &str) {
        let Some(host) = self.servers.all.iter().find(|host| host.server.run_id() == run_id) else { return };
        // A quorum with external masters begins with a small value in force, and its fences wait for the wanted one.
        let (in_force, wanted) = (&quorum["status"]["maxTTLInForce"], &quorum["spec"]["maxTTL"]);
        let micros = |of: &Value| serde_json::from_value::<GoDuration>(of.clone()).map_or(0, length);
        let max_ttl = micros(in_force).max(micros(wanted));
        let (waited, name) = (self.now.0 - host.since.0, host.name.clone());
        if waited < max_ttl {
            let now = self.now;
            self.oracle.violated(format!(
                "{name} was admitted at {now}, {waited} us after it lost its data, and maxTTL is {max_ttl} us"
            ));
        }
    }

    /// Checks each process that takes votes again.
    pub(super) fn judge_reopenings(&mut self) {
        let (now, mut early) = (self.now, Vec::new());
        let fences = &mut self.oracle.fences;
        // The operator cannot close an external master.
        for host in self.servers.all.iter().filter(|host| host.is_up() && !host.is_external) {
            let run_id = host.server.run_id();
            let number = fences.recorded.get(&run_id).copied().unwrap_or_default();
            if !host.server.takes_votes() {
                fences.closed.extend(fences.open.remove(&run_id).map(|number| (run_id, number)));
                continue;
            }
            if fences.closed.get(&run_id) == Some(&number) {
                early.push((format!("{} votes again at {now} without another admission", host.name), run_id.clone()));
            }
            fences.closed.remove(&run_id);
            fences.open.insert(run_id, number);
        }
        for (what, run_id) in early {
            self.oracle.violated_once(what, &format!("again {run_id}"));
        }
    }
}
