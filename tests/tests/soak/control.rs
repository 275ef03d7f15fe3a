//! Changes that an administrator makes to ports while packets flow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use softnet_engine::forward::{PortSecurity, StormLimits};
use softnet_engine::rx::SteeringSpec;
use softnet_engine::{PortOptions, Settings};
use softnet_io::vhost_user::SocketSpec;
use softnet_tc::rate::{GroupSpec, RateSpec};
use softnet_tc::{
    ClassSpec, CodelSpec, FqCodelSpec, FqSpec, Handle, HtbClassSpec, HtbSpec, PrioSpec, QdiscSpec,
    TbfSpec, TreeSpec,
};
use softnet_tests::Lan;
use softnet_tests::random::Random;

use crate::machine::Faults;

/// Bytes per second that are soon used up, and some that are not.
const RATES: [u64; 3] = [100_000, 2_000_000, 500_000_000];
const HTB: Handle = Handle::new(1, 0);
const TOP: Handle = HTB.class(0xfff);

/// A vhost-user port, to be opened again and again.
#[derive(Clone, Debug)]
pub(crate) struct VmPort {
    pub(crate) name: String,
    pub(crate) socket: SocketSpec,
    pub(crate) queues: usize,
    pub(crate) steady: bool,
}

impl VmPort {
    /// Opens it and adds it to the bridge.
    pub(crate) fn add(&self, lan: &Lan) -> u32 {
        lan.add_machine(&self.name, &self.socket, self.queues)
    }
}

/// Who changes ports.
pub(crate) struct Administrator<'a> {
    pub(crate) lan: &'a Lan,
    pub(crate) bridge: u32,
    pub(crate) machines: Vec<(VmPort, u32)>,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
}

impl<'a> Administrator<'a> {
    pub(crate) fn new(
        lan: &'a Lan,
        bridge: u32,
        machines: Vec<(VmPort, u32)>,
        seed: u64,
    ) -> Administrator<'a> {
        Administrator {
            lan,
            bridge,
            machines,
            random: Random::new(seed),
            faults: Faults::new(),
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    fn ports(&self) -> Vec<u32> {
        let hosts = self.lan.hosts.iter().map(|host| host.port);
        hosts
            .chain(self.machines.iter().map(|(_, port)| *port))
            .collect()
    }

    /// Changes one thing after the other. All is as at the start when this returns.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.random.below(40)));
            self.change();
            self.lan.engine.take_events();
            if self.random.one_in(20) {
                self.lan.engine.watchdog();
                let stats = self.lan.engine.stats();
                assert!(!stats.ports.is_empty());
            }
        }
        for port in self.ports() {
            self.restore(port);
        }
    }

    fn restore(&self, port: u32) {
        let engine = &self.lan.engine;
        let open = |link: &mut Settings| (link.up, link.mtu) = (true, 1500);
        engine.change(port, open).expect("up");
        let options = |port: &mut PortOptions<()>| {
            port.rate_group = None;
            port.security = PortSecurity::default();
            port.steering = SteeringSpec::default();
            port.parallel = false;
        };
        engine.set_options(port, options).expect("no limits");
        let qdisc = QdiscSpec::default();
        engine.set_qdisc(port, &qdisc).expect("the default");
    }

    fn change(&mut self) {
        let ports = self.ports();
        let port = *self.random.pick(&ports);
        let engine = &self.lan.engine;
        match self.random.below(11) {
            0 | 1 => {
                let qdisc = qdisc(&mut self.random);
                engine.set_qdisc(port, &qdisc).expect("a qdisc");
                self.note("qdisc");
            }
            2 => {
                self.classes(port);
                self.note("classes");
            }
            3 => {
                let mtu = *self.random.pick(&[576, 1280, 1500, 9000]);
                engine.change(port, |link| link.mtu = mtu).expect("an MTU");
                self.note("port MTU");
            }
            4 => {
                let spec = GroupSpec {
                    bytes: Some(rate(*self.random.pick(&RATES), 65_536)),
                    packets: None,
                };
                engine.set_rate_group("group", spec).unwrap();
                let group = self.random.one_in(2).then(|| "group".to_owned());
                let set = engine.set_options(port, |port| port.rate_group = group);
                set.expect("a group");
                self.note("rate group");
            }
            5 => {
                let limit = self.random.one_in(2).then_some(100);
                let security = PortSecurity {
                    storm: StormLimits {
                        broadcast: limit,
                        multicast: None,
                        unknown_unicast: limit,
                    },
                    ..PortSecurity::default()
                };
                let set = engine.set_options(port, |port| port.security = security);
                set.expect("limits");
                self.note("storm control");
            }
            6 => {
                let parallel = self.random.one_in(2);
                let set = engine.set_options(port, |port| port.parallel = parallel);
                set.expect("instances");
                self.note("parallel");
            }
            7 => {
                let rps = if self.random.one_in(2) {
                    vec![0, 1]
                } else {
                    Vec::new()
                };
                let steering = SteeringSpec {
                    rps,
                    ..SteeringSpec::default()
                };
                let set = engine.set_options(port, |port| port.steering = steering);
                set.expect("steering");
                self.note("steering");
            }
            8 => {
                engine.change(port, |link| link.up = false).expect("down");
                sleep(Duration::from_millis(self.random.below(20)));
                let up = self.lan.engine.change(port, |link| link.up = true);
                up.expect("up");
                self.note("port down");
            }
            9 => {
                engine.set_master(port, None).expect("it is in the bridge");
                sleep(Duration::from_millis(self.random.below(20)));
                let joined = self.lan.engine.set_master(port, Some(self.bridge));
                joined.expect("the bridge");
                self.note("port left the bridge");
            }
            _ => {
                let places = 0..self.machines.len();
                let may: Vec<_> = places.filter(|&n| !self.machines[n].0.steady).collect();
                let place = *self.random.pick(&may);
                let (machine, port) = self.machines[place].clone();
                engine.delete(port).expect("it is there");
                sleep(Duration::from_millis(self.random.below(20)));
                self.machines[place].1 = machine.add(self.lan);
                self.note("port removed");
            }
        }
    }

    /// An `htb`, whose classes come and go.
    fn classes(&mut self, port: u32) {
        let random = &mut self.random;
        let engine = &self.lan.engine;
        engine.set_qdisc(port, &htb(random)).expect("htb");
        for _ in 0..random.below(30) {
            let class = HTB.class(1 + random.below(6) as u16);
            let spec = ClassSpec::Htb(htb_class(*random.pick(&RATES)));
            let add = random.one_in(2);
            let edited = engine.edit_tree(port, |tree| match add {
                true => tree.add_class(TOP, class, spec),
                false => tree.delete_class(class),
            });
            // It is there already, or not there.
            let _ = edited;
            sleep(Duration::from_millis(random.below(3)));
        }
    }
}

