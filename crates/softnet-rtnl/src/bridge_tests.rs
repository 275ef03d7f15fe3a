//! Requests about bridges, their ports, VLANs and forwarding databases, on an engine with devices
//! in memory.

use proptest::prelude::*;
use softnet::wire::EthernetAddress;
use softnet_engine::forward::{BridgePortOptions, FdbState, VlanFlags};
use softnet_engine::testing::FedDevices;
use softnet_engine::{FdbSpec, Settings};
use zerocopy::{Immutable, IntoBytes};

use crate::Rtnl;
use crate::fdb::{RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use crate::link::vlan::{RTM_GETVLAN, RTM_NEWVLAN};
use crate::link::{RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK};
use crate::nl::headers::{BrVlanMsg, IfInfoMsg, NdMsg};
use crate::nl::{
    Client, Errno, Error, Message, NLA_F_NESTED, NLM_F_BULK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL,
    NLM_F_REPLACE, Request, Requests,
};
use crate::server::{Clients, Peer};
use crate::testing::{self, Shared, message, port};

const CLIENT: Client = Client {
    strict: true,
    ..testing::CLIENT
};
const AF_BRIDGE: u8 = libc::AF_BRIDGE as u8;
const BRIDGE: u32 = 1;
const PORT: u32 = 2;
const OTHER: u32 = 3;
/// A port of no bridge.
const ALONE: u32 = 4;
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Links as they are shown, entries, and VLANs of each link.
type State = (Vec<Vec<u8>>, Vec<(i32, u16, u16)>, Vec<Vec<(u16, u16)>>);

struct Bench {
    rtnl: Rtnl<FedDevices>,
    control: Shared,
    /// Types and payloads of what was told to those who watch.
    told: Vec<(u32, u16)>,
}

impl Bench {
    /// A bridge with two ports, and a port beside it.
    fn new() -> Bench {
        let (rtnl, control) = testing::rtnl(|control| {
            control.add_bridge(Settings::new("br0")).unwrap();
            for (name, master) in [("a", Some("br0")), ("b", Some("br0")), ("c", None)] {
                control.add_port(port(name, "tun", 1, master)).unwrap();
            }
        });
        Bench {
            rtnl,
            control,
            told: Vec::new(),
        }
    }

    /// Sends a request, and returns the messages of the answer.
    fn ask<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        kind: u16,
        flags: u16,
        header: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) -> Result<Vec<u8>, Error> {
        let message = message(kind, flags, header, body);
        let (result, replies) = testing::ask(&mut self.rtnl, &CLIENT, &message);
        self.told = replies
            .events()
            .iter()
            .map(|event| {
                let message = Request::read(event.message.as_bytes()).unwrap();
                (event.group, message.kind)
            })
            .collect();
        result.map(|()| replies.messages().as_bytes().to_vec())
    }

    /// Dumps, and returns all messages and the number of parts.
    fn dump<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        kind: u16,
        header: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) -> Result<(Vec<Vec<u8>>, usize), Error> {
        let message = message(kind, NLM_F_DUMP, header, body);
        let parts = testing::dump(&mut self.rtnl, &CLIENT, &message)?;
        let messages = parts.iter().flat_map(|part| Requests::new(part.as_bytes()));
        let all = messages.map(|message| message.message().to_vec());
        Ok((all.collect(), parts.len()))
    }

    fn fdb(
        &mut self,
        kind: u16,
        flags: u16,
        entry: NdMsg,
        vlan: Option<u16>,
    ) -> Result<(), Error> {
        let answer = self.ask(kind, flags, &entry, |message| {
            message.put_bytes(2, &STATION);
            if let Some(vlan) = vlan {
                message.put_u16(5, vlan);
            }
        });
        answer.map(drop)
    }

    /// Port, state and VLAN of all entries.
    fn entries(&mut self, header: NdMsg) -> Vec<(i32, u16, u16)> {
        let (messages, _) = self.dump(RTM_GETNEIGH, &header, |_| {}).unwrap();
        let entry = |message: &Vec<u8>| {
            let message = Request::read(message).unwrap();
            let header: NdMsg = message.header().unwrap();
            let mut attrs = message.attr_iter::<NdMsg>().unwrap();
            let vlan = attrs.find(|attr| attr.kind() == 5);
            let vlan = vlan.map_or(0, |vlan| vlan.u16().unwrap());
            (header.ifindex, header.state, vlan)
        };
        let mut entries: Vec<_> = messages.iter().map(entry).collect();
        entries.sort_unstable();
        entries
    }

    fn state(&mut self) -> State {
        let (links, _) = self
            .dump(RTM_GETLINK, &IfInfoMsg::default(), |_| {})
            .unwrap();
        let vlans = (1..=ALONE).map(|index| self.vlans(index, 2)).collect();
        (links, self.entries(NdMsg::default()), vlans)
    }

    /// Flags and numbers of a link's VLANs, with ranges.
    fn vlans(&mut self, index: u32, mask: u32) -> Vec<(u16, u16)> {
        let header = of_bridge(0);
        let body = |message: &mut Message<'_>| message.put_u32(29, mask);
        let (messages, _) = self.dump(RTM_GETLINK, &header, body).unwrap();
        for message in &messages {
            let message = Request::read(message).unwrap();
            if message.header::<IfInfoMsg>().unwrap().index != index.cast_signed() {
                continue;
            }
            let mut attrs = message.attr_iter::<IfInfoMsg>().unwrap();
            let spec = attrs.find(|attr| attr.kind() == 26).unwrap();
            let infos = spec.children();
            return infos
                .map(|info| info.fixed::<[u16; 2]>().unwrap().into())
                .collect();
        }
        Vec::new()
    }
}

