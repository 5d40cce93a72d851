//! Actions of users on locks.

use redlock_api::{BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, RELEASE_ANNOTATION, STEP_DOWN_ANNOTATION, leader_label};
use serde_json::{Value, json};

use super::super::api::{DeleteOptions, Kind, Part, Propagation, Shared};
use super::super::chance::Chance as _;
use super::{DeedKind, Hands, Users, manifest, specs};

const LOCK: Kind = Kind::DistributedLock;

fn is_held(lock: &Shared) -> bool {
    lock.value["status"]["holder"].is_object()
}

impl Users {
    pub(super) fn act_on_locks(&mut self, kind: DeedKind, hands: &mut Hands<'_>) -> Option<String> {
        match kind {
            DeedKind::Claim => self.claim(hands),
            DeedKind::PodClaim => self.pod_claim(hands),
            DeedKind::OwnedClaim => self.owned_claim(hands),
            DeedKind::ForeignClaim => self.foreign_claim(hands),
            DeedKind::Elect => self.elect(hands),
            DeedKind::EditLock => {
                let lock = hands.any(LOCK, |_| true)?;
                let patch = json!({"spec": specs::edit(&self.around, &mut hands.chance)});
                Some(hands.patch(LOCK, &lock, &patch, Part::Main))
            }
            DeedKind::Suspend => {
                let lock = hands.any(LOCK, |_| true)?;
                let suspended = lock.value["spec"]["suspend"] == json!(true);
                Some(hands.patch(LOCK, &lock, &json!({"spec": {"suspend": !suspended}}), Part::Main))
            }
            DeedKind::StepDown => annotate(hands, STEP_DOWN_ANNOTATION, |_, _| json!("please")),
            DeedKind::Break => annotate(hands, BREAK_ANNOTATION, |_, _| json!("it hangs")),
            DeedKind::BreakForce => annotate(hands, BREAK_FORCE_ANNOTATION, |_, _| json!("now")),
            DeedKind::Release => annotate(hands, RELEASE_ANNOTATION, token),
            DeedKind::DeleteLock => {
                let lock = hands.any(LOCK, |lock| !lock.is_deleting())?;
                let options = options(hands);
                Some(hands.delete(LOCK, &lock, &options))
            }
            DeedKind::RecreateLock => {
                let lock = hands.any(LOCK, |lock| !lock.is_deleting())?;
                let pause = i64::try_from(hands.chance.below(3_000)).unwrap_or_default();
                self.wish(LOCK, lock.namespace(), manifest(&lock), hands.by.now + pause);
                let options = options(hands);
                Some(hands.delete(LOCK, &lock, &options))
            }
            DeedKind::EditLockStatus => {
                let lock = hands.any(LOCK, |lock| lock.value["status"].is_object())?;
                let later = super::super::api::seconds(hands.by.now + 3_600_000);
                // This edit changes no protected field, because a user who removes the holder gives up exclusion.
                let until = json!({"validUntil": format!("{}.500Z", later.trim_end_matches('Z'))});
                let patches = [
                    json!({"conditions": null}),
                    json!({"votes": null}),
                    json!({"queuePosition": 7}),
                    json!({"history": null}),
                    until.clone(),
                    until.clone(),
                    until,
                ];
                let patch = hands.chance.pick(&patches)?.clone();
                Some(hands.patch(LOCK, &lock, &json!({"status": patch}), Part::Status))
            }
            DeedKind::StopBeating => {
                let lock = hands.any(LOCK, |lock| lock.value["spec"]["claim"]["heartbeat"].is_string())?;
                let uid = lock.uid().to_owned();
                if !self.silent.remove(&uid) {
                    self.silent.insert(uid);
                }
                Some(format!("{}/{}", lock.namespace(), lock.name()))
            }
            DeedKind::MoveLabel => {
                let lock = hands.any(LOCK, |lock| lock.value["spec"]["election"].is_object())?;
                let pod = hands.any(Kind::Pod, |pod| pod.namespace() == lock.namespace())?;
                let label = leader_label(lock.name());
                let value = if pod.label(&label).is_some() { Value::Null } else { json!("true") };
                Some(hands.patch(Kind::Pod, &pod, &json!({"metadata": {"labels": {label: value}}}), Part::Main))
            }
            _ => None,
        }
    }

    /// Whether there are fewer locks than wanted.
    ///
    /// If not, the user deletes a lock instead of creating one.
    fn has_room(&self, hands: &Hands<'_>) -> bool {
        hands.api.objects(LOCK).count() < self.around.locks
    }

    fn claim(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if !self.has_room(hands) {
            return self.tidy_up(hands);
        }
        let (name, namespace) = (self.name("claim"), hands.chance.pick(&self.around.namespaces)?.clone());
        let holder = specs::identity(&self.around, &mut hands.chance, &name);
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        Some(hands.create(LOCK, &namespace, json!({"metadata": {"name": name}, "spec": spec})).0)
    }

