//! `qfq`: shares by weight within the paper's bounds, and its sets under random operations.

use proptest::prelude::*;
use softnet::mem::{PacketList, Pool};
use softnet::qdisc::*;
use softnet::testing::{Random, frame, pool};
use softnet::time::Time;

use super::*;
use crate::testing::{handle, jain};
use crate::*;

/// A qdisc, and what left it by class.
struct World {
    pool: Pool,
    tree: Tree,
    cx: Cx,
    now: Time,
    sent: Vec<u64>,
    number: u32,
}

impl World {
    fn new(classes: &[(u32, u32)]) -> World {
        let pool = pool(4096);
        let mut spec = TreeSpec::new();
        spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Qfq)
            .unwrap();
        for (minor, &(weight, maxpkt)) in (1..).zip(classes) {
            let class = ClassSpec::Qfq(QfqClassSpec { weight, maxpkt });
            let name = handle("1:").class(minor);
            spec.add_class(handle("1:"), name, class).unwrap();
        }
        World {
            tree: Tree::build(spec, &QdiscEnv::new(&pool)).unwrap(),
            cx: Cx::new(&pool),
            pool,
            now: Time(1),
            sent: vec![0; 128],
            number: 0,
        }
    }

    fn offer(&mut self, minor: u16, len: usize, times: usize) {
        let mut list = PacketList::new();
        for _ in 0..times {
            let mut packet = frame(&self.pool, 1, 2, len, self.number);
            packet.set_priority(handle("1:").class(minor).raw());
            self.number += 1;
            list.push_back(packet);
        }
        self.tree.enqueue(&mut list, self.cx.at(self.now));
    }

    fn dequeue(&mut self, budget: usize) -> Next {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(budget, &mut out, self.cx.at(self.now));
        for packet in out {
            let class = Handle::from_raw(packet.priority()).minor();
            self.sent[usize::from(class)] += packet.wire_len();
        }
        next
    }

    fn qlen(&self, minor: u16) -> u64 {
        let name = handle("1:").class(minor);
        let classes = self.tree.classes();
        let class = classes.iter().find(|class| class.class == name);
        class.unwrap().stats.qlen
    }
}

/// While all have packets, each is within a packet of the longest and one of its own, a group's
/// slot rounded up (the paper's theorem on the worst-case fair index and B-WFI, section 5): at most
/// `3·Lmax + 2·L·w/W`, in bytes of its own; in aggregates of 8 times that.
#[test]
fn classes_share_by_their_weights() {
    let classes = [
        (1, 1514),
        (10, 1514),
        (100, 600),
        (7, 1514),
        (300, 1514),
        (1024, 512),
    ];
    let mut world = World::new(&classes);
    let weights: u64 = classes.iter().map(|(weight, _)| u64::from(*weight)).sum();
    for step in 0..40_000 {
        if step % 10 == 0 {
            for (minor, &(_, maxpkt)) in (1..).zip(&classes) {
                while world.qlen(minor) < 100 {
                    world.offer(minor, maxpkt as usize - usize::from(minor), 50);
                }
            }
        }
        world.dequeue(1);
    }
    let total: u64 = world.sent.iter().sum();
    for (minor, &(weight, maxpkt)) in (1..).zip(&classes) {
        let expected = total * u64::from(weight) / weights;
        let bound = 3 * 1514 + 16 * u64::from(maxpkt);
        let sent: u64 = world.sent[minor];
        assert!(
            sent.abs_diff(expected) <= bound,
            "{minor}: {sent} {expected}"
        );
    }
}

#[test]
fn equal_classes_get_the_same() {
    let mut world = World::new(&[(5, 1514); 40]);
    for step in 0..40_000_usize {
        if step.is_multiple_of(40) {
            for minor in 1..=40_u16 {
                while world.qlen(minor) < 50 {
                    world.offer(minor, [60, 1514, 300, 999][usize::from(minor) % 4], 20);
                }
            }
        }
        world.dequeue(1);
    }
    let index = jain(&world.sent[1..=40]);
    assert!(index >= 0.999, "{index}");
}

/// A class that was idle gets no more than its part afterwards, and waits for no more than a round.
#[test]
fn an_idle_class_is_served_soon() {
    let classes: Vec<_> = (0..20).map(|_| (10, 1514)).chain([(100, 1514)]).collect();
    let mut world = World::new(&classes);
    for round in 0..50 {
        for minor in 1..=20 {
            while world.qlen(minor) < 100 {
                world.offer(minor, 1514, 50);
            }
        }
        world.offer(21, 1514, 1);
        let mut waited = 0;
        let before = world.sent[21];
        while world.sent[21] == before {
            world.dequeue(1);
            waited += 1;
        }
        assert!(waited <= 30, "{waited} packets before it in round {round}");
        for _ in 0..13 {
            world.dequeue(1);
        }
    }
}