fn of_bridge(index: u32) -> IfInfoMsg {
    IfInfoMsg {
        family: AF_BRIDGE,
        index: index.cast_signed(),
        ..IfInfoMsg::default()
    }
}

fn entry(index: u32, state: u16, flags: u8) -> NdMsg {
    NdMsg {
        family: AF_BRIDGE,
        ifindex: index.cast_signed(),
        state,
        flags,
        ..NdMsg::default()
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno
}

const SELF: u8 = 2;
const MASTER: u8 = 4;
const STICKY: u8 = 0x40;
const REACHABLE: u16 = 2;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// `bridge link set`, as `IFLA_PROTINFO` and as `IFLA_INFO_SLAVE_DATA`.
#[test]
fn options_of_ports_are_set_and_shown() {
    let mut bench = Bench::new();
    let options = |bench: &Bench, index| {
        let control = bench.control.lock().unwrap();
        control.bridge_port(index).unwrap().options
    };
    bench
        .ask(RTM_SETLINK, 0, &of_bridge(PORT), |message| {
            message.nest(12 | NLA_F_NESTED, |message| {
                message.put_u8(8, 0);
                message.put_u8(33, 1);
            });
        })
        .unwrap();
    assert_eq!(bench.told, [(1, RTM_NEWLINK)]);
    assert!(options(&bench, PORT).isolated && !options(&bench, PORT).learning);
    let slave = |index, attr: u16, value: u8| {
        let header = IfInfoMsg {
            family: 0,
            ..of_bridge(index)
        };
        let body = move |message: &mut Message<'_>| {
            message.nest(18, |message| {
                message.put_str(1, "bridge_slave");
                message.nest(5, |message| message.put_u8(attr, value));
            });
        };
        (header, body)
    };
    let (header, body) = slave(PORT, 9, 0);
    bench.ask(RTM_NEWLINK, 0, &header, body).unwrap();
    assert!(options(&bench, PORT).isolated && !options(&bench, PORT).flood);
    let (header, body) = slave(PORT, 39, 1);
    bench.ask(RTM_NEWLINK, 0, &header, body).unwrap();
    assert!(options(&bench, PORT).locked && !options(&bench, PORT).flood);
    // GUARD: as it is, and not.
    let (header, body) = slave(PORT, 5, 0);
    bench.ask(RTM_NEWLINK, 0, &header, body).unwrap();
    let (header, body) = slave(PORT, 5, 1);
    assert_eq!(
        refused(bench.ask(RTM_NEWLINK, 0, &header, body)),
        Errno::EOPNOTSUPP
    );
    let (header, body) = slave(ALONE, 9, 0);
    assert_eq!(
        refused(bench.ask(RTM_NEWLINK, 0, &header, body)),
        Errno::EOPNOTSUPP
    );
    // NEIGH_SUPPRESS.
    let (header, body) = slave(PORT, 32, 0);
    bench.ask(RTM_NEWLINK, 0, &header, body).unwrap();
    let (header, body) = slave(PORT, 32, 1);
    let error = bench.ask(RTM_NEWLINK, 0, &header, body).unwrap_err();
    let text = error.text.as_deref().unwrap();
    assert!(text.contains("mcast_querier"), "{text}");
    let (shown, _) = bench.dump(RTM_GETLINK, &of_bridge(0), |_| {}).unwrap();
    let shown = Request::read(&shown[0]).unwrap();
    let mut attrs = shown.attr_iter::<IfInfoMsg>().unwrap();
    let protinfo = attrs.find(|attr| attr.kind() == 12).unwrap();
    assert!(protinfo.is_nested());
    for (attr, wanted) in [(1, 3), (4, 0), (8, 0), (9, 0), (27, 1), (33, 1), (39, 1)] {
        let value = protinfo.children().find(|child| child.kind() == attr);
        assert_eq!(value.unwrap().u8().unwrap(), wanted, "{attr}");
    }
}

