//! Hash tables of `u32`: the ways of packets through them, and what may be added and removed.

use softnet::mem::{Packet, Pool};
use softnet::testing::pool;

use super::*;
use crate::action::Control;

fn class(minor: u16) -> Classified {
    Classified::Class(Handle::new(1, minor))
}

/// UDP over IPv4 to 10.0.0.N, with so many words of options.
fn udp(pool: &Pool, to: u8, port: u16, options: u8) -> Packet {
    let mut packet = pool.alloc().unwrap();
    let len = 28 + 4 * u16::from(options);
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45 + options, 0];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 99, 10, 0, 0, to]);
    bytes.extend(vec![1; 4 * usize::from(options)]);
    bytes.extend([0x13, 0x88]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    assert!(packet.append(&bytes));
    packet
}

fn key(value: u32, mask: u32, at: i32, next: u32) -> Key {
    Key {
        value,
        mask,
        at,
        next,
    }
}

/// A filter that leads to a table.
fn leads(table: u32) -> U32 {
    U32 {
        leads: true,
        link: Some(table << 20),
        ..U32::default()
    }
}

fn spec(prio: u16, handle: u32, kind: FilterKind, minor: u16) -> FilterSpec {
    let filter = FilterSpec::new(kind, Handle::new(1, minor));
    let leads = matches!(&filter.kind, FilterKind::U32(of) if of.leads);
    FilterSpec {
        prio,
        handle,
        class: filter.class.filter(|_| !leads),
        ..filter
    }
}

fn table(prio: u16, number: u32, buckets: u16) -> FilterSpec {
    spec(prio, number << 20, FilterKind::U32Table { buckets }, 0)
}

fn add(list: &mut FilterList, filter: FilterSpec) -> Result<u32, FilterError> {
    list.put(FilterOp::Add, filter).map(|key| key.handle)
}

fn name(prio: u16, handle: u32) -> FilterKey {
    FilterKey {
        chain: 0,
        prio,
        handle,
    }
}

/// 256 filters by the last byte of the destination, each tried alone, and one behind them.
#[test]
fn a_key_chooses_a_bucket() {
    let pool = pool(4);
    let mut list = FilterList::default();
    add(&mut list, table(5, 2, 256)).unwrap();
    for last in 0..=255 {
        let of = U32 {
            keys: vec![key(0x0a00_0000 | last, u32::MAX, 16, 0)],
            ..U32::default()
        };
        let handle = 0x0020_0000 | last << 12;
        let filter = spec(5, handle, FilterKind::U32(of), last as u16 + 1);
        assert_eq!(add(&mut list, filter), Ok(handle | 0x800));
    }
    let lead = U32 {
        bucket: BucketKey { at: 16, mask: 0xff },
        ..leads(2)
    };
    assert_eq!(
        add(&mut list, spec(5, 0, FilterKind::U32(lead), 0)),
        Ok(0x8000_0800)
    );
    add(&mut list, spec(6, 0, FilterKind::Matchall, 999)).unwrap();
    let filters = list.filters();
    for last in 0..=255 {
        let to = class(u16::from(last) + 1);
        assert_eq!(filters.try_on(&udp(&pool, last, 53, 0)), to);
    }
    let tried: Vec<u64> = list.shown().map(|(_, stats)| stats.tried).collect();
    assert_eq!((tried.len(), tried.iter().sum::<u64>()), (258, 512));
    // One that is gone, and one that is changed.
    list.delete(name(5, 0x0020_7800)).unwrap();
    let changed = spec(5, 0x0020_8800, FilterKind::U32(U32::default()), 777);
    list.put(FilterOp::Change, changed).unwrap();
    let mut apart = list.counting_apart();
    for list in [&list, &apart] {
        let filters = list.filters();
        assert_eq!(filters.try_on(&udp(&pool, 7, 53, 0)), class(999));
        assert_eq!(filters.try_on(&udp(&pool, 8, 53, 0)), class(777));
        assert_eq!(filters.try_on(&udp(&pool, 9, 53, 0)), class(10));
    }
    assert_eq!(apart, list);
    // The table is shown after those that came later, each before its filters.
    let shown: Vec<u32> = list.shown_from(None).map(|(spec, _)| spec.handle).collect();
    assert_eq!(shown[..3], [0x0020_0000, 0x0020_0800, 0x0020_1800]);
    assert_eq!(shown[256..], [0x8000_0000, 0x8000_0800, 1]);
    apart.delete(name(5, 0)).unwrap();
    assert_eq!(apart.iter().count(), 1);
    assert_eq!(add(&mut apart, table(7, 2, 1)), Ok(0x0020_0000));
}

