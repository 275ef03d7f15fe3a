//! Frames that are bad, long, or costly.

use softnet::mem::{Pool, PoolConfig};
use softnet::stats::{DropCounters, DropReason};
use softnet::wire::{Checksum, MAX_FRAME, VnetHeader, WireError};

use super::*;

#[test]
fn bad_frames_are_dropped_with_a_reason() {
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, SIZE));
        let plain = VnetHeader::default().to_bytes();
        let long = MAX_FRAME as u32 + 13;
        let part = |len| Part { len, ..GOOD };
        setup.memory.write_from(DATA, &plain).unwrap();
        for len in [0, 11, 25, long] {
            assert!(setup.driver.offer(1, &[part(len)]));
        }
        // Something that asks for the checksum of what is no IP packet.
        let header = VnetHeader {
            flags: 1,
            ..VnetHeader::default()
        };
        setup
            .memory
            .write_from(DATA + 0x2000, &header.to_bytes())
            .unwrap();
        let bad = Part {
            address: DATA + 0x2000,
            ..GOOD
        };
        assert!(setup.driver.offer(1, &[bad]));
        assert!(setup.driver.offer(1, &[part(26)]));
        setup.driver.publish();
        let (packets, more) = setup.receive(64).unwrap();
        assert!(!more);
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].len(), 14);
        let bad = DropReason::from(WireError::BadChecksumOffload);
        let runt = DropReason::Runt;
        let dropped = [(runt, 3), (bad, 1), (DropReason::TooLong, 1)];
        assert_eq!(setup.drops.nonzero(), dropped);
        assert_eq!(setup.driver.reap().len(), 6);
    }
}

/// A frame finds no buffer: it is dropped, the next finds those that were freed.
#[test]
fn a_pool_that_is_empty() {
    let mut setup = Setup::new(config(false, SIZE));
    let config = PoolConfig {
        buffers: 4,
        buffer_size: 1024,
    };
    let small = Pool::new(config).unwrap();
    setup.buffers = Buffers {
        small: small.clone(),
        large: None,
    };
    let mut held = PacketList::new();
    small.alloc_bulk(3, &mut held);
    for n in 0..3 {
        setup.send(DATA + n * 0x4000, &[0; 2000]);
    }
    assert!(setup.receive(64).unwrap().0.is_empty());
    drop(held);
    setup.send(DATA, &[0; 2000]);
    assert_eq!(setup.receive(64).unwrap().0.len(), 1);
    assert_eq!(setup.drops.nonzero(), [(DropReason::NoBuffer, 3)]);
}

/// A long frame takes a large buffer while there is one, in one piece.
#[test]
fn long_frames_lie_in_large_buffers() {
    let mut setup = Setup::new(config(true, SIZE));
    let config = PoolConfig {
        buffers: 1,
        buffer_size: 65_536,
    };
    setup.buffers.large = Some(Pool::new(config).unwrap());
    let mut sent = vec![0; VNET_HDR_LEN];
    sent.extend((0..40_000_u32).map(|i| i as u8));
    setup.send(DATA + 0x1f_0000, &sent);
    setup.send(DATA, &sent);
    let (packets, _) = setup.receive(64).unwrap();
    assert_eq!(packets[0].data(), &sent[VNET_HDR_LEN..]);
    assert!(packets[1].is_chained());
    assert_eq!(bytes(&packets[1]), sent[VNET_HDR_LEN..]);
}

/// Checksum and segmentation of a packet go to the guest, and comes back from it.
#[test]
fn offload_metadata_crosses() {
    let udp = udp_frame();
    let mut there = Setup::new(config(false, 64));
    let mut back = Setup::new(config(true, 64));
    let mut packet = there.buffers.small.alloc().unwrap();
    assert!(packet.append(&udp));
    let checksum = Some(Checksum {
        start: 34,
        offset: 6,
    });
    packet.set_checksum(checksum);
    there.driver.offer(1, &[Part::writable(DATA, 20)]);
    there
        .driver
        .offer(2, &[Part::writable(DATA + 0x4000, 2000)]);
    there.driver.publish();
    let mut packets = PacketList::from(packet);
    assert_eq!(there.transmit(&mut packets).unwrap().0, Xmit::Complete);
    let used: Vec<u32> = there.driver.reap().iter().map(|used| used.len).collect();
    assert_eq!(used, [20, 12 + udp.len() as u32 - 20]);
    let mut sent = vec![0; 20];
    there.memory.read_into(DATA, &mut sent).unwrap();
    let mut rest = vec![0; used[1] as usize];
    there.memory.read_into(DATA + 0x4000, &mut rest).unwrap();
    sent.extend(rest);
    back.send(DATA, &sent);
    let (packets, _) = back.receive(1).unwrap();
    assert_eq!(packets[0].checksum(), checksum);
    assert_eq!(packets[0].data(), udp);
}

/// An Ethernet frame with a UDP datagram of 100 bytes.
fn udp_frame() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0]);
    frame.extend([
        0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend([0, 1, 0, 2, 0, 108, 0, 0]);
    frame.extend([7; 100]);
    frame
}

/// A frame of 60,000 bytes that claims to be one packet counts as the bytes that it has.
#[test]
fn a_long_frame_counts_as_its_bytes() {
    const LEN: u32 = 60_000;
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, SIZE));
        let plain = VnetHeader::default().to_bytes();
        setup.memory.write_from(DATA, &plain).unwrap();
        for id in 0..6 {
            assert!(setup.driver.offer(id, &[Part { len: LEN, ..GOOD }]));
        }
        setup.driver.publish();
        // 29 packets of 2048 bytes each.
        let (packets, more) = setup.receive(64).unwrap();
        assert_eq!((packets.len(), more), (3, true));
        drop(packets);
        assert_eq!(setup.receive(64).unwrap().0.len(), 3);
    }
}

/// A guest's word that a checksum is right is not passed on as the switch's.
#[test]
fn a_guest_verifies_no_checksum() {
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, SIZE));
        let header = VnetHeader {
            flags: 2,
            ..VnetHeader::default()
        };
        setup.send(DATA, &[&header.to_bytes()[..], &[0; 60]].concat());
        let (packets, _) = setup.receive(64).unwrap();
        assert!(!packets[0].checksum_verified());
    }
}

/// A frame that no MTU allows is dropped as it lies there; one that is said to be large is not.
#[test]
fn a_frame_longer_than_the_mtu_is_not_copied() {
    let plain = VnetHeader::default();
    let large = VnetHeader {
        gso_type: 1,
        ..plain
    };
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, SIZE));
        setup.queue.set_mtu(1500);
        for (header, len, dropped) in [
            (plain, 1522, None),
            (plain, 1523, Some(DropReason::TooLong)),
            (plain, 60_000, Some(DropReason::TooLong)),
            (large, 1523, Some(DropReason::BadGso)),
        ] {
            setup.drops = DropCounters::new();
            setup.send(DATA, &[&header.to_bytes()[..], &vec![0; len]].concat());
            let (packets, _) = setup.receive(64).unwrap();
            assert_eq!(packets.len(), usize::from(dropped.is_none()));
            let reason = setup.drops.nonzero().first().map(|drop| drop.0);
            assert_eq!(reason, dropped, "{len}");
            setup.driver.reap();
        }
        setup.queue.set_mtu(9000);
        setup.send(DATA, &[&plain.to_bytes()[..], &[0; 5000]].concat());
        assert_eq!(setup.receive(64).unwrap().0.len(), 1);
    }
}
