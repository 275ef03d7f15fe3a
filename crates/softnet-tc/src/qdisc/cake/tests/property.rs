//! Random packets, times and changes: nothing is lost or made, and every count holds.

use proptest::prelude::*;

use super::*;
use crate::qdisc::cake::table::Set;
use crate::testing::specs::cake_specs;

#[derive(Clone, Debug)]
enum Step {
    Send {
        ends: (u8, u8, u16),
        len: usize,
        tos: u8,
        acks: bool,
    },
    Take {
        budget: usize,
        wait: u64,
    },
    Change(CakeSpec),
    Drain,
}

fn steps() -> impl Strategy<Value = Step> {
    let ends = (0..4_u8, 0..4_u8, 0..6_u16);
    prop_oneof![
        6 => (ends, 60..1514_usize, any::<u8>(), any::<bool>())
            .prop_map(|(ends, len, tos, acks)| Step::Send { ends, len, tos, acks }),
        4 => (0..12_usize, 0..20_000_000_u64).prop_map(|(budget, wait)| Step::Take { budget, wait }),
        1 => cake_specs().prop_map(Step::Change),
        1 => Just(Step::Drain),
    ]
}

impl World {
    /// Counts of tins, flows and hosts are those of what is inside.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let isolation = self.cake.spec.isolation;
        let stats = *self.cake.stats();
        let (mut qlen, mut backlog) = (0, 0);
        for tin in &mut self.cake.tins {
            let counts = tin.counts;
            let Some(table) = &mut tin.table else {
                continue;
            };
            let of = |set| table.flows.iter().filter(|flow| flow.set == set).count() as u32;
            prop_assert_eq!(counts.sparse, of(Set::Sparse) + of(Set::SparseWait));
            prop_assert_eq!(counts.bulk, of(Set::Bulk));
            prop_assert_eq!(counts.decaying, of(Set::Decaying));
            let mut sum = 0;
            for flow in &table.flows {
                let bytes: u64 = flow.packets.iter().map(Packet::wire_len).sum();
                prop_assert_eq!(flow.backlog, bytes);
                let is_listed = matches!(flow.set, Set::Sparse | Set::Bulk);
                prop_assert!(is_listed || flow.packets.is_empty());
                qlen += flow.packets.len() as u64;
                sum += bytes;
            }
            prop_assert_eq!(tin.backlog, sum);
            backlog += sum;
            let unresponsive = table
                .flows
                .iter()
                .filter(|flow| flow.set != Set::None && flow.cobalt.is_unresponsive());
            prop_assert_eq!(counts.unresponsive as usize, unresponsive.count());
            prop_assert_eq!(
                table.bulk_of_hosts(isolation),
                table.bulk_of_flows(isolation)
            );
        }
        prop_assert_eq!((stats.qlen, stats.backlog), (qlen, backlog));
        Ok(())
    }
}

proptest! {
    #[test]
    fn nothing_is_lost(
        spec in cake_specs(),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut world = World::with(spec, 512);
        let (mut offered, mut out) = (0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Send { ends: (source, destination, port), len, tos, acks } => {
                    let ends = ends(source, destination, port);
                    let number = offered as u32 * 100;
                    let mut rest = vec![0, 80, 0, 0, 0, 0];
                    rest.extend(number.to_be_bytes());
                    rest.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
                    let packet = match acks {
                        true => ip(&world.pool, ends, 54, tos, 6, &rest),
                        false => udp(&world.pool, ends, len, tos),
                    };
                    offered += 1;
                    world.send(packet);
                }
                Step::Take { budget, wait } => {
                    world.cx.now = world.cx.now.plus_nanos(wait);
                    let (list, next) = world.take(budget);
                    out += list.len() as u64;
                    let qlen = world.cake.stats().qlen;
                    prop_assert_eq!(next == Next::Idle, qlen == 0);
                    if let Next::At(time) = next {
                        prop_assert!(time > world.cx.now);
                    }
                }
                Step::Change(spec) => world.change(&spec),
                Step::Drain => {
                    let mut list = PacketList::new();
                    world.cake.drain(&mut list);
                    out += list.len() as u64;
                }
            }
            world.check()?;
            let left = world.cake.stats().qlen;
            prop_assert_eq!(offered, out + left + world.dropped());
        }
        out += world.run(u64::MAX).len() as u64;
        prop_assert_eq!(world.cake.stats().qlen, 0);
        prop_assert_eq!(offered, out + world.dropped());
    }
}
