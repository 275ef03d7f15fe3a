//! Large frames in random trees under random operations: whatever segments, moves or drops them,
//! no wire packet is lost uncounted, and what is empty counts nothing (INV-Q-1, INV-Q-2, INV-Q-8).

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropCounters;
use softnet::testing::pool;
use softnet::time::Time;

use crate::testing::steps::{Step, steps};
use crate::testing::{ip, large};
use crate::*;

const FRAMES: usize = 512;
const SEGMENTS: usize = 4096;

/// A tree, and wire packets that came and those that are gone.
struct World {
    tree: Tree,
    cx: Cx,
    frames: Pool,
    segments: Pool,
    now: Time,
    came: u64,
    gone: u64,
}

impl World {
    fn new() -> World {
        let (frames, segments) = (pool(FRAMES), pool(SEGMENTS));
        let env = QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(&frames)
        };
        World {
            tree: Tree::build(TreeSpec::new(), &env).unwrap(),
            cx: Cx::new(&segments),
            frames,
            segments,
            now: Time::ZERO,
            came: 0,
            gone: 0,
        }
    }

    /// Half of the packets are large frames.
    fn packet(&self, len: usize, priority: u32) -> Packet {
        let mut packet = match len & 1 {
            0 => large(&self.frames),
            _ => ip(&self.frames, len, 0, 0),
        };
        packet.set_priority(priority);
        packet.set_flow_hash(priority);
        packet
    }

    fn dequeue(&mut self, budget: usize) -> Next {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(budget, &mut out, self.cx.at(self.now));
        self.gone += out.wire_packets();
        next
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enqueue(packets) => {
                let free = self.frames.stats().free;
                let each = |(len, priority)| self.packet(len, priority);
                let mut list: PacketList = packets.into_iter().take(free).map(each).collect();
                self.came += list.wire_packets();
                self.tree.enqueue(&mut list, self.cx.at(self.now));
            }
            Step::Dequeue(budget, wait) => {
                self.now = self.now.plus_nanos(wait);
                self.dequeue(budget);
            }
            Step::Drain => {
                let mut out = PacketList::new();
                self.tree.drain(&mut out);
                self.gone += out.wire_packets();
            }
            change => {
                let classes = self.tree.classes();
                let named = classes.iter().map(|class| class.class);
                let classes = named.filter(|class| class.major() != 0).collect();
                // One that fails leaves everything as it is.
                let _ = change.apply(&mut self.tree.edit(self.cx.at(self.now)), classes);
            }
        }
    }

    fn check(&mut self) {
        self.gone += self.cx.dropped.wire_packets();
        self.cx.dropped.settle(&DropCounters::new());
        let stats = self.tree.stats();
        assert_eq!(self.came, self.gone + stats.queued);
        if stats.qlen == 0 {
            assert_eq!((stats.queued, stats.backlog, stats.memory), (0, 0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn wire_packets_are_conserved(steps in proptest::collection::vec(steps(), 1..50)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        for _ in 0..100_000 {
            match world.dequeue(64) {
                Next::Idle => break,
                Next::Ready => {}
                Next::At(time) => world.now = world.now.max(time),
            }
        }
        world.check();
        prop_assert_eq!(world.came, world.gone);
        let free = [&world.frames, &world.segments].map(|pool| pool.stats().free);
        prop_assert_eq!(free, [FRAMES, SEGMENTS]);
    }
}