/// `ip link set … type bridge`: all of it or nothing.
#[test]
fn options_of_bridges_are_set() {
    let mut bench = Bench::new();
    let header = IfInfoMsg {
        family: 0,
        ..of_bridge(BRIDGE)
    };
    let set = |bench: &mut Bench, body: &dyn Fn(&mut Message<'_>)| {
        let answer = bench.ask(RTM_NEWLINK, 0, &header, |message| {
            message.nest(18, |message| {
                message.put_str(1, "bridge");
                message.nest(2, |message| body(message));
            });
        });
        let control = bench.control.lock().unwrap();
        let options = control.bridge(BRIDGE).unwrap().options;
        (
            answer.map(drop).map_err(|error| error.errno),
            options.ageing_time.as_secs(),
            options.vlan_filtering,
            options.default_pvid,
        )
    };
    let all = |message: &mut Message<'_>| {
        message.put_u32(4, 1000);
        message.put_u8(7, 1);
        message.put_u16(39, 0);
        // No spanning tree, as it is.
        message.put_u32(5, 0);
    };
    assert_eq!(set(&mut bench, &all), (Ok(()), 10, true, None));
    let spanning = |message: &mut Message<'_>| {
        message.put_u32(4, 500);
        message.put_u32(5, 1);
    };
    let refused = (Err(Errno::EOPNOTSUPP), 10, true, None);
    assert_eq!(set(&mut bench, &spanning), refused);
    let pvid = |message: &mut Message<'_>| {
        message.put_u32(4, 500);
        message.put_u16(39, 4095);
    };
    let refused = (Err(Errno::EINVAL), 10, true, None);
    assert_eq!(set(&mut bench, &pvid), refused);
    let learn = |message: &mut Message<'_>| message.put(46, &[1_u32, 1]);
    let refused = (Err(Errno::EOPNOTSUPP), 10, true, None);
    assert_eq!(set(&mut bench, &learn), refused);
    let size = |size| move |message: &mut Message<'_>| message.put_u32(49, size);
    assert_eq!(set(&mut bench, &size(100_000)), (Ok(()), 10, true, None));
    assert_eq!(
        set(&mut bench, &size(0)),
        (Err(Errno::EINVAL), 10, true, None)
    );
    let options = bench
        .control
        .lock()
        .unwrap()
        .bridge(BRIDGE)
        .unwrap()
        .options;
    assert_eq!(options.fdb_max_learned, 100_000);
}

