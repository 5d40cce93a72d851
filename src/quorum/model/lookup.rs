//! Finds the quorum of a lock, and checks whether the lock is allowed there.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;

use crate::api::conditions::AcceptedReason;
use crate::api::{AllowedNamespaces, DistributedLock, NamespacesFrom, RedisQuorum};

messages! {
    /// Why a lock has no quorum.
    #[derive(displaydoc::Display)]
    pub enum LookupError: reason -> AcceptedReason;

    /// There is no RedisQuorum {quorum} that allows locks from namespace {namespace}. The operator serves this lock when
    /// there is one: its spec.allowedNamespaces has to include the namespace
    NoneAllows { quorum: String, namespace: String } => AcceptedReason::NamespaceNotAllowed,
    /// RedisQuorum {namespace}/{name}, which spec.quorumRef names, does not exist. The operator serves this lock when it
    /// does. quorumRef cannot be changed: create the quorum, or create the lock again
    NotFound { namespace: String, name: String } => AcceptedReason::QuorumNotFound,
    /// spec.quorumRef is not set, and the operator has no default RedisQuorum. Create the lock again with a quorumRef
    NoDefault => AcceptedReason::QuorumNotFound,
    /// RedisQuorum {namespace}/{name}, the default of this operator, does not exist. The operator serves this lock when
    /// it does. Create the quorum, or create the lock again with a quorumRef
    DefaultNotFound { namespace: String, name: String } => AcceptedReason::QuorumNotFound,
    /// RedisQuorum {quorum} does not allow locks from namespace {namespace}. The operator serves this lock when
    /// spec.allowedNamespaces of the quorum includes the namespace
    NamespaceNotAllowed { quorum: String, namespace: String } => AcceptedReason::NamespaceNotAllowed,
}

/// The quorum that a lock uses.
///
/// `find` returns a quorum by its name, `default` is the quorum of locks that name none, and `namespace` is the object of
/// the lock's namespace, if it is known. If a quorum does not allow the namespace, errors do not show whether it exists.
pub fn quorum_of(
    lock: &DistributedLock,
    find: impl FnOnce(&ObjectRef<RedisQuorum>) -> Option<Arc<RedisQuorum>>,
    default: Option<&ObjectRef<RedisQuorum>>,
    namespace: Option<&Namespace>,
) -> Result<Arc<RedisQuorum>, LookupError> {
    let home = lock.namespace().unwrap_or_default();
    let named = lock.named_quorum().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
    let is_named = named.is_some();
    let reference = named.or_else(|| default.cloned()).ok_or(LookupError::NoDefault)?;
    let found = find(&reference);
    let allowed = found.as_ref().is_some_and(|quorum| is_allowed(quorum, &home, namespace));
    let (namespace, name) = (reference.namespace.unwrap_or_default(), reference.name);
    let full_name = format!("{namespace}/{name}");
    match found {
        Some(quorum) if allowed => Ok(quorum),
        _ if is_named && namespace != home => Err(LookupError::NoneAllows { quorum: full_name, namespace: home }),
        Some(_) => Err(LookupError::NamespaceNotAllowed { quorum: full_name, namespace: home }),
        None if is_named => Err(LookupError::NotFound { namespace, name }),
        None => Err(LookupError::DefaultNotFound { namespace, name }),
    }
}

/// Whether the hold of a lock, ending or not, can be on this quorum.
///
/// The record of the hold decides this, not the specification and not the current default. If a user removed the record, the lock
/// can be held on every quorum.
pub fn holds_on(lock: &DistributedLock, quorum: &RedisQuorum) -> bool {
    let Some(holder) = lock.holder() else { return false };
    holder.quorum.as_ref().is_none_or(|recorded| quorum.uid().as_ref() == Some(&recorded.uid))
}

/// `namespace/name`.
pub fn full_name(object: &impl ResourceExt) -> String {
    object.namespace().map_or_else(|| object.name_any(), |ns| format!("{ns}/{}", object.name_any()))
}

