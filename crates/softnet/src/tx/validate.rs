//! Makes packets fit the device: segments large frames, fills in checksums, refuses what is longer than the MTU. Done when a
//! packet leaves its queue, as late as possible (the kernel's `validate_xmit_skb`).

use super::Features;
use crate::mem::{Packet, PacketList, Pool};
use crate::packet::{fill_checksum, segment};
use crate::stats::{DropReason, Dropped};
use crate::wire::GsoKind;

/// Bytes of an Ethernet header with two VLAN tags: what may come on top of the MTU.
const LINK_HEADER: u32 = 14 + 8;

impl Features {
    /// Whether this is a packet that every device of the MTU takes as it is: the quick half of [`takes`](Features::takes).
    #[inline]
    pub(super) fn takes_plain(&self, packet: &Packet) -> bool {
        packet.is_plain() && packet.len() as u32 <= self.mtu + LINK_HEADER
    }

    /// Whether the device takes this packet as it is.
    fn takes(&self, packet: &Packet) -> bool {
        (packet.checksum().is_none() || self.checksum) && self.segments(packet) && self.fits(packet)
    }

    /// Whether the device segments this packet itself, if it needs that.
    pub(super) fn segments(&self, packet: &Packet) -> bool {
        packet.gso().is_none_or(|gso| match gso.kind {
            _ if packet.is_partial() => false,
            GsoKind::TcpV4 => self.tso4,
            GsoKind::TcpV6 => self.tso6,
            GsoKind::Udp => self.uso,
        })
    }

    /// Whether each wire packet is within the MTU. (A large frame has a full one, if it is not partial.)
    fn fits(&self, packet: &Packet) -> bool {
        let longest = match packet.gso() {
            Some(gso) => u32::from(gso.header_len) + u32::from(gso.size),
            None => packet.len() as u32,
        };
        longest <= self.mtu + LINK_HEADER
    }
}

/// Buffers for segments that one call takes at most.
const SEGMENTS: usize = 64;

/// Replaces `packets` by what a device with `features` takes, in order. What cannot be made to fit goes to `dropped`.
/// `pool` provides buffers for segments.
///
/// A call segments no more than it takes to have `limit` wire packets, nor than 64 buffers hold at
/// once. What is behind that is returned, a frame half segmented in one piece, and is to be given
/// to another call once these have left.
pub fn validate(
    packets: &mut PacketList,
    limit: usize,
    features: &Features,
    pool: &Pool,
    dropped: &mut Dropped,
) -> PacketList {
    if packets
        .iter()
        .all(|p| features.takes_plain(p) || features.takes(p))
    {
        return PacketList::new();
    }
    let mut ready = PacketList::new();
    let (mut count, mut segments) = (0, 0);
    while let Some(mut packet) = packets.pop_front() {
        let wire_packets = packet.wire_packets() as usize;
        if !features.fits(&packet) {
            dropped.push(packet, DropReason::Mtu);
        } else if !features.segments(&packet) {
            let chunk = limit.saturating_sub(count).min(SEGMENTS - segments);
            if chunk == 0 {
                packets.push_front(packet);
                break;
            }
            match segment(packet, chunk, pool, &mut ready) {
                Ok(None) => {}
                Ok(Some(rest)) => {
                    packets.push_front(rest);
                    break;
                }
                Err(error) => dropped.note(error.reason, error.packets),
            }
            segments += wire_packets;
        } else if packet.checksum().is_some() && !features.checksum {
            if !packet.make_unique(pool) {
                dropped.push(packet, DropReason::NoBuffer);
                continue;
            }
            match fill_checksum(&mut packet) {
                Ok(()) => ready.push_back(packet),
                Err(reason) => dropped.push(packet, reason),
            }
        } else {
            ready.push_back(packet);
        }
        count += wire_packets;
    }
    std::mem::replace(packets, ready)
}