/// `bridge vlan add`, `del` and `show`, each and as ranges.
#[test]
fn vlans_come_and_go() {
    let mut bench = Bench::new();
    let change = |bench: &mut Bench, kind, index, flags: u16, infos: &[[u16; 2]]| {
        let answer = bench.ask(kind, 0, &of_bridge(index), |message| {
            message.nest(26, |message| {
                if flags != 0 {
                    message.put_u16(0, flags);
                }
                infos.iter().for_each(|info| message.put(2, info));
            });
        });
        answer.map(drop)
    };
    // Untagged from 10 to 12; the pvid 20; the bridge itself 20.
    change(&mut bench, RTM_SETLINK, PORT, 0, &[[12, 10], [20, 12]]).unwrap();
    assert_eq!(bench.told, [(1, RTM_NEWLINK)]);
    change(&mut bench, RTM_SETLINK, PORT, 1, &[[6, 20]]).unwrap();
    change(&mut bench, RTM_SETLINK, BRIDGE, 2, &[[0, 20]]).unwrap();
    let each = [(4, 1), (4, 10), (4, 11), (4, 12), (6, 20)];
    assert_eq!(bench.vlans(PORT, 2), each);
    let ranges = [(4, 1), (12, 10), (20, 12), (6, 20)];
    assert_eq!(bench.vlans(PORT, 4), ranges);
    assert_eq!(bench.vlans(BRIDGE, 2), [(6, 1), (0, 20)]);
    change(&mut bench, RTM_DELLINK, PORT, 0, &[[0, 11], [0, 99]]).unwrap();
    assert_eq!(bench.vlans(PORT, 4), [(4, 1), (4, 10), (4, 12), (6, 20)]);
    for (bad, text) in [
        (&[[0, 0]][..], "bridge: Vlan id is invalid"),
        (&[[0, 4095]], "bridge: Vlan id is invalid"),
        (&[[10, 30]], "bridge: Pvid isn't allowed in a range"),
        (
            &[[8, 30], [8, 31]],
            "bridge: Found a new vlan range start while processing one",
        ),
        (
            &[[8, 30], [0, 31]],
            "bridge: Vlan range end flag is missing",
        ),
        (
            &[[0, 40], [8, 30], [16, 30]],
            "bridge: End vlan id is less than or equal to start vlan id",
        ),
    ] {
        let error = change(&mut bench, RTM_SETLINK, PORT, 0, bad).unwrap_err();
        assert_eq!(
            (error.errno, error.text.as_deref()),
            (Errno::EINVAL, Some(text))
        );
    }
    // Nothing of what was refused.
    assert_eq!(bench.vlans(PORT, 4).len(), 4);
    for (index, flags) in [(ALONE, 0), (PORT, 2), (BRIDGE, 0)] {
        let changed = change(&mut bench, RTM_SETLINK, index, flags, &[[0, 5]]);
        assert_eq!(refused(changed), Errno::EOPNOTSUPP);
    }
    let changed = change(&mut bench, RTM_SETLINK, 99, 0, &[[0, 5]]);
    assert_eq!(refused(changed), Errno::ENODEV);
}

/// `bridge -d vlan show`.
#[test]
fn vlans_are_dumped_with_their_state() {
    let mut bench = Bench::new();
    let added = bench
        .ask(RTM_SETLINK, 0, &of_bridge(PORT), |message| {
            message.nest(26, |message| {
                message.put(2, &[8_u16, 100]);
                message.put(2, &[16_u16, 200]);
            });
        })
        .map(drop);
    added.unwrap();
    let header = |ifindex| BrVlanMsg {
        family: AF_BRIDGE,
        ifindex,
        ..BrVlanMsg::default()
    };
    let (all, _) = bench.dump(RTM_GETVLAN, &header(0), |_| {}).unwrap();
    assert_eq!(all.len(), 3);
    let (of_port, _) = bench.dump(RTM_GETVLAN, &header(PORT), |_| {}).unwrap();
    let message = Request::read(&of_port[0]).unwrap();
    assert_eq!(message.kind, RTM_NEWVLAN);
    let attrs = message.attr_iter::<BrVlanMsg>().unwrap();
    let entries: Vec<_> = attrs
        .map(|entry| {
            let find = |kind| entry.children().find(|attr| attr.kind() == kind);
            let info: [u16; 2] = find(1).unwrap().fixed().unwrap();
            let end = find(2).map(|end| end.u16().unwrap());
            (info, end, find(3).unwrap().u8().unwrap())
        })
        .collect();
    assert_eq!(entries, [([6, 1], None, 3), ([0, 100], Some(200), 3)]);
    let alone = bench.dump(RTM_GETVLAN, &header(ALONE), |_| {});
    assert_eq!(refused(alone), Errno::EINVAL);
    let global = bench.dump(RTM_GETVLAN, &header(0), |m| m.put_u32(1, 2));
    assert_eq!(refused(global), Errno::EOPNOTSUPP);
}

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

