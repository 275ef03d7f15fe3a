//! Routes of an interface, as `ip route add` makes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use serde::{Deserialize, Serialize};

use crate::InterfaceAddress;

/// A route through an interface: `10.1.0.0/16 via 10.9.0.7`, or `10.1.0.0/16` for a network that
/// is reached directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceRoute {
    /// The network.
    to: InterfaceAddress,
    /// The router, of the same family.
    via: Option<IpAddr>,
}

/// Not a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a route such as \"10.1.0.0/16 via 10.9.0.7\", or \"10.1.0.0/16\" for a network \
     that is reached directly"
)]
pub struct BadRoute(String);

impl InterfaceRoute {
    /// The default route by a router.
    pub fn default_by(router: IpAddr) -> InterfaceRoute {
        let any = match router {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        InterfaceRoute {
            to: InterfaceAddress::network(any, 0),
            via: Some(router),
        }
    }

    /// The kernel's message that adds it to an interface.
    pub(crate) fn message(&self, index: u32) -> RouteMessage {
        let address = |ip| match ip {
            IpAddr::V4(ip) => RouteAddress::Inet(ip),
            IpAddr::V6(ip) => RouteAddress::Inet6(ip),
        };
        let mut message = RouteMessage::default();
        message.header.address_family = match self.to.ip() {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.destination_prefix_length = self.to.prefix();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = match self.via {
            Some(_) => RouteScope::Universe,
            None => RouteScope::Link,
        };
        let to = RouteAttribute::Destination(address(self.to.ip()));
        message.attributes.push(to);
        let via = self.via.map(|via| RouteAttribute::Gateway(address(via)));
        message.attributes.extend(via);
        message.attributes.push(RouteAttribute::Oif(index));
        message
    }
}

impl FromStr for InterfaceRoute {
    type Err = BadRoute;
    fn from_str(text: &str) -> Result<Self, BadRoute> {
        let bad = || BadRoute(text.to_owned());
        let mut words = text.split_whitespace();
        let to: InterfaceAddress = words
            .next()
            .and_then(|to| to.parse().ok())
            .ok_or_else(bad)?;
        // An address within the network is no network; the kernel refuses it, too.
        let is_network = InterfaceAddress::network(to.ip(), to.prefix()) == to;
        let via: Option<IpAddr> = match words.next() {
            None => None,
            Some("via") => Some(
                words
                    .next()
                    .and_then(|via| via.parse().ok())
                    .ok_or_else(bad)?,
            ),
            Some(_) => return Err(bad()),
        };
        let fits = via.is_none_or(|via| {
            via.is_ipv4() == to.ip().is_ipv4() && !via.is_unspecified() && !via.is_multicast()
        });
        match is_network && fits && words.next().is_none() {
            true => Ok(InterfaceRoute { to, via }),
            false => Err(bad()),
        }
    }
}

impl fmt::Display for InterfaceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to.fmt(f)?;
        match self.via {
            Some(via) => write!(f, " via {via}"),
            None => Ok(()),
        }
    }
}

impl From<InterfaceRoute> for String {
    fn from(route: InterfaceRoute) -> String {
        route.to_string()
    }
}

impl TryFrom<String> for InterfaceRoute {
    type Error = BadRoute;
    fn try_from(text: String) -> Result<Self, BadRoute> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_parsed_and_printed() {
        for text in [
            "10.1.0.0/16 via 10.9.0.7",
            "10.1.0.0/16",
            "0.0.0.0/0 via 10.9.0.1",
            "fd01::/32 via fd00::7",
        ] {
            let route = text.parse::<InterfaceRoute>().map(|r| r.to_string());
            assert_eq!(route, Ok(text.into()));
        }
        for text in [
            "",
            "10.1.0.0",
            "10.1.0.5/16",
            "10.1.0.0/16 via",
            "10.1.0.0/16 via fd00::1",
            "10.1.0.0/16 via 0.0.0.0",
            "10.1.0.0/16 dev x",
            "10.1.0.0/16 via 10.9.0.7 x",
        ] {
            assert!(text.parse::<InterfaceRoute>().is_err(), "{text}");
        }
        let router = "10.9.0.1".parse().expect("an address");
        let default = InterfaceRoute::default_by(router).to_string();
        assert_eq!(default, "0.0.0.0/0 via 10.9.0.1");
    }
}
