//! Entries of forwarding databases.

use super::*;
use crate::fdb::{RTM_DELNEIGH, RTM_NEWNEIGH};
use crate::nl::{NLM_F_EXCL, NLM_F_REPLACE};

const SELF: u8 = 2;
const MASTER: u8 = 4;
const STICKY: u8 = 0x40;
const REACHABLE: u16 = 2;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// `bridge fdb add`, `append`, `replace`, `del`, `get`, `show`.
#[test]
fn entries_come_change_and_go() {
    let mut bench = Bench::new();
    let add = NLM_F_CREATE | NLM_F_EXCL;
    let at = |index, state| entry(index, state, MASTER);
    bench.fdb(RTM_NEWNEIGH, add, at(PORT, NOARP), None).unwrap();
    // Of no VLAN, and of the default one.
    assert_eq!(bench.told, [(3, RTM_NEWNEIGH); 2]);
    let both = [(2, NOARP, 0), (2, NOARP, 1)];
    assert_eq!(bench.entries(entry(0, 0, 0)), both);
    let again = bench.fdb(RTM_NEWNEIGH, add, at(OTHER, NOARP), None);
    assert_eq!(refused(again), Errno::EEXIST);
    let replace = NLM_F_CREATE | NLM_F_REPLACE;
    let moved = bench.fdb(RTM_NEWNEIGH, replace, at(OTHER, PERMANENT), Some(1));
    moved.unwrap();
    let moved = [(2, NOARP, 0), (3, PERMANENT, 1)];
    assert_eq!(bench.entries(entry(0, 0, 0)), moved);
    assert_eq!(bench.entries(entry(OTHER, 0, 0)), moved[1..]);
    let get = |header: NdMsg| {
        move |bench: &mut Bench| {
            bench.ask(RTM_GETNEIGH, 0, &header, |message| {
                message.put_bytes(2, &STATION);
                message.put_u16(5, 1);
            })
        }
    };
    let found = get(entry(PORT, 0, MASTER))(&mut bench).unwrap();
    let found = Request::read(&found).unwrap().header::<NdMsg>().unwrap();
    assert_eq!((found.ifindex, found.state), (3, PERMANENT));
    assert_eq!(refused(get(entry(ALONE, 0, 0))(&mut bench)), Errno::EINVAL);
    let other = bench.fdb(RTM_DELNEIGH, 0, at(PORT, 0), Some(1));
    assert_eq!(refused(other), Errno::ENOENT);
    bench.fdb(RTM_DELNEIGH, 0, at(OTHER, 0), None).unwrap();
    assert_eq!(bench.told, [(3, RTM_DELNEIGH)]);
    assert_eq!(bench.entries(entry(0, 0, 0)), moved[..1]);
    for (header, vlan, errno) in [
        (entry(PORT, NOARP, SELF), None, Errno::EOPNOTSUPP),
        (entry(BRIDGE, PERMANENT, SELF), None, Errno::EOPNOTSUPP),
        (entry(ALONE, NOARP, MASTER), None, Errno::EOPNOTSUPP),
        (entry(PORT, 0, MASTER), None, Errno::EINVAL),
        (entry(PORT, PERMANENT, MASTER | STICKY), None, Errno::EINVAL),
        (entry(PORT, NOARP, MASTER), Some(77), Errno::EINVAL),
        (entry(PORT, NOARP, MASTER), Some(0), Errno::EINVAL),
        (entry(PORT, NOARP, MASTER | 0x10), None, Errno::EOPNOTSUPP),
        (entry(99, NOARP, MASTER), None, Errno::ENODEV),
        (entry(0, NOARP, MASTER), None, Errno::EINVAL),
    ] {
        let added = bench.fdb(RTM_NEWNEIGH, replace, header, vlan);
        assert_eq!(refused(added), errno, "{header:?}");
    }
    // DST, PORT, VNI, IFINDEX, NH_ID: a tunnel's.
    for tunnel in [1, 6, 7, 8, 13] {
        let added = bench.ask(RTM_NEWNEIGH, add, &at(PORT, NOARP), |message| {
            message.put_bytes(2, &STATION);
            message.put_u32(tunnel, 1);
        });
        assert_eq!(refused(added), Errno::EOPNOTSUPP, "{tunnel}");
    }
    // Without NLM_F_CREATE, only what is there.
    let change = bench.fdb(RTM_NEWNEIGH, NLM_F_REPLACE, at(PORT, REACHABLE), Some(1));
    assert_eq!(refused(change), Errno::ENOENT);
}