    /// Deletes a finished claim if there is one, or else any lock that can be deleted.
    pub(super) fn tidy_up(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        let finished = |lock: &Shared| {
            let conditions = lock.value["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|found| found["type"] == "Finished" && found["status"] == "True")
        };
        let lock = hands.any(LOCK, |lock| finished(lock) && !lock.is_deleting());
        let lock = lock.or_else(|| hands.any(LOCK, |lock| !is_held(lock) && !lock.is_deleting()))?;
        Some(hands.delete(LOCK, &lock, &DeleteOptions::default()))
    }

    fn pod_claim(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if !self.has_room(hands) {
            return self.tidy_up(hands);
        }
        let around = self.around.namespaces.clone();
        let pod = hands
            .any(Kind::Pod, |pod| around.iter().any(|name| name == pod.namespace()) && pod.label("app").is_some())?;
        let mut holder = json!({"podName": pod.name()});
        if hands.chance.percent(40) {
            holder["podUID"] = json!(pod.uid());
        }
        if hands.chance.percent(30) {
            holder["container"] = pod.value["spec"]["containers"][0]["name"].clone();
        }
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        let mut metadata = json!({"name": self.name("pod")});
        if hands.chance.percent(40) {
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid()}]);
        }
        Some(hands.create(LOCK, pod.namespace(), json!({"metadata": metadata, "spec": spec})).0)
    }

    /// Creates a claim with an identity that a pod owns.
    fn owned_claim(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if !self.has_room(hands) {
            return self.tidy_up(hands);
        }
        let around = self.around.namespaces.clone();
        let pod = hands
            .any(Kind::Pod, |pod| around.iter().any(|name| name == pod.namespace()) && pod.label("app").is_some())?;
        let name = self.name("of-pod");
        let holder = specs::identity(&self.around, &mut hands.chance, &name);
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid()}]);
        let metadata = json!({"name": name, "ownerReferences": owners});
        Some(hands.create(LOCK, pod.namespace(), json!({"metadata": metadata, "spec": spec})).0)
    }

    /// Creates a claim whose owner is neither a pod nor a Job.
    fn foreign_claim(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if !self.has_room(hands) {
            return self.tidy_up(hands);
        }
        let (name, namespace) = (self.name("owned"), hands.chance.pick(&self.around.namespaces)?.clone());
        let owner = hands.create(Kind::ConfigMap, &namespace, json!({"metadata": {"name": name}})).1?;
        let holder = specs::identity(&self.around, &mut hands.chance, &name);
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid()}]);
        Some(
            hands
                .create(LOCK, &namespace, json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}))
                .0,
        )
    }

    fn elect(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        if !self.has_room(hands) {
            return self.tidy_up(hands);
        }
        let around = self.around.namespaces.clone();
        let ours = |found: &Shared| around.iter().any(|name| name == found.namespace()) && !found.is_deleting();
        let pod = hands.any(Kind::Deployment, |found| around.iter().any(|name| name == found.namespace()));
        let is_app = |found: &Shared| ours(found) && found.name().starts_with("app-");
        let pod = pod.or_else(|| hands.any(Kind::StatefulSet, is_app))?;
        let spec = specs::election(&self.around, &mut hands.chance, pod.name());
        let name = self.name("election");
        Some(hands.create(LOCK, pod.namespace(), json!({"metadata": {"name": name}, "spec": spec})).0)
    }
}

/// Sets an annotation, usually on a held lock.
fn annotate(hands: &mut Hands<'_>, name: &str, value: fn(&mut Hands<'_>, &Shared) -> Value) -> Option<String> {
    let any = hands.chance.percent(15);
    let lock = hands.any(LOCK, |lock| any || is_held(lock))?;
    let value = value(hands, &lock);
    Some(hands.patch(LOCK, &lock, &json!({"metadata": {"annotations": {name: value}}}), Part::Main))
}

/// The token of the holder, of an earlier one, or an invalid one.
fn token(hands: &mut Hands<'_>, lock: &Shared) -> Value {
    let of = |value: &Value| value.as_i64().map(|token| json!(token.to_string()));
    let current = of(&lock.value["status"]["fencingToken"]);
    let before = of(&lock.value["status"]["history"][0]["fencingToken"]);
    match hands.chance.below(10) {
        0..=6 => current,
        7 | 8 => before.or(current),
        _ => None,
    }
    .unwrap_or(json!("what token?"))
}

fn options(hands: &mut Hands<'_>) -> DeleteOptions {
    let propagation = match hands.chance.below(4) {
        0 => Some(Propagation::Foreground),
        1 => Some(Propagation::Orphan),
        _ => Some(Propagation::Background),
    };
    DeleteOptions { propagation, ..DeleteOptions::default() }
}
