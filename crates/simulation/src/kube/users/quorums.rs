//! Actions of users on quorums.

use redlock_api::{
    DEFAULT_QUORUM_ANNOTATION, PREDECESSOR_DEAD_ANNOTATION, QUORUM_LABEL, ROLLOUT_ANNOTATION,
    ROTATE_PASSWORDS_ANNOTATION,
};
use serde_json::{Value, json};

use super::super::api::{DeleteOptions, Kind, Part, Propagation, Shared};
use super::super::chance::{Chance as _, Seeded};
use super::{DeedKind, Hands, MASTERS_SECRET, Users, manifest, master_address, master_name};

const QUORUM: Kind = Kind::RedisQuorum;

impl Users {
    /// A quorum as it is at the beginning.
    ///
    /// The first one is the default.
    pub(super) fn quorum(&self, index: usize, chance: &mut Seeded) -> (String, Value) {
        let (namespace, name) = self.around.quorums[index].clone();
        let mut metadata = json!({"name": name});
        if index == 0 {
            metadata["annotations"] = json!({DEFAULT_QUORUM_ANNOTATION: "true"});
        }
        let has_masters = self.around.masters > 0;
        let mut spec = json!({
            "members": if index == 0 || has_masters { self.around.members } else { 1 }, "maxTTL": format!("{}ms", self.around.max_ttl),
            // The simulated members have no TLS.
            "allowedNamespaces": {"from": "All"}, "tls": {"mode": "Disabled"},
            "keys": if self.around.namespaces.len() > 1 || chance.percent(20) { "Verbatim" } else { "Namespaced" },
        });
        if has_masters {
            spec["external"] = (0..self.around.masters).map(|number| external(number, &name)).collect();
            // Quorums that share masters use the same keys.
            spec["keys"] = json!(if self.around.quorums.len() > 1 { "Verbatim" } else { "Namespaced" });
        }
        (namespace, json!({"metadata": metadata, "spec": spec}))
    }

    pub(super) fn act_on_quorums(&mut self, kind: DeedKind, hands: &mut Hands<'_>) -> Option<String> {
        match kind {
            DeedKind::EditQuorum => {
                let from = if hands.chance.percent(50) { "Same" } else { "All" };
                edit(hands, &json!({"allowedNamespaces": {"from": from}}))
            }
            DeedKind::LowerMaxTtl => {
                let most = self.around.max_ttl;
                let ttl = if hands.chance.percent(40) { most } else { hands.chance.between(1_000, most) };
                edit(hands, &json!({"maxTTL": format!("{ttl}ms")}))
            }
            DeedKind::Resize => {
                let members = *hands.chance.pick(&[1, 3, 3, 3, 5])?;
                edit(hands, &json!({"members": members}))
            }
            DeedKind::Roll => self.roll(hands),
            DeedKind::Rotate => {
                let quorum = hands.any(QUORUM, |_| true)?;
                let text = if hands.chance.percent(50) { "finish".to_owned() } else { self.name("rotation") };
                let patch = json!({"metadata": {"annotations": {ROTATE_PASSWORDS_ANNOTATION: text}}});
                Some(hands.patch(QUORUM, &quorum, &patch, Part::Main))
            }
            DeedKind::MoveDefault => move_default(hands),
            DeedKind::RecreateQuorum => self.recreate(hands),
            DeedKind::ForceQuorum => self.force(hands),
            DeedKind::EditQuorumStatus => {
                let quorum = hands.any(QUORUM, |quorum| quorum.value["status"].is_object())?;
                let patches = [
                    json!({"conditions": null}),
                    json!({"ready": null}),
                    json!({"observedGeneration": 0}),
                    json!({"quorum": null}),
                ];
                let patch = hands.chance.pick(&patches)?.clone();
                Some(hands.patch(QUORUM, &quorum, &json!({"status": patch}), Part::Status))
            }
            DeedKind::EditEpoch => edit_epoch(hands),
            DeedKind::ReplaceMaster => self.replace_master(hands),
            DeedKind::Meddle => meddle(hands),
            DeedKind::DeleteNamespace => self.delete_namespace(hands),
            _ => None,
        }
    }

