//! Size tables: as tc computes them and as the kernel looks sizes up, and what is counted, shaped
//! and shown of packets that count by one.

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::*;
use softnet::time::Time;

use crate::testing::bench::Bench;
use crate::testing::specs::size_tables;
use crate::testing::{handle, ip, large};
use crate::*;

fn atm(overhead: i32) -> SizeTable {
    SizeTable::new(&SizeOptions {
        overhead,
        linklayer: Some(LinkLayer::Atm),
        ..SizeOptions::default()
    })
    .unwrap()
}

/// By hand from the kernel's formula: with slots of 4 bytes a length is rounded up to 4.
#[test]
fn sizes_as_tc_and_the_kernel_have_them() {
    let atm = atm(0);
    let SizeSpec {
        cell_log,
        cell_align,
        size_log,
        mtu,
        tsize,
        ..
    } = *atm.spec();
    assert_eq!(
        (cell_log, cell_align, size_log, mtu, tsize),
        (2, -1, 0, 2047, 512)
    );
    for (len, size) in [
        (0, 53),
        (1, 53),
        (48, 53),
        (49, 106),
        (96, 106),
        (97, 159),
        (2048, 43 * 53),
        // Beyond the table: its last slot, and the slot of what is left.
        (3000, (43 + 20) * 53),
        (2049, (43 + 1) * 53),
    ] {
        assert_eq!(atm.size(len), size, "{len}");
    }
    let options = SizeOptions {
        mpu: 84,
        overhead: 24,
        ..SizeOptions::default()
    };
    let ethernet = SizeTable::new(&options).unwrap();
    assert_eq!(
        [30, 60, 61, 64].map(|len| ethernet.size(len)),
        [84, 84, 88, 88]
    );
    // Only the overhead: no table at all.
    for (overhead, sizes) in [(18, [18, 78]), (-60, [1, 1]), (-59, [1, 1]), (-58, [1, 2])] {
        let linklayer = Some(LinkLayer::Ethernet);
        let options = SizeOptions {
            overhead,
            linklayer,
            mtu: 9,
            ..SizeOptions::default()
        };
        let table = SizeTable::new(&options).unwrap();
        assert_eq!((table.spec().tsize, table.spec().mtu), (0, 0));
        assert_eq!([0, 60].map(|len| table.size(len)), sizes, "{overhead}");
    }
    // Sizes that 16 bits do not hold.
    let options = SizeOptions {
        mpu: 1,
        mtu: 200_000,
        tsize: 16,
        ..SizeOptions::default()
    };
    let coarse = SizeTable::new(&options).unwrap();
    assert_eq!((coarse.spec().cell_log, coarse.spec().size_log), (14, 3));
    assert_eq!(
        [1, 16_384, 16_385].map(|len| coarse.size(len)),
        [16_384, 16_384, 32_768]
    );
}

#[test]
fn tables_that_there_are_not() {
    let spec = SizeSpec {
        tsize: 2,
        ..SizeSpec::default()
    };
    for (spec, slots, error) in [
        (spec, None, SizeTableError::NoData),
        (spec, Some(&[1_u16][..]), SizeTableError::Slots),
        (spec, Some(&[1, 2, 3][..]), SizeTableError::Slots),
        (
            SizeSpec {
                tsize: u32::MAX,
                ..spec
            },
            Some(&[][..]),
            SizeTableError::Slots,
        ),
        (
            SizeSpec {
                cell_log: 31,
                ..spec
            },
            Some(&[1, 2][..]),
            SizeTableError::Logarithm,
        ),
        (
            SizeSpec {
                size_log: 255,
                ..spec
            },
            Some(&[1, 2][..]),
            SizeTableError::Logarithm,
        ),
    ] {
        assert_eq!(SizeTable::from_parts(spec, slots), Err(error));
    }
    // Without slots the data is not looked at.
    assert!(SizeTable::from_parts(SizeSpec::default(), Some(&[1])).is_ok());
    let options = SizeOptions::default();
    let one = SizeOptions { mpu: 1, ..options };
    for (options, error) in [
        (options, SizeTableError::Empty),
        (
            SizeOptions {
                mtu: 9,
                tsize: 9,
                ..options
            },
            SizeTableError::Empty,
        ),
        (
            SizeOptions {
                tsize: 32_750,
                ..one
            },
            SizeTableError::TooLarge,
        ),
        (
            SizeOptions {
                tsize: 1,
                mtu: u32::MAX,
                ..one
            },
            SizeTableError::Logarithm,
        ),
    ] {
        assert_eq!(SizeTable::new(&options), Err(error));
    }
    let largest = SizeOptions {
        tsize: 32_749,
        mtu: u32::MAX,
        mpu: u32::MAX,
        ..one
    };
    assert_eq!(SizeTable::new(&largest).unwrap().size(60), 1 << 20);
}

