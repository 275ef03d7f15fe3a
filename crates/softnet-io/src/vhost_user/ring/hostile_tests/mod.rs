//! An act that is no driver's ends the queue with its reason, and nothing else; a bad frame is
//! dropped.

mod frames;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::chain::{MAX_CHAIN, flag};
use super::model::{Part, indirect_table};
use super::tests::{DATA, DATA_LEN, RING, Setup, bytes, config};
use super::*;
use crate::Buffers;
use crate::vhost_user::memory::{Region, RegionSpec};
use softnet::time::Time;
use softnet::wire::VNET_HDR_LEN;

const SIZE: u16 = 8;
const NEXT: u16 = flag::NEXT;
const INDIRECT: u16 = flag::INDIRECT;
const GOOD: Part = Part {
    address: DATA,
    len: 100,
    flags: 0,
};

/// A queue that has received one good frame, and now gets what `break_it` makes of the ring. What
/// is good before the bad is received, the queue ends with the error, and stays so.
fn ends(packed: bool, break_it: impl FnOnce(&mut Setup), error: RingError) {
    let mut setup = Setup::new(config(packed, SIZE));
    setup.send(DATA, &[0; 100]);
    assert_eq!(setup.receive(64).unwrap().0.len(), 1);
    assert!(setup.driver.offer(7, &[GOOD]));
    break_it(&mut setup);
    setup.driver.publish();
    let mut out = PacketList::new();
    let Setup {
        queue,
        memory,
        buffers,
        drops,
        ..
    } = &mut setup;
    for _ in 0..2 {
        let mut rx = Receive::new(64, Time::ZERO, &mut out, drops);
        let result = queue.receive(memory, buffers, None, &mut rx);
        assert_eq!(result, Err(error), "packed: {packed}");
        assert_eq!(queue.failed(), Some(error));
        assert!(!queue.peek() && queue.arm());
    }
    let good = if matches!(error, RingError::IndexRuns(_)) {
        0
    } else {
        1
    };
    assert_eq!(out.len(), good, "{error} packed: {packed}");
    assert_eq!(
        queue.transmit(memory, &mut out, &mut Sent::default(), &mut { WORK }),
        Err(error)
    );
}

/// Writes a split ring's descriptor and offers it as a chain.
fn raw(part: Part, flags: u16, next: u16) -> impl FnOnce(&mut Setup) {
    move |setup| {
        let flags = part.flags | flags;
        setup.driver.write(5, Part { flags, ..part }, next);
        setup.driver.offer_head(5);
    }
}

fn offer(parts: &[Part]) -> impl FnOnce(&mut Setup) {
    move |setup| assert!(setup.driver.offer(1, parts))
}

/// Offers an indirect table of these bytes.
fn table(bytes: Vec<u8>, len: u32, flags: u16) -> impl FnOnce(&mut Setup) {
    move |setup| {
        setup.memory.write_from(DATA + 0x1000, &bytes).unwrap();
        let part = Part {
            address: DATA + 0x1000,
            len,
            flags: INDIRECT | flags,
        };
        assert!(setup.driver.offer(1, &[part]));
    }
}

#[test]
fn a_split_ring_that_leads_nowhere() {
    ends(
        false,
        |s| s.driver.offer_head(SIZE),
        RingError::BadDescriptor(SIZE),
    );
    ends(
        false,
        |s| s.driver.offer_head(u16::MAX),
        RingError::BadDescriptor(u16::MAX),
    );
    ends(false, raw(GOOD, NEXT, SIZE), RingError::BadDescriptor(SIZE));
    ends(false, raw(GOOD, NEXT, 5), RingError::EndlessChain);
    let run = |n: u16| {
        move |setup: &mut Setup| {
            for _ in 0..n {
                setup.driver.offer_head(0);
            }
        }
    };
    // With the one that `ends` offers.
    ends(false, run(SIZE), RingError::IndexRuns(SIZE + 1));
    ends(false, run(0x7fff), RingError::IndexRuns(0x8000));
    let back = |setup: &mut Setup| (0..0xfffe).for_each(|_| setup.driver.offer_head(0));
    ends(false, back, RingError::IndexRuns(0xffff));
}

/// A chain may have that many descriptors, in the ring and in a table, but no more.
#[test]
fn chains_have_a_limit() {
    for packed in [false, true] {
        for len in [MAX_CHAIN, MAX_CHAIN + 1] {
            let result = match len {
                MAX_CHAIN => Ok(1),
                _ => Err(RingError::EndlessChain),
            };
            let parts = vec![Part { len: 1, ..GOOD }; len.into()];
            let mut setup = Setup::new(config(packed, 2048));
            assert!(setup.driver.offer(1, &parts));
            setup.driver.publish();
            assert_eq!(setup.receive(64).map(|(packets, _)| packets.len()), result);
            let mut setup = Setup::new(config(packed, 2048));
            let table = DATA + 0x1_0000;
            setup.driver.offer_indirect(1, &parts, &setup.memory, table);
            setup.driver.publish();
            assert_eq!(setup.receive(64).map(|(packets, _)| packets.len()), result);
        }
    }
}

