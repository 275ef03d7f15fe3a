//! Priorities, handles and what may stand beside what, as in the kernel.

use super::*;
use crate::action::Control;

fn filter(kind: impl Into<FilterKind>) -> FilterSpec {
    FilterSpec::new(kind, Handle::new(1, 1))
}

fn port(port: u16) -> Flower {
    Flower {
        dst_port: Some(port..=port),
        ..Flower::default()
    }
}

fn key(chain: u32, prio: u16, handle: u32) -> FilterKey {
    FilterKey {
        chain,
        prio,
        handle,
    }
}

fn keys(list: &FilterList) -> Vec<(u32, u16, u32)> {
    let key = |f: &FilterSpec| (f.chain, f.prio, f.handle);
    list.iter().map(key).collect()
}

/// `tcf_auto_prio`: 49152, then downwards, so the newest is tried first; a given one from 32768 on
/// counts. Each chain has its own.
#[test]
fn priorities_that_are_chosen_are_the_kernels() {
    let mut list = FilterList::default();
    let mut chosen = Vec::new();
    for prio in [0, 0, 5, 0, 40000, 0, 32769, 0] {
        let filter = FilterSpec {
            prio,
            ..filter(FilterKind::Matchall)
        };
        chosen.push(list.put(FilterOp::Add, filter).unwrap().prio);
    }
    let expected = [49152, 49151, 5, 49150, 40000, 39999, 32769, 32768];
    assert_eq!(chosen, expected);
    let mut next = filter(FilterKind::Matchall);
    let none_left = list.put(FilterOp::Add, next.clone());
    assert_eq!(none_left, Err(FilterError::NoPriority));
    next.chain = 7;
    assert_eq!(list.put(FilterOp::Add, next), Ok(key(7, 49152, 1)));
    let mut order = expected.to_vec();
    order.sort_unstable();
    let prios: Vec<u16> = list.iter().map(|f| f.prio).collect();
    assert_eq!(prios, [order, vec![49152]].concat());
}

/// A hash table for each priority, of 2047.
#[test]
fn u32_has_as_many_priorities_as_tables() {
    let mut list = FilterList::default();
    let u32 = |prio| FilterSpec {
        prio,
        ..filter(FilterKind::U32(U32::default()))
    };
    for prio in 1..=2047 {
        let key = list.put(FilterOp::Add, u32(prio)).unwrap();
        assert_eq!(key.handle >> 20, 0x7ff + u32::from(prio));
    }
    let before = list.clone();
    let none_left = list.put(FilterOp::Add, u32(2048));
    assert_eq!(none_left, Err(FilterError::NoTable));
    assert_eq!(list, before);
    // One more in a priority that has a table; a new priority gets the table that is free.
    assert_eq!(
        list.put(FilterOp::Add, u32(2047)).unwrap().handle,
        0xffe0_0801
    );
    list.delete(key(0, 7, 0)).unwrap();
    assert_eq!(
        list.put(FilterOp::Add, u32(2048)).unwrap().handle,
        0x8060_0800
    );
}

/// 0x800 to 0xfff, then 1 to 0x7ff, then no more.
#[test]
fn u32_has_4095_nodes_to_a_table() {
    let mut list = FilterList::default();
    let u32 = || FilterSpec {
        prio: 1,
        ..filter(FilterKind::U32(U32::default()))
    };
    for node in (0x800..=0xfff).chain(1..0x800) {
        let key = list.put(FilterOp::Add, u32()).unwrap();
        assert_eq!(key.handle, 0x8000_0000 | node);
    }
    let none_left = list.put(FilterOp::Add, u32());
    assert!(matches!(none_left, Err(FilterError::Handle { .. })));
    list.delete(key(0, 1, 0x8000_0005)).unwrap();
    assert_eq!(list.put(FilterOp::Add, u32()).unwrap().handle, 0x8000_0005);
}

