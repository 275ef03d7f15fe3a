//! Snooping as frames see it: who gets what, and what the bridge asks, at times that the test
//! chooses.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::testing::*;
use super::*;
use softnet::mem::Pool;
use softnet::testing::{packet, pool};
use softnet::wire::multicast;

const PORTS: u16 = 6;
const GROUP: [u8; 4] = [239, 1, 1, 1];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn joined(number: u16) -> Joined {
    Joined {
        number,
        options: PortMulticast::default(),
        fresh: true,
    }
}

struct Bench {
    snooping: Snooping,
    pool: Pool,
    options: MulticastOptions,
    ports: Vec<Joined>,
    now: Time,
}

impl Bench {
    /// A bridge that asks, or not, from before it had ports on.
    fn new(change: impl FnOnce(&mut MulticastOptions)) -> Bench {
        let mut options = MulticastOptions {
            querier: true,
            ..MulticastOptions::default()
        };
        change(&mut options);
        let mut bench = Bench {
            snooping: Snooping::new(),
            pool: pool(64),
            options,
            ports: (0..PORTS).map(joined).collect(),
            now: Time::ZERO + seconds(1000),
        };
        bench.configure();
        bench.queries();
        bench
    }

    fn configure(&mut self) {
        let address = EthernetAddress([2, 0, 0, 0, 0, 0xbb]);
        self.snooping
            .configure(self.options, address, &self.ports, self.now);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Ports that a frame leaves through; without an answer, all.
    fn send(&self, port: u16, bytes: &[u8]) -> Result<Option<Vec<u16>>, DropReason> {
        self.send_in(0, port, bytes)
    }

    fn send_in(&self, vlan: u16, port: u16, bytes: &[u8]) -> Result<Option<Vec<u16>>, DropReason> {
        let mut packet = packet(&self.pool);
        assert!(packet.append(bytes));
        Ok(
            match self.snooping.scope(&packet, vlan, port, true, self.now)? {
                Scope::All => None,
                Scope::Only(only) => Some(only.takers().filter(|&to| to != port).collect()),
            },
        )
    }

    fn tell(&self, port: u16, bytes: &[u8]) {
        self.send(port, bytes).expect("a frame without faults");
    }

    /// Ports that get data to the group from 10.0.1.`source`.
    fn takers(&self, source: u8) -> Option<Vec<u16>> {
        let mut frame = ipv4(source, GROUP, 17, &[0; 16]);
        frame[14 + 14] = 1;
        // The sum of the header with it.
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        let sum = !sum as u32 + 0x0100;
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        self.send(0, &frame).expect("data")
    }

    /// Queries that the bridge sends by now: port, and the group if it is about one.
    fn queries(&self) -> Vec<(u16, Option<IpAddr>)> {
        let frames = self.snooping.tend(self.now);
        let query = |(port, frame): &Own| {
            let read = multicast(frame, frame.len(), false).expect("a frame of our own");
            match read.expect("IP").message {
                Some(Membership::Query(query)) => (*port, query.group),
                other => panic!("{other:?}"),
            }
        };
        frames.iter().map(query).collect()
    }
}

#[test]
fn nobody_asks_and_all_is_flooded() {
    let bench = Bench::new(|options| options.querier = false);
    bench.tell(2, &join(2, GROUP));
    assert_eq!(bench.send(1, &data(1, GROUP)), Ok(None));
    assert_eq!(bench.send(1, &join(1, GROUP)), Ok(None));
    assert_eq!(bench.queries(), []);
}

#[test]
fn members_get_their_groups_only() {
    let bench = Bench::new(|_| {});
    assert_eq!(bench.send(1, &data(1, GROUP)), Ok(Some(vec![])));
    assert_eq!(
        bench.send(2, &join(2, GROUP)),
        Ok(Some(vec![])),
        "there is no router"
    );
    bench.tell(4, &join(4, GROUP));
    assert_eq!(bench.send(1, &data(1, GROUP)), Ok(Some(vec![2, 4])));
    assert_eq!(bench.send(2, &data(2, GROUP)), Ok(Some(vec![4])));
    assert_eq!(bench.send(1, &data(1, [239, 1, 1, 2])), Ok(Some(vec![])));
    assert_eq!(bench.send(1, &data(1, [224, 0, 0, 251])), Ok(None), "local");
    bench.tell(3, &join(3, [224, 0, 0, 251]));
    assert_eq!(bench.send(1, &data(1, [224, 0, 0, 251])), Ok(None));
    assert_eq!(
        bench.send_in(7, 1, &data(1, GROUP)),
        Ok(Some(vec![])),
        "another VLAN"
    );
    let mut wrong = join(5, GROUP);
    wrong[45] ^= 1;
    assert_eq!(bench.send(5, &wrong), Err(DropReason::BadHeader));
    let arp = [&[1, 0, 0x5e, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 6][..], &[0; 28]].concat();
    assert_eq!(bench.send(1, &arp), Ok(None), "not IP");
}

#[test]
fn members_of_ipv6() {
    let bench = Bench::new(|_| {});
    for host in 1..4 {
        let [joins, solicits, routers] = host_begins(host);
        assert_eq!(bench.send(host, &joins), Ok(Some(vec![])));
        assert_eq!(bench.send(host, &solicits), Ok(Some(vec![])));
        assert_eq!(bench.send(host, &routers), Ok(Some(vec![])));
        let asks = icmpv6(9, solicited_node(host), false, &[135; 24]);
        assert_eq!(bench.send(5, &asks), Ok(Some(vec![host])));
    }
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(bench.send(5, &icmpv6(9, all, false, &[136; 24])), Ok(None));
}

#[test]
fn a_report_counts_for_so_long() {
    let mut bench = Bench::new(|_| {});
    bench.tell(2, &join(2, GROUP));
    bench.tell(3, &join(3, GROUP));
    bench.wait(seconds(200));
    bench.tell(3, &join(3, GROUP));
    bench.wait(seconds(60));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![3]));
    bench.wait(seconds(200));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![]));
}

