//! Addresses: of Ethernet, of interfaces, and of networks; and names of network namespaces.

use std::net::IpAddr;

use softnet::wire::EthernetAddress;
use softnet_io::InterfaceAddress;
use softnet_tc::Prefix;

use super::flower;
use super::form::Text;

/// The address of one station.
pub(super) const MAC: Text<EthernetAddress> = Text(mac, |mac| Some(mac.to_string()));

fn mac(text: &str) -> Result<EthernetAddress, String> {
    let problem = |what: &str| format!("{text:?} {what}; write it like \"02:00:00:00:00:01\"");
    let byte = |part: &str| match part.len() {
        2 if part.bytes().all(|b| b.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let mac: Option<[u8; 6]> = bytes.and_then(|bytes| bytes.try_into().ok());
    let mac = mac.ok_or_else(|| problem("is not an Ethernet address"))?;
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(problem(
            "is a group or zero address, which an interface cannot have",
        ));
    }
    Ok(EthernetAddress(mac))
}

/// An address with the length of its network's prefix.
pub(super) const INTERFACE: Text<InterfaceAddress> =
    Text(interface, |address| Some(address.to_string()));

fn interface(text: &str) -> Result<InterfaceAddress, String> {
    let problem =
        |what: &str| format!("{text:?} {what}; write it like \"10.9.0.1/24\" or \"fd00::1/64\"");
    let (ip, prefix) = text
        .split_once('/')
        .ok_or_else(|| problem("has no prefix length"))?;
    let ip: IpAddr = ip.parse().map_err(|_| problem("is not an IP address"))?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let address = (!prefix.starts_with('+'))
        .then(|| prefix.parse().ok())
        .flatten()
        .and_then(|prefix| InterfaceAddress::new(ip, prefix).ok())
        .ok_or_else(|| problem(&format!("has a prefix length that is not 0 to {longest}")))?;
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(problem("is not an address that an interface can have"));
    }
    Ok(address)
}

/// An address, or a network: no address with the length of its network's prefix.
pub(super) const PREFIX: Text<Prefix> = Text(prefix, |prefix| Some(prefix.to_string()));

fn prefix(text: &str) -> Result<Prefix, String> {
    let prefix = flower::prefix(text).ok_or_else(|| {
        format!(
            "{text:?} is no IP address or prefix; write it like \"10.9.0.1\", \"10.9.0.0/24\" or \
             \"fd00::/64\""
        )
    })?;
    let (network, address) = (prefix.network(), prefix.address());
    if network != address {
        let bits = prefix.bits();
        return Err(format!(
            "{text:?} is an address within a network; write \"{address}\" for the address or \
             \"{network}/{bits}\" for the network"
        ));
    }
    Ok(prefix)
}

/// The name of a network namespace.
pub(super) const NETNS: Text<String> = Text(
    |name| {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(format!(
                "{name:?} cannot name a network namespace; use a name that `ip netns list` shows"
            ));
        }
        Ok(name.to_owned())
    },
    |name| Some(name.clone()),
);