#[test]
fn handles_that_are_chosen_are_the_kernels() {
    let mut list = FilterList::default();
    let mut add = |chain, prio, handle, kind: FilterKind| {
        let filter = FilterSpec {
            chain,
            prio,
            handle,
            ..filter(kind)
        };
        list.put(FilterOp::Add, filter).map(|key| key.handle)
    };
    let u32 = || FilterKind::U32(U32::default());
    let basic = || FilterKind::Basic(Vec::new());
    // Tables in the order of the priorities' creation, nodes from 800 on.
    assert_eq!(add(0, 5, 0, u32()), Ok(0x8000_0800));
    assert_eq!(add(0, 5, 0, u32()), Ok(0x8000_0801));
    assert_eq!(add(0, 3, 0, u32()), Ok(0x8010_0800));
    assert_eq!(add(4, 3, 0, u32()), Ok(0x8020_0800));
    // A node of one's own, with and without the table.
    assert_eq!(add(0, 5, 0x8000_0010, u32()), Ok(0x8000_0010));
    assert_eq!(add(0, 5, 0x11, u32()), Ok(0x8000_0011));
    assert_eq!(add(0, 5, 0x11, u32()), Err(FilterError::Exists(5)));
    let other = add(0, 5, 0x8010_0010, u32());
    assert_eq!(other, Err(FilterError::Table(0x8010_0010)));
    let error = add(0, 5, 0x8000_1010, u32()).unwrap_err();
    assert!(matches!(error, FilterError::Handle { .. }), "{error}");
    // The others: from 1 on, the lowest that is free.
    assert_eq!(add(0, 7, 0, basic()), Ok(1));
    assert_eq!(add(0, 7, 3, basic()), Ok(3));
    assert_eq!(add(0, 7, 0, basic()), Ok(2));
    assert_eq!(add(0, 7, 0, basic()), Ok(4));
    assert_eq!(add(0, 8, 0, port(1).into()), Ok(1));
    assert_eq!(add(0, 8, 0, port(2).into()), Ok(2));
    assert_eq!(add(0, 9, 0, FilterKind::Matchall), Ok(1));
    assert_eq!(
        add(0, 9, 2, FilterKind::Matchall),
        Err(FilterError::Exists(9))
    );
    // The mark is the handle of fw.
    let fw = || FilterKind::fw(0xff);
    assert_eq!(add(0, 10, 6, fw()), Ok(6));
    assert_eq!(add(0, 10, 6, fw()), Err(FilterError::Exists(10)));
    let other = add(0, 10, 7, FilterKind::fw(0xf));
    let (prio, mask) = (10, 0xff);
    assert_eq!(other, Err(FilterError::Mask { prio, mask }));
    assert!(matches!(
        add(0, 11, 0, fw()),
        Err(FilterError::Handle { .. })
    ));
    // In the order of the handles, where the kind has one.
    let own: Vec<u32> = list.iter().map(|f| f.handle).skip(1).take(4).collect();
    let expected = [0x8000_0010, 0x8000_0011, 0x8000_0800, 0x8000_0801];
    assert_eq!(own, expected);
    // A table's number is not used again at once.
    list.delete(key(4, 0, 0)).unwrap();
    let again = FilterSpec {
        prio: 20,
        ..filter(u32())
    };
    let chosen = list.put(FilterOp::Add, again.clone()).unwrap();
    assert_eq!(chosen.handle, 0x8030_0800);
    for prio in [3, 5, 20] {
        list.delete(key(0, prio, 0)).unwrap();
    }
    let chosen = list.put(FilterOp::Add, again).unwrap();
    assert_eq!(chosen.handle, 0x8000_0800, "all tables are free again");
}