/// A request that moves a port and is refused leaves it in its bridge, with all that this knows of
/// it; one that is carried out has the new bridge's options from the first frame on.
#[test]
fn a_refused_move_keeps_options_vlans_and_entries() {
    const ISOLATED: u16 = 33;
    const GUARD: u16 = 5;
    let mut bench = Bench::new();
    let other = {
        let control = bench.control.lock().unwrap();
        let isolated = BridgePortOptions {
            isolated: true,
            ..BridgePortOptions::default()
        };
        control.set_bridge_port(PORT, isolated).unwrap();
        control
            .add_vlans(PORT, 10..=20, VlanFlags::default())
            .unwrap();
        let spec = FdbSpec {
            address: EthernetAddress(STATION),
            vlan: Some(10),
            state: FdbState::Static,
            sticky: false,
        };
        control.add_fdb(PORT, spec, false).unwrap();
        control.add_bridge(Settings::new("br1")).unwrap()
    };
    let state = |bench: &Bench| {
        let control = bench.control.lock().unwrap();
        let member = control.bridge_port(PORT).unwrap();
        let station = EthernetAddress(STATION);
        (
            control.link(PORT).unwrap().master,
            member.options,
            member.vlans.iter().collect::<Vec<_>>(),
            control
                .fdb_entry(BRIDGE, station, Some(10))
                .unwrap()
                .is_some(),
        )
    };
    let move_to = |bench: &mut Bench, master: u32, option: u16| {
        let header = IfInfoMsg {
            index: PORT as i32,
            ..IfInfoMsg::default()
        };
        bench.ask(RTM_SETLINK, 0, &header, |message| {
            message.put_u32(10, master);
            message.nest(18, |message| {
                message.put_str(4, "bridge");
                message.nest(5, |message| message.put_u8(option, 1));
            });
        })
    };
    let before = state(&bench);
    assert_eq!((before.2.len(), before.3), (12, true));
    for (master, option, errno) in [
        (other, GUARD, Errno::EOPNOTSUPP),
        (0, ISOLATED, Errno::EOPNOTSUPP),
        (OTHER, ISOLATED, Errno::EOPNOTSUPP),
        (99, ISOLATED, Errno::ENODEV),
    ] {
        assert_eq!(refused(move_to(&mut bench, master, option)), errno);
        assert_eq!(state(&bench), before);
    }
    move_to(&mut bench, other, ISOLATED).unwrap();
    let (master, options, vlans, _) = state(&bench);
    assert_eq!(
        (master, options.isolated, vlans.len()),
        (Some(other), true, 1)
    );
}

/// A bridge that goes tells of the ports that it leaves.
#[test]
fn ports_that_leave_are_told_of() {
    let mut bench = Bench::new();
    let header = IfInfoMsg {
        family: 0,
        ..of_bridge(BRIDGE)
    };
    bench.ask(RTM_DELLINK, 0, &header, |_| {}).unwrap();
    let gone = bench.told.iter().filter(|told| told.1 == RTM_DELLINK);
    assert_eq!(gone.count(), 3);
}

/// Addresses and routes, which a host has and Softnet does not.
#[test]
fn there_are_no_addresses_routes_and_neighbours() {
    let mut bench = Bench::new();
    for kind in [22, 26, 30] {
        let (none, _) = bench.dump(kind, &IfInfoMsg::default(), |_| {}).unwrap();
        assert!(none.is_empty());
    }
    for kind in [20, 21, 24, 25, 28, 29] {
        let error = bench
            .ask(kind, 0, &IfInfoMsg::default(), |_| {})
            .unwrap_err();
        assert_eq!(error.errno, Errno::EOPNOTSUPP);
        assert!(error.text.is_some());
    }
}