/// `bridge fdb flush` with what it can select.
#[test]
fn flush_selects_entries_by_their_attributes() {
    let fill = |bench: &mut Bench| {
        let states = [
            (PORT, NOARP),
            (PORT, PERMANENT),
            (OTHER, NOARP),
            (OTHER, REACHABLE),
        ];
        for (n, (index, state)) in (0_u8..).zip(states) {
            let header = entry(index, state, MASTER);
            let added = bench.ask(RTM_NEWNEIGH, NLM_F_CREATE, &header, |message| {
                message.put_bytes(2, &[2, 0, 0, 0, 1, n]);
                message.put_u16(5, 1);
            });
            added.unwrap();
        }
    };
    type Body = fn(&mut Message<'_>);
    type Left = &'static [(i32, u16, u16)];
    let cases: [(NdMsg, Body, Left); 5] = [
        (entry(BRIDGE, 0, SELF), |_| {}, &[]),
        (
            entry(BRIDGE, 0, SELF),
            |m| m.put_u32(8, OTHER),
            &[(2, NOARP, 1), (2, PERMANENT, 1)],
        ),
        (
            entry(PORT, 0, MASTER),
            |_| {},
            &[(3, REACHABLE, 1), (3, NOARP, 1)],
        ),
        (
            entry(BRIDGE, 0, SELF),
            |m| m.put_u16(16, NOARP | PERMANENT),
            &[(2, NOARP, 1), (2, PERMANENT, 1), (3, NOARP, 1)],
        ),
        (
            entry(BRIDGE, 0, SELF),
            |m| m.put_u16(5, 2),
            &[
                (2, NOARP, 1),
                (2, PERMANENT, 1),
                (3, REACHABLE, 1),
                (3, NOARP, 1),
            ],
        ),
    ];
    for (header, body, left) in cases {
        let mut bench = Bench::new();
        fill(&mut bench);
        bench.ask(RTM_DELNEIGH, NLM_F_BULK, &header, body).unwrap();
        let mut left = left.to_vec();
        left.sort_unstable();
        assert_eq!(bench.entries(entry(0, 0, 0)), left);
        assert_eq!(bench.told.len(), 4 - left.len());
    }
    let mut bench = Bench::new();
    for (header, errno) in [
        (entry(PORT, 0, SELF), Errno::EOPNOTSUPP),
        (entry(BRIDGE, 2, SELF), Errno::EINVAL),
        (entry(BRIDGE, 0, SELF | 8), Errno::EINVAL),
    ] {
        let flushed = bench.ask(RTM_DELNEIGH, NLM_F_BULK, &header, |_| {});
        assert_eq!(refused(flushed), errno);
    }
}

/// A dump of more entries than a datagram holds has each of them once.
#[test]
fn a_dump_in_parts_has_each_entry_once() {
    let mut bench = Bench::new();
    let mut known = Vec::new();
    for n in 0..1500 {
        let [_, _, a, b] = u32::to_be_bytes(n);
        let address = [2, 0, 0, 0, a, b];
        let header = entry(PORT, NOARP, MASTER);
        let added = bench.ask(RTM_NEWNEIGH, NLM_F_CREATE, &header, |message| {
            message.put_bytes(2, &address);
            message.put_u16(5, 1);
        });
        match added {
            Ok(_) => known.push(address),
            // By the hash, which differs each time, a few places may be taken by static entries.
            Err(error) => assert_eq!(error.errno, Errno::ENOSPC),
        }
    }
    assert!(known.len() > 1400);
    let dump = bench.dump(RTM_GETNEIGH, &entry(0, 0, 0), |_| {});
    let (messages, parts) = dump.unwrap();
    assert!(parts > 1);
    let address = |message: &Vec<u8>| {
        let message = Request::read(message).unwrap();
        let mut attrs = message.attr_iter::<NdMsg>().unwrap();
        let address = attrs.find(|attr| attr.kind() == 2).unwrap();
        address.mac().unwrap()
    };
    let mut addresses: Vec<_> = messages.iter().map(address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, known);
}