    /// Changes the image, or pauses and resumes a rollout.
    fn roll(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        let quorum = hands.any(QUORUM, |_| true)?;
        if hands.chance.percent(60) {
            let image = self.name("redis:7.2");
            return Some(hands.patch(QUORUM, &quorum, &json!({"spec": {"image": image}}), Part::Main));
        }
        let value = if quorum.annotation(ROLLOUT_ANNOTATION).is_some() { Value::Null } else { json!("paused") };
        Some(hands.patch(
            QUORUM,
            &quorum,
            &json!({"metadata": {"annotations": {ROLLOUT_ANNOTATION: value}}}),
            Part::Main,
        ))
    }

    /// Deletes a quorum and creates it again with another maxTTL.
    ///
    /// Often its pods are deleted first.
    fn recreate(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        let quorum = hands.any(QUORUM, |quorum| !quorum.is_deleting())?;
        let mut next = manifest(&quorum);
        next["spec"]["maxTTL"] = json!(format!("{}ms", hands.chance.between(1_000, self.around.max_ttl)));
        let pause = i64::try_from(hands.chance.below(4_000)).unwrap_or_default();
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        if hands.chance.percent(50) {
            next["spec"]["maxTTL"] = json!("1000ms");
            let pods = hands.api.objects(Kind::Pod).filter(|pod| pod.label(QUORUM_LABEL) == Some(quorum.name()));
            for pod in pods.cloned().collect::<Vec<_>>() {
                hands.delete(Kind::Pod, &pod, &DeleteOptions { grace_seconds: Some(1), ..DeleteOptions::default() });
            }
            let later = hands.by.now + i64::try_from(hands.chance.between(1_000, 2_500)).unwrap_or_default();
            self.partings.push((later, quorum.clone()));
            self.wish(QUORUM, quorum.namespace(), next, later + pause);
            return Some(format!("{}/{} after its pods", quorum.namespace(), quorum.name()));
        }
        self.wish(QUORUM, quorum.namespace(), next, hands.by.now + pause);
        Some(hands.delete(QUORUM, &quorum, &options))
    }

    /// Removes the finalizers of a deleted quorum, and creates it again with a smaller maxTTL.
    fn force(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        let quorum = hands.any(QUORUM, |_| true)?;
        let mut next = manifest(&quorum);
        let max_ttl = hands.chance.between(1_000, (self.around.max_ttl / 4).max(1_000));
        next["spec"]["maxTTL"] = json!(format!("{max_ttl}ms"));
        // New locks of users fit the smaller maxTTL.
        self.around.max_ttl = max_ttl;
        self.wish(QUORUM, quorum.namespace(), next, hands.by.now);
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let words = hands.delete(QUORUM, &quorum, &options);
        Some(words + ", " + &hands.patch(QUORUM, &quorum, &json!({"metadata": {"finalizers": null}}), Part::Main))
    }

    /// Deletes a namespace with its objects.
    ///
    /// Users create the namespace, its quorums and its workloads again.
    fn delete_namespace(&mut self, hands: &mut Hands<'_>) -> Option<String> {
        let mut names = self.around.namespaces.clone();
        names.extend(self.around.quorums.iter().map(|(namespace, _)| namespace.clone()));
        // Usually choose a namespace without quorums. Its deletion is quicker, and other namespaces use the same keys.
        if hands.chance.percent(85) && names.iter().any(|name| !self.has_quorum(name)) {
            names.retain(|name| !self.has_quorum(name));
        }
        let namespace = hands
            .any(Kind::Namespace, |found| names.iter().any(|name| name == found.name()) && !found.is_deleting())?;
        let later = hands.by.now + i64::try_from(hands.chance.between(500, 10_000)).unwrap_or_default();
        self.wish(Kind::Namespace, "", json!({"metadata": {"name": namespace.name()}}), later);
        for kind in [QUORUM, Kind::Deployment] {
            let inside: Vec<Shared> =
                hands.api.objects(kind).filter(|object| object.namespace() == namespace.name()).cloned().collect();
            for object in inside {
                self.wish(kind, namespace.name(), manifest(&object), later);
            }
        }
        Some(hands.delete(Kind::Namespace, &namespace, &DeleteOptions::default()))
    }

    /// Lists another external master in place of one.
    fn replace_master(&self, hands: &mut Hands<'_>) -> Option<String> {
        let quorum = hands.any(QUORUM, |quorum| !quorum.is_deleting())?;
        let mut listed = quorum.value["spec"]["external"].as_array()?.clone();
        let known = |number: usize| listed.iter().any(|master| master["name"] == master_name(number));
        let spare: Vec<usize> =
            (0..self.around.masters + self.around.spare_masters).filter(|number| !known(*number)).collect();
        let next = external(*hands.chance.pick(&spare)?, quorum.name());
        let place = usize::try_from(hands.chance.below(listed.len() as u64)).unwrap_or_default();
        *listed.get_mut(place)? = next;
        Some(hands.patch(QUORUM, &quorum, &json!({"spec": {"external": listed}}), Part::Main))
    }

