//! Size that a packet counts as where filters look at it.

use softnet::mem::Packet;
use softnet::qdisc::{Cx, WireSize};

/// The size of a packet that filters look at. Where it arrives, the kernel counts each wire packet
/// without its Ethernet header, and without the first VLAN tag, which is beside the packet
/// (`eth_type_trans`, `skb_vlan_untag`, `qdisc_pkt_len_segs_init`).
#[inline]
pub fn filtered_size(packet: &Packet, cx: &Cx) -> WireSize {
    let size = WireSize::from(packet);
    if !cx.arriving {
        return size;
    }
    let front = match packet.data().get(12..14) {
        Some([0x81, 0x00] | [0x88, 0xa8]) => 18,
        _ => 14,
    };
    WireSize {
        packets: size.packets,
        bytes: size.bytes.saturating_sub(front * size.packets),
        each: size.each.saturating_sub(front),
    }
}