proptest! {
    /// The kernel's steps in numbers that hold everything, and its bounds at the end.
    #[test]
    fn any_table_looks_up_as_the_kernel_does(table in size_tables(), len in 0..70_000_u64) {
        let spec = *table.spec();
        let len_with = i128::from(len) + i128::from(spec.overhead);
        let mut slots = Vec::new();
        // A length in each slot.
        for slot in 0..u64::from(spec.tsize) {
            let at = i128::from(slot << spec.cell_log);
            let len = at - i128::from(spec.cell_align) - i128::from(spec.overhead);
            match u64::try_from(len) {
                Ok(len) if len < 1 << 40 => slots.push(i128::from(table.size(len))),
                _ => return Ok(()),
            }
        }
        let size = table.size(len);
        prop_assert!((1..=1 << 20).contains(&size));
        let expected = match slots.last() {
            None => len_with,
            // Slots at a bound do not tell what is in them.
            Some(_) if slots.iter().any(|slot| [1, 1 << 20].contains(slot)) => return Ok(()),
            Some(last) => {
                let slot = (len_with + i128::from(spec.cell_align)).max(0) >> spec.cell_log;
                let count = slots.len() as i128;
                let rest = slots[(slot % count) as usize];
                if slot < count { rest } else { last * (slot / count) + rest }
            }
        };
        prop_assert_eq!(i128::from(size), expected.clamp(1, 1 << 20));
    }
}

/// A large frame counts as its wire packets do, also when a tbf segments it.
#[test]
fn a_large_frame_counts_as_its_packets() {
    let rate = 1000;
    let tbf = TbfSpec {
        rate,
        burst: 1600,
        limit: 1 << 20,
        ..TbfSpec::default()
    };
    let mut bench = Bench::new([("root", "1:", QdiscSpec::Tbf(tbf))]);
    let table = atm(0);
    bench
        .tree
        .edit(&mut bench.cx)
        .set_stab(handle("1:"), Some(table.clone()))
        .unwrap();
    let frame = large(&bench.pool);
    let WireSize {
        packets,
        bytes,
        each,
    } = (&frame).into();
    assert_eq!((packets, bytes, each), (8, 8 * 192, 192));
    let sizes = [u64::from(table.size(192)); 8];
    let total: u64 = sizes.iter().sum();
    assert!(total > bytes + 100);
    bench.tree.enqueue(&mut frame.into(), &mut bench.cx);
    assert_eq!(bench.tree.stats().backlog, total);
    let mut now = Time::ZERO;
    let mut sent = 0;
    for size in sizes {
        let mut out = PacketList::new();
        // Until the tokens of the packet are there.
        while out.is_empty() {
            if let Next::At(time) = bench.tree.dequeue(1, &mut out, bench.cx.at(now)) {
                now = time.max(now);
            }
        }
        sent += size;
        assert!(out.iter().all(|packet| packet.accounted().is_none()));
        assert_eq!(bench.tree.stats().bytes, sent);
        assert_eq!(bench.tree.stats().backlog, total - sent);
    }
    // All beyond the burst took its time.
    assert_eq!(now, Time((total - 1600) * 1_000_000_000 / rate));
}

