//! Requests about bridges, their ports, VLANs and forwarding databases, on an engine with devices
//! in memory.

mod entries;
mod random;
mod vlans;

use softnet::wire::EthernetAddress;
use softnet_engine::forward::{BridgePortOptions, FdbState, VlanFlags};
use softnet_engine::testing::FedDevices;
use softnet_engine::{FdbSpec, Settings};
use zerocopy::{Immutable, IntoBytes};

use crate::Rtnl;
use crate::fdb::RTM_GETNEIGH;
use crate::link::{RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK};
use crate::nl::headers::{IfInfoMsg, NdMsg};
use crate::nl::{
    Client, Errno, Error, Message, NLA_F_NESTED, NLM_F_BULK, NLM_F_CREATE, NLM_F_DUMP, Request,
    Requests,
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
