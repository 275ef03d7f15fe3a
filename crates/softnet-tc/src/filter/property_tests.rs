//! A list that is changed step by step against one that is made at once, and against filters that
//! are tried one after the other.

use super::entry::Filter;
use super::frame::{Frame, Read};
use super::*;
use crate::action::Control;
use proptest::prelude::*;
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::testing::pool;

fn flower() -> impl Strategy<Value = Flower> {
    let port = || prop::option::of((0..40_u16, prop_oneof![4 => Just(0), 1 => 1..5_u16]));
    let prefix = prop::option::of((0..8_u8, 29..=32_u8));
    let mark = prop::option::of((0..8_u32, prop_oneof![Just(0xff), Just(3), Just(0)]));
    (port(), port(), prefix, mark).prop_map(|(src, dst, prefix, mark)| {
        let range = |(first, more): (u16, u16)| first..=first + more;
        Flower {
            src_port: src.map(range),
            dst_port: dst.map(range),
            dst_ip: prefix.and_then(|(last, len)| Prefix::new([10, 0, 0, last].into(), len)),
            mark,
            ..Flower::default()
        }
    })
}

/// Flowers mostly of one mask, so that tables grow.
fn one_mask() -> impl Strategy<Value = Flower> {
    (0..200_u16).prop_map(|port| Flower {
        dst_port: Some(port..=port),
        ..Flower::default()
    })
}

fn kind() -> impl Strategy<Value = FilterKind> {
    prop_oneof![
        2 => flower().prop_map(FilterKind::Flower),
        6 => one_mask().prop_map(FilterKind::Flower),
        1 => Just(FilterKind::fw(7)),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Put(FilterOp, FilterSpec),
    Delete(FilterKey),
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        6 => Just(FilterOp::Add),
        1 => Just(FilterOp::Replace),
        1 => Just(FilterOp::Change),
    ];
    let handle = prop_oneof![5 => Just(0), 3 => 1..60_u32];
    let action = prop_oneof![
        4 => Just(Control::Pass),
        1 => Just(Control::Continue),
        1 => Just(Control::Drop),
    ];
    let put = (op, kind(), handle, action).prop_map(|(op, kind, handle, action)| {
        let prio = if kind.name() == "fw" { 2 } else { 1 };
        let handle = if prio == 2 { handle % 8 } else { handle };
        let filter = FilterSpec {
            prio,
            handle,
            actions: action.into(),
            ..FilterSpec::new(kind, Handle::new(1, 1))
        };
        Step::Put(op, filter)
    });
    let delete = (1..=2_u16, 1..60_u32).prop_map(|(prio, handle)| {
        Step::Delete(FilterKey {
            chain: 0,
            prio,
            handle,
        })
    });
    prop_oneof![5 => put, 2 => delete]
}

/// A UDP packet from a port to a port and to 10.0.0.N.
fn udp(pool: &Pool, ports: (u16, u16), to: u8, mark: u32) -> Packet {
    let mut packet = pool.alloc().unwrap();
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 99, 10, 0, 0, to,
    ]);
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    assert!(packet.append(&bytes));
    packet.set_mark(mark);
    packet
}

/// The way on behind the filter's only action.
fn control(spec: &FilterSpec) -> Control {
    spec.actions.as_slice()[0].spec().control
}

/// Verdict of filters, tried one after the other, on a packet; and the one that decides.
fn linear(list: &FilterList, packet: &Packet) -> (Classified, Option<FilterKey>) {
    let read = Read::new(false);
    let frame = Frame::new(packet, &read);
    let mut skip = 0;
    for spec in list.iter() {
        if spec.prio == skip || Filter::new(spec.clone(), 0).tries(&frame) != Some(true) {
            continue;
        }
        let decided = match control(spec) {
            Control::Drop => Classified::Drop(DropReason::FilterDrop),
            Control::Continue => {
                skip = spec.prio;
                continue;
            }
            _ => Classified::Class(Handle::new(1, 1)),
        };
        return (decided, Some(spec.key()));
    }
    (Classified::None, None)
}

proptest! {
    #[test]
    fn a_list_made_step_by_step_is_the_one_made_at_once(
        steps in prop::collection::vec(step(), 1..400),
        packets in prop::collection::vec(((0..45_u16, 0..200_u16), 0..8_u8, 0..8_u32), 20),
    ) {
        let pool = pool(4);
        let mut list = FilterList::default();
        for step in &steps {
            let before = list.clone();
            let failed = match step {
                Step::Put(op, filter) => list.put(*op, filter.clone()).is_err(),
                Step::Delete(which) => list.delete(*which).is_err(),
            };
            prop_assert!(!failed || list == before);
        }
        let mut at_once = list.clone();
        at_once.reset();
        prop_assert_eq!(&at_once, &list);
        let (filters, others) = (list.filters(), at_once.filters());
        for (ports, to, mark) in packets {
            let packet = udp(&pool, ports, to, mark);
            let count = |list: &FilterList, key: FilterKey| list.get(key).unwrap().1.packets;
            let (decided, by) = linear(&list, &packet);
            let before = by.map(|key| count(&list, key));
            prop_assert_eq!(filters.try_on(&packet), decided);
            prop_assert_eq!(others.try_on(&packet), decided);
            let after = by.map(|key| count(&list, key));
            prop_assert_eq!(after, before.map(|n| n + 1));
        }
        let mut handles: Vec<u32> = list.iter().filter(|f| f.prio == 1).map(|f| f.handle).collect();
        handles.sort_unstable();
        let free = (1..).find(|handle| handles.binary_search(handle).is_err()).unwrap();
        let more = FilterSpec {
            prio: 1,
            ..FilterSpec::new(Flower { ip_proto: Some(99), ..Flower::default() }, Handle::NONE)
        };
        prop_assert_eq!(list.put(FilterOp::Add, more).unwrap().handle, free);
    }
}