/// Two queries at the beginning, then one each interval, at every port, for both families.
#[test]
fn the_bridge_asks() {
    let mut bench = Bench::new(|_| {});
    assert_eq!(
        bench.snooping.due(),
        bench.now + Duration::from_millis(31_250)
    );
    bench.wait(Duration::from_millis(31_249));
    assert_eq!(bench.queries(), []);
    bench.wait(Duration::from_millis(1));
    assert_eq!(bench.queries().len(), 2 * usize::from(PORTS));
    assert_eq!(bench.snooping.due(), bench.now + seconds(125));
    bench.ports.push(joined(9));
    bench.configure();
    assert_eq!(bench.queries(), [(9, None), (9, None)], "only the new port");
}

#[test]
fn who_leaves_is_asked_once_more() {
    let mut bench = Bench::new(|_| {});
    bench.tell(2, &join(2, GROUP));
    bench.tell(3, &join(3, GROUP));
    assert_eq!(bench.send(2, &leave(2, GROUP)), Ok(None));
    assert_eq!(bench.queries(), [(2, Some(GROUP.into()))]);
    assert_eq!(bench.takers(9), Some(vec![2, 3]));
    bench.wait(seconds(1));
    bench.tell(2, &join(12, GROUP));
    bench.wait(seconds(1));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![2, 3]), "somebody else is there");
    bench.tell(3, &leave(3, GROUP));
    bench.wait(seconds(2));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![2]));
    bench.ports[2].options.fastleave = true;
    bench.configure();
    bench.tell(2, &leave(2, GROUP));
    assert_eq!(bench.takers(9), Some(vec![]));
}

#[test]
fn another_querier_and_routers() {
    let mut bench = Bench::new(|options| options.querier = false);
    assert_eq!(bench.send(4, &query(4)), Ok(None));
    bench.tell(2, &join(2, GROUP));
    assert_eq!(bench.takers(9), None, "hosts have not answered yet");
    bench.wait(seconds(10));
    assert_eq!(bench.takers(9), Some(vec![2, 4]), "the querier is a router");
    assert_eq!(bench.send(1, &join(1, GROUP)), Ok(Some(vec![4])));
    let v3 = record(3, 4, GROUP, &[]);
    assert_eq!(bench.send(3, &v3), Ok(Some(vec![4])));
    assert_eq!(
        bench.send(1, &host_begins(1)[1]),
        Ok(None),
        "nobody asks of IPv6"
    );
    bench.tell(5, &ipv4(5, [224, 0, 0, 13], 103, &[0x20, 0, 0, 0]));
    assert_eq!(bench.takers(9), Some(vec![1, 2, 3, 4, 5]), "PIM");
    bench.ports[5].options.router = McastRouter::Off;
    bench.ports[0].options.router = McastRouter::On;
    bench.configure();
    assert_eq!(
        bench.send(5, &data(5, [239, 9, 9, 9])),
        Ok(Some(vec![0, 4]))
    );
    bench.wait(seconds(245));
    assert_eq!(bench.takers(9), None, "the querier is silent");
}

