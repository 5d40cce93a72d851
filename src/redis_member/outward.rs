//! TCP connections to members and holders, except for refused networks. The author of a RedisQuorum chooses the addresses of external masters,
//! and reads their answers in its status.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use redlock_engine::voting::open_tcp;

use super::{Connect, Stream};
use crate::redlock::BoxFuture;

/// The instance metadata of a cloud. It is no link-local address, unlike that of IPv4.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Connects to other machines, except in refused networks.
///
/// It refuses the addresses of this machine, addresses that no router forwards, and the configured networks. It resolves names at every connect,
/// and checks the resulting addresses each time.
#[derive(Clone, Debug, Default)]
pub struct Outward {
    refused: Vec<IpNet>,
}

impl Outward {
    /// A connector that refuses these networks in addition to the addresses of this machine.
    pub fn but(refused: Vec<IpNet>) -> Self {
        Self { refused }
    }

    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let stays_near = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            // An address with the well-known translation prefix leads to its IPv4 address.
            IpAddr::V6(v6) => {
                v6.is_unicast_link_local() || v6 == METADATA || translated(v6).is_some_and(|v4| !self.allows(v4))
            }
        };
        let is_nowhere = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        !stays_near && !is_nowhere && !self.refused.iter().any(|network| network.contains(&address))
    }
}

/// The IPv4 address in an IPv6 address of 64:ff9b::/96.
fn translated(address: Ipv6Addr) -> Option<IpAddr> {
    match address.octets() {
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => None,
    }
}

impl Connect for Outward {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            let refused = || io::Error::new(io::ErrorKind::PermissionDenied, REFUSED);
            let allowed = |address: IpAddr| self.allows(address).then_some(()).ok_or_else(refused);
            Ok(Box::new(open_tcp(address, allowed).await?) as Box<dyn Stream>)
        })
    }
}

/// The error of a refused connection.
///
/// It does not contain the address, because users must not learn the names of the network.
const REFUSED: &str =
    "the address leads to a network that the operator refuses (docs/external.md): set another address";

/// Reads a range of addresses: `10.0.0.0/8`, or one address.
///
/// # Errors
/// If the text is neither. The message has an example.
pub fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from).ok();
    let network = text.parse().ok().or_else(one);
    network.ok_or_else(|| "use a range of addresses such as 10.0.0.0/8 or 2001:db8::/32".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_its_link_are_refused() {
        let outward = Outward::but(vec![network("10.96.0.1").unwrap(), network("172.16.0.0/12").unwrap()]);
        let allows = |address: &str| outward.allows(address.parse().unwrap());
        let refused = "127.0.0.1 127.8.8.8 ::1 0.0.0.0 0.0.0.1 :: 169.254.169.254 fe80::1 224.0.0.1 ff02::1 255.255.255.255 \
            ::ffff:127.0.0.1 64:ff9b::7f00:1 10.96.0.1 172.31.255.255 ::ffff:172.16.0.1 fd00:ec2::254";
        for address in refused.split(' ') {
            assert!(!allows(address), "{address}");
        }
        for address in ["10.96.0.2", "172.32.0.1", "192.0.2.1", "2001:db8::1", "fd00::1", "64:ff9b::c000:201"] {
            assert!(allows(address), "{address}");
        }
    }

    #[test]
    fn networks_are_read_or_refused() {
        for text in ["0.0.0.0/0", "2001:db8::/32", "10.96.0.1"] {
            assert!(network(text).is_ok(), "{text}");
        }
        for text in ["", "x", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8"] {
            assert!(network(text).unwrap_err().contains("10.0.0.0/8"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_its_resolved_address() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let refused = Outward::default().connect(&address).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(refused.to_string(), REFUSED);
    }
}
