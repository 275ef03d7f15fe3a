//! `RTM_*LINK` of the family `AF_BRIDGE`: `bridge link`, `bridge vlan add|del`
//! (`br_getlink`, `br_setlink`, `br_dellink`).

use std::ops::RangeInclusive;

use softnet_engine::forward::VlanFlags;
use softnet_engine::{Devices, Engine};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::attributes::{LINK_POLICY, ifla};
use super::bridge_port::{self, Wanted};
use super::show::Shown;
use super::{RTM_NEWLINK, RTM_SETLINK, refusal};
use crate::nl::headers::{IfInfoMsg, RtGenMsg};
use crate::nl::{
    Attr, Chunk, Client, Errno, Error, Message, NLA_F_NESTED, Position, Progress, Request,
    Validation,
};

/// In `IFLA_EXT_MASK`.
const RTEXT_FILTER_BRVLAN: u32 = 1 << 1;
const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 1 << 2;
/// In `IFLA_AF_SPEC`.
const BRIDGE_FLAGS: u16 = 0;
const BRIDGE_VLAN_INFO: u16 = 2;
/// Tunnels, MRP, CFM and MSTP.
const BRIDGE_OTHERS: RangeInclusive<u16> = 3..=6;
const MASTER: u16 = 1;
const SELF: u16 = 2;
/// `BRIDGE_VLAN_INFO_*`.
const PVID: u16 = 1 << 1;
const UNTAGGED: u16 = 1 << 2;
const RANGE_BEGIN: u16 = 1 << 3;
const RANGE_END: u16 = 1 << 4;

/// `struct bridge_vlan_info`.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct VlanInfo {
    pub(super) flags: u16,
    pub(super) vid: u16,
}

/// The flags of a VLAN as in [`VlanInfo`].
pub(super) fn info_flags(flags: VlanFlags) -> u16 {
    let pvid = if flags.pvid { PVID } else { 0 };
    pvid | if flags.untagged { UNTAGGED } else { 0 }
}

/// Puts a port, or a bridge itself.
pub(super) fn put<D: Devices>(shown: &Shown<'_, D>, message: &mut Message<'_>, mask: u32) {
    let settings = &shown.link.settings;
    message.put_str(ifla::IFNAME, &settings.name);
    message.put_u32(ifla::MASTER, shown.link.master.unwrap_or(shown.link.index));
    message.put_u32(ifla::MTU, settings.mtu);
    message.put_u8(ifla::OPERSTATE, shown.operstate());
    message.put_bytes(ifla::ADDRESS, &shown.link.address().0);
    if let Some(member) = &shown.member {
        message.nest(ifla::PROTINFO | NLA_F_NESTED, |message| {
            member.put(message, shown.kind());
        });
    }
    let compressed = mask & RTEXT_FILTER_BRVLAN_COMPRESSED != 0;
    if !compressed && mask & RTEXT_FILTER_BRVLAN == 0 {
        return;
    }
    let Some(vlans) = shown.vlans() else {
        return;
    };
    message.nest(ifla::AF_SPEC, |message| {
        let mut put = |vid, flags| message.put(BRIDGE_VLAN_INFO, &VlanInfo { flags, vid });
        if !compressed {
            vlans
                .iter()
                .for_each(|(vid, flags)| put(vid, info_flags(flags)));
            return;
        }
        for (range, flags) in vlans.ranges() {
            let flags = info_flags(flags);
            if range.start() == range.end() {
                put(*range.start(), flags);
            } else {
                put(*range.start(), flags | RANGE_BEGIN);
                put(*range.end(), flags | RANGE_END);
            }
        }
    });
}

/// Dumps the ports of bridges, and bridges where VLANs are asked for (`rtnl_bridge_getlink`).
pub(super) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    client: &Client,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let mask = read_mask(request, client)?;
    let with_bridges = mask & (RTEXT_FILTER_BRVLAN | RTEXT_FILTER_BRVLAN_COMPRESSED) != 0;
    for (&index, link) in engine.links().range(position.link..) {
        if link.master.is_none() && (!link.is_bridge() || !with_bridges) {
            continue;
        }
        let shown = Shown::new(engine, link).map_err(refusal)?;
        let header = shown.bridge_header();
        let put = |message: &mut Message<'_>| put(&shown, message, mask);
        if chunk.message(RTM_NEWLINK, 0, &header, put).is_err() {
            position.link = index;
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done)
}

fn read_mask(request: &Request<'_>, client: &Client) -> Result<u32, Error> {
    // Older clients send the family alone.
    if !client.strict && request.payload().len() < size_of::<IfInfoMsg>() {
        let _: RtGenMsg = request.header()?;
        return Ok(0);
    }
    let header: IfInfoMsg = request.header()?;
    if client.strict {
        let set = [
            header.pad.into(),
            header.kind.into(),
            header.flags,
            header.change,
        ];
        if set != [0; 4] || header.index != 0 {
            let text = "Invalid values in header for bridge link dump request";
            return Err(Error::invalid(text));
        }
        let mut attrs = request.attr_iter::<IfInfoMsg>()?;
        if let Some(other) = attrs.find(|attr| attr.kind() != ifla::EXT_MASK) {
            let text = "Unsupported attribute in bridge link dump request";
            return Err(Error::invalid(text).at(&other));
        }
    }
    let attrs = request.attrs::<IfInfoMsg>(&LINK_POLICY, Validation::Liberal)?;
    Ok(attrs.u32(ifla::EXT_MASK)?.unwrap_or(0))
}