/// A chain of few descriptors that lies in many small regions costs as much as one of many.
#[test]
fn chains_in_many_regions_have_a_limit() {
    const REGIONS: u32 = 500;
    const AT: u64 = 0x2000_0000;
    let add_regions = |setup: &mut Setup| {
        let len = u64::from(REGIONS);
        let file: OwnedFd = memfd_create("scattered", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len).unwrap();
        let mut regions = setup.memory.regions().to_vec();
        for offset in 0..len {
            let spec = RegionSpec {
                guest: AT + offset,
                len: 1,
                user: 0x7e00_0000_0000 + offset,
                offset,
            };
            regions.push(Arc::new(Region::map(spec, &file, false).unwrap()));
        }
        setup.memory = GuestMemory::new(regions, 1 << 40).unwrap();
    };
    let all = Part::readable(AT, REGIONS);
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, SIZE));
        add_regions(&mut setup);
        assert!(setup.driver.offer(1, &[all; 4]));
        setup.driver.publish();
        let (packets, _) = setup.receive(64).unwrap();
        assert_eq!(packets[0].len(), 4 * REGIONS as usize - VNET_HDR_LEN);
        let scatter = |setup: &mut Setup| {
            add_regions(setup);
            assert!(setup.driver.offer(1, &[all; 5]));
        };
        ends(packed, scatter, RingError::Scattered);
    }
}

/// All descriptors of a packed ring are one chain that does not end.
#[test]
fn a_packed_ring_without_an_end() {
    let mut setup = Setup::new(config(true, SIZE));
    let parts = [GOOD; SIZE as usize];
    assert!(setup.driver.offer(1, &parts));
    // The last descriptor says that the chain goes on.
    let last = 16 * u64::from(SIZE - 1) + 14;
    let flags = (1_u16 << 7 | NEXT).to_le_bytes();
    setup.memory.write_from(RING + last, &flags).unwrap();
    setup.driver.publish();
    assert_eq!(setup.receive(64).unwrap_err(), RingError::EndlessChain);
}

#[test]
fn indirect_tables_that_are_not_possible() {
    let good = indirect_table(&[GOOD; 3], true);
    let bad = RingError::BadIndirect;
    for packed in [false, true] {
        ends(packed, table(good.clone(), 0, 0), bad);
        ends(packed, table(good.clone(), 47, 0), bad);
        let long = indirect_table(&[GOOD; SIZE as usize + 1], true);
        ends(packed, table(long, 16 * u32::from(SIZE + 1), 0), bad);
        ends(packed, table(good.clone(), 0xffff_fff0, 0), bad);
        let outside = Part {
            address: DATA - 16,
            len: 32,
            flags: INDIRECT,
        };
        ends(packed, offer(&[outside]), OutOfRange(DATA - 16).into());
        let across = Part {
            address: DATA + DATA_LEN - 16,
            len: 32,
            flags: INDIRECT,
        };
        let start = |setup: &mut Setup| {
            let first = indirect_table(&[GOOD; 2], true);
            setup
                .memory
                .write_from(across.address, &first[..16])
                .unwrap();
            assert!(setup.driver.offer(1, &[across]));
        };
        ends(packed, start, OutOfRange(DATA + DATA_LEN).into());
        let mut setup = Setup::new(RingConfig {
            indirect: false,
            ..config(packed, SIZE)
        });
        setup
            .driver
            .offer_indirect(1, &[GOOD], &setup.memory, DATA + 0x1000);
        setup.driver.publish();
        assert_eq!(setup.receive(1).unwrap_err(), bad);
    }
    // Continued outside.
    let continued = Part {
        len: 48,
        flags: INDIRECT,
        ..GOOD
    };
    ends(false, offer(&[continued, GOOD]), bad);
    ends(true, offer(&[GOOD, continued]), bad);
    let nested = Part {
        flags: INDIRECT,
        len: 16,
        ..GOOD
    };
    let nested = indirect_table(&[GOOD, nested], true);
    ends(false, table(nested, 32, 0), bad);
    // Linked in a circle, and out of the table.
    let link = |next: u16| {
        let mut bytes = indirect_table(&[GOOD; 3], true);
        bytes[30..32].copy_from_slice(&next.to_le_bytes());
        bytes
    };
    ends(false, table(link(0), 48, 0), RingError::EndlessChain);
    ends(false, table(link(3), 48, 0), RingError::BadDescriptor(3));
}

