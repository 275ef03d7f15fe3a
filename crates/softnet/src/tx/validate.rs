//! Makes packets fit the device: segments large frames, fills in checksums, refuses what is longer than the MTU. Done when a
//! packet leaves its queue, as late as possible (the kernel's `validate_xmit_skb`).

use super::Features;
use crate::packet::{GsoKind, Packet, PacketList, fill_checksum, segment};
use crate::pool::Pool;
use crate::stats::{DropReason, Dropped};

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
    fn segments(&self, packet: &Packet) -> bool {
        packet.gso().is_none_or(|gso| match gso.kind {
            GsoKind::TcpV4 => self.tso4,
            GsoKind::TcpV6 => self.tso6,
            GsoKind::Udp => self.uso,
        })
    }

    /// Whether each wire packet is within the MTU.
    fn fits(&self, packet: &Packet) -> bool {
        let longest = match packet.gso() {
            Some(gso) => u32::from(gso.header_len) + u32::from(gso.size),
            None => packet.len() as u32,
        };
        longest <= self.mtu + LINK_HEADER
    }
}

/// Replaces `packets` by what a device with `features` takes, in order. What cannot be made to fit goes to `dropped`.
/// `pool` provides buffers for segments.
pub fn validate(packets: &mut PacketList, features: &Features, pool: &Pool, dropped: &mut Dropped) {
    if packets
        .iter()
        .all(|p| features.takes_plain(p) || features.takes(p))
    {
        return;
    }
    let mut ready = PacketList::new();
    while let Some(mut packet) = packets.pop_front() {
        if !features.fits(&packet) {
            dropped.push(packet, DropReason::Mtu);
        } else if !features.segments(&packet) {
            if let Err(error) = segment(packet, pool, &mut ready) {
                dropped.note(error.reason, error.packets);
            }
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
    }
    packets.append(&mut ready);
}