#[test]
fn one_priority_has_one_kind_and_protocol() {
    let mut list = FilterList::default();
    let first = FilterSpec {
        prio: 5,
        protocol: ETH_P_IP,
        ..filter(port(1))
    };
    list.put(FilterOp::Add, first.clone()).unwrap();
    let before = list.clone();
    let mut put = |op, change: &dyn Fn(&mut FilterSpec)| {
        let mut filter = first.clone();
        change(&mut filter);
        let result = list.put(op, filter);
        assert!(result.is_err() && list == before, "{result:?}");
        result.unwrap_err()
    };
    let matchall = put(FilterOp::Add, &|f| f.kind = FilterKind::Matchall);
    let kind = "flower";
    assert_eq!(matchall, FilterError::Kind { prio: 5, kind });
    let v6 = put(FilterOp::Replace, &|f| f.protocol = ETH_P_IPV6);
    assert_eq!(v6, FilterError::Protocol(5));
    // The same match, and the same handle.
    assert_eq!(put(FilterOp::Add, &|_| ()), FilterError::Exists(5));
    let same = put(FilterOp::Replace, &|f| f.handle = 2);
    assert_eq!(same, FilterError::Exists(5));
    let named = put(FilterOp::Add, &|f| {
        f.handle = 1;
        f.kind = port(2).into();
    });
    assert_eq!(named, FilterError::Exists(5));
    // A change needs one of that chain, priority and handle.
    let change: [&dyn Fn(&mut FilterSpec); 4] = [
        &|f| f.handle = 2,
        &|f| (f.handle, f.chain) = (1, 1),
        &|f| (f.handle, f.prio) = (1, 6),
        &|f| (f.handle, f.prio) = (1, 7),
    ];
    for change in change {
        assert_eq!(put(FilterOp::Change, change), FilterError::Create);
    }
    let unnamed = put(FilterOp::Change, &|f| (f.handle, f.prio) = (1, 0));
    assert_eq!(unnamed, FilterError::ZeroPrio);
    let chain = put(FilterOp::Add, &|f| f.chain = 1 << 28);
    assert_eq!(chain, FilterError::Chain(1 << 28));
    let chain = put(FilterOp::Add, &|f| {
        f.actions = Control::Goto(1 << 28).into()
    });
    assert_eq!(chain, FilterError::Chain(1 << 28));
    for at in [-20, -17, 65_533, 65_536] {
        let key = Key {
            value: 0,
            mask: 0,
            at,
            next: 0,
        };
        let error = put(FilterOp::Add, &|f| {
            f.prio = 6;
            f.kind = FilterKind::U32(U32 {
                keys: vec![key],
                ..U32::default()
            });
        });
        assert_eq!(error, FilterError::Offset(at));
    }
}

#[test]
fn replace_change_and_delete() {
    let mut list = FilterList::default();
    let spec = |handle, kind: FilterKind| FilterSpec {
        prio: 5,
        handle,
        ..filter(kind)
    };
    // Replace adds what is not there.
    let new = list.put(FilterOp::Replace, spec(3, port(3).into()));
    assert_eq!(new, Ok(key(0, 5, 3)));
    list.put(FilterOp::Add, spec(0, port(1).into())).unwrap();
    list.put(FilterOp::Change, spec(3, port(4).into())).unwrap();
    assert_eq!(keys(&list), [(0, 5, 3), (0, 5, 1)], "it keeps its place");
    assert_eq!(list.iter().next().unwrap().kind, port(4).into());
    let matchall = FilterSpec {
        chain: 2,
        prio: 6,
        ..filter(FilterKind::Matchall)
    };
    list.put(FilterOp::Add, matchall.clone()).unwrap();
    // The kernel's matchall cannot be replaced (`mall_change`).
    let again = list.put(FilterOp::Replace, matchall);
    assert_eq!(again, Err(FilterError::Exists(6)));
    for missing in [key(0, 6, 1), key(2, 5, 0)] {
        assert_eq!(list.delete(missing), Err(FilterError::NoPrio));
    }
    assert_eq!(list.delete(key(1, 5, 0)), Err(FilterError::NoChain));
    assert_eq!(list.delete(key(0, 0, 1)), Err(FilterError::Flush));
    assert_eq!(list.delete(key(2, 6, 2)), Err(FilterError::Missing));
    assert_eq!(list.delete(key(0, 5, 3)), Ok(()));
    assert_eq!(keys(&list), [(0, 5, 1), (2, 6, 1)]);
    assert_eq!(list.delete(key(0, 5, 0)), Ok(()));
    // A chain that is empty already can be emptied.
    assert_eq!(list.delete(key(0, 0, 0)), Ok(()));
    assert_eq!(list.delete(key(2, 0, 0)), Ok(()));
    assert_eq!(list, FilterList::default());
}