/// Errnos of refused requests.
const REFUSALS: &[Errno] = &[
    Errno::EADDRNOTAVAIL,
    Errno::EBUSY,
    Errno::EEXIST,
    Errno::EINVAL,
    Errno::ELOOP,
    Errno::ENETUNREACH,
    Errno::ENODEV,
    Errno::ENOENT,
    Errno::ENOSPC,
    Errno::EOPNOTSUPP,
    Errno::ERANGE,
];

/// Values that mean something somewhere, so that a random request gets far.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..6,
        Just(7),
        Just(0x40),
        Just(0x80),
        Just(4094),
        any::<u32>()
    ]
}

/// Attributes one after the other, with nests and wrong lengths.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![0_u16..64, any::<u16>()];
    let leaf = prop_oneof![
        number().prop_map(|value| value.to_ne_bytes().to_vec()),
        number().prop_map(|value| (value as u16).to_ne_bytes().to_vec()),
        Just(STATION.to_vec()),
        Just(b"bridge\0".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    leaf.prop_recursive(3, 24, 5, move |inner| {
        let attr = (kind.clone(), inner, -1_i16..=1);
        proptest::collection::vec(attr, 0..5).prop_map(|attrs| {
            let mut bytes = Vec::new();
            for (kind, data, lie) in attrs {
                let length = (data.len() as u16 + 4).saturating_add_signed(lie);
                bytes.extend(length.to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(&data);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    /// A request that is refused is refused with an errno and changes nothing; the engine goes on.
    #[test]
    fn refused_hostile_requests_change_nothing(
        requests in proptest::collection::vec(
            (
                prop_oneof![16_u16..32, 112_u16..115],
                prop_oneof![Just(0_u16), Just(NLM_F_BULK), Just(NLM_F_CREATE), any::<u16>()],
                (prop_oneof![Just(AF_BRIDGE), any::<u8>()], number(), number()),
                attributes(),
                any::<bool>(),
            ),
            1..12,
        ),
    ) {
        let mut bench = Bench::new();
        for (kind, flags, (family, index, word), body, dump) in requests {
            let mut payload = vec![family, 0, 0, 0];
            payload.extend(index.to_ne_bytes());
            payload.extend(word.to_ne_bytes());
            // `ifinfomsg` is longer than `ndmsg`.
            if kind < 20 {
                payload.extend([0; 4]);
            }
            payload.extend(body);
            let message = message(kind, flags, payload.as_slice(), |_| {});
            let before = bench.state();
            let answer = if dump {
                testing::dump(&mut bench.rtnl, &CLIENT, &message).map(drop)
            } else {
                testing::ask(&mut bench.rtnl, &CLIENT, &message).0
            };
            if let Err(error) = answer {
                testing::assert_refusal(&error, REFUSALS);
                prop_assert_eq!(bench.state(), before);
            }
        }
        let control = bench.control.lock().unwrap();
        prop_assert!(control.stats().conservation().holds());
    }
}

/// A datagram of many requests costs the workers one table of ports.
#[test]
fn a_batch_of_requests_is_published_once() {
    let mut bench = Bench::new();
    let mut clients = Clients::new(1);
    let peer = Peer {
        port: Some(7),
        uid: 0,
        may_change: true,
        own: true,
    };
    let key = clients.connect(peer).unwrap();
    let mut batch = Vec::new();
    for n in 0..100_u16 {
        let vlan = message(RTM_SETLINK, 0, &of_bridge(PORT), |message| {
            message.nest(26, |message| message.put(2, &[0, 2 + n]));
        });
        let isolated = message(RTM_SETLINK, 0, &of_bridge(OTHER), |message| {
            message.nest(12 | NLA_F_NESTED, |message| {
                message.put_u8(33, (n % 2) as u8)
            });
        });
        batch.extend([vlan.into_bytes(), isolated.into_bytes()].concat());
    }
    let published = |bench: &Bench| bench.control.lock().unwrap().published();
    let before = published(&bench);
    clients.receive(key, &batch, &mut bench.rtnl);
    assert_eq!(published(&bench), before + 1);
    assert_eq!(bench.vlans(PORT, 2).len(), 101);
    assert_eq!(
        clients.output(key, &mut bench.rtnl),
        None,
        "nothing is refused"
    );
}