/// An IPv6 querier with a lower address is preferred; IPv4 has no address, so any is.
#[test]
fn the_bridge_gives_way() {
    let mut bench = Bench::new(|_| {});
    bench.tell(4, &query(4));
    bench.wait(Duration::from_millis(31_250));
    let families = |bench: &Bench| bench.queries().len() / usize::from(PORTS);
    assert_eq!(families(&bench), 1, "IPv6 only");
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let general = [&[130, 0, 0, 0, 0x27, 0x10, 0, 0][..], &[0; 16]].concat();
    bench.tell(3, &icmpv6(0xffff, all, true, &general));
    bench.wait(seconds(125));
    assert_eq!(families(&bench), 1, "a higher address is not heeded");
    bench.tell(3, &icmpv6(0, all, true, &general));
    bench.tell(4, &query(4));
    bench.wait(seconds(125));
    assert_eq!(bench.queries(), []);
    bench.wait(seconds(255));
    assert_eq!(families(&bench), 2, "both are silent");
}

#[test]
fn sources_count_in_igmpv3() {
    let mut bench = Bench::new(|options| options.igmp_version = 3);
    bench.tell(1, &record(1, 4, GROUP, &[]));
    bench.tell(2, &record(2, 3, GROUP, &[7]));
    bench.tell(3, &record(3, 4, GROUP, &[7]));
    assert_eq!(bench.takers(7), Some(vec![1, 2]));
    assert_eq!(bench.takers(8), Some(vec![1, 3]));
    bench.tell(2, &record(2, 6, GROUP, &[7]));
    let asked = bench.queries();
    assert_eq!(asked, [(2, Some(GROUP.into()))]);
    bench.wait(seconds(1));
    assert_eq!(bench.queries(), [(2, Some(GROUP.into()))]);
    bench.wait(seconds(1));
    assert_eq!(bench.queries(), []);
    assert_eq!(bench.takers(7), Some(vec![1]));
    bench.tell(1, &record(1, 3, GROUP, &[]));
    bench.wait(seconds(2));
    bench.queries();
    assert_eq!(bench.takers(8), Some(vec![3]));
    let (rows, _) = bench.snooping.rows(bench.now);
    let shown: Vec<_> = rows.iter().map(|r| (r.port, r.source, r.blocked)).collect();
    let seven = Some(IpAddr::from([10, 0, 1, 7]));
    assert_eq!(shown, [(3, None, false), (3, seven, true)]);
}

/// A port that joins more groups than its share gets all, and takes nothing from others.
#[test]
fn a_storm_of_joins_is_bounded() {
    let mut bench = Bench::new(|options| options.hash_max = 800);
    for n in 0..3000_u16 {
        let [high, low] = n.to_be_bytes();
        bench.tell(1, &join(1, [239, 2, high, low]));
        bench.wait(Duration::from_millis(1));
    }
    let (rows, _) = bench.snooping.rows(bench.now);
    assert_eq!(rows.len(), 100);
    bench.tell(2, &join(2, GROUP));
    assert_eq!(bench.send(5, &data(5, GROUP)), Ok(Some(vec![1, 2])));
    assert_eq!(bench.send(5, &data(5, [239, 7, 7, 7])), Ok(Some(vec![1])));
    bench.wait(seconds(260));
    bench.queries();
    assert_eq!(
        bench.send(5, &data(5, GROUP)),
        Ok(Some(vec![])),
        "nothing is left of it"
    );
    // As many records a second as are heeded, whatever they say.
    for _ in 0..2 * 4096 {
        bench.tell(3, &join(3, GROUP));
    }
    assert_eq!(bench.send(5, &data(5, [239, 7, 7, 7])), Ok(Some(vec![3])));
}

