//! Which filter decides, what its action does, and what is counted.

use super::*;
use crate::action::Control;
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};

fn class(minor: u16) -> Classified {
    Classified::Class(Handle::new(1, minor))
}

/// A filter for all packets of a chain and priority.
fn all(chain: u32, prio: u16, action: Control) -> FilterSpec {
    FilterSpec {
        chain,
        prio,
        actions: action.into(),
        ..FilterSpec::new(FilterKind::Matchall, Handle::new(1, prio))
    }
}

fn list(filters: impl IntoIterator<Item = FilterSpec>) -> FilterList {
    let mut list = FilterList::default();
    for filter in filters {
        list.put(FilterOp::Add, filter).unwrap();
    }
    list
}

/// By chain, priority and handle.
fn hits(list: &FilterList) -> Vec<u64> {
    list.shown().map(|(_, stats)| stats.packets).collect()
}

#[test]
fn the_lowest_priority_decides() {
    let pool = pool(2);
    let arp = frame(&pool, 1, 2, 60, 0);
    let ip = FilterSpec {
        protocol: ETH_P_IP,
        ..all(0, 1, Control::Pass)
    };
    let list = list([
        all(0, 9, Control::Pass),
        all(0, 2, Control::Pass),
        ip,
        all(3, 1, Control::Pass),
    ]);
    assert_eq!(list.filters().try_on(&arp), class(2));
    assert_eq!(hits(&list), [0, 1, 0, 0]);
    assert_eq!(Filters::default().try_on(&arp), Classified::None);
}

#[test]
fn actions_pass_drop_continue_and_restart() {
    use Control::{Continue, Drop, Goto, Pass, Reclassify};
    let pool = pool(2);
    let packet = frame(&pool, 1, 2, 60, 0);
    let decide = |filters: Vec<FilterSpec>| list(filters).filters().try_on(&packet);
    let nameless = FilterSpec {
        class: None,
        ..all(0, 1, Pass)
    };
    assert_eq!(decide(vec![nameless]), Classified::Class(Handle::NONE));
    let dropped = Classified::Drop(DropReason::FilterDrop);
    assert_eq!(decide(vec![all(0, 1, Drop), all(0, 2, Pass)]), dropped);
    assert_eq!(decide(vec![all(0, 1, Continue), all(0, 2, Pass)]), class(2));
    assert_eq!(decide(vec![all(0, 1, Continue)]), Classified::None);
    // A chain is left for good.
    let goto = || vec![all(0, 1, Goto(5)), all(0, 2, Pass)];
    assert_eq!(decide(goto()), Classified::None);
    let there = [goto(), vec![all(5, 7, Pass)]].concat();
    assert_eq!(decide(there), class(7));
    // Only what is sent there gets to another chain.
    assert_eq!(decide(vec![all(5, 1, Pass)]), Classified::None);
    // Round and round: it is tried 17 times.
    for filters in [
        vec![all(0, 1, Reclassify)],
        vec![all(0, 1, Goto(0))],
        vec![all(0, 1, Goto(1)), all(1, 1, Goto(0))],
    ] {
        let list = list(filters);
        let looped = Classified::Drop(DropReason::ReclassifyLoop);
        assert_eq!(list.filters().try_on(&packet), looped);
        assert_eq!(hits(&list).iter().sum::<u64>(), 17);
    }
    let straight = |n: u32| {
        let gotos = (0..n).map(|chain| all(chain, 1, Goto(chain + 1)));
        let end = all(n, 2, Pass);
        let list = list(gotos.chain([end]));
        let decided = list.filters().try_on(&packet);
        (decided, hits(&list).iter().sum::<u64>())
    };
    assert_eq!(straight(16), (class(2), 17));
    // However many there are.
    for n in [17, 10_000] {
        let looped = Classified::Drop(DropReason::ReclassifyLoop);
        assert_eq!(straight(n), (looped, 17));
    }
}

