//! Makes packets fit the device: segments large frames, fills in checksums, refuses what exceeds
//! the MTU. Done when a packet leaves its queue, as late as possible (the kernel's
//! `validate_xmit_skb`).

use super::segment;
use crate::mem::{Packet, PacketList, Pool};
use crate::stats::{DropReason, Dropped};
use crate::wire::GsoKind;

/// Bytes of an Ethernet header with two VLAN tags: what may come on top of the MTU.
const LINK_HEADER: u32 = 14 + 8;

/// Offloads of a device; what it cannot, [`validate`] does in software before the
/// driver sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Fills in transport checksums.
    pub checksum: bool,
    /// Takes large TCP frames over IPv4.
    pub tso4: bool,
    /// Takes large TCP frames over IPv6.
    pub tso6: bool,
    /// Takes large TCP frames of which the first wire packet alone is to have the CWR flag.
    pub ecn: bool,
    /// Takes large UDP frames.
    pub uso: bool,
    /// Takes chains ([`Packet::is_chained`]). A driver that does not gets each frame in one
    /// segment, and may send [`Packet::data`] alone.
    pub scatter_gather: bool,
    /// Longest IP packet on the wire in bytes (the payload of an Ethernet frame, VLAN tags not
    /// counted).
    pub mtu: u32,
}

impl Default for Features {
    /// No offload, no chains, MTU 1500.
    fn default() -> Self {
        Features {
            checksum: false,
            tso4: false,
            tso6: false,
            ecn: false,
            uso: false,
            scatter_gather: false,
            mtu: 1500,
        }
    }
}

impl Features {
    /// True if this is a packet that every device of the MTU takes as it is: the quick half of
    /// [`takes`](Features::takes).
    #[inline]
    pub(crate) fn takes_plain(&self, packet: &Packet) -> bool {
        let simple = packet.is_plain() && !packet.is_chained();
        simple && packet.len() as u32 <= self.mtu.saturating_add(LINK_HEADER)
    }

    /// True if some of these packets may be [merged](super::merge) into large frames.
    #[inline]
    pub(crate) fn may_merge(&self, packets: &PacketList) -> bool {
        let large = || self.tso4 || self.tso6 || self.uso;
        packets.len() > 1 && self.checksum && self.scatter_gather && large()
    }

    /// True if the device takes this packet as it is.
    fn takes(&self, packet: &Packet) -> bool {
        (packet.checksum().is_none() || self.checksum)
            && !self.must_segment(packet)
            && self.takes_segments_of(packet)
            && self.fits(packet)
    }

    fn takes_segments_of(&self, packet: &Packet) -> bool {
        self.scatter_gather || !packet.is_chained()
    }

    /// True if the device takes large frames of this kind.
    pub(super) fn segments(&self, kind: GsoKind) -> bool {
        match kind {
            GsoKind::TcpV4 => self.tso4,
            GsoKind::TcpV6 => self.tso6,
            GsoKind::Udp => self.uso,
        }
    }

    /// True if this is a large frame that the device does not segment itself.
    pub(crate) fn must_segment(&self, packet: &Packet) -> bool {
        packet.gso().is_some_and(|gso| {
            packet.is_partial()
                || !self.segments(gso.kind)
                || gso.ecn && !self.ecn
                || !self.takes_segments_of(packet)
        })
    }

    /// True if each wire packet is within the MTU. (A large frame has a full one, if it is not
    /// partial.)
    fn fits(&self, packet: &Packet) -> bool {
        let longest = match packet.gso() {
            Some(gso) => u32::from(gso.header_len) + u32::from(gso.size),
            None => packet.len() as u32,
        };
        longest <= self.mtu.saturating_add(LINK_HEADER)
    }
}

/// Buffers for segments that one call takes at most.
const BUFFERS: usize = 64;

/// Replaces `packets` by what a device with `features` takes, in order. What cannot be made to fit
/// goes to `dropped`. `pool` provides buffers for segments.
///
/// A call segments no more than it takes to have `limit` wire packets, nor than 64 buffers hold at
/// once. What is behind that is returned, a partly segmented frame in one piece, for another call
/// once these have left.
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
    // Wire packets that are ready, and buffers taken for them.
    let (mut count, mut buffers) = (0, 0);
    while let Some(packet) = packets.pop_front() {
        let wire_packets = packet.wire_packets() as usize;
        let large = features.must_segment(&packet);
        let chunk = if large {
            limit.saturating_sub(count).min(BUFFERS - buffers)
        } else {
            1
        };
        if !features.fits(&packet) {
            dropped.push(packet, DropReason::Mtu);
        } else if features.takes(&packet) {
            ready.push_back(packet);
            count += wire_packets;
        } else if chunk == 0 {
            packets.push_front(packet);
            break;
        } else {
            match segment(packet, chunk, pool, &mut ready) {
                Ok(None) => {
                    count += wire_packets;
                    buffers += if large { wire_packets } else { 0 };
                }
                Ok(Some(rest)) => {
                    packets.push_front(rest);
                    break;
                }
                Err(error) => dropped.note(error.reason, error.packets),
            }
        }
    }
    if !features.scatter_gather {
        linearize(&mut ready, pool, dropped);
    }
    std::mem::replace(packets, ready)
}

/// Copies each chain into one buffer of `pool`.
fn linearize(packets: &mut PacketList, pool: &Pool, dropped: &mut Dropped) {
    if !packets.iter().any(Packet::is_chained) {
        return;
    }
    for mut packet in packets.take() {
        match packet.linearize(pool) {
            Ok(()) => packets.push_back(packet),
            Err(reason) => dropped.push(packet, reason),
        }
    }
}
