//! `validate`: what it does at the edges of pool and limit.

use super::testing::{Frame, packet, pool};
use super::*;
use crate::mem::PacketList;
use crate::stats::{DropReason, Dropped};

/// A large frame that could not be segmented used to count as if buffers had been taken for all
/// its wire packets, more than one call takes: the subtraction overflowed at the next large
/// frame.
#[test]
fn large_frames_that_cannot_be_segmented_take_no_buffers() {
    let frame = Frame::tcp(false, 3000);
    let mut packets = PacketList::new();
    for _ in 0..2 {
        let mut large = packet(&frame.bytes());
        large.apply(&frame.vnet_header(8)).unwrap();
        assert_eq!(large.wire_packets(), 375);
        packets.push_back(large);
    }
    let empty = pool(1, 2048);
    let _last = empty.alloc().unwrap();
    let mut dropped = Dropped::new();
    let features = Features::default();
    let rest = validate(&mut packets, usize::MAX, &features, &empty, &mut dropped);
    assert!(rest.is_empty() && packets.is_empty());
    assert_eq!(dropped.wire_packets(), 2 * 375);
    assert_eq!(dropped.counts()[DropReason::NoBuffer as usize], 2 * 375);
}