/// Filters that look at the same fields are one group, tried where its first filter is
/// (`fl_classify`).
#[test]
fn flower_tries_one_mask_after_the_other() {
    let mut list = FilterList::default();
    let mut put = |op, handle, flower: Flower| {
        let filter = FilterSpec {
            prio: 1,
            handle,
            ..filter(flower)
        };
        list.put(op, filter).unwrap();
        list.iter().map(|f| f.handle).collect::<Vec<_>>()
    };
    let udp = || Flower {
        ip_proto: Some(17),
        ..Flower::default()
    };
    put(FilterOp::Add, 0, port(1));
    put(FilterOp::Add, 0, udp());
    assert_eq!(put(FilterOp::Add, 0, port(2)), [1, 3, 2]);
    // Of another mask now: behind those.
    let both = Flower {
        ip_proto: Some(17),
        ..port(9)
    };
    assert_eq!(put(FilterOp::Change, 1, both), [3, 2, 1]);
    assert_eq!(put(FilterOp::Change, 3, port(7)), [3, 2, 1]);
    // A range is another mask than a port.
    let range = Flower {
        dst_port: Some(1..=9),
        ..Flower::default()
    };
    assert_eq!(put(FilterOp::Add, 0, range), [3, 2, 1, 4]);
    assert_eq!(put(FilterOp::Add, 0, port(8)), [3, 5, 2, 1, 4]);
}

/// As `tc filter del` and `get` name them. The errors are those of Linux 7.2.
#[test]
fn a_selector_names_protocol_and_kind() {
    let mut list = FilterList::default();
    let spec = FilterSpec {
        prio: 1,
        protocol: ETH_P_IP,
        ..filter(FilterKind::Matchall)
    };
    list.put(FilterOp::Add, spec.clone()).unwrap();
    let which = |prio, handle, protocol, kind| FilterSelector {
        key: key(0, prio, handle),
        protocol,
        kind,
    };
    let (prio, kind) = (1, "matchall");
    for (which, error, errno) in [
        (which(1, 0, ETH_P_IPV6, None), FilterError::Protocol(1), 22),
        (
            which(1, 0, ETH_P_IP, Some("u32")),
            FilterError::Kind { prio, kind },
            22,
        ),
        (which(1, 2, ETH_P_IP, None), FilterError::Missing, 2),
        (which(2, 0, 0, None), FilterError::NoPrio, 2),
    ] {
        assert_eq!(list.get(which).unwrap_err(), error);
        assert_eq!(list.delete(which).unwrap_err(), error);
        assert_eq!(error.errno(), errno, "{error}");
    }
    let unnamed = list.get(which(0, 0, 0, None)).unwrap_err();
    assert_eq!((unnamed.errno(), unnamed), (2, FilterError::ZeroPrio));
    for flush in [which(0, 0, ETH_P_IP, None), which(0, 0, 0, Some(kind))] {
        assert_eq!(list.delete(flush), Err(FilterError::Flush));
    }
    assert_eq!(list.put(FilterOp::Add, spec).unwrap_err().errno(), 17);
    let which = which(1, 1, ETH_P_IP, Some(kind));
    assert_eq!(list.get(which).unwrap().0.handle, 1);
    assert_eq!(list.delete(which), Ok(()));
    assert!(list.is_empty());
}

