//! Addresses: of Ethernet, of interfaces, and of networks; and names of network namespaces.

use std::net::IpAddr;

use softnet::wire::EthernetAddress;
use softnet_engine::Settings;
use softnet_io::{BadRoute, InterfaceAddress, InterfaceRoute, NetnsSpec};
use softnet_tc::Prefix;
use toml::Value;

use super::flower;
use super::form::{Form, Text, int};
use super::table::Item;

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

/// The name of one of the kernel's interfaces.
pub(super) const INTERFACE_NAME: Text<String> = Text(
    |name| match Settings::wrong_name(name) {
        None => Ok(name.to_owned()),
        Some(problem) => Err(format!("{name:?} {problem}")),
    },
    |name| Some(name.clone()),
);

/// A router.
pub(super) const ROUTER: Text<IpAddr> = Text(router, |address| Some(address.to_string()));

fn router(text: &str) -> Result<IpAddr, String> {
    let address: Option<IpAddr> = text.parse().ok();
    address
        .filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
        .ok_or_else(|| {
            format!("{text:?} is not the address of a router; write it like \"10.9.0.254\"")
        })
}

/// A route.
pub(super) const ROUTE: Text<InterfaceRoute> = Text(
    |text| {
        let route = text.parse();
        route.map_err(|error: BadRoute| error.to_string())
    },
    |route| Some(route.to_string()),
);

/// A network namespace.
pub(super) struct NetnsForm;

impl Form<NetnsSpec> for NetnsForm {
    fn read(&self, item: Item<'_>) -> Option<NetnsSpec> {
        const WAYS: &str = "use a name that `ip netns list` shows, a path, or { pid = N }";
        if let Some(table) = item.as_table() {
            table.known(&["pid"], |_| "");
            if !table.has("pid") {
                return table.missing("pid", "the number of a process");
            }
            let pid = table.find("pid")?.number(1, i32::MAX.into())?;
            return Some(NetnsSpec::Pid(pid));
        }
        let Some(text) = item.as_text() else {
            return item.wrong_type("a text or a table");
        };
        let is_path = text.starts_with('/') && !text.contains('\0');
        if is_path && text.len() <= NETNS_PATH_MAX {
            return Some(NetnsSpec::Path(text.into()));
        }
        if text.is_empty() || text == "." || text == ".." || text.contains(['/', '\0']) {
            return item.problem(format!("{text:?} cannot name a network namespace; {WAYS}"));
        }
        Some(NetnsSpec::Name(text.to_owned()))
    }

    fn write(&self, value: &NetnsSpec) -> Option<Value> {
        match value {
            NetnsSpec::Name(name) => Some(name.as_str().into()),
            NetnsSpec::Path(path) => Some(path.to_str()?.into()),
            NetnsSpec::Pid(pid) => Some(Value::Table(
                [("pid".into(), int(*pid))].into_iter().collect(),
            )),
        }
    }
}

/// Longest path, with room for a final zero (`PATH_MAX`).
const NETNS_PATH_MAX: usize = 4095;

/// A network namespace.
pub(super) const NETNS: NetnsForm = NetnsForm;
