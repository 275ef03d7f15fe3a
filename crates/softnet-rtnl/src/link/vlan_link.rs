//! VLAN links: `ip link add link PARENT name NAME type vlan id N` (`net/8021q/vlan_netlink.c`).

use softnet_engine::{Devices, Engine, LinkInfo, Virtual, VlanTag};
use zerocopy::{Immutable, IntoBytes};

use super::attributes::ifla;
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};

/// `IFLA_VLAN_*`.
mod vlan {
    pub(super) const ID: u16 = 1;
    pub(super) const FLAGS: u16 = 2;
    pub(super) const EGRESS_QOS: u16 = 3;
    pub(super) const INGRESS_QOS: u16 = 4;
    pub(super) const PROTOCOL: u16 = 5;
}

const VLAN_POLICY: Policy = Policy::new(
    vlan::PROTOCOL,
    &[
        (vlan::ID, Rule::U16),
        (vlan::EGRESS_QOS, Rule::NestedAny),
        (vlan::INGRESS_QOS, Rule::NestedAny),
        (vlan::PROTOCOL, Rule::U16),
    ],
);

const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
/// `VLAN_FLAG_REORDER_HDR`, the only one that is set by default.
const REORDER_HDR: u32 = 1;

/// `struct ifla_vlan_flags`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct VlanFlags {
    flags: u32,
    mask: u32,
}

/// A link as the engine shows it.
type Shown<D> = std::sync::Arc<LinkInfo<<D as Devices>::Spec>>;

/// The parent and the tag that a request asks for (`vlan_validate`, `vlan_newlink`).
pub(super) fn wanted<D: Devices>(
    engine: &Engine<D>,
    attrs: &Attrs<'_>,
    data: Option<Attr<'_>>,
) -> Result<(Shown<D>, VlanTag), Error> {
    let data = data.ok_or_else(|| Error::invalid("VLAN properties not specified"))?;
    let data = data.nested(&VLAN_POLICY)?;
    let mut proto = ETH_P_8021Q;
    if let Some(attr) = data.get(vlan::PROTOCOL) {
        proto = u16::from_be(attr.u16()?);
        if ![ETH_P_8021Q, ETH_P_8021AD].contains(&proto) {
            return Err(Error::new(Errno::EPROTONOSUPPORT).text("Invalid VLAN protocol"));
        }
    }
    for kind in [vlan::EGRESS_QOS, vlan::INGRESS_QOS] {
        if let Some(attr) = data.get(kind) {
            let help = "VLAN links have no maps of priorities; use `action skbedit`";
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&attr));
        }
    }
    if let Some(attr) = data.get(vlan::FLAGS) {
        let words = attr.data.first_chunk::<8>();
        let flags = words.map(|w| (u32::from_ne_bytes([w[0], w[1], w[2], w[3]]), &w[4..]));
        let Some((flags, mask)) = flags else {
            return Err(Error::new(Errno::EINVAL).at(&attr));
        };
        let mask = mask
            .first_chunk()
            .map_or(0, |mask| u32::from_ne_bytes(*mask));
        if (flags ^ REORDER_HDR) & mask != 0 {
            let help = "VLAN links have the flag reorder_hdr, and no other";
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&attr));
        }
    }
    let id = data.get(vlan::ID);
    let id = id.ok_or_else(|| Error::invalid("VLAN id not specified"))?;
    let tag = VlanTag {
        proto,
        id: id.u16()?,
    };
    if tag.id >= 4095 {
        return Err(Error::new(Errno::ERANGE).text("Invalid VLAN id").at(&id));
    }
    if tag.id == 0 {
        let help = "frames of VLAN 0 have no VLAN; Softnet has no link for them";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&id));
    }
    let link = attrs.get(ifla::LINK);
    let link = link.ok_or_else(|| Error::invalid("link not specified"))?;
    let parent = engine.link(link.u32()?);
    let parent = parent.map_err(|_| Error::new(Errno::ENODEV).text("link does not exist"))?;
    if parent.is_bridge() {
        let error = Error::new(Errno::EOPNOTSUPP).text("VLANs not supported on device");
        return Err(error.help("a bridge has no host side here; use `bridge vlan`"));
    }
    Ok((parent, tag))
}

/// `IFLA_LINK` and `IFLA_INFO_DATA` of a VLAN link.
pub(super) fn parent<D: Devices>(engine: &Engine<D>, link: &LinkInfo<D::Spec>) -> Option<u32> {
    let link = engine.devices().virtual_link(link.device()?)?;
    match link {
        Virtual::Vlan { parent, .. } => Some(engine.link_named(&parent).ok()?.index),
        _ => None,
    }
}

pub(super) fn put(tag: VlanTag, message: &mut Message<'_>) {
    message.put_u16(vlan::PROTOCOL, tag.proto.to_be());
    message.put_u16(vlan::ID, tag.id);
    let flags = VlanFlags {
        flags: REORDER_HDR,
        mask: u32::MAX,
    };
    message.put(vlan::FLAGS, &flags);
}
