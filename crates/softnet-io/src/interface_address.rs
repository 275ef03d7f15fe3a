//! An address of an interface, with the network that it is in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IP address with the length of its network's prefix, as in `10.9.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceAddress {
    ip: IpAddr,
    prefix: u8,
}

/// Not an address with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an IP address with a prefix length such as 10.9.0.1/24 or fd00::1/64")]
pub struct BadAddress(String);

impl InterfaceAddress {
    /// `prefix` is in bits: at most 32 for IPv4, 128 for IPv6.
    ///
    /// # Errors
    /// [`BadAddress`] if the prefix is longer than the address.
    pub fn new(ip: IpAddr, prefix: u8) -> Result<InterfaceAddress, BadAddress> {
        if prefix > if ip.is_ipv4() { 32 } else { 128 } {
            return Err(BadAddress(format!("{ip}/{prefix}")));
        }
        Ok(InterfaceAddress { ip, prefix })
    }

    /// The network of so many bits that an address is in.
    pub(crate) fn network(ip: IpAddr, prefix: u8) -> InterfaceAddress {
        let ip = match ip {
            IpAddr::V4(ip) => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & !host).into()
            }
            IpAddr::V6(ip) => {
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & !host).into()
            }
        };
        InterfaceAddress { ip, prefix }
    }

    /// The address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Bits of the network's prefix.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The network's broadcast address: IPv4 only, and not for networks of one or two addresses
    /// (RFC 3021).
    pub(crate) fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) if self.prefix < 31 => Some(Ipv4Addr::from_bits(
                ip.to_bits() | (u32::MAX >> self.prefix),
            )),
            _ => None,
        }
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = BadAddress;
    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl FromStr for InterfaceAddress {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let (ip, prefix) = text.split_once('/').ok_or_else(bad)?;
        let ip = ip.parse().map_err(|_| bad())?;
        InterfaceAddress::new(ip, prefix.parse().map_err(|_| bad())?).map_err(|_| bad())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in [
            "10.9.0.1/24",
            "0.0.0.0/0",
            "192.168.1.1/32",
            "fd00::1/64",
            "::1/128",
        ] {
            assert_eq!(
                text.parse::<InterfaceAddress>().map(|a| a.to_string()),
                Ok(text.into())
            );
        }
        for text in [
            "10.9.0.1",
            "10.9.0.1/33",
            "fd00::1/129",
            "/24",
            "10.9.0/24",
            "a/b",
            "1.2.3.4/-1",
            "",
        ] {
            assert_eq!(
                text.parse::<InterfaceAddress>(),
                Err(BadAddress(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_broadcast_address_has_all_host_bits_set() {
        let of = |text: &str| {
            text.parse::<InterfaceAddress>()
                .ok()
                .and_then(|a| a.broadcast())
        };
        assert_eq!(of("10.9.0.1/24"), Some(Ipv4Addr::new(10, 9, 0, 255)));
        assert_eq!(of("10.9.0.1/30"), Some(Ipv4Addr::new(10, 9, 0, 3)));
        assert_eq!(of("10.9.0.1/0"), Some(Ipv4Addr::BROADCAST));
        assert_eq!(of("10.9.0.1/31"), None);
        assert_eq!(of("fd00::1/64"), None);
    }
}
