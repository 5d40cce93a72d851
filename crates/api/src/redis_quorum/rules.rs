//! The rules by which the API server refuses a RedisQuorum. Each message names a valid value.

use kube::core::Rule;
use schemars::Schema;
use serde_json::Value;

use crate::schema::{add_rules, between, matching, rule};

/// Adds the rules of `spec`.
pub(super) fn spec(schema: &mut Schema) {
    add_rules(schema, own().into_iter().chain(clients()).chain(outside()));
}

/// Rules of `keyPrefix` of a client.
pub(super) fn key_prefix() -> Value {
    matching(
        "^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/$",
        "write a prefix of letters, digits and the signs . _ - / that ends with a slash, e.g. shop/orders/",
    )
}

/// Rules of `installation`.
pub(super) fn installation() -> Value {
    matching(
        "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        "write lower-case letters, digits and dashes, with no dash at an end, or leave it out",
    )
}

/// Rules of `address` of an external member.
pub(super) fn address() -> Value {
    matching(
        r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$",
        "write host:port, or [address]:port for IPv6",
    )
}

/// Rules of `expose.addresses`.
pub(super) fn exposed_addresses(schema: &mut Schema) {
    each(schema, &matching(r"^[A-Za-z0-9.:\[\]-]+$", "write host or host:port, e.g. redis-0.example.com:6379"));
}

/// Rules of `expose.sourceRanges`.
pub(super) fn networks(schema: &mut Schema) {
    const NETWORK: &str = r"^(((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])/([0-9]|[12][0-9]|3[0-2])|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))$";
    each(schema, &matching(NETWORK, "write a network with its prefix length, e.g. 192.0.2.0/24 or 2001:db8::/32"));
}

/// Adds rules to each item of a list.
fn each(schema: &mut Schema, rules: &Value) {
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        items.insert("x-kubernetes-validations".to_owned(), rules.clone());
    }
}

/// Rules of the quorum itself.
fn own() -> [Rule; 9] {
    [
        rule(
            ".members",
            "(self.members + (has(self.external) ? size(self.external) : 0)) in [1, 3, 5, 7, 9]",
            "members and external must be an odd number together, so that a majority is clear: set 1, 3, 5, 7 or 9 in total",
        ),
        between("maxTTL", "1s", "1h", "set a maxTTL from 1s to 1h, e.g. 30s"),
        between("nodeTimeout", "5ms", "5s", "set a nodeTimeout from 5ms to 5s, e.g. 50ms"),
        rule(
            ".clockDrift",
            "duration(self.clockDrift.floor) <= duration('1s')",
            "set a clockDrift.floor of at most 1s, e.g. 2ms",
        ),
        rule(
            ".nodeTimeout",
            "duration(self.nodeTimeout) == duration(oldSelf.nodeTimeout)",
            "nodeTimeout cannot be changed, because fences and validities depend on it: create another RedisQuorum",
        ),
        rule(
            ".clockDrift",
            "self.clockDrift.ppm == oldSelf.clockDrift.ppm && \
                 duration(self.clockDrift.floor) == duration(oldSelf.clockDrift.floor)",
            "clockDrift cannot be changed, because fences and validities depend on it: create another RedisQuorum",
        ),
        rule(
            ".installation",
            "self.installation == oldSelf.installation",
            "installation cannot be changed, because two operators would serve the members: create another RedisQuorum",
        ),
        rule(
            ".keys",
            "self.keys == oldSelf.keys",
            "keys cannot be changed, because locks would get other Redis keys: create another RedisQuorum",
        ),
        rule(
            ".allowedNamespaces",
            "(self.allowedNamespaces.from == 'Selector') == has(self.allowedNamespaces.selector)",
            "set from: Selector together with a selector, and a selector with from: Selector only",
        ),
    ]
}

/// Rules of its clients and external members.
fn clients() -> [Rule; 5] {
    [
        rule(
            ".clients",
            "!has(self.clients) || self.keys != 'Namespaced' || \
                 self.clients.all(c, c.keyPrefix.split('/')[0] == c.__namespace__)",
            "with keys: Namespaced a client's keyPrefix begins with its namespace, e.g. namespace: shop and keyPrefix: shop/",
        ),
        rule(
            ".clients",
            "!has(self.clients) || self.clients.all(c, !(c.name in ['operator', 'probe', 'locker', 'default']))",
            "operator, probe, locker and default are Redis users of the operator: give the client another name",
        ),
        rule(
            ".external",
            "!has(self.external) || self.external.all(e, self.external.exists_one(other, other.address == e.address))",
            "two external members have the same address: list it once",
        ),
        rule(
            ".external",
            "!has(self.external) || !has(oldSelf.external) || \
                 self.external.all(e, !oldSelf.external.exists(old, old.name == e.name && old.address != e.address))",
            "another address is another master: give it another name. It joins while the former member leaves",
        ),
        rule(
            ".clients",
            "!has(self.clients) || size(self.clients) == 0 || !has(self.external) || size(self.external) == 0",
            "the operator cannot make users on external members, and a client needs one on all members: leave clients out, \
                 and give such a client the addresses and users yourself",
        ),
    ]
}

/// Rules of the ways to it.
fn outside() -> [Rule; 3] {
    [
        rule(
            ".expose",
            "self.expose.type == 'None' || self.tls.mode != 'Disabled'",
            "members that are reachable from outside need TLS: set tls: {mode: Managed} as well",
        ),
        rule(
            ".expose",
            "self.expose.type != 'None' || \
                 (!has(self.expose.addresses) && !has(self.expose.annotations) && !has(self.expose.sourceRanges))",
            "addresses, annotations and sourceRanges are for Services: set type: NodePort or type: LoadBalancer as well",
        ),
        rule(
            ".tls",
            "(self.tls.mode == 'Secret') == has(self.tls.secretRef)",
            "set mode: Secret together with secretRef: {name: ...}, and secretRef with mode: Secret only",
        ),
    ]
}