/// INV-Q-11: the table is changed and taken away while packets wait: each counts as when it came.
#[test]
fn inv_q_11_a_packet_counts_as_when_it_came() {
    let mut bench = Bench::new([("root", "1:", QdiscSpec::Pfifo { limit: 100 })]);
    let stab = |bench: &mut Bench, table: Option<SizeTable>| {
        bench
            .tree
            .edit(&mut bench.cx)
            .set_stab(handle("1:"), table)
            .unwrap();
    };
    bench.offer([0], 96, 0);
    stab(&mut bench, Some(atm(0)));
    bench.offer([1], 96, 0);
    stab(&mut bench, Some(atm(1)));
    bench.offer([2], 96, 0);
    stab(&mut bench, None);
    bench.offer([3], 96, 0);
    assert_eq!(bench.tree.stats().backlog, 96 + 106 + 159 + 96);
    // Another kind of parameters keeps the table away and the packets in.
    let change = QdiscSpec::Pfifo { limit: 4 };
    bench
        .tree
        .edit(&mut bench.cx)
        .change(handle("1:"), &change)
        .unwrap();
    assert_eq!(bench.offer([4], 96, 0), 1);
    let mut out = PacketList::new();
    for bytes in [96, 202, 361, 457] {
        bench.tree.dequeue(1, &mut out, &mut bench.cx);
        assert_eq!(bench.tree.stats().bytes, bytes);
    }
    assert!(out.iter().all(|packet| packet.wire_len() == 96));
    assert_eq!(
        out.iter().map(Packet::mark).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    // What moves to another root counts as its length there.
    stab(&mut bench, Some(atm(0)));
    bench.offer([5], 60, 0);
    assert_eq!(bench.tree.stats().backlog, 106);
    let other = QdiscSpec::Bfifo { limit: 1000 };
    bench
        .tree
        .edit(&mut bench.cx)
        .replace(Handle::ROOT, handle("2:"), other)
        .unwrap();
    assert_eq!(bench.tree.stats().backlog, 60);
}

/// INV-Q-11: a packet that shares its data is copied to be changed, and counts as it did.
#[test]
fn inv_q_11_a_copy_counts_as_the_packet() {
    let wash = CakeSpec {
        wash: true,
        ..CakeSpec::default()
    };
    let damage = NetemSpec {
        corrupt: u32::MAX,
        ..NetemSpec::default()
    };
    for qdisc in [QdiscSpec::Cake(wash), QdiscSpec::Netem(damage)] {
        let mut bench = Bench::new([("root", "1:", qdisc)]);
        bench
            .tree
            .edit(&mut bench.cx)
            .set_stab(handle("1:"), Some(atm(0)))
            .unwrap();
        let mut other = ip(&bench.pool, 96, 0x20, 0);
        let packet = other.share(&bench.pool).unwrap();
        bench.tree.enqueue(&mut packet.into(), &mut bench.cx);
        assert_eq!(bench.tree.stats().backlog, 106);
        assert!(!other.is_shared(), "it was copied");
    }
}

/// CVE-2024-50039: below the root there is none, but at the queues of a device.
#[test]
fn only_roots_have_one() {
    let mut bench = Bench::new([
        ("root", "1:", QdiscSpec::Prio(PrioSpec::default())),
        ("1:1", "2:", QdiscSpec::Pfifo { limit: 9 }),
    ]);
    let before = bench.tree.spec().clone();
    let below = bench
        .tree
        .edit(&mut bench.cx)
        .set_stab(handle("2:"), Some(atm(0)));
    assert_eq!(
        below.unwrap_err().to_string(),
        "STAB not supported on a non root"
    );
    assert_eq!(*bench.tree.spec(), before);
    assert_eq!(
        bench.tree.edit(&mut bench.cx).set_stab(handle("2:"), None),
        Ok(())
    );
    let mut spec = TreeSpec::new();
    spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
    spec.add(handle("1:2"), handle("2:"), QdiscSpec::Pfifo { limit: 9 })
        .unwrap();
    spec.set_stab(handle("2:"), Some(atm(0))).unwrap();
    let (_, roots) = DeviceTree::new(spec, 3, &QdiscEnv::new(&bench.pool)).unwrap();
    let mut backlogs = Vec::new();
    for mut root in roots.instances {
        let packet = softnet::testing::frame(&bench.pool, 1, 2, 60, 0);
        root.enqueue(&mut packet.into(), &mut bench.cx);
        backlogs.push(root.stats().backlog);
    }
    assert_eq!(backlogs, [60, 106, 60]);
}

/// A class of htb has its rate in cells.
#[test]
fn rates_are_of_what_packets_count_as() {
    let htb = QdiscSpec::Htb(HtbSpec {
        default: 0x10,
        ..HtbSpec::default()
    });
    let mut bench = Bench::new([("root", "1:", htb)]);
    let class = HtbClassSpec {
        burst: 1060,
        cburst: 1060,
        ..HtbClassSpec::new(1060)
    };
    let mut tree = bench.tree.edit(&mut bench.cx);
    tree.set_stab(handle("1:"), Some(atm(0))).unwrap();
    tree.add_class(handle("1:"), handle("1:10"), ClassSpec::Htb(class))
        .unwrap();
    bench.offer(0..64, 60, 0);
    // Each is two cells: the burst is ten packets, and one more on credit.
    assert_eq!(bench.leave(1000, Time::ZERO).0.len(), 11);
    let mut now = Time::ZERO;
    let mut left = 0;
    while now <= Time(2_000_000_000) {
        let (marks, next) = bench.leave(1000, now);
        left += marks.len();
        match next {
            Next::At(time) => now = time,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(left, 20, "ten packets a second");
    let classes = bench.tree.classes();
    assert_eq!(classes[1].stats.bytes, 31 * 106);
}

/// However large a frame says that it is, and whatever the table: it counts as 17 MiB at most.
#[test]
fn what_a_frame_counts_as_is_bounded() {
    let spec = SizeSpec {
        size_log: 30,
        tsize: 1,
        ..SizeSpec::default()
    };
    let largest = SizeTable::from_parts(spec, Some(&[u16::MAX])).unwrap();
    let mut bench = Bench::new([("root", "1:", QdiscSpec::Pfifo { limit: 9 })]);
    bench
        .tree
        .edit(&mut bench.cx)
        .set_stab(handle("1:"), Some(largest))
        .unwrap();
    let mut frame = large(&bench.pool);
    let gso = frame.gso().unwrap();
    frame.set_gso(Some(softnet::wire::Gso {
        segments: u16::MAX,
        ..gso
    }));
    bench.tree.enqueue(&mut frame.into(), &mut bench.cx);
    let backlog = 65_534 * ((16 << 20) / 65_535) + (1 << 20);
    assert_eq!(bench.tree.stats().backlog, backlog);
    bench.offer([1], 60, 0);
    assert_eq!(bench.tree.stats().backlog, backlog + (1 << 20));
}
