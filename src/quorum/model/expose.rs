//! How peers outside the cluster reach members. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use rustls::pki_types::ServerName;

use super::invalid::Invalid;
use crate::api::{Expose, ExposeType};

/// Port of every member.
pub const PORT: u16 = 6379;
/// Suffix of the name of the Service by which clients outside reach a member.
pub const SUFFIX: &str = "-external";

/// A host, with a port if one was given. Displayed as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A DNS name, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

impl Address {
    /// Reads `host`, `host:port`, `[IPv6]:port` or an IPv6 address.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(|port| port.parse().ok().filter(|port| *port != 0).ok_or(())).transpose().ok()?;
        ServerName::try_from(host).ok()?;
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(host)) => write!(f, "[{host}]")?,
            _ => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// How members are exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposePlan {
    /// `NodePort` or `LoadBalancer`.
    pub type_: &'static str,
    /// Annotations of the Services.
    pub annotations: BTreeMap<String, String>,
    /// The addresses that the user set, by member.
    pub addresses: Vec<Address>,
    /// Networks of the allowed clients. If it is empty, all clients are allowed.
    pub source_ranges: Vec<String>,
}

impl ExposePlan {
    /// Reads the plan from a specification. `None` if members are not exposed.
    ///
    /// # Errors
    /// If an address or network is invalid. The error names the first one.
    pub fn new(expose: &Expose) -> Result<Option<Self>, Invalid> {
        let type_ = match expose.type_ {
            ExposeType::None => return Ok(None),
            ExposeType::NodePort => "NodePort",
            ExposeType::LoadBalancer => "LoadBalancer",
        };
        let parse = |text: &String| Address::parse(text).ok_or_else(|| Invalid::Address(text.clone()));
        let addresses = expose.addresses.iter().map(parse).collect::<Result<_, _>>()?;
        // The pattern in the API server also matches invalid values. The objects with them would be refused, or match no client.
        let is_network = |text: &&String| text.parse::<IpNet>().is_ok();
        if let Some(text) = expose.source_ranges.iter().find(|text| !is_network(text)) {
            return Err(Invalid::SourceRange(text.clone()));
        }
        let (annotations, source_ranges) = (expose.annotations.clone(), expose.source_ranges.clone());
        Ok(Some(Self { type_, annotations, addresses, source_ranges }))
    }

    /// The address that the user set for a member.
    ///
    /// It has the port of the member's Service if the user set none. `None` if that port is not known yet.
    pub fn given(&self, index: usize, service: Option<&Service>) -> Option<Address> {
        let Address { host, port } = self.addresses.get(index)?.clone();
        Some(Address { host, port: Some(port.or_else(|| self.port(service))?) })
    }

    /// The port of a member's Service. `None` if a node port is not known yet.
    fn port(&self, service: Option<&Service>) -> Option<u16> {
        if self.type_ == "NodePort" { node_port(service?) } else { Some(PORT) }
    }

    /// Where clients outside reach a member.
    ///
    /// They use the address that the user set, otherwise its load balancer, or the node of its pod. (Every other node works as
    /// well.)
    pub fn address(&self, index: usize, service: Option<&Service>, node: Option<&Node>) -> Option<Address> {
        if self.addresses.get(index).is_some() {
            return self.given(index, service);
        }
        let host = if self.type_ == "NodePort" { node_host(node?)? } else { balancer_host(service?)? };
        Some(Address { host, port: Some(self.port(service)?) })
    }
}

fn node_port(service: &Service) -> Option<u16> {
    let port = service.spec.as_ref()?.ports.as_ref()?.first()?.node_port?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// Host of a Service's load balancer.
pub fn balancer_host(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone()).filter(|host| ServerName::try_from(host.as_str()).is_ok())
}

fn node_host(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let of =
        |type_: &str| addresses.iter().find(|address| address.type_ == type_).map(|address| address.address.clone());
    of("ExternalIP").or_else(|| of("InternalIP"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_hosts_with_or_without_port() {
        for (text, printed) in [
            ("redis.example.com", "redis.example.com"),
            ("redis.example.com:30001", "redis.example.com:30001"),
            ("192.0.2.7:6379", "192.0.2.7:6379"),
            ("2001:db8::7", "[2001:db8::7]"),
            ("[2001:db8::7]:6379", "[2001:db8::7]:6379"),
        ] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()).as_deref(), Some(printed), "{text}");
        }
        for bad in ["", ":1", "a:", "a:0", "a:70000", "a:b", "[::1", "[::1]6379", "a b", "a/b", "x@y", "a\nb"] {
            assert_eq!(Address::parse(bad), None, "{bad:?}");
        }
    }

    fn plan(expose: serde_json::Value) -> ExposePlan {
        ExposePlan::new(&serde_json::from_value(expose).unwrap()).unwrap().unwrap()
    }

    fn text_of(address: Option<Address>) -> Option<String> {
        address.map(|address| address.to_string())
    }

    #[test]
    fn a_node_port_uses_the_members_node_without_an_address() {
        let service = serde_json::from_value(json!({"spec": {"ports": [{"port": 6379, "nodePort": 30123}]}})).unwrap();
        let addresses =
            json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}]);
        let node = serde_json::from_value(json!({"status": {"addresses": addresses}})).unwrap();
        let own = plan(json!({"type": "NodePort", "addresses": ["a.example.com", "b.example.com:7"]}));
        let at = |index| text_of(own.address(index, Some(&service), Some(&node)));
        assert_eq!(at(0).as_deref(), Some("a.example.com:30123"));
        assert_eq!(at(1).as_deref(), Some("b.example.com:7"));
        assert_eq!(at(2).as_deref(), Some("192.0.2.1:30123"));
        assert_eq!((own.address(0, None, None), own.address(2, Some(&service), None)), (None, None));
        assert_eq!((text_of(own.given(0, Some(&service))), own.given(2, Some(&service))), (at(0), None));
    }

    #[test]
    fn a_load_balancer_has_the_set_address_or_that_of_its_service() {
        let balanced = plan(json!({"type": "LoadBalancer", "addresses": ["a.example.com"]}));
        let service = |ingress| -> Service {
            serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": [ingress]}}})).unwrap()
        };
        let at = |index, service: &Service| text_of(balanced.address(index, Some(service), None));
        assert_eq!(at(0, &Service::default()).as_deref(), Some("a.example.com:6379"));
        assert_eq!(at(1, &Service::default()), None);
        assert_eq!(at(1, &service(json!({"ip": "192.0.2.9"}))).as_deref(), Some("192.0.2.9:6379"));
        assert_eq!(at(1, &service(json!({"hostname": "lb.example.com"}))).as_deref(), Some("lb.example.com:6379"));
    }

    #[test]
    fn an_invalid_address_or_range_is_named() {
        let expose = serde_json::from_value(json!({"type": "NodePort", "addresses": ["a", "b c"]})).unwrap();
        assert_eq!(ExposePlan::new(&expose), Err(Invalid::Address("b c".to_owned())));
        for bad in ["192.0.2.0", "192.0.2.0/33", "300.0.2.0/24", "192.0.2/24", ":/8", "2001:db8::/129", "a/8", ""] {
            let expose = json!({"type": "LoadBalancer", "sourceRanges": ["192.0.2.0/24", "2001:db8::/32", bad]});
            let refused = ExposePlan::new(&serde_json::from_value(expose).unwrap());
            assert_eq!(refused, Err(Invalid::SourceRange(bad.to_owned())));
        }
        assert_eq!(ExposePlan::new(&Expose::default()), Ok(None));
    }
}