    fn has_quorum(&self, namespace: &str) -> bool {
        self.around.quorums.iter().any(|(of, _)| of == namespace)
    }
}

/// An external master in the list of a quorum.
fn external(number: usize, quorum: &str) -> Value {
    let secret = format!("{MASTERS_SECRET}-{quorum}");
    json!({"name": master_name(number), "address": master_address(number), "secretRef": {"name": secret}})
}

fn edit(hands: &mut Hands<'_>, spec: &Value) -> Option<String> {
    let quorum = hands.any(QUORUM, |quorum| !quorum.is_deleting())?;
    Some(hands.patch(QUORUM, &quorum, &json!({"spec": spec}), Part::Main))
}

/// Removes, lowers or raises the membership epoch in the status.
fn edit_epoch(hands: &mut Hands<'_>) -> Option<String> {
    let quorum = hands.any(QUORUM, |quorum| quorum.value["status"]["membershipEpoch"].is_i64())?;
    let epoch = quorum.value["status"]["membershipEpoch"].as_i64()?;
    let epochs = [Value::Null, json!(epoch - 1), json!(epoch + 1), json!(epoch + 5)];
    let patch = json!({"status": {"membershipEpoch": hands.chance.pick(&epochs)?}});
    Some(hands.patch(QUORUM, &quorum, &patch, Part::Status))
}

/// Moves the default to another quorum.
///
/// For a moment there can be two defaults, or none.
fn move_default(hands: &mut Hands<'_>) -> Option<String> {
    let is_default = |quorum: &Shared| quorum.annotation(DEFAULT_QUORUM_ANNOTATION) == Some("true");
    let set = |value: Value| json!({"metadata": {"annotations": {DEFAULT_QUORUM_ANNOTATION: value}}});
    let next = hands.any(QUORUM, |quorum| !is_default(quorum))?;
    let before = hands.any(QUORUM, is_default);
    let mut done = String::new();
    if let Some(before) = before.filter(|_| hands.chance.percent(90)) {
        done = hands.patch(QUORUM, &before, &set(Value::Null), Part::Main) + ", ";
    }
    Some(done + &hands.patch(QUORUM, &next, &set(json!("true")), Part::Main))
}

/// Deletes or changes an object that belongs to a quorum.
fn meddle(hands: &mut Hands<'_>) -> Option<String> {
    let kinds = [Kind::StatefulSet, Kind::Service, Kind::NetworkPolicy, Kind::PodDisruptionBudget];
    let kind = *hands.chance.pick(&kinds)?;
    let object = hands.any(kind, |object| object.label(QUORUM_LABEL).is_some() && !object.is_deleting())?;
    if hands.chance.percent(40) {
        return Some(hands.delete(kind, &object, &DeleteOptions::default()));
    }
    let patch = match kind {
        Kind::StatefulSet if hands.chance.percent(30) => json!({"spec": {"replicas": 0}}),
        _ => json!({"metadata": {"labels": {"somebody": "was-here"}}}),
    };
    Some(hands.patch(kind, &object, &patch, Part::Main))
}

/// The pods whose death the status asks the user to confirm.
///
/// The reasons of the members name these pods. If the quorum is being deleted, its condition Ready names them.
pub(super) fn asked_for(quorum: &Shared) -> Vec<String> {
    let status = &quorum.value["status"];
    if quorum.is_deleting() {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.filter(|condition| condition["type"] == "Ready");
        let output: String = ready.filter_map(|condition| condition["message"].as_str()).collect();
        let before = format!("{PREDECESSOR_DEAD_ANNOTATION}=");
        return output
            .split(&before)
            .skip(1)
            .filter_map(|rest| rest.split([' ', ';']).next().map(str::to_owned))
            .collect();
    }
    let asked = status["members"].as_array().into_iter().flatten();
    let asked = asked.filter(|member| member["reason"] == "PredecessorUnconfirmed");
    asked.filter_map(|member| member["predecessor"]["podUID"].as_str().map(str::to_owned)).collect()
}
