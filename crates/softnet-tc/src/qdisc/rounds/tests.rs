//! `drr` and `ets`: shares within the bounds of the papers, order, and classes that come and go.

use std::time::Duration;

use softnet::mem::PacketList;
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::testing::{Opaque, handle, jain};
use crate::*;

/// A tree, and what left it by class.
struct World {
    pool: softnet::mem::Pool,
    tree: Tree,
    cx: Cx,
    now: Time,
    sent: [u64; 32],
    order: Vec<u32>,
    number: u32,
}

impl World {
    fn new(root: QdiscSpec, quanta: &[u32]) -> World {
        let pool = pool(4096);
        let mut spec = TreeSpec::new();
        spec.add(Handle::ROOT, handle("1:"), root).unwrap();
        for (minor, &quantum) in (1..).zip(quanta) {
            let class = ClassSpec::Drr(DrrClassSpec { quantum });
            let name = handle("1:").class(minor);
            spec.add_class(handle("1:"), name, class).unwrap();
        }
        World {
            tree: Tree::build(spec, &QdiscEnv::new(&pool)).unwrap(),
            cx: Cx::new(&pool),
            pool,
            now: Time(1),
            sent: [0; 32],
            order: Vec::new(),
            number: 0,
        }
    }

    fn drr(quanta: &[u32]) -> World {
        World::new(QdiscSpec::Drr, quanta)
    }

    fn edit(&mut self) -> Live<'_, impl Queues> {
        self.tree.edit(self.cx.at(self.now))
    }

    fn offer(&mut self, minor: u16, len: usize, times: usize) -> Verdict {
        let mut list = PacketList::new();
        for _ in 0..times {
            let mut packet = frame(&self.pool, 1, 2, len, self.number);
            packet.set_priority(handle("1:").class(minor).raw());
            self.number += 1;
            list.push_back(packet);
        }
        self.tree.enqueue(&mut list, self.cx.at(self.now))
    }

    fn dequeue(&mut self, budget: usize) -> Next {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(budget, &mut out, self.cx.at(self.now));
        for packet in out {
            let class = Handle::from_raw(packet.priority()).minor();
            self.sent[usize::from(class)] += packet.wire_len();
            self.order.push(packet.mark());
        }
        next
    }

    fn run_dry(&mut self) {
        for _ in 0..100_000 {
            match self.dequeue(7) {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) => self.now = time,
            }
        }
        assert_eq!(self.tree.stats().qlen, 0);
    }

    fn class(&self, minor: u16) -> ClassStats {
        let name = handle("1:").class(minor);
        let classes = self.tree.classes();
        classes
            .into_iter()
            .find(|class| class.class == name)
            .unwrap()
    }

    /// Sends so many packets while all these classes have some, each of a size.
    fn run_greedy(&mut self, sizes: &[(u16, usize)], packets: usize) {
        for step in 0..packets {
            for &(minor, len) in sizes {
                while self.class(minor).stats.qlen < 40 {
                    self.offer(minor, len, 20);
                }
            }
            self.dequeue(1 + step % 5);
        }
    }
}

/// Theorem 4.1 of Shreedhar and Varghese: what two classes with packets sent differs by rounds for
/// each byte of their quanta.
#[test]
fn classes_share_by_their_quanta() {
    let quanta = [300, 1500, 6000, 256];
    let sizes = [(1, 1514), (2, 700), (3, 64), (4, 1514)];
    let mut world = World::drr(&quanta);
    world.run_greedy(&sizes, 3000);
    let rounds: Vec<f64> = (1..=4)
        .map(|class| world.sent[class] as f64 / f64::from(quanta[class - 1]))
        .collect();
    for (a, &first) in rounds.iter().enumerate() {
        for (b, &second) in rounds.iter().enumerate() {
            let of = |class: usize| 1514.0 / f64::from(quanta[class]);
            assert!((first - second).abs() <= 1.0 + of(a) + of(b), "{rounds:?}");
        }
    }
}