/// VLANs that a request names.
type Vlans = Vec<(RangeInclusive<u16>, VlanFlags)>;

/// `RTM_SETLINK` and `RTM_DELLINK`.
pub(super) fn change<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let header: IfInfoMsg = request.header()?;
    let link = u32::try_from(header.index).ok();
    let link = link.and_then(|index| engine.link(index).ok());
    let unknown = Error::new(Errno::ENODEV).text("unknown ifindex");
    let link = link.ok_or(unknown)?;
    let (index, is_port, is_bridge) = (link.index, link.master.is_some(), link.is_bridge());
    let find = |kind| {
        let mut attrs = request.attr_iter::<IfInfoMsg>()?;
        Ok::<_, Error>(attrs.find(|attr| attr.kind() == kind))
    };
    let (protinfo, spec) = (find(ifla::PROTINFO)?, find(ifla::AF_SPEC)?);
    let flags = spec.map_or(Ok(0), |spec| bridge_flags(&spec))?;
    let by_master = flags == 0 || flags & MASTER != 0;
    // Ports have no bridge in their device, and bridges no master.
    if by_master && !is_port || flags & SELF != 0 && !is_bridge {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let set = request.kind == RTM_SETLINK;
    let vlans = spec.map_or(Ok(Vlans::new()), |spec| read_vlans(&spec))?;
    let wanted = match protinfo {
        Some(data) if set && is_port => Some(wanted(engine, index, &data)?),
        _ => None,
    };
    if let Some(Some(wanted)) = wanted {
        wanted.apply(engine, index)?;
    }
    for (range, flags) in vlans {
        let changed = if set {
            engine.add_vlans(index, range, flags)
        } else {
            engine.remove_vlans(index, range)
        };
        changed.map_err(refusal)?;
    }
    Ok(())
}

/// Changes that `IFLA_PROTINFO` asks for: in attributes or, in the old form, as a state.
fn wanted<D: Devices>(
    engine: &Engine<D>,
    index: u32,
    data: &Attr<'_>,
) -> Result<Option<Wanted>, Error> {
    if data.is_nested() {
        return Wanted::read(engine, index, data).map(Some);
    }
    let link = engine.link(index).map_err(refusal)?;
    let shown = Shown::new(engine, &link).map_err(refusal)?;
    let state = data.data.first().ok_or(Errno::EINVAL)?;
    let known = shown.member.as_ref().map(bridge_port::Member::state);
    match known == Some(*state) {
        true => Ok(None),
        false => Err(Error::new(Errno::EOPNOTSUPP)
            .help("the state of a port follows its link")
            .at(data)),
    }
}

/// Whom a request is for.
fn bridge_flags(spec: &Attr<'_>) -> Result<u16, Error> {
    let flags = spec.children().find(|attr| attr.kind() == BRIDGE_FLAGS);
    match flags {
        Some(flags) if flags.data.len() < 2 => Err(Error::new(Errno::EINVAL).at(&flags)),
        Some(flags) => flags.u16(),
        None => Ok(0),
    }
}

/// The VLANs in `IFLA_AF_SPEC` (`br_afspec`).
fn read_vlans(spec: &Attr<'_>) -> Result<Vlans, Error> {
    let mut vlans = Vlans::new();
    let mut begin: Option<VlanInfo> = None;
    for attr in spec.children() {
        if BRIDGE_OTHERS.contains(&attr.kind()) {
            return Err(Error::new(Errno::EOPNOTSUPP).at(&attr));
        }
        if attr.kind() != BRIDGE_VLAN_INFO {
            continue;
        }
        let info: VlanInfo = match attr.data.len() {
            4 => attr.fixed()?,
            _ => return Err(Error::new(Errno::EINVAL).at(&attr)),
        };
        let refuse = |text| Err(Error::invalid(text).at(&attr));
        if !(1..=4094).contains(&info.vid) {
            return refuse("bridge: Vlan id is invalid");
        }
        let flags = VlanFlags {
            pvid: info.flags & PVID != 0,
            untagged: info.flags & UNTAGGED != 0,
        };
        let ranged = info.flags & (RANGE_BEGIN | RANGE_END) != 0;
        if (ranged || begin.is_some()) && flags.pvid {
            return refuse("bridge: Pvid isn't allowed in a range");
        }
        match begin {
            None if info.flags & RANGE_BEGIN != 0 => begin = Some(info),
            None => vlans.push((info.vid..=info.vid, flags)),
            Some(_) if info.flags & RANGE_BEGIN != 0 => {
                return refuse("bridge: Found a new vlan range start while processing one");
            }
            Some(_) if info.flags & RANGE_END == 0 => {
                return refuse("bridge: Vlan range end flag is missing");
            }
            Some(first) if info.vid <= first.vid => {
                let text = "bridge: End vlan id is less than or equal to start vlan id";
                return refuse(text);
            }
            Some(first) => {
                vlans.push((first.vid..=info.vid, flags));
                begin = None;
            }
        }
    }
    Ok(vlans)
}
