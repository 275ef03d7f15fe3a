//! Numbers and structures of `linux/if_bridge.h`.

use std::net::IpAddr;

use softnet::wire::EthernetAddress;
use softnet_engine::forward::Group;

use crate::nl::headers::BrMdbEntry;

/// `MDBA_*` and what is in them, of what is shown.
pub(super) mod mdba {
    pub(crate) const MDB: u16 = 1;
    pub(crate) const ROUTER: u16 = 2;
    pub(crate) const MDB_ENTRY: u16 = 1;
    pub(crate) const MDB_ENTRY_INFO: u16 = 1;
    pub(crate) const ROUTER_PORT: u16 = 1;
}

/// `MDBA_MDB_EATTR_*`, and of a source.
pub(super) mod eattr {
    pub(crate) const TIMER: u16 = 1;
    pub(crate) const SRC_LIST: u16 = 2;
    pub(crate) const GROUP_MODE: u16 = 3;
    pub(crate) const SOURCE: u16 = 4;
    pub(crate) const RTPROT: u16 = 5;
    pub(crate) const SRCLIST_ENTRY: u16 = 1;
    pub(crate) const SRC_ADDRESS: u16 = 1;
    pub(crate) const SRC_TIMER: u16 = 2;
}

/// `MDBA_ROUTER_PATTR_*`.
pub(super) mod router {
    pub(crate) const TIMER: u16 = 1;
    pub(crate) const TYPE: u16 = 2;
    pub(crate) const INET_TIMER: u16 = 3;
    pub(crate) const INET6_TIMER: u16 = 4;
}

/// `MDBA_SET_*`, `MDBE_ATTR_*`: of a request.
pub(super) mod set {
    pub(crate) const ENTRY: u16 = 1;
    pub(crate) const ENTRY_ATTRS: u16 = 2;
    pub(crate) const SOURCE: u16 = 1;
}

/// `MDB_FLAGS_*`.
pub(super) mod flags {
    pub(crate) const FAST_LEAVE: u8 = 1 << 1;
    pub(crate) const STAR_EXCL: u8 = 1 << 2;
    pub(crate) const BLOCKED: u8 = 1 << 3;
}

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// The bytes of an address.
pub(super) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// An address, and the EtherType by which it is known.
pub(super) fn put_group(entry: &mut BrMdbEntry, group: Group) {
    let (bytes, proto) = match group {
        Group::Ip(ip) if ip.is_ipv4() => (bytes(ip), ETH_P_IP),
        Group::Ip(ip) => (bytes(ip), ETH_P_IPV6),
        Group::Mac(mac) => (mac.0.to_vec(), 0),
    };
    entry.address[..bytes.len()].copy_from_slice(&bytes);
    entry.proto = proto.to_be();
}

/// The group of an entry.
pub(super) fn group(entry: &BrMdbEntry) -> Option<Group> {
    let [a, b, c, d, e, f, ..] = entry.address;
    Some(match u16::from_be(entry.proto) {
        ETH_P_IP => Group::Ip([a, b, c, d].into()),
        ETH_P_IPV6 => Group::Ip(entry.address.into()),
        0 => Group::Mac(EthernetAddress([a, b, c, d, e, f])),
        _ => return None,
    })
}