fn rate(rate: u64, burst: u64) -> RateSpec {
    RateSpec {
        rate,
        burst,
        unit: 1514,
    }
}

fn htb_class(rate: u64) -> HtbClassSpec {
    HtbClassSpec {
        ceil: 1_000_000_000,
        ..HtbClassSpec::new(rate)
    }
}

fn htb(random: &mut Random) -> QdiscSpec {
    let mut tree = TreeSpec::new();
    let spec = HtbSpec {
        default: 1,
        ..HtbSpec::default()
    };
    tree.add(Handle::ROOT, HTB, QdiscSpec::Htb(spec))
        .expect("a root");
    let top = ClassSpec::Htb(htb_class(*random.pick(&RATES)));
    tree.add_class(HTB, TOP, top).expect("a class");
    for minor in 1..4 {
        let class = ClassSpec::Htb(htb_class(*random.pick(&RATES)));
        tree.add_class(TOP, HTB.class(minor), class)
            .expect("a class");
    }
    QdiscSpec::Tree(tree)
}

fn qdisc(random: &mut Random) -> QdiscSpec {
    match random.below(9) {
        0 => QdiscSpec::Pfifo { limit: 10 },
        1 => QdiscSpec::Bfifo { limit: 100_000 },
        2 => QdiscSpec::PfifoHeadDrop { limit: 20 },
        3 => QdiscSpec::Tbf(TbfSpec {
            rate: *random.pick(&RATES),
            burst: 10_000,
            limit: 100_000,
            ..TbfSpec::default()
        }),
        4 => QdiscSpec::Prio(PrioSpec::default()),
        5 => QdiscSpec::Codel(CodelSpec::default()),
        6 => QdiscSpec::FqCodel(FqCodelSpec::default()),
        7 => QdiscSpec::Fq(FqSpec::default()),
        _ => htb(random),
    }
}
