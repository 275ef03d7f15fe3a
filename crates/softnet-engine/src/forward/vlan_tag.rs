//! The outermost 802.1Q tag of a frame: read, written, pushed and popped in place, with the
//! offload metadata kept right.

use super::virtual_link::VlanTag;
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::wire::{Checksum, Gso};

const ADDRESSES: usize = 12;
/// Bytes of a tag: EtherType 0x8100 and the tag control information (priority and VLAN).
const TAG: usize = 4;
const ETHERTYPE: [u8; 2] = [0x81, 0x00];
/// The VLAN in the tag control information.
const VLAN: u16 = 0x0FFF;

/// The outermost tag of a frame, of either protocol.
pub(super) fn tag_of(packet: &Packet) -> Option<VlanTag> {
    match packet.data().get(ADDRESSES..ADDRESSES + TAG + 2) {
        Some(&[a, b, c, d, ..]) => Some(VlanTag {
            proto: u16::from_be_bytes([a, b]),
            id: u16::from_be_bytes([c, d]) & VLAN,
        }),
        _ => None,
    }
}

/// The VLAN of the frame's tag, 0 of one that only has a priority; `None` without a tag. A tag of
/// 802.1ad is none here.
///
/// # Errors
/// [`DropReason::BadHeader`] if the frame ends in the tag.
pub(super) fn vlan(packet: &Packet) -> Result<Option<u16>, DropReason> {
    let data = packet.data();
    if data.get(ADDRESSES..ADDRESSES + 2) != Some(&ETHERTYPE) {
        return Ok(None);
    }
    match data.get(ADDRESSES + 2..ADDRESSES + TAG + 2) {
        Some(&[high, low, _, _]) => Ok(Some(u16::from_be_bytes([high, low]) & VLAN)),
        _ => Err(DropReason::BadHeader),
    }
}

/// Changes the VLAN in the frame's tag and leaves its priority. The packet is not shared.
pub(super) fn set_vlan(packet: &mut Packet, vlan: u16) {
    if let Some(tci) = packet.data_mut().get_mut(ADDRESSES + 2..ADDRESSES + TAG) {
        tci[0] = tci[0] & 0xF0 | (vlan >> 8) as u8;
        tci[1] = vlan as u8;
    }
}

/// Adds a tag with priority 0. The packet is not shared.
///
/// # Errors
/// As [`push_of`].
pub(super) fn push(packet: &mut Packet, vlan: u16) -> Result<(), DropReason> {
    let proto = u16::from_be_bytes(ETHERTYPE);
    push_of(packet, VlanTag { proto, id: vlan })
}

/// Adds a tag with priority 0 and any protocol. The packet is not shared.
///
/// # Errors
/// [`DropReason::TooLong`] if its buffer has no space in front, [`DropReason::BadHeader`] if it has
/// no addresses. The packet is unchanged then.
pub(super) fn push_of(packet: &mut Packet, tag: VlanTag) -> Result<(), DropReason> {
    if packet.data().len() < ADDRESSES {
        return Err(DropReason::BadHeader);
    }
    let (checksum, gso) = moved(packet, |at| at.checked_add(TAG as u16))?;
    packet.push_front(TAG).ok_or(DropReason::TooLong)?;
    let data = packet.data_mut();
    data.copy_within(TAG..TAG + ADDRESSES, 0);
    data[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tag.proto.to_be_bytes());
    data[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tag.id.to_be_bytes());
    packet.set_checksum(checksum);
    packet.set_gso(gso);
    Ok(())
}

/// Removes the frame's tag, which [`vlan()`] has found. The packet is not shared.
///
/// # Errors
/// [`DropReason::BadChecksumOffload`] or [`DropReason::BadGso`] if the metadata points into the
/// tag. The packet is unchanged then.
pub(super) fn pop(packet: &mut Packet) -> Result<(), DropReason> {
    let behind = |at: u16| {
        let at = at.checked_sub(TAG as u16)?;
        (usize::from(at) >= ADDRESSES).then_some(at)
    };
    let (checksum, gso) = moved(packet, behind)?;
    packet.data_mut().copy_within(0..ADDRESSES, TAG);
    packet.pull_front(TAG);
    packet.set_checksum(checksum);
    packet.set_gso(gso);
    Ok(())
}

/// The metadata of a frame whose bytes behind the addresses move.
fn moved(
    packet: &Packet,
    to: impl Fn(u16) -> Option<u16>,
) -> Result<(Option<Checksum>, Option<Gso>), DropReason> {
    let (mut checksum, mut gso) = (packet.checksum(), packet.gso());
    if let Some(checksum) = &mut checksum {
        checksum.start = to(checksum.start).ok_or(DropReason::BadChecksumOffload)?;
    }
    if let Some(gso) = &mut gso {
        gso.header_len = to(gso.header_len).ok_or(DropReason::BadGso)?;
    }
    Ok((checksum, gso))
}