/// Whether locks of `namespace` can use the quorum.
///
/// A selector needs the Namespace object, and is false without it.
pub fn is_allowed(quorum: &RedisQuorum, namespace: &str, object: Option<&Namespace>) -> bool {
    let AllowedNamespaces { from, selector } = &quorum.spec.allowed_namespaces;
    match (from, selector, object) {
        (NamespacesFrom::Same, ..) => quorum.namespace().as_deref() == Some(namespace),
        (NamespacesFrom::All, ..) => true,
        // An unreadable selector, which the schema refuses, matches nothing.
        (NamespacesFrom::Selector, Some(selector), Some(object)) => {
            Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(object.labels()))
        }
        (NamespacesFrom::Selector, ..) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::DEFAULT_QUORUM_ANNOTATION;
    use crate::api::test_util::{self, parsed};

    fn quorum(namespace: &str, name: &str, default: bool, spec: Value) -> Arc<RedisQuorum> {
        let annotations = default.then(|| json!({DEFAULT_QUORUM_ANNOTATION: "true"}));
        let uid = format!("uid of {name}");
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid, "annotations": annotations});
        Arc::new(parsed(json!({"metadata": metadata, "spec": spec})))
    }

    fn lock(spec: Value) -> DistributedLock {
        parsed(json!({"metadata": {"name": "nightly", "namespace": "shop"}, "spec": spec}))
    }

    fn namespace(labels: Value) -> Namespace {
        parsed(json!({"metadata": {"name": "shop", "labels": labels}}))
    }

    fn find(quorums: &[Arc<RedisQuorum>]) -> impl Fn(&ObjectRef<RedisQuorum>) -> Option<Arc<RedisQuorum>> {
        |named| quorums.iter().find(|quorum| ObjectRef::from_obj(&***quorum) == *named).cloned()
    }

    fn all() -> Value {
        json!({"allowedNamespaces": {"from": "All"}})
    }

    #[test]
    fn a_reference_wins_and_defaults_to_the_locks_namespace() {
        let quorums = [quorum("shop", "main", false, all()), quorum("locks", "main", true, all())];
        let default = ObjectRef::new("main").within("locks");
        let found =
            |spec| quorum_of(&lock(spec), find(&quorums), Some(&default), None).map(|quorum| full_name(&*quorum));
        assert_eq!(found(json!({"quorumRef": {"name": "main"}})), Ok("shop/main".into()));
        assert_eq!(found(json!({"quorumRef": {"name": "main", "namespace": "locks"}})), Ok("locks/main".into()));
        assert_eq!(found(json!({})), Ok("locks/main".into()));
        let missing = LookupError::NotFound { namespace: "shop".into(), name: "other".into() };
        assert_eq!(found(json!({"quorumRef": {"name": "other"}})), Err(missing));
    }

    #[test]
    fn a_refusal_does_not_reveal_quorums_of_other_namespaces() {
        let quorums = [quorum("locks", "payroll", false, json!({}))];
        let refused = |name: &str| {
            let lock = lock(json!({"quorumRef": {"name": name, "namespace": "locks"}}));
            quorum_of(&lock, find(&quorums), None, None).unwrap_err().to_string()
        };
        assert_eq!(refused("payroll").replace("payroll", "absent"), refused("absent"));
    }

    /// A held lock, recorded on the quorum with this UID.
    fn held(recorded: Option<&str>) -> DistributedLock {
        let quorum = recorded.map(|uid| json!({"namespace": "locks", "name": "main", "uid": uid}));
        let holder = json!({"identity": "a", "nonce": "n", "quorum": quorum});
        test_util::lock(json!({}), json!({"holder": holder}))
    }

    #[test]
    fn a_hold_stays_on_the_quorum_that_granted_it() {
        // Its namespace is no longer allowed, and the default is another quorum.
        let (old, new) = (quorum("locks", "old", false, json!({})), quorum("locks", "new", true, all()));
        let recorded = held(Some("uid of old"));
        assert!(holds_on(&recorded, &old) && !holds_on(&recorded, &new));
        let mut ending = recorded;
        let end = json!({"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:10Z", "reason": "Suspended"});
        ending.status.as_mut().unwrap().ending = parsed(end);
        assert!(holds_on(&ending, &old));
        assert!(!holds_on(&lock(json!({})), &new), "nothing is held");
        let unrecorded = held(None);
        assert!(holds_on(&unrecorded, &new) && holds_on(&unrecorded, &old), "the record is missing");
    }

    #[test]
    fn a_quorum_is_the_default_only_by_the_operators_own_setting() {
        let platform = ObjectRef::<RedisQuorum>::new("main").within("redlock-system");
        let of = |quorums: &[_], default: Option<&_>| {
            quorum_of(&lock(json!({})), find(quorums), default, None).map(|quorum| full_name(&*quorum))
        };
        let (main, tenants) = (quorum("redlock-system", "main", false, all()), quorum("shop", "mine", true, all()));
        let both = [tenants.clone(), main];
        assert_eq!(of(&both, Some(&platform)), Ok("redlock-system/main".into()), "not by an annotation");
        let missing = LookupError::DefaultNotFound { namespace: "redlock-system".into(), name: "main".into() };
        assert_eq!(of(&[tenants], Some(&platform)), Err(missing));
        assert_eq!(of(&[quorum("shop", "main", true, all())], Some(&platform)).ok(), None, "another namespace");
        assert_eq!(of(&both, None), Err(LookupError::NoDefault));
    }

    #[test]
    fn a_quorum_allows_its_own_and_the_selected_namespaces() {
        let selector = |selector: Value| json!({"allowedNamespaces": {"from": "Selector", "selector": selector}});
        let team = |operator: &str, values: &[&str]| {
            selector(json!({"matchExpressions": [{"key": "team", "operator": operator, "values": values}]}))
        };
        let shop = namespace(json!({"team": "a"}));
        for (spec, home, object, allowed) in [
            (json!({}), "locks", None, true),
            (json!({}), "shop", Some(&shop), false),
            (all(), "shop", None, true),
            (selector(json!({"matchLabels": {"team": "a"}})), "shop", Some(&shop), true),
            (selector(json!({"matchLabels": {"team": "b"}})), "shop", Some(&shop), false),
            (selector(json!({"matchLabels": {"team": "a"}})), "shop", None, false),
            (team("In", &["a", "b"]), "shop", Some(&shop), true),
            (team("NotIn", &["a"]), "shop", Some(&shop), false),
            (team("Exists", &[]), "shop", Some(&shop), true),
            (team("DoesNotExist", &[]), "shop", Some(&shop), false),
            (team("Near", &[]), "shop", Some(&shop), false),
        ] {
            let quorum = quorum("locks", "main", false, spec.clone());
            assert_eq!(is_allowed(&quorum, home, object), allowed, "{spec} {home}");
        }
    }
}