/// As `tc filter show` of Linux 7.2: chains from the oldest on, `flower` by handle, the newest
/// `basic` first, `fw` by its hash buckets.
#[test]
fn filters_are_shown_as_the_kernel_does() {
    let mut list = FilterList::default();
    let mut add = |chain, prio, handle, kind: FilterKind| {
        let filter = FilterSpec {
            chain,
            prio,
            handle,
            ..filter(kind)
        };
        list.put(FilterOp::Add, filter).unwrap();
    };
    add(7, 1, 0, FilterKind::U32(U32::default()));
    add(3, 1, 0, port(1).into());
    add(3, 1, 9, port(2).into());
    add(3, 1, 4, Flower::default().into());
    add(3, 2, 0, FilterKind::Basic(Vec::new()));
    add(3, 2, 0, FilterKind::Basic(Vec::new()));
    for mark in [5, 300, 260, 4, 1] {
        add(3, 3, mark, FilterKind::fw(u32::MAX));
    }
    let shown = list.shown().map(|(f, _)| (f.chain, f.prio, f.handle));
    let expected = [
        (7, 1, 0x8000_0800),
        (3, 1, 1),
        (3, 1, 4),
        (3, 1, 9),
        (3, 2, 2),
        (3, 2, 1),
        (3, 3, 1),
        (3, 3, 4),
        (3, 3, 260),
        (3, 3, 5),
        (3, 3, 300),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

/// Filters to a class are counted, whatever becomes of them.
#[test]
fn filters_to_a_class_are_counted() {
    let mut list = FilterList::default();
    let to = |prio, handle, minor| FilterSpec {
        prio,
        handle,
        ..FilterSpec::new(port(handle as u16), Handle::new(1, minor))
    };
    let leading = |list: &FilterList| [1, 2].map(|n| list.leading_to(Handle::new(1, n)));
    list.put(FilterOp::Add, to(1, 1, 1)).unwrap();
    list.put(FilterOp::Add, to(1, 2, 1)).unwrap();
    list.put(FilterOp::Add, to(2, 1, 1)).unwrap();
    assert_eq!(leading(&list), [3, 0]);
    list.put(FilterOp::Replace, to(1, 2, 2)).unwrap();
    assert_eq!(leading(&list), [2, 1]);
    list.delete(key(0, 1, 2)).unwrap();
    assert_eq!(leading(&list), [2, 0]);
    list.delete(key(0, 2, 0)).unwrap();
    assert_eq!(leading(&list), [1, 0]);
    list.delete(key(0, 0, 0)).unwrap();
    assert_eq!(leading(&list), [0, 0]);
}

/// As in the kernel (`fl_change`) what takes another's place may match what a third does. The list
/// is what it was when it has been written down and read again.
#[test]
fn filters_that_became_the_same_are_restored() {
    let spec = |handle, to, minor| FilterSpec {
        prio: 5,
        handle,
        ..FilterSpec::new(port(to), Handle::new(1, minor))
    };
    let mut list = FilterList::default();
    list.put(FilterOp::Add, spec(2, 1, 1)).unwrap();
    list.put(FilterOp::Add, spec(1, 2, 2)).unwrap();
    list.put(FilterOp::Replace, spec(1, 1, 2)).unwrap();
    assert_eq!(keys(&list), [(0, 5, 2), (0, 5, 1)]);
    let again = |op| {
        let mut again = FilterList::default();
        for filter in list.iter() {
            again.put(op, filter.clone())?;
        }
        Ok(again)
    };
    assert_eq!(again(FilterOp::Add), Err(FilterError::Exists(5)));
    let mut restored = again(FilterOp::Restore).unwrap();
    assert_eq!(restored, list);
    let taken = restored.put(FilterOp::Restore, spec(2, 9, 1));
    assert_eq!(taken, Err(FilterError::Exists(5)));
}