#[test]
fn equal_classes_get_the_same() {
    let mut world = World::drr(&[1514; 16]);
    let sizes: Vec<(u16, usize)> = (1..=16)
        .map(|minor| (minor, [60, 1514, 300, 999][usize::from(minor) % 4]))
        .collect();
    world.run_greedy(&sizes, 20_000);
    let index = jain(&world.sent[1..=16]);
    assert!(index >= 0.999, "{index}");
}

/// The order that the kernel's has, by hand: a class sends while its credit covers its next packet,
/// else it gets a quantum and goes to the end.
#[test]
fn a_small_quantum_is_walked_as_the_kernel_does() {
    let mut world = World::drr(&[256, 300]);
    world.offer(1, 1000, 2);
    world.offer(2, 900, 2);
    // Class 1 has 256, 512, 768, 1024; class 2 has 300, 600, 900 in the third round.
    world.dequeue(64);
    assert_eq!(world.order, [2, 0, 3, 1]);
}

#[test]
fn what_leads_to_no_class_is_dropped() {
    let mut world = World::drr(&[1514]);
    assert_eq!(world.offer(2, 100, 3), Verdict::Dropped);
    assert_eq!(world.cx.dropped.counts()[DropReason::NoClass as usize], 3);
    assert_eq!(world.tree.stats().drops, 3);
    let filter = FilterSpec::new(FilterKind::Matchall, handle("1:1"));
    world.edit().put_filter(FilterOp::Add, filter).unwrap();
    assert_eq!(world.offer(2, 100, 3), Verdict::Queued);
    assert_eq!(world.class(1).stats.qlen, 3);
    // Filters are of the qdisc; and what one leads to is not deleted.
    let of_class = FilterSpec {
        parent: handle("1:1"),
        ..FilterSpec::new(FilterKind::Matchall, handle("1:1"))
    };
    let error = world
        .edit()
        .put_filter(FilterOp::Add, of_class)
        .unwrap_err();
    assert!(
        error.to_string().contains("no filters of its own"),
        "{error}"
    );
    let error = world.edit().delete_class(handle("1:1")).unwrap_err();
    assert!(
        error.to_string().starts_with("DRR class is in use"),
        "{error}"
    );
}

/// As in the kernel all classes are directly below the qdisc.
#[test]
fn a_class_below_a_class_is_below_the_qdisc() {
    let mut world = World::drr(&[1514]);
    let class = ClassSpec::Drr(DrrClassSpec::new(70));
    let add = world.edit().add_class(handle("1:1"), handle("1:2"), class);
    add.unwrap();
    let node = world.tree.spec().class_node(handle("1:2")).unwrap();
    assert_eq!(node.parent, handle("1:"));
    assert_eq!(node.spec, ClassSpec::Drr(DrrClassSpec { quantum: 256 }));
    world.offer(1, 100, 1);
    world.offer(2, 100, 1);
    world.run_dry();
}

/// BUG-DRR-1, BUG-DRR-2: a class whose queue was emptied or filled behind its back has a turn as
/// long as it has packets.
#[test]
fn bug_drr_1_a_class_has_a_turn_as_long_as_it_has_packets() {
    let mut world = World::drr(&[1514; 3]);
    let codel = CodelSpec {
        limit: 100,
        aqm: AqmSpec {
            target: Duration::from_millis(1),
            interval: Duration::from_millis(2),
            ..AqmSpec::default()
        },
    };
    for qdisc in [
        QdiscSpec::Pfifo { limit: 0 },
        QdiscSpec::PfifoHeadDrop { limit: 2 },
        QdiscSpec::Codel(codel),
        QdiscSpec::Custom(CustomSpec::new("opaque", |_| {
            Box::new(Opaque(Pfifo::new(100)))
        })),
        QdiscSpec::Pfifo { limit: 100 },
    ] {
        for minor in 1..=3 {
            world.offer(minor, 500, 9);
        }
        let graft = world.edit().replace(handle("1:2"), Handle::NONE, qdisc);
        graft.unwrap();
        world.dequeue(3);
        world.now = world.now.plus_nanos(1_000_000_000);
        world.offer(2, 500, 9);
        world.run_dry();
        assert_eq!(world.class(2).own, Some(OwnStats::Drr { deficit: 0 }));
    }
    // A change of the child alone.
    world.offer(2, 500, 50);
    let node = world.tree.spec().child_of(handle("1:2")).unwrap().handle;
    let none = QdiscSpec::Pfifo { limit: 0 };
    world.edit().change(node, &none).unwrap();
    world.run_dry();
}

