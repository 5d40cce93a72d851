//! The namespaces that an installation serves.

use std::collections::BTreeSet;

use kube::{Api, Client};

use crate::api::requests::Namespaced;

/// A set of namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces except these.
    AllBut(BTreeSet<String>),
    /// Only these namespaces.
    Only(BTreeSet<String>),
}

impl Default for Scope {
    fn default() -> Self {
        Self::AllBut(BTreeSet::new())
    }
}

impl Scope {
    /// The scope of the named namespaces, without those that are left out. No names mean all namespaces.
    pub fn of(named: &[String], left_out: &[String]) -> Self {
        let names = |names: &[String]| names.iter().filter(|name| !name.is_empty()).cloned().collect::<BTreeSet<_>>();
        let (named, left_out) = (names(named), names(left_out));
        if named.is_empty() { Self::AllBut(left_out) } else { Self::Only(&named - &left_out) }
    }

    /// Whether a namespace is in the scope.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::AllBut(left_out) => !left_out.contains(namespace),
            Self::Only(named) => named.contains(namespace),
        }
    }

    /// A scope with both scopes and this namespace. If one of them has the whole cluster, it has the whole cluster, too.
    pub fn with(&self, other: &Self, namespace: &str) -> Self {
        match (self, other) {
            (Self::Only(one), Self::Only(other)) => {
                Self::Only(&(one | other) | &BTreeSet::from([namespace.to_owned()]))
            }
            _ => Self::default(),
        }
    }

    /// The APIs of a kind: one for the whole cluster without a namespace, or one for each namespace.
    pub fn apis<K: Namespaced>(&self, client: &Client) -> Vec<(Option<String>, Api<K>)> {
        match self {
            Self::AllBut(_) => vec![(None, Api::all(client.clone()))],
            Self::Only(named) => {
                named.iter().map(|name| (Some(name.clone()), Api::namespaced(client.clone(), name))).collect()
            }
        }
    }

    /// The selector that excludes namespaces from an answer for the whole cluster.
    pub fn fields(&self) -> Option<String> {
        let Self::AllBut(left_out) = self else { return None };
        let fields: Vec<_> = left_out.iter().map(|name| format!("metadata.namespace!={name}")).collect();
        (!fields.is_empty()).then(|| fields.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(named: &[&str], left_out: &[&str]) -> Scope {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Scope::of(&strings(named), &strings(left_out))
    }

    #[test]
    fn namespaces_that_are_left_out_are_in_no_scope() {
        let all = scope(&[], &["b"]);
        assert!(all.contains("a") && !all.contains("b"));
        assert_eq!(all.fields().as_deref(), Some("metadata.namespace!=b"));
        let some = scope(&["a", "b", ""], &["b"]);
        assert!(some.contains("a") && !some.contains("b") && !some.contains("c") && !some.contains(""));
        assert_eq!((some.fields(), scope(&[""], &[""])), (None, Scope::default()));
    }

    #[test]
    fn pods_are_watched_in_served_and_the_operators_namespaces() {
        assert_eq!(scope(&["a"], &[]).with(&scope(&["b"], &[]), "own"), scope(&["a", "b", "own"], &[]));
        assert_eq!(scope(&["a"], &[]).with(&scope(&[], &["x"]), "own"), Scope::default());
    }
}