/// The port is behind the IP header, however long that is; `eat` moves all offsets there.
#[test]
fn offsets_find_the_next_header() {
    let pool = pool(4);
    let offset = Offset {
        is_variable: true,
        at: 0,
        mask: 0x0f00,
        shift: 6,
        ..Offset::default()
    };
    for (eat, next) in [(false, u32::MAX), (true, 0)] {
        let mut list = FilterList::default();
        add(&mut list, table(1, 0x10, 1)).unwrap();
        let of = U32 {
            keys: vec![key(53, 0xffff, 0, next)],
            ..U32::default()
        };
        add(&mut list, spec(1, 0x0100_0000, FilterKind::U32(of), 1)).unwrap();
        let lead = U32 {
            keys: vec![key(17 << 16, 0xff_0000, 8, 0)],
            offset: Offset { eat, ..offset },
            ..leads(0x10)
        };
        add(&mut list, spec(1, 0, FilterKind::U32(lead), 0)).unwrap();
        let filters = list.filters();
        for options in [0, 1, 5, 10] {
            let hit = filters.try_on(&udp(&pool, 1, 53, options));
            assert_eq!(hit, class(1), "{options} {eat}");
            let other = filters.try_on(&udp(&pool, 1, 54, options));
            assert_eq!(other, Classified::None, "{options} {eat}");
        }
    }
}

/// Where no filter of a table decides, the one that led there does, and then those behind it.
/// `continue` goes on in the table.
#[test]
fn a_packet_comes_back_from_a_table() {
    let pool = pool(4);
    let mut list = FilterList::default();
    let all = || FilterKind::U32(U32::default());
    let never = U32 {
        keys: vec![key(1, 1, 4, 0)],
        ..U32::default()
    };
    add(&mut list, table(1, 1, 1)).unwrap();
    add(&mut list, table(1, 2, 1)).unwrap();
    let to_two = FilterKind::U32(leads(2));
    add(&mut list, spec(1, 0x0010_0000, to_two, 0)).unwrap();
    let none = FilterKind::U32(never);
    add(&mut list, spec(1, 0x0020_0000, none, 1)).unwrap();
    let to_one = U32 {
        leads: false,
        ..leads(1)
    };
    let own = add(&mut list, spec(1, 0, FilterKind::U32(to_one), 2)).unwrap();
    let packet = udp(&pool, 1, 1, 0);
    assert_eq!(list.filters().try_on(&packet), class(2));
    let on = FilterSpec {
        actions: Control::Continue.into(),
        ..spec(1, 0x0020_0000, all(), 3)
    };
    add(&mut list, on).unwrap();
    assert_eq!(list.filters().try_on(&packet), class(2));
    let in_table = add(&mut list, spec(1, 0x0020_0000, all(), 4)).unwrap();
    assert_eq!(list.filters().try_on(&packet), class(4));
    list.delete(name(1, in_table)).unwrap();
    list.delete(name(1, own)).unwrap();
    assert_eq!(list.filters().try_on(&packet), Classified::None);
}

/// Tables that lead to each other end after eight, and many ways among them after some while.
#[test]
fn rings_of_tables_end() {
    let pool = pool(4);
    let mut list = FilterList::default();
    for number in [1, 2] {
        add(&mut list, table(1, number, 1)).unwrap();
    }
    let ring = |to| FilterKind::U32(leads(to));
    for _ in 0..100 {
        add(&mut list, spec(1, 0x0010_0000, ring(2), 0)).unwrap();
        add(&mut list, spec(1, 0x0020_0000, ring(1), 0)).unwrap();
    }
    add(&mut list, spec(1, 0, ring(1), 0)).unwrap();
    add(&mut list, spec(2, 0, FilterKind::Matchall, 1)).unwrap();
    assert_eq!(list.filters().try_on(&udp(&pool, 1, 1, 0)), class(1));
    // Many ways, none of them deeper than may be.
    let mut wide = FilterList::default();
    for number in 1..=7 {
        add(&mut wide, table(1, number, 1)).unwrap();
    }
    for number in 1..7 {
        for _ in 0..50 {
            add(&mut wide, spec(1, number << 20, ring(number + 1), 0)).unwrap();
        }
    }
    add(&mut wide, spec(1, 0, ring(1), 0)).unwrap();
    add(&mut wide, spec(2, 0, FilterKind::Matchall, 1)).unwrap();
    assert_eq!(wide.filters().try_on(&udp(&pool, 1, 1, 0)), class(1));
    let tried: u64 = wide.shown().map(|(_, stats)| stats.tried).sum();
    assert_eq!(tried, 1 << 16);
}