/// BUG-DRR-3: a class that is deleted while it is its turn takes its packets along, with a reason,
/// and the others go on.
#[test]
fn bug_drr_3_a_class_is_deleted_while_it_sends() {
    let mut world = World::drr(&[1514; 3]);
    for minor in 1..=3 {
        world.offer(minor, 1000, 5);
    }
    world.dequeue(1);
    world.edit().delete_class(handle("1:1")).unwrap();
    assert_eq!(
        world.cx.dropped.counts()[DropReason::QdiscReset as usize],
        4
    );
    assert_eq!(world.tree.stats().qlen, 10);
    world.run_dry();
    assert_eq!(world.sent[1..=3], [1000, 5000, 5000]);
    // Its slot is another's.
    let class = ClassSpec::Drr(DrrClassSpec::new(3000));
    world
        .edit()
        .add_class(handle("1:"), handle("1:9"), class)
        .unwrap();
    world.offer(9, 1000, 2);
    world.run_dry();
    assert_eq!(world.sent[9], 2000);
}

/// A class that is deleted while it holds its packets back leaves no time behind.
#[test]
fn a_class_is_deleted_while_it_waits() {
    let mut world = World::drr(&[1514]);
    let tbf = QdiscSpec::Tbf(TbfSpec {
        rate: 1000,
        burst: 1000,
        limit: 100_000,
        ..TbfSpec::default()
    });
    world.edit().add(handle("1:1"), Handle::NONE, tbf).unwrap();
    world.offer(1, 500, 4);
    assert!(matches!(world.dequeue(64), Next::At(_)));
    world.edit().delete_class(handle("1:1")).unwrap();
    assert_eq!(world.dequeue(64), Next::Idle);
}

/// A class that holds its packets back stops nobody, and is served when it lets one go.
#[test]
fn a_class_that_waits_stops_nobody() {
    let slow = || {
        QdiscSpec::Tbf(TbfSpec {
            rate: 1000,
            burst: 1000,
            limit: 100_000,
            ..TbfSpec::default()
        })
    };
    let ets = EtsSpec {
        bands: 3,
        strict: 1,
        priomap: [0; 16],
        ..EtsSpec::default()
    };
    let ets = ets.with_quanta(&[], &LinkDefaults::default());
    for root in [QdiscSpec::Drr, QdiscSpec::Ets(ets)] {
        let quanta: &[u32] = match root {
            QdiscSpec::Drr => &[1514; 3],
            _ => &[],
        };
        let mut world = World::new(root, quanta);
        for class in ["1:1", "1:2"] {
            world
                .edit()
                .add(handle(class), Handle::NONE, slow())
                .unwrap();
        }
        for minor in 1..=3 {
            world.offer(minor, 500, 20);
        }
        let next = world.dequeue(64);
        assert_eq!(world.sent[3], 20 * 500);
        // In tokens of half a packet a second: they come together.
        assert!(
            matches!(next, Next::At(time) if time > world.now),
            "{next:?}"
        );
        world.run_dry();
        assert_eq!(world.sent[1..=3], [10_000; 3]);
    }
}

fn ets(strict: u16, quanta: &[u32], priomap: [u8; 16]) -> QdiscSpec {
    let spec = EtsSpec {
        bands: strict + quanta.len() as u16,
        strict,
        priomap,
        ..EtsSpec::default()
    };
    QdiscSpec::Ets(spec.with_quanta(quanta, &LinkDefaults::default()))
}