/// After `flower` and `matchall`, which look their only match up, the next priority is tried;
/// after the others the next filter (`tcf_exts_exec` in each).
#[test]
fn continue_is_the_kernels_for_each_kind() {
    let pool = pool(2);
    let packet = frame(&pool, 1, 2, 60, 5);
    let decide = |first: FilterKind, second: FilterKind| {
        let filters = [(first, Control::Continue), (second, Control::Pass)];
        let filters = (5..).zip(filters).map(|(handle, (kind, action))| {
            let handle = if kind.name() == "u32" { 0 } else { handle };
            FilterSpec {
                prio: 1,
                handle,
                actions: action.into(),
                ..FilterSpec::new(kind, Handle::new(1, 2))
            }
        });
        let last = all(0, 3, Control::Pass);
        list(filters.chain([last])).filters().try_on(&packet)
    };
    let mark = |mask| Flower {
        mark: Some((0, mask)),
        ..Flower::default()
    };
    assert_eq!(decide(mark(2).into(), mark(8).into()), class(3));
    let basic = || FilterKind::Basic(Vec::new());
    assert_eq!(decide(basic(), basic()), class(2));
    let u32 = || FilterKind::U32(U32::default());
    assert_eq!(decide(u32(), u32()), class(2));
}

/// A swap keeps the counts of the filters that it does not change.
#[test]
fn counts_survive_a_swap() {
    let pool = pool(2);
    let send = |list: &FilterList, mark| {
        let packet: Packet = frame(&pool, 1, 2, 60, mark);
        list.filters().try_on(&packet)
    };
    let fw = |handle, minor| FilterSpec {
        prio: 1,
        handle,
        ..FilterSpec::new(FilterKind::fw(0xff), Handle::new(1, minor))
    };
    let mut list = list([fw(1, 1), fw(2, 2), fw(3, 3)]);
    let old = list.filters();
    for mark in [1, 1, 2, 3, 0x103, 4] {
        send(&list, mark);
    }
    assert_eq!(hits(&list), [2, 1, 2]);
    list.put(FilterOp::Change, fw(2, 9)).unwrap();
    list.put(FilterOp::Add, fw(4, 4)).unwrap();
    list.delete(fw(1, 1).key()).unwrap();
    assert_eq!(hits(&list), [0, 2, 0], "2 is another one now");
    assert_eq!(send(&list, 3), class(3));
    assert_eq!(send(&list, 1), Classified::None);
    assert_eq!(hits(&list), [0, 3, 0]);
    // A queue that still has the old ones is not disturbed.
    let packet = frame(&pool, 1, 2, 60, 1);
    assert_eq!(old.try_on(&packet), class(1));
    // Another instance counts apart.
    let mut other = list.clone();
    other.reset();
    assert_eq!(hits(&other), [0, 0, 0]);
    send(&other, 3);
    assert_eq!((hits(&other), hits(&list)), (vec![0, 1, 0], vec![0, 3, 0]));
}

/// Counters of `tc -s filter show`: frames that were tried and matched, wire packets and bytes,
/// and of `u32` how far frames got.
#[test]
fn what_is_counted_is_the_kernels() {
    let pool = pool(4);
    let word = |value, at| Key {
        value,
        mask: 0xffff_ffff,
        at,
        next: 0,
    };
    let u32 = FilterKind::U32(U32 {
        keys: vec![word(0, 4), word(1, 8)],
        mark: Some((1, 1)),
        ..U32::default()
    });
    let spec = |prio, kind| FilterSpec {
        prio,
        actions: Control::Continue.into(),
        ..FilterSpec::new(kind, Handle::new(1, 1))
    };
    let is_five = Ematch {
        negated: false,
        or: false,
        test: Test::Mark {
            mask: u32::MAX,
            compare: Compare::Eq,
            value: 5,
        },
    };
    let list = list([
        spec(1, u32),
        spec(2, FilterKind::Basic(vec![is_five])),
        spec(3, FilterKind::Matchall),
    ]);
    let filters = list.filters();
    for mark in [4, 5] {
        filters.try_on(&frame(&pool, 1, 2, 60, mark));
    }
    let mut large = frame(&pool, 1, 2, 1014, 5);
    large.set_priority(0);
    filters.try_on(&large);
    let stats: Vec<FilterStats> = list.shown().map(|(_, stats)| stats).collect();
    let of = |tried, matched, packets, bytes, held| FilterStats {
        tried,
        matched,
        packets,
        bytes,
        held,
    };
    assert_eq!(stats[0], of(3, 0, 0, 0, vec![2, 2, 0]));
    assert_eq!(stats[1], of(3, 2, 2, 1074, vec![]));
    assert_eq!(stats[2], of(0, 3, 3, 1134, vec![]));
}
