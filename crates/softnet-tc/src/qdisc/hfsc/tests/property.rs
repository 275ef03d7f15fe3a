//! Classes that change at random while packets pass.

use proptest::prelude::*;

use super::super::scheduler::Scheduler;
use super::*;

#[derive(Clone, Debug)]
enum Op {
    Enqueue(usize),
    Dequeue(u64),
    Wait(u64),
    Change(usize, HfscClassSpec),
    Empty(usize),
}

fn curves() -> impl Strategy<Value = HfscClassSpec> {
    let curve = || {
        let fields = (0..100_000_u32, 0..50_000_u32, 1000..100_000_u32);
        fields.prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 })
    };
    let option = |weight| prop::option::weighted(weight, curve());
    (option(0.5), curve(), option(0.5)).prop_map(|(rt, ls, ul)| HfscClassSpec {
        rt,
        ls: Some(ls),
        ul,
    })
}

proptest! {
    /// Each class is where it should be after each operation, and while one has packets one is
    /// chosen now or at the time that is said.
    #[test]
    fn the_scheduler_finds_each_class(
        specs in proptest::collection::vec(curves(), 8),
        ops in proptest::collection::vec(
            prop_oneof![
                6 => (3..9_usize).prop_map(Op::Enqueue),
                6 => (60..1600_u64).prop_map(Op::Dequeue),
                3 => (1..50_000_000_u64).prop_map(Op::Wait),
                2 => (1..9_usize, curves()).prop_map(|(slot, spec)| Op::Change(slot, spec)),
                1 => (3..9_usize).prop_map(Op::Empty),
            ],
            1..200,
        ),
    ) {
        // Slots 1 and 2 are below the root, 3 to 8 below those and it.
        let mut scheduler = Scheduler::new(0);
        for (slot, parent) in [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2), (8, 0)] {
            scheduler.add(slot, parent, &specs[slot - 1]);
        }
        let mut now = Time(SECOND);
        let mut queued = [0_u32; 9];
        for op in ops {
            match op {
                Op::Enqueue(slot) => {
                    queued[slot] += 1;
                    scheduler.activate(slot, 1000, now);
                }
                Op::Dequeue(len) => match scheduler.choose(now) {
                    Some(choice) => {
                        queued[choice.leaf] -= 1;
                        let next = (queued[choice.leaf] > 0).then_some(1000);
                        scheduler.charge(choice, len, next, now);
                    }
                    None if queued.iter().sum::<u32>() > 0 => {
                        let next = scheduler.next_event();
                        prop_assert!(next > now && next < Time::MAX);
                        now = next;
                        prop_assert!(scheduler.choose(now).is_some(), "it said that one is due");
                    }
                    None => {}
                },
                Op::Wait(nanos) => now = now.plus_nanos(nanos),
                Op::Change(slot, spec) => {
                    let next = (queued[slot] > 0).then_some(1000);
                    scheduler.change(slot, &spec, next, now);
                }
                Op::Empty(slot) => {
                    queued[slot] = 0;
                    scheduler.deactivate(slot, now);
                }
            }
            scheduler.assert_consistent(|slot| queued[slot] > 0);
        }
    }
}
