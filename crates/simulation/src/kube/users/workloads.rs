//! Actions of users on workloads that hold locks: Deployments, Jobs and their pods.

use serde_json::{Value, json};

use super::super::api::{DeleteOptions, Kind, Part, Propagation, Shared};
use super::super::chance::Chance as _;
use super::{DeedKind, Hands, Users, specs};

impl Users {
    /// Creates pods that can lead and claim.
    pub(super) fn deploy(&mut self, namespace: &str, hands: &mut Hands<'_>) {
        let name = self.name("app");
        let replicas = hands.chance.between(1, 3);
        let grace = hands.chance.between(1, 6);
        let mut pod = json!({"terminationGracePeriodSeconds": grace, "containers": [{"name": "app"}]});
        let mut annotations = json!({"redlock-operator.io/priority": hands.chance.below(4).to_string()});
        if hands.chance.percent(25) {
            pod["containers"] = json!([{"name": "app"}, {"name": "mesh"}]);
            annotations["kubectl.kubernetes.io/default-container"] = json!("app");
        }
        let wide = self.around.habits.wide;
        let replicas = if wide { 3 } else { replicas };
        if wide && hands.chance.percent(50) {
            pod["initContainers"] = json!([{"name": "prepare"}]);
        }
        let template = json!({"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": pod});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
        let ordered = wide && hands.chance.percent(50);
        hands.create(
            if ordered { Kind::StatefulSet } else { Kind::Deployment },
            namespace,
            json!({"metadata": {"name": name}, "spec": spec}),
        );
    }

    pub(super) fn act_on_workloads(&mut self, kind: DeedKind, hands: &mut Hands<'_>) -> Option<String> {
        let around = self.around.namespaces.clone();
        let ours = |object: &Shared| around.iter().any(|name| name == object.namespace());
        match kind {
            DeedKind::JobClaim => self.job_claim(hands),
            DeedKind::DeletePod => {
                let pod = hands.any(Kind::Pod, |pod| !pod.is_deleting())?;
                let grace_seconds = hands.chance.percent(20).then_some(1);
                Some(hands.delete(Kind::Pod, &pod, &DeleteOptions { grace_seconds, ..DeleteOptions::default() }))
            }
            DeedKind::EndJob => {
                let job = hands.any(Kind::Job, |job| !job.is_deleting())?;
                let propagation = match hands.chance.below(5) {
                    0 => Propagation::Orphan,
                    1 => Propagation::Foreground,
                    _ => Propagation::Background,
                };
                let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
                Some(hands.delete(Kind::Job, &job, &options))
            }
            DeedKind::SuspendJob => {
                let job = hands.any(Kind::Job, |job| !job.is_deleting())?;
                let suspended = job.value["spec"]["suspend"] == json!(true);
                Some(hands.patch(Kind::Job, &job, &json!({"spec": {"suspend": !suspended}}), Part::Main))
            }
            DeedKind::EndOwner => {
                let owner = hands.any(Kind::ConfigMap, |map| map.name().starts_with("owned-"))?;
                let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
                Some(hands.delete(Kind::ConfigMap, &owner, &options))
            }
            DeedKind::Scale => {
                let found = hands.any(Kind::Deployment, ours)?;
                let replicas = hands.chance.below(4);
                Some(hands.patch(Kind::Deployment, &found, &json!({"spec": {"replicas": replicas}}), Part::Main))
            }
            DeedKind::Rollout => {
                let found = hands.any(Kind::Deployment, ours)?;
                let annotations = json!({"restarted-at": hands.by.now.to_string()});
                let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
                Some(hands.patch(Kind::Deployment, &found, &patch, Part::Main))
            }
            _ => None,
        }
    }

    /// Creates a Job, and a claim for it.
    fn job_claim(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if hands.api.objects(Kind::DistributedLock).count() >= self.around.locks {
            return self.tidy_up(hands);
        }
        let (name, namespace) = (self.name("job"), hands.chance.pick(&self.around.namespaces)?.clone());
        let job = self.job(&name, hands);
        let job = hands.create(Kind::Job, &namespace, job).1?;
        let holder = specs::identity(&self.around, &mut hands.chance, &name);
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        let owners = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.uid()}]);
        let claim = json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec});
        Some(hands.create(Kind::DistributedLock, &namespace, claim).0)
    }

    fn job(&self, name: &str, hands: &mut Hands<'_>) -> Value {
        let run = hands.chance.between(500, 30_000);
        let code = if hands.chance.percent(30) { "1" } else { "0" };
        let annotations = json!({"simulation/run-millis": run.to_string(), "simulation/exit-code": code});
        let policy = if hands.chance.percent(30) { "OnFailure" } else { "Never" };
        let spec =
            json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 5, "containers": [{"name": "work"}]});
        json!({"metadata": {"name": name}, "spec": {
            "backoffLimit": hands.chance.below(4), "template": {"metadata": {"annotations": annotations}, "spec": spec}}})
    }
}