#[test]
fn parameters_are_bounded_one_by_one_and_together() {
    for (weight, maxpkt, word) in [
        (0, 1514, "weight"),
        (1025, 1514, "weight"),
        (1, 511, "maxpkt"),
    ] {
        let class = ClassSpec::Qfq(QfqClassSpec { weight, maxpkt });
        let error = class.check_for(&QdiscSpec::Qfq).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let world = World::new(&[(1024, 1514); 64]);
    let mut tree = world.tree.spec().clone();
    let class = |weight| {
        ClassSpec::Qfq(QfqClassSpec {
            weight,
            ..QfqClassSpec::default()
        })
    };
    let (root, more) = (handle("1:"), handle("1:99"));
    let error = tree
        .add_class(root, more, class(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("sch_qfq: total weight out of range (1 + 65536)"),
        "{error}"
    );
    assert_eq!(tree, *world.tree.spec());
    tree.change_class(handle("1:1"), class(1)).unwrap();
    tree.add_class(root, more, class(1023)).unwrap();
    tree.delete_class(handle("1:2")).unwrap();
    tree.change_class(handle("1:1"), class(1024)).unwrap();
}

/// BUG-QFQ-1, BUG-QFQ-2, BUG-QFQ-3: longer packets than a class said, classes that change and go
/// while they send, and queues that are emptied behind their back.
#[test]
fn bug_qfq_1_parameters_change_under_load() {
    let mut world = World::new(&[(10, 600), (20, 600), (30, 600)]);
    let mut random = Random(7);
    for _ in 0..4000 {
        let minor = 1 + random.below(3) as u16;
        world.offer(minor, 60 + random.below(1700) as usize, 2);
        world.dequeue(random.below(3) as usize);
        if random.below(10) == 0 {
            let weight = 1 + random.below(1000);
            let maxpkt = 512 + random.below(1500);
            let class = ClassSpec::Qfq(QfqClassSpec { weight, maxpkt });
            let mut tree = world.tree.edit(world.cx.at(world.now));
            let name = handle("1:").class(minor);
            if random.below(4) == 0 {
                tree.delete_class(name).unwrap();
                tree.add_class(handle("1:"), name, class).unwrap();
            } else {
                tree.change_class(name, &class).unwrap();
            }
        }
    }
    while world.dequeue(64) != Next::Idle {}
    assert_eq!(world.tree.stats().qlen, 0);
    let longest = world
        .tree
        .classes()
        .into_iter()
        .filter_map(|class| class.own);
    assert!(longest.count() == 3);
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue(u16),
    Dequeue(u64),
    Change(u16, u32, u32),
    Empty(u16),
    Hold(u16),
}

proptest! {
    /// The sets of groups are those that the groups call for, no class is lost, and one is always
    /// found while there is any.
    #[test]
    fn the_scheduler_finds_each_class(
        ops in proptest::collection::vec(
            prop_oneof![
                6 => (0..12_u16).prop_map(Op::Enqueue),
                6 => (60..1600_u64).prop_map(Op::Dequeue),
                1 => (0..12_u16, 1..=1024_u32, 512..2000_u32)
                    .prop_map(|(slot, weight, longest)| Op::Change(slot, weight, longest)),
                1 => (0..12_u16).prop_map(Op::Empty),
                1 => (0..12_u16).prop_map(Op::Hold),
            ],
            1..400,
        ),
        tx_queue_len in 0..20_u32,
    ) {
        let mut scheduler = Scheduler::new(tx_queue_len);
        let mut queued = [0_u32; 12];
        for slot in 0..12 {
            scheduler.add(slot, 1 + (slot as u32 % 3) * 300, 1514);
        }
        for op in ops {
            match op {
                Op::Enqueue(slot) => {
                    let slot = usize::from(slot);
                    queued[slot] += 1;
                    scheduler.activate(slot);
                }
                Op::Dequeue(len) => {
                    let mut tries = 0;
                    while scheduler.is_active() {
                        let Some(slot) = scheduler.candidate() else {
                            prop_assert!(scheduler.next(), "none to serve");
                            continue;
                        };
                        tries += 1;
                        prop_assert!(tries < 9);
                        if tries == 1 && len > scheduler.budget() {
                            prop_assert!(scheduler.next());
                            continue;
                        }
                        queued[slot] -= 1;
                        let next = (queued[slot] > 0).then_some(len);
                        scheduler.charge(slot, len, next);
                        break;
                    }
                    if !scheduler.is_active() {
                        scheduler.rest();
                    }
                }
                Op::Change(slot, weight, longest) => {
                    scheduler.change(slot.into(), weight, longest);
                }
                Op::Empty(slot) => {
                    queued[usize::from(slot)] = 0;
                    scheduler.deactivate(slot.into());
                }
                Op::Hold(slot) => {
                    // Out and in again.
                    scheduler.deactivate(slot.into());
                    if queued[usize::from(slot)] > 0 {
                        scheduler.activate(slot.into());
                    }
                }
            }
            scheduler.assert_consistent(|slot| queued[slot] > 0);
        }
    }
}
