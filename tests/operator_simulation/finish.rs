//! The end of a run: everything is well again, and has to come to rest within a bound.

use redlock_operator::api::{DistributedLock, DistributedLockStatus};

use crate::kube::api::Kind;
use crate::people::SHOP;
use crate::world::World;

impl World {
    /// What is not as it has to be when everything has been well for a while.
    pub(crate) fn unrest(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut held = std::collections::BTreeSet::new();
        let mut claimed = std::collections::BTreeSet::new();
        for object in self.api.server.objects(Kind::DistributedLock) {
            let Ok(lock) = serde_json::from_value::<DistributedLock>(object.value.clone()) else { continue };
            let status = lock.status.clone().unwrap_or_default();
            if object.is_deleting() {
                wrong.push(format!("lock {} is still Terminating: {:?}", object.name(), status.conditions));
                continue;
            }
            if is_eligible(&lock, &status) {
                claimed.insert(lock.key());
            }
            if status.holder.is_some() && status.ending.is_none() {
                held.insert(lock.key());
            }
        }
        for key in claimed.difference(&held) {
            wrong.push(format!("nobody holds {key}"));
        }
        let quorum = self.api.server.get(Kind::RedisQuorum, SHOP, "q");
        let ready = quorum.as_ref().map(|quorum| quorum.value["status"]["ready"].to_string()).unwrap_or_default();
        let members = quorum.as_ref().and_then(|quorum| quorum.value["spec"]["members"].as_u64()).unwrap_or_default();
        if ready != format!("\"{members}/{members}\"") {
            wrong.push(format!("the quorum is ready {ready}"));
        }
        wrong
    }

    /// Judges the end.
    pub(crate) fn finish(&mut self) {
        for (number, process) in self.processes.iter().enumerate().take(self.plan.replicas.len()) {
            let (tasks, watches, connections) = (process.tasks(), self.api.watches(number), self.network.count(number));
            self.trace.add(
                self.now,
                format_args!("{}: {tasks} tasks, {watches} watches, {connections} connections", process.name),
            );
        }
        for server in &self.servers.all {
            let missing = server.server.not_modelled();
            if !missing.is_empty() {
                let what = format!("{} was asked for what is not modelled: {missing:?}", server.name);
                self.oracle.violations.push(what);
            }
        }
        if !self.plan.settles {
            return;
        }
        let wrong = self.unrest();
        self.oracle.violations.extend(wrong.into_iter().map(|what| format!("at the end: {what}")));
    }
}

/// A claim that waits for nothing but the key. What is bound to pods may wait for them.
fn is_eligible(lock: &DistributedLock, status: &DistributedLockStatus) -> bool {
    let is = |kind: &str| status.conditions.iter().any(|found| found.type_ == kind && found.status == "True");
    let free = lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some() && claim.heartbeat.is_none());
    free && !lock.spec.suspend && is("Accepted") && !is("Finished")
}