/// Names, and what is refused, as in the kernel.
#[test]
fn tables_are_named_and_removed_as_in_the_kernel() {
    let mut list = FilterList::default();
    let all = || FilterKind::U32(U32::default());
    assert_eq!(add(&mut list, table(99, 0x43, 256)), Ok(0x0430_0000));
    assert_eq!(add(&mut list, table(99, 0, 2)), Ok(0x8010_0000));
    let lead = FilterKind::U32(leads(0x43));
    // From another priority, which starts in the next table.
    assert_eq!(add(&mut list, spec(98, 0, lead, 0)), Ok(0x8020_0800));
    let again = add(&mut list, table(99, 0x43, 1));
    assert_eq!(again, Err(FilterError::Exists(99)));
    // Another one than 801:.
    assert_eq!(add(&mut list, table(99, 1, 1)), Ok(0x0010_0000));
    list.delete(name(99, 0x0010_0000)).unwrap();
    for (buckets, handle) in [(3, 0x0440_0000), (512, 0x0440_0000), (0, 0x0440_0000)] {
        let odd = spec(99, handle, FilterKind::U32Table { buckets }, 0);
        assert_eq!(add(&mut list, odd), Err(FilterError::Divisor(buckets)));
    }
    for (to, error) in [
        (0x44, FilterError::NoLink(0x0440_0000)),
        (0x800, FilterError::LinkToRoot),
        (0x802, FilterError::LinkToRoot),
    ] {
        let refused = add(&mut list, spec(98, 0, FilterKind::U32(leads(to)), 0));
        assert_eq!(refused, Err(error));
    }
    // A filter belongs to the priority of its table.
    let filter = spec(98, 0x0430_5000, all(), 1);
    let known = list.put(FilterOp::Add, filter).unwrap();
    assert_eq!(known, name(99, 0x0430_5800));
    let beyond = add(&mut list, spec(99, 0x8010_2000, all(), 1));
    assert!(matches!(beyond, Err(FilterError::Handle { .. })));
    assert_eq!(
        list.delete(name(99, 0x8000_0000)),
        Err(FilterError::RootTable)
    );
    assert_eq!(
        list.delete(name(99, 0x0430_0000)),
        Err(FilterError::LinkedTable)
    );
    list.delete(name(99, 0x8010_0000)).unwrap();
    // Without its last filter a priority stays as long as there is another one of the kind.
    list.delete(name(98, 0x8020_0800)).unwrap();
    assert_eq!(list.one_each(0, 1).count(), 2);
    list.delete(name(99, 0x0430_0000)).unwrap();
    assert_eq!(list.iter().count(), 0);
    assert_eq!(list.leading_to(Handle::new(1, 1)), 0);
    list.delete(name(98, 0)).unwrap();
    let last = add(&mut list, spec(99, 0, all(), 1)).unwrap();
    list.delete(name(99, last)).unwrap();
    assert!(list.is_empty());
}

/// `u32` without options, as recipes begin that add hash tables.
#[test]
fn a_priority_may_have_its_table_only() {
    let mut list = FilterList::default();
    let whole = spec(5, 0, FilterKind::U32Root, 0);
    assert_eq!(
        list.put(FilterOp::Change, whole.clone()),
        Err(FilterError::Create)
    );
    assert_eq!(add(&mut list, whole.clone()), Ok(0x8000_0000));
    let shown: Vec<_> = list
        .shown_from(None)
        .map(|(spec, _)| spec.kind.clone())
        .collect();
    assert_eq!(shown, [FilterKind::U32Table { buckets: 1 }]);
    assert_eq!(add(&mut list, table(5, 2, 256)), Ok(0x0020_0000));
    assert_eq!(add(&mut list, whole), Ok(0x8000_0000));
    assert_eq!(list.shown_from(None).count(), 2);
    assert_eq!(
        add(&mut list, spec(6, 0, FilterKind::U32Root, 0)),
        Ok(0x8010_0000)
    );
    list.delete(name(6, 0)).unwrap();
    list.delete(name(5, 0)).unwrap();
    assert_eq!(list.chains().count(), 0);
}

/// A filter that leads on does not look at the link that received; one that decides does, whether
/// itself or when no filter of the table that it leads to has (`u32_classify`).
#[test]
fn only_what_decides_looks_at_the_link_that_received() {
    let pool = pool(1);
    let mut packet = udp(&pool, 1, 53, 0);
    let indev = IndevTable::default().add("a", Some((1, Some(3))));
    let received = |of: U32| {
        FilterKind::U32(U32 {
            indev: Some(indev.clone()),
            ..of
        })
    };
    let by_table = |leads: U32| {
        let never = U32 {
            keys: vec![key(1, 1, 0, 0), key(0, 1, 0, 0)],
            ..U32::default()
        };
        vec![
            table(1, 2, 1),
            spec(1, 0x0020_0801, FilterKind::U32(never), 2),
            spec(1, 0, received(leads), 1),
        ]
    };
    let decides = U32 {
        leads: false,
        ..leads(2)
    };
    let itself = vec![spec(1, 0, received(U32::default()), 1)];
    let mut led = by_table(leads(2));
    led[1].kind = FilterKind::U32(U32::default());
    // Classes of a packet from the link, and from another one.
    for (filters, own, other) in [
        (itself, class(1), Classified::None),
        (by_table(decides), class(1), Classified::None),
        (led, class(2), class(2)),
    ] {
        let mut list = FilterList::default();
        for filter in filters {
            add(&mut list, filter).unwrap();
        }
        let filters = list.filters();
        packet.set_port(3);
        assert_eq!(filters.try_on(&packet), own);
        packet.set_port(4);
        assert_eq!(filters.try_on(&packet), other);
    }
}