#[test]
fn strict_bands_come_first_and_the_others_share() {
    let mut world = World::new(ets(2, &[3000, 1000, 1000], [0; 16]), &[]);
    world.run_greedy(&[(3, 1000), (4, 500), (5, 1500)], 4000);
    let total: u64 = world.sent.iter().sum();
    for (band, part) in [(3, 3), (4, 1), (5, 1)] {
        let expected = total * part / 5;
        assert!(
            world.sent[band].abs_diff(expected) <= 6000,
            "{:?}",
            world.sent
        );
    }
    for minor in [5, 2, 4, 1, 3] {
        world.offer(minor, 100, 1);
    }
    let first = world.number - 5;
    world.order.clear();
    world.dequeue(2);
    assert_eq!(world.order, [first + 3, first + 1]);
}

/// BUG-ETS-1, BUG-ETS-2: bands become strict, share, come and go with packets in them.
#[test]
fn bug_ets_1_bands_change_with_packets_in_them() {
    let mut world = World::new(ets(0, &[1000, 2000, 3000], [2; 16]), &[]);
    for (strict, quanta) in [
        (3, &[][..]),
        (1, &[500, 600]),
        (0, &[300]),
        (2, &[1, 2, 3, 4]),
        (0, &[700, 800]),
    ] {
        for minor in 1..=3 {
            world.offer(minor, 400, 6);
        }
        world.dequeue(2);
        let before = world.tree.stats().qlen;
        let last = (usize::from(strict) + quanta.len() - 1) as u8;
        let other = ets(strict, quanta, [last; 16]);
        world.edit().change(handle("1:"), &other).unwrap();
        // Nothing is lost but with a reason.
        let lost = world.cx.dropped.counts()[DropReason::QdiscLimit as usize];
        assert_eq!(world.tree.stats().qlen + u64::from(lost), before);
    }
    world.run_dry();
}

#[test]
fn parameters_of_ets_are_checked() {
    let good = EtsSpec::default();
    let link = LinkDefaults::default();
    for (spec, word) in [
        (
            EtsSpec {
                bands: 0,
                ..good.clone()
            },
            "bands",
        ),
        (
            EtsSpec {
                bands: 17,
                ..good.clone()
            },
            "bands",
        ),
        (
            EtsSpec {
                strict: 4,
                ..good.clone()
            },
            "strict",
        ),
        (
            EtsSpec {
                quanta: [0; 16],
                ..good.clone()
            },
            "quanta",
        ),
        (
            EtsSpec {
                priomap: [3; 16],
                ..good.clone()
            },
            "priomap",
        ),
    ] {
        let error = QdiscSpec::Ets(spec).check().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let full = EtsSpec {
        bands: 16,
        strict: 15,
        ..good
    };
    let full = full.with_quanta(&[u32::MAX], &link);
    assert_eq!((full.shared(), full.quanta[3]), (&[1 << 20][..], 0));
}

/// One band of `multiq` for each transmit queue, served packet by packet.
#[test]
fn multiq_serves_queues_in_turn() {
    let pool = pool(64);
    let env = QdiscEnv::new(&pool);
    let spec = QdiscSpec::Multiq { bands: 3 };
    assert_eq!(spec.check_for(1), Err(SpecError::OneQueue("multiq")));
    let (mut tree, roots) = DeviceTree::new(spec, 3, &env).unwrap();
    let mut root = roots.instances.into_iter().next().unwrap();
    let mut cx = Cx::new(&pool);
    for (number, queue) in [2, 2, 0, 0, 1, 1, 7].into_iter().enumerate() {
        let mut packet = frame(&pool, 1, 2, 100, number as u32);
        packet.set_queue(Some(queue));
        root.enqueue(&mut packet.into(), &mut cx);
    }
    let mut order = Vec::new();
    for _ in 0..9 {
        let mut out = PacketList::new();
        root.dequeue(1, &mut out, &mut cx);
        order.extend(out.iter().map(|packet| packet.mark()));
    }
    // From band 1 on; queue 7 is 7 modulo 3.
    assert_eq!(order, [4, 0, 2, 5, 1, 3, 6]);
    let classes: Vec<_> = tree
        .classes(&[])
        .iter()
        .map(|c| c.class.to_string())
        .collect();
    assert_eq!(classes, ["root", "8001:1", "8001:2", "8001:3"]);
    tree.set_mtu(9000);
}