/// However often somebody leaves, others are asked soon after, and the rest is bounded.
#[test]
fn a_storm_of_leaves_is_bounded() {
    let mut bench = Bench::new(|_| {});
    bench.tell(1, &join(1, GROUP));
    bench.tell(2, &join(2, GROUP));
    for _ in 0..100 {
        (0..100).for_each(|_| bench.tell(1, &leave(1, GROUP)));
        bench.queries();
    }
    bench.tell(2, &leave(2, GROUP));
    let asked: Vec<_> = (0..=MAX_RECORDS / QUERIES)
        .flat_map(|_| bench.queries())
        .collect();
    assert_eq!(asked.last(), Some(&(2, Some(GROUP.into()))));
    assert_eq!(bench.queries(), []);
    (0..100).for_each(|_| bench.tell(1, &leave(1, GROUP)));
    bench.options.querier = false;
    bench.configure();
    assert_eq!(bench.queries(), [], "it is not to ask any more");
}

/// Behind a port whose hosts were there before, they have the time to answer.
#[test]
fn hosts_that_were_there_before() {
    let mut bench = Bench::new(|_| {});
    bench.ports.push(Joined {
        fresh: false,
        ..joined(7)
    });
    bench.configure();
    assert_eq!(bench.takers(9), Some(vec![7]));
    bench.wait(seconds(5));
    bench.tell(7, &join(7, [239, 5, 5, 5]));
    bench.wait(seconds(5));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![]));
    assert_eq!(bench.send(1, &data(1, [239, 5, 5, 5])), Ok(Some(vec![7])));
}

/// An administrator's limit is not made up for.
#[test]
fn a_limit_of_groups() {
    let mut bench = Bench::new(|_| {});
    bench.ports[1].options.max_groups = 2;
    bench.configure();
    for n in 0..3 {
        bench.tell(1, &join(1, [239, 2, 0, n]));
    }
    let gets = |n| bench.send(5, &data(5, [239, 2, 0, n])) == Ok(Some(vec![1]));
    assert_eq!([0, 1, 2].map(gets), [true, true, false]);
}

#[test]
fn permanent_members_and_ports_that_go() {
    let mut bench = Bench::new(|_| {});
    let (key, now) = (Key::ip(0, GROUP.into()), bench.now);
    assert_eq!(bench.snooping.fix(key, None, 2, true, now), Ok(()));
    assert_eq!(
        bench.snooping.fix(key, None, 2, true, now),
        Err(MdbError::Exists)
    );
    let mac = Key {
        vlan: 0,
        group: Group::Mac(EthernetAddress([1, 2, 3, 4, 5, 6])),
    };
    assert_eq!(bench.snooping.fix(mac, None, 3, true, now), Ok(()));
    let frame = [
        &[1, 2, 3, 4, 5, 6, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..],
        &[0; 46],
    ]
    .concat();
    assert_eq!(bench.send(1, &frame), Ok(Some(vec![3])));
    bench.tell(4, &join(4, GROUP));
    bench.tell(2, &leave(2, GROUP));
    bench.wait(seconds(300));
    bench.queries();
    assert_eq!(bench.takers(9), Some(vec![2]));
    bench.tell(4, &join(4, GROUP));
    bench.snooping.link(4, false, bench.now);
    bench.snooping.link(2, false, bench.now);
    assert_eq!(bench.takers(9), Some(vec![2]), "a permanent one stays");
    assert_eq!(bench.snooping.unfix(key, None, 2, bench.now), Ok(()));
    assert_eq!(
        bench.snooping.unfix(key, None, 2, bench.now),
        Err(MdbError::Missing)
    );
    bench.ports.retain(|port| port.number != 3);
    bench.configure();
    assert_eq!(bench.snooping.rows(bench.now).0, []);
}

/// Messages that many workers hear at once all count.
#[test]
fn nothing_that_is_heard_is_lost() {
    let bench = Bench::new(|_| {});
    let bench = &bench;
    std::thread::scope(|threads| {
        for port in 0..PORTS {
            threads.spawn(move || {
                for n in 0..100 {
                    bench.tell(port, &join(port as u8, [239, 3, port as u8, n]));
                    bench.tell(port, &join(port as u8, GROUP));
                }
            });
        }
    });
    assert_eq!(
        bench.snooping.rows(bench.now).0.len(),
        usize::from(PORTS) * 101
    );
    assert_eq!(
        bench.send(9, &data(9, GROUP)),
        Ok(Some((0..PORTS).collect()))
    );
}