/// A table within a packed ring's does not exist. DPDK's driver leaves what was there before in
/// the flags of one descriptor of each.
#[test]
fn flags_in_a_packed_ring_s_table_mean_nothing() {
    let mut setup = Setup::new(config(true, SIZE));
    let flags = INDIRECT | NEXT | flag::WRITE;
    let parts = [GOOD, Part { flags, ..GOOD }, GOOD];
    table(indirect_table(&parts, false), 48, 0)(&mut setup);
    setup.driver.publish();
    let (packets, _) = setup.receive(64).unwrap();
    let [packet] = &packets[..] else {
        panic!("{packets:?}");
    };
    assert_eq!(packet.data().len(), 300 - VNET_HDR_LEN);
}

#[test]
fn buffers_that_are_not_possible() {
    for packed in [false, true] {
        let writable = Part {
            flags: flag::WRITE,
            ..GOOD
        };
        ends(packed, offer(&[GOOD, writable]), RingError::WrongDirection);
        for (address, first) in [
            (DATA - 1, DATA - 1),
            (DATA + DATA_LEN - 50, DATA + DATA_LEN),
            (u64::MAX - 10, u64::MAX - 10),
            (0, 0),
        ] {
            let outside = Part { address, ..GOOD };
            ends(packed, offer(&[GOOD, outside]), OutOfRange(first).into());
        }
        // The other way round: to be written, and outside.
        for (part, error) in [
            (GOOD, RingError::WrongDirection),
            (
                Part::writable(DATA + DATA_LEN - 50, 1000),
                OutOfRange(DATA + DATA_LEN).into(),
            ),
        ] {
            let mut setup = Setup::new(config(packed, SIZE));
            assert!(setup.driver.offer(1, &[Part::writable(DATA, 1000)]));
            assert!(setup.driver.offer(2, &[part]));
            setup.driver.publish();
            let mut packets = PacketList::new();
            setup.buffers.small.alloc_bulk(3, &mut packets);
            packets.for_each_mut(|packet| assert!(packet.append(&[1; 500])));
            let mut sent = Sent::default();
            let queue = &mut setup.queue;
            let result = queue.transmit(&setup.memory, &mut packets, &mut sent, &mut { WORK });
            assert_eq!(result, Err(error));
            // What did fit was sent, and only that.
            assert_eq!((sent.packets, packets.len()), (1, 2));
            assert_eq!(setup.driver.reap().len(), 1);
        }
    }
}

/// As many descriptors as it takes, all of the same bytes.
#[test]
fn a_chain_of_4_gib() {
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, 1024));
        let all = Part {
            len: DATA_LEN as u32,
            ..GOOD
        };
        setup
            .driver
            .offer_indirect(1, &[all; 1024], &setup.memory, DATA);
        setup.driver.publish();
        // The table is in those bytes.
        assert_eq!(setup.receive(1).unwrap_err(), RingError::LongChain);
    }
}

/// A guest whose longest chains cost budget, so that it gets no more of the worker's time. Those of
/// 63 descriptors were once as cheap as a frame.
#[test]
fn long_chains_use_budget() {
    let mut setup = Setup::new(config(true, 512));
    for len in [0, 1] {
        let parts = [Part { len, ..GOOD }; 256];
        assert!(setup.driver.offer(1, &parts));
        assert!(setup.driver.offer(1, &parts));
        setup.driver.publish();
        assert!(setup.receive(33).unwrap().1);
        assert_eq!(setup.driver.reap().len(), 1);
        assert!(!setup.receive(34).unwrap().1);
        assert_eq!(setup.driver.reap().len(), 1);
    }
}

/// Chains of many spans, offered to be written to, end a run of packets early: each of them costs
/// the sender's worker as much as many packets.
#[test]
fn long_chains_for_receiving_end_a_run() {
    const SPANS: usize = 200;
    const PACKETS: usize = 64;
    for packed in [false, true] {
        let mut setup = Setup::new(config(packed, 256));
        let table: Vec<_> = (0..SPANS as u64)
            .map(|n| Part::writable(DATA + n, if n + 1 < SPANS as u64 { 0 } else { 1000 }))
            .collect();
        for id in 0..PACKETS as u64 {
            let driver = &mut setup.driver;
            driver.offer_indirect(id, &table, &setup.memory, DATA + 0x10_0000);
        }
        setup.driver.publish();
        let mut packets = PacketList::new();
        setup.buffers.small.alloc_bulk(PACKETS, &mut packets);
        packets.for_each_mut(|packet| assert!(packet.append(&[1; 60])));
        let mut runs = 0;
        loop {
            runs += 1;
            let before = packets.len();
            let (xmit, sent) = setup.transmit(&mut packets).unwrap();
            assert_eq!(sent.packets as usize, before - packets.len());
            assert!(
                sent.packets as usize <= 2 + WORK.max(1024) / SPANS,
                "{sent:?}"
            );
            if xmit == Xmit::Complete {
                break;
            }
            assert!(sent.packets > 0, "no progress");
        }
        assert!(packets.is_empty() && runs > 8, "{runs} runs");
        assert_eq!(setup.driver.reap().len(), PACKETS);
    }
}
