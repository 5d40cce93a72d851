//! Checks that a process whose admission was withdrawn votes again only after its next admission.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::world::World;
use redlock_simulation::kube::api::Entry;

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

impl World {
    /// Counts the admissions that this write of a quorum records.
    pub(super) fn record_admissions(&mut self, entry: &Entry) {
        let is_joint =
            |quorum: &Value| quorum["status"]["formerVoters"].as_array().is_some_and(|list| !list.is_empty());
        let before = entry.before.as_ref().map(|before| &before.value);
        if is_joint(&entry.object.value) && !before.is_some_and(is_joint) {
            self.oracle.counts.changes += 1;
        }
        for run_id in admitted(&entry.object.value) {
            if before.is_some_and(|before| admitted(before).any(|earlier| earlier == run_id)) {
                continue;
            }
            let number = self.oracle.fences.recorded.entry(run_id.to_owned()).or_default();
            *number += 1;
            self.oracle.counts.readmissions += u64::from(*number > 1);
        }
    }

    /// Checks each process that takes votes again.
    pub(super) fn judge_reopenings(&mut self) {
        let (now, mut early) = (self.now, Vec::new());
        let fences = &mut self.oracle.fences;
        for host in self.servers.all.iter().filter(|host| host.is_up()) {
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
