//! Guarantees of `hfsc` in virtual time, against the paper's formulae, and its classes as they come
//! and go.

mod property;

use softnet::mem::{PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::testing::{Opaque, handle, jain};
use crate::*;

const SECOND: u64 = 1_000_000_000;

/// A tree behind a link of a rate.
struct World {
    pool: Pool,
    tree: Tree,
    cx: Cx,
    now: Time,
    /// Bytes a second.
    rate: u64,
    /// Class and departure of each packet, and its number.
    left: Vec<(u32, Time, u32)>,
    number: u32,
}

impl World {
    fn new(default: u16, rate: u64, classes: &[(&str, &str, HfscClassSpec)]) -> World {
        let pool = pool(4096);
        let mut spec = TreeSpec::new();
        let root = QdiscSpec::Hfsc(HfscSpec { default });
        spec.add(Handle::ROOT, handle("1:"), root).unwrap();
        for (parent, name, class) in classes {
            let class = ClassSpec::Hfsc(class.clone());
            spec.add_class(handle(parent), handle(name), class).unwrap();
        }
        World {
            tree: Tree::build(spec, &QdiscEnv::new(&pool)).unwrap(),
            cx: Cx::new(&pool),
            pool,
            now: Time(SECOND),
            rate,
            left: Vec::new(),
            number: 0,
        }
    }

    fn offer(&mut self, class: &str, len: usize, times: usize) -> Verdict {
        let mut list = PacketList::new();
        for _ in 0..times {
            let mut packet = frame(&self.pool, 1, 2, len, self.number);
            packet.set_priority(handle(class).raw());
            self.number += 1;
            list.push_back(packet);
        }
        self.tree.enqueue(&mut list, self.cx.at(self.now))
    }

    /// Sends one packet, if one may leave, and passes the time that it takes; else waits. False:
    /// nothing is queued.
    fn step(&mut self, until: Time) -> bool {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(1, &mut out, self.cx.at(self.now));
        if let Some(packet) = out.front() {
            let class = Handle::from_raw(packet.priority()).minor().into();
            self.left.push((class, self.now, packet.mark()));
            let nanos = packet.wire_len() * SECOND / self.rate;
            self.now = self.now.plus_nanos(nanos);
            return true;
        }
        match next {
            Next::At(time) => {
                assert!(time > self.now);
                self.now = time.min(until);
                self.now < until
            }
            _ => false,
        }
    }

    /// Runs so long, with packets of these classes always there.
    fn run(&mut self, nanos: u64, greedy: &[(&str, usize)]) {
        let until = self.now.plus_nanos(nanos);
        // To look at all classes takes a while.
        let mut left = 0;
        while self.now < until {
            if left == 0 {
                for &(class, len) in greedy {
                    let queued = self.class(class).qlen as usize;
                    if queued < 60 {
                        self.offer(class, len, 100 - queued);
                    }
                }
                left = 60;
            }
            left -= 1;
            if !self.step(until) && greedy.is_empty() {
                break;
            }
        }
    }

    fn class(&self, name: &str) -> QdiscStats {
        let classes = self.tree.classes();
        let class = classes.iter().find(|class| class.class == handle(name));
        class.unwrap().stats
    }

    /// Work, that of the real-time curve, periods and level.
    fn own(&self, name: &str) -> (u64, u64, u64, u64) {
        let classes = self.tree.classes();
        let class = classes.iter().find(|class| class.class == handle(name));
        match class.unwrap().own {
            Some(OwnStats::Hfsc {
                work,
                rtwork,
                period,
                level,
            }) => (work, rtwork, period, level),
            ref other => panic!("{other:?}"),
        }
    }
}

fn line(rate: u32) -> Option<ServiceCurve> {
    Some(ServiceCurve::linear(rate))
}

fn ls(rate: u32) -> HfscClassSpec {
    HfscClassSpec {
        ls: line(rate),
        ..HfscClassSpec::default()
    }
}

/// Shares go by the link-sharing curves, at each class among those below it, and a share that one
/// does not use goes to the others there first.
#[test]
fn what_is_left_is_shared_in_the_hierarchy() {
    let mut world = World::new(
        0,
        1_250_000,
        &[
            ("1:", "1:1", ls(600_000)),
            ("1:", "1:2", ls(400_000)),
            ("1:1", "1:11", ls(100_000)),
            ("1:1", "1:12", ls(300_000)),
        ],
    );
    let all = [("1:11", 700), ("1:12", 1000), ("1:2", 1500)];
    world.run(20 * SECOND, &all);
    let sent = |world: &World| ["1:11", "1:12", "1:2"].map(|class| world.class(class).bytes);
    let total: u64 = sent(&world).iter().sum();
    let expected = [15, 45, 40].map(|percent| total * percent / 100);
    for (sent, expected) in sent(&world).into_iter().zip(expected) {
        assert!(sent.abs_diff(expected) < 8 * 1500, "{sent} {expected}");
    }
    // Work is that of all below.
    assert_eq!(
        world.own("1:1").0,
        world.own("1:11").0 + world.own("1:12").0
    );
    // One is idle: the part of its parent stays there.
    let before = sent(&world);
    world.run(SECOND, &[("1:11", 700), ("1:2", 1500)]);
    let before = [before[0], before[2]];
    world.run(10 * SECOND, &[("1:11", 700), ("1:2", 1500)]);
    let after = sent(&world);
    let (first, second) = (after[0] - before[0], after[2] - before[1]);
    let share = first as f64 / (first + second) as f64;
    assert!((share - 0.6).abs() < 0.01, "{share}");
}

/// Equal curves, equal parts, whatever the sizes of packets.
#[test]
fn equal_classes_get_the_same() {
    let names: Vec<String> = (1..=16).map(|n| format!("1:{n:x}")).collect();
    let classes: Vec<_> = names
        .iter()
        .map(|name| ("1:", &name[..], ls(1000)))
        .collect();
    let mut world = World::new(0, 12_500_000, &classes);
    let sizes = [64, 1514, 300, 900];
    let greedy = names.iter().zip(sizes.into_iter().cycle());
    let greedy: Vec<_> = greedy.map(|(name, size)| (&name[..], size)).collect();
    world.run(5 * SECOND, &greedy);
    let sent: Vec<u64> = names.iter().map(|name| world.class(name).bytes).collect();
    assert!(jain(&sent) >= 0.999, "{sent:?}");
}

/// The paper's theorem 1: a packet of a leaf whose arrivals keep to its real-time curve leaves
/// before its deadline and the time of one packet of the greatest length, whatever others send;
/// here a curve that gives 1000 bytes within 5 ms at 50 kbyte/s, for a packet every 20 ms.
#[test]
fn a_real_time_curve_bounds_delay() {
    const DELAY: u64 = 5_000_000;
    let rate = 1_250_000;
    let rt = ServiceCurve::of_delay(1000, 5000, 50_000);
    let voice = HfscClassSpec {
        rt,
        ls: line(50_000),
        ul: None,
    };
    let bulk = HfscClassSpec {
        rt: line(500_000),
        ls: line(1_000_000),
        ul: None,
    };
    let classes = [
        ("1:", "1:1", voice),
        ("1:", "1:2", bulk.clone()),
        ("1:", "1:3", bulk),
    ];
    let mut world = World::new(0, rate, &classes);
    let mut worst = 0;
    for _ in 0..500 {
        world.offer("1:1", 1000, 1);
        let offered = world.now;
        world.left.clear();
        world.run(20_000_000, &[("1:2", 1500), ("1:3", 1500)]);
        let voice = world.left.iter().find(|(class, ..)| *class == 1);
        let delay = voice.unwrap().1.nanos() - offered.nanos();
        worst = worst.max(delay);
        // Its last bit has left by then.
        let sent = 1000 * SECOND / rate;
        assert!(delay + sent <= DELAY + 1500 * SECOND / rate + 64, "{delay}");
    }
    assert!(worst > 0, "it does wait");
    let (work, rtwork, period, _) = world.own("1:1");
    assert!(rtwork > 0 && work == 500_000 && period == 500);
}

/// A real-time curve is served although others have all of what is shared.
#[test]
fn a_real_time_rate_is_what_a_leaf_gets_at_least() {
    let real = HfscClassSpec {
        rt: line(300_000),
        ..HfscClassSpec::default()
    };
    let classes = [("1:", "1:1", real), ("1:", "1:2", ls(1_000_000))];
    let mut world = World::new(0, 1_000_000, &classes);
    world.run(10 * SECOND, &[("1:1", 1000), ("1:2", 1500)]);
    let (first, second) = (world.class("1:1").bytes, world.class("1:2").bytes);
    assert!(first.abs_diff(3_000_000) < 5000, "{first}");
    assert!(second.abs_diff(7_000_000) < 5000, "{second}");
    // Without a curve to share by it gets no more, whatever is free.
    let before = world.class("1:1").bytes;
    world.run(SECOND, &[("1:1", 1000)]);
    let before_free = world.class("1:1").bytes;
    world.run(10 * SECOND, &[("1:1", 1000)]);
    let free = world.class("1:1").bytes - before_free;
    assert!(
        before_free > before && free.abs_diff(3_000_000) < 5000,
        "{free}"
    );
}

/// An upper limit holds in each window, for a class with classes below it, too, and what it leaves
/// goes to others.
#[test]
fn an_upper_limit_is_kept_and_lost_to_nobody() {
    let limited = HfscClassSpec {
        ls: line(500_000),
        ul: line(200_000),
        rt: None,
    };
    let classes = [
        ("1:", "1:1", limited),
        ("1:1", "1:11", ls(1000)),
        ("1:1", "1:12", ls(1000)),
        ("1:", "1:2", ls(500_000)),
    ];
    let mut world = World::new(0, 1_000_000, &classes);
    let all = [("1:11", 1000), ("1:12", 500), ("1:2", 1500)];
    for _ in 0..10 {
        let before = world.own("1:1").0;
        world.run(SECOND, &all);
        let sent = world.own("1:1").0 - before;
        // A packet at either end.
        assert!(sent.abs_diff(200_000) <= 2000, "{sent}");
    }
    let other = world.class("1:2").bytes;
    assert!(other.abs_diff(8_000_000) < 10_000, "{other}");
    // Alone it is held back, and a timer says until when (INV-Q-8).
    let before = world.own("1:1").0;
    world.run(5 * SECOND, &[("1:11", 1000)]);
    let sent = world.own("1:1").0 - before;
    assert!(sent.abs_diff(1_000_000) <= 5000, "{sent}");
    assert!(world.tree.stats().overlimits > 100);
}

/// A change of an upper limit is in force at once, also for who waits because of it.
#[test]
fn a_higher_limit_ends_a_wait() {
    let limited = |rate| HfscClassSpec {
        ls: line(1000),
        ul: line(rate),
        rt: None,
    };
    let mut world = World::new(0, 1_000_000, &[("1:", "1:1", limited(100))]);
    world.offer("1:1", 1000, 5);
    assert!(world.step(Time(u64::MAX)));
    let mut out = PacketList::new();
    let next = world.tree.dequeue(1, &mut out, world.cx.at(world.now));
    assert!(out.is_empty() && matches!(next, Next::At(time) if time > Time(8 * SECOND)));
    let mut live = world.tree.edit(world.cx.at(world.now));
    let faster = ClassSpec::Hfsc(limited(1_000_000));
    live.change_class(handle("1:1"), &faster).unwrap();
    world.run(100_000_000, &[]);
    assert_eq!(world.class("1:1").packets, 5);
}

/// As long as there are no classes it is first in, first out; then what leads to no leaf is
/// dropped, with a reason.
#[test]
fn a_bare_one_is_a_fifo_and_else_drops_what_leads_nowhere() {
    let mut world = World::new(0, 1_000_000, &[]);
    assert_eq!(world.offer("7:7", 100, 3), Verdict::Queued);
    assert_eq!(world.tree.stats().qlen, 3);
    world.run(SECOND, &[]);
    assert_eq!(
        world.left.iter().map(|left| left.2).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    // The first class takes the queue of the root away, as in the kernel.
    world.offer("7:7", 100, 2);
    let mut live = world.tree.edit(world.cx.at(world.now));
    let class = ClassSpec::Hfsc(ls(1000));
    live.add_class(handle("1:"), handle("1:5"), class).unwrap();
    assert_eq!(world.tree.stats().qlen, 0);
    assert_eq!(
        world.cx.dropped.counts()[DropReason::QdiscReset as usize],
        2
    );
    assert_eq!(world.offer("7:7", 100, 1), Verdict::Dropped);
    assert_eq!(world.cx.dropped.counts()[DropReason::NoClass as usize], 1);
    assert_eq!(world.offer("1:5", 100, 1), Verdict::Queued);
    // The default class may come and go.
    let mut live = world.tree.edit(world.cx.at(world.now));
    let other = QdiscSpec::Hfsc(HfscSpec { default: 5 });
    live.change(handle("1:"), &other).unwrap();
    assert_eq!(world.offer("7:7", 100, 1), Verdict::Queued);
    let mut live = world.tree.edit(world.cx.at(world.now));
    live.delete_class(handle("1:5")).unwrap();
    assert_eq!(
        world.tree.stats().qlen,
        0,
        "a deleted class drops what it has"
    );
    assert_eq!(world.offer("7:7", 100, 1), Verdict::Dropped);
    let mut live = world.tree.edit(world.cx.at(world.now));
    let other = QdiscSpec::Hfsc(HfscSpec { default: 0 });
    live.change(handle("1:"), &other).unwrap();
    assert_eq!(world.offer("7:7", 100, 1), Verdict::Queued, "a leaf again");
    world.run(SECOND, &[]);
    assert_eq!(world.tree.stats().qlen, 0);
}

/// One with a real-time curve alone shares by it when classes come below it, and says so.
#[test]
fn a_class_with_classes_below_shares() {
    let real = HfscClassSpec {
        rt: line(1000),
        ..HfscClassSpec::default()
    };
    let world = World::new(
        0,
        1_000_000,
        &[("1:", "1:1", real), ("1:1", "1:2", ls(1000))],
    );
    let node = world.tree.spec().class_node(handle("1:1")).unwrap();
    let ClassSpec::Hfsc(spec) = &node.spec else {
        panic!("{node:?}")
    };
    assert_eq!((spec.ls, spec.rt), (line(1000), line(1000)));
    let none = ClassSpec::Hfsc(HfscClassSpec::default());
    let mut tree = world.tree.spec().clone();
    let error = tree
        .add_class(handle("1:"), handle("1:9"), none)
        .unwrap_err();
    assert!(error.to_string().starts_with("hfsc: rt or ls"), "{error}");
}

/// A class is a leaf again, also as it is shown, once the last one below it is gone.
#[test]
fn a_level_follows_the_classes_below() {
    let classes = [("1:", "1:1", ls(1000)), ("1:1", "1:2", ls(1000))];
    let mut world = World::new(0, 1_000_000, &classes);
    assert_eq!(world.own("1:1").3, 1);
    let mut live = world.tree.edit(world.cx.at(world.now));
    live.delete_class(handle("1:2")).unwrap();
    assert_eq!(world.own("1:1").3, 0);
}

/// A drain lets all counts of a class begin anew, also as they are shown.
#[test]
fn a_drained_leaf_has_counted_nothing() {
    let mut world = World::new(0, 1_000_000, &[("1:", "1:1", ls(1000))]);
    world.offer("1:1", 500, 4);
    world.run(SECOND, &[]);
    assert!(world.own("1:1").0 > 0);
    let mut out = PacketList::new();
    world.tree.drain(&mut out);
    assert!(out.is_empty());
    let (work, rtwork, ..) = world.own("1:1");
    assert_eq!((work, rtwork), (0, 0));
}

/// BUG-HFSC-1, BUG-HFSC-2: a leaf whose queue was emptied behind its back, by an AQM, a change or
/// another qdisc in its place, is not active; one that got packets that way is.
#[test]
fn bug_hfsc_1_a_leaf_is_active_as_long_as_it_has_packets() {
    let classes = [("1:", "1:1", ls(1000)), ("1:", "1:2", ls(1000))];
    let mut world = World::new(0, 1_000_000, &classes);
    for qdisc in [
        QdiscSpec::Pfifo { limit: 0 },
        QdiscSpec::FqCodel(FqCodelSpec::default()),
        QdiscSpec::Custom(CustomSpec::new("opaque", |_| {
            Box::new(Opaque(Pfifo::new(100)))
        })),
        QdiscSpec::Pfifo { limit: 100 },
    ] {
        world.offer("1:1", 500, 4);
        world.offer("1:2", 500, 4);
        let mut live = world.tree.edit(world.cx.at(world.now));
        live.replace(handle("1:1"), Handle::NONE, qdisc).unwrap();
        world.run(SECOND, &[]);
        assert_eq!(world.tree.stats().qlen, 0);
        world.offer("1:1", 500, 1);
        world.run(SECOND, &[]);
        assert_eq!(world.tree.stats().qlen, 0);
    }
}

/// A leaf that holds its packets back stops nobody, and is served when it lets one go.
#[test]
fn a_leaf_that_waits_stops_nobody() {
    let classes = [("1:", "1:1", ls(1_000_000)), ("1:", "1:2", ls(1000))];
    let mut world = World::new(0, 1_000_000, &classes);
    let slow = QdiscSpec::Tbf(TbfSpec {
        rate: 100_000,
        burst: 1600,
        limit: 1_000_000,
        ..TbfSpec::default()
    });
    let mut live = world.tree.edit(world.cx.at(world.now));
    live.add(handle("1:1"), Handle::NONE, slow).unwrap();
    world.run(10 * SECOND, &[("1:1", 1000), ("1:2", 1000)]);
    let (held, other) = (world.class("1:1").bytes, world.class("1:2").bytes);
    assert!(held.abs_diff(1_000_000) < 5000, "{held}");
    assert!(other.abs_diff(9_000_000) < 10_000, "{other}");
    world.run(100 * SECOND, &[]);
    assert_eq!(world.tree.stats().qlen, 0, "no timer is lost");
}

/// A leaf with packets gets a qdisc that holds them back, and loses its share of the link, before
/// the next packet: it is waited for.
#[test]
fn a_leaf_that_waits_may_change_its_curves() {
    let mut world = World::new(0, 1_000_000, &[("1:", "1:1", ls(1_000_000))]);
    world.offer("1:1", 500, 4);
    let late = QdiscSpec::Netem(NetemSpec {
        delay: std::time::Duration::from_millis(10),
        ..NetemSpec::default()
    });
    let real_time = ClassSpec::Hfsc(HfscClassSpec {
        rt: line(1_000_000),
        ..HfscClassSpec::default()
    });
    let mut live = world.tree.edit(world.cx.at(world.now));
    live.replace(handle("1:1"), Handle::NONE, late).unwrap();
    live.change_class(handle("1:1"), &real_time).unwrap();
    world.run(SECOND, &[]);
    assert_eq!(world.left.len(), 4);
    assert_eq!(world.tree.stats().qlen, 0);
}

/// With `parallel` as well there is one instance, also if it comes below others later.
#[test]
fn one_instance_serves_all_queues() {
    let pool = pool(16);
    let env = QdiscEnv {
        parallel: true,
        ..QdiscEnv::new(&pool)
    };
    let hfsc = QdiscSpec::Hfsc(HfscSpec::default());
    let (tree, roots) = DeviceTree::new(hfsc, 4, &env).unwrap();
    assert_eq!((tree.instances(), roots.active), (1, 1));
    let (tree, roots) = DeviceTree::new(QdiscSpec::Drr, 4, &env).unwrap();
    assert_eq!((tree.instances(), roots.active), (4, 4));
}
