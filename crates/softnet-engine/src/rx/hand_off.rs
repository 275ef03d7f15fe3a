//! Packets that a worker steers to others (RPS): a list for each target, one push each, and one
//! wake-up for each target that sleeps (the kernel's `enqueue_to_backlog` and `rps_ipi_list`).
//!
//! Wake-ups are sent at the end of a poll round, and before the worker processes its own backlog,
//! so that no target waits for that; at the latest when the worker ends (BUG-RX-4: a wake-up that
//! is owed is never forgotten).

use std::sync::Arc;

use super::backlog::Mark;
use super::flow_limit::FlowLimit;
use super::stats::Shared;
use super::steer::{Steering, flow_hash};
use softnet::mem::PacketList;
use softnet::stats::{DropCounters, DropReason};

/// Packets that a worker steers to others.
#[derive(Debug)]
pub(super) struct HandOff {
    me: u16,
    workers: Arc<[Arc<Shared>]>,
    /// By target, empty between two polls.
    lists: Vec<PacketList>,
    /// Targets of this poll.
    targets: Vec<u16>,
    /// By target: behind what was pushed last.
    marks: Vec<Mark>,
    /// Targets that may sleep on what was pushed.
    owed: Vec<u16>,
    limit: FlowLimit,
    /// Wire packets steered to others.
    pub(super) handed: u64,
    /// Packets refused because their flow was too large a part.
    pub(super) limited: u64,
    /// Wake-ups sent.
    pub(super) wakes: u64,
}

impl HandOff {
    pub(super) fn new(me: usize, workers: Arc<[Arc<Shared>]>) -> HandOff {
        let count = workers.len();
        HandOff {
            me: me as u16,
            workers,
            lists: (0..count).map(|_| PacketList::new()).collect(),
            targets: Vec::new(),
            marks: vec![Mark(0); count],
            owed: Vec::new(),
            limit: FlowLimit::default(),
            handed: 0,
            limited: 0,
            wakes: 0,
        }
    }

    /// Pushes what is for others; `packets` keeps, in order, what this worker is to process
    /// itself. Drops are counted in `drops`.
    pub(super) fn steer(
        &mut self,
        steering: &mut Steering,
        packets: &mut PacketList,
        drops: &DropCounters,
    ) {
        let mut own = PacketList::new();
        let workers = &self.workers;
        while let Some(mut packet) = packets.pop_front() {
            let target = steering.choose(&mut packet, workers.len(), |worker, mark| {
                workers[usize::from(worker)].backlog.passed(mark)
            });
            if target == self.me {
                own.push_back(packet);
                continue;
            }
            let list = &mut self.lists[usize::from(target)];
            if list.is_empty() {
                self.targets.push(target);
            }
            list.push_back(packet);
        }
        *packets = own;
        for target in std::mem::take(&mut self.targets) {
            self.push(target, drops);
        }
        steering.settle(|worker| self.marks[usize::from(worker)]);
    }

    fn push(&mut self, target: u16, drops: &DropCounters) {
        let index = usize::from(target);
        let worker = &self.workers[index];
        let mut list = self.lists[index].take();
        // INV-RX-9: the limit is for overload only.
        if worker.backlog.len() >= worker.backlog.max() / 2 {
            let (mut kept, mut limited) = (PacketList::new(), PacketList::new());
            while let Some(mut packet) = list.pop_front() {
                let exceeds = flow_hash(&mut packet).is_some_and(|hash| self.limit.exceeds(hash));
                if exceeds {
                    limited.push_back(packet);
                } else {
                    kept.push_back(packet);
                }
            }
            if !limited.is_empty() {
                self.limited += limited.len() as u64;
                drops.lose(DropReason::FlowLimit, &limited);
                worker.count_dropped(limited.len());
            }
            list = kept;
        }
        let offered = list.wire_packets();
        let refused = worker.backlog.push(list);
        let mut dropped = 0;
        if !refused.is_empty() {
            dropped = refused.wire_packets();
            drops.lose(DropReason::CpuBacklog, &refused);
            worker.count_dropped(refused.len());
        }
        self.handed = self.handed.wrapping_add(offered - dropped);
        self.marks[index] = worker.backlog.mark();
        if !self.owed.contains(&target) {
            self.owed.push(target);
        }
    }

    /// Wakes the targets of this round that sleep.
    pub(super) fn kick(&mut self) {
        for target in self.owed.drain(..) {
            let worker = &self.workers[usize::from(target)];
            if worker.notifier.wake() {
                worker.count_kick();
                self.wakes += 1;
            }
        }
    }
}

impl Drop for HandOff {
    fn drop(&mut self) {
        self.kick();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::{Backlog, BacklogOwner, FlowTable, SteeringSpec};
    use super::*;
    use softnet::mem::Pool;
    use softnet::testing::{frame, pool};
    use softnet::tx::{Notifier, Wake};

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Bench {
        hand_off: HandOff,
        steering: Steering,
        drops: DropCounters,
        owners: Vec<BacklogOwner>,
        shared: Arc<[Arc<Shared>]>,
        wakes: Arc<Count>,
        pool: Pool,
    }

    impl Bench {
        /// Worker 0 of `workers` steers by `rps`.
        fn new(workers: usize, rps: &[usize]) -> Bench {
            let wakes = Arc::new(Count::default());
            let (mut owners, mut shared) = (Vec::new(), Vec::new());
            for _ in 0..workers {
                let (backlog, owner) = Backlog::new(100);
                owners.push(owner);
                let notifier = Arc::new(Notifier::new(1, wakes.clone()));
                shared.push(Arc::new(Shared::new(notifier, backlog)));
            }
            let shared: Arc<[_]> = shared.into();
            let mut steering = Steering::new(0, Arc::new(FlowTable::new(64, workers)));
            steering.set(&spec(rps));
            Bench {
                hand_off: HandOff::new(0, shared.clone()),
                steering,
                drops: DropCounters::new(),
                owners,
                shared,
                wakes,
                pool: pool(1024),
            }
        }

        /// One poll that brings packets with these hashes and marks; what stays with worker 0.
        fn poll(&mut self, packets: impl IntoIterator<Item = (u32, u32)>) -> Vec<u32> {
            let mut list = PacketList::new();
            for (hash, mark) in packets {
                let mut packet = frame(&self.pool, 1, 2, 60, mark);
                packet.set_flow_hash(hash);
                list.push_back(packet);
            }
            self.hand_off
                .steer(&mut self.steering, &mut list, &self.drops);
            list.iter().map(|p| p.mark()).collect()
        }

        fn work(&mut self, worker: usize) -> Vec<u32> {
            let mut out = PacketList::new();
            while !self.owners[worker].is_empty() {
                self.owners[worker].poll(64, &mut out);
            }
            self.owners[worker].done();
            out.iter().map(|p| p.mark()).collect()
        }
    }

    fn spec(rps: &[usize]) -> SteeringSpec {
        SteeringSpec {
            rps: rps.to_vec(),
            ..SteeringSpec::default()
        }
    }

    /// INV-RX-5: however many lists, a target that sleeps gets one wake-up, and one that is awake
    /// none, also once its backlog is empty (BUG-RX-2).
    #[test]
    fn wake_ups_are_coalesced_and_sent_at_the_end_of_the_round() {
        let mut bench = Bench::new(2, &[1]);
        bench.poll([(1, 0)]);
        bench.hand_off.kick();
        assert_eq!(
            bench.wakes.0.load(Ordering::Relaxed),
            0,
            "worker 1 is awake"
        );
        bench.work(1);
        let (shared, wakes) = (bench.shared.clone(), bench.wakes.clone());
        shared[1].notifier.sleep_if(
            || shared[1].backlog.is_empty(),
            || {
                bench.poll([(1, 1)]);
                bench.poll([(1, 2), (9, 3)]);
                assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "not yet");
                bench.hand_off.kick();
                bench.poll([(1, 4)]);
                bench.hand_off.kick();
            },
        );
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(bench.work(1), [1, 2, 3, 4]);
    }

    /// BUG-RX-6: drops that several workers count at once.
    #[test]
    fn drops_of_several_threads_add_up() {
        let bench = Bench::new(1, &[]);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..1000).for_each(|_| bench.shared[0].count_dropped(2)));
            }
        });
        assert_eq!(bench.shared[0].dropped(), 6000);
    }

    /// BUG-RX-4: the wake-ups that a worker owes are sent when it ends.
    #[test]
    fn a_worker_that_ends_owes_no_wake_up() {
        let mut bench = Bench::new(2, &[1]);
        let (shared, wakes) = (bench.shared.clone(), bench.wakes.clone());
        shared[1].notifier.sleep_if(
            || true,
            || {
                bench.poll([(1, 1)]);
                drop(bench);
            },
        );
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    /// INV-RX-2: the map changes while a worker stalls; the flow goes on to the stalled worker
    /// until it has caught up.
    #[test]
    fn a_flow_waits_for_a_worker_that_stalls() {
        let mut bench = Bench::new(3, &[1]);
        assert!(bench.poll([(5, 0), (5, 1)]).is_empty());
        bench.steering.set(&spec(&[2]));
        assert!(bench.poll([(5, 2)]).is_empty());
        assert_eq!(bench.work(2), [], "worker 1 has not worked yet");
        assert_eq!(bench.work(1), [0, 1, 2]);
        bench.poll([(5, 3)]);
        assert_eq!((bench.work(1), bench.work(2)), (vec![], vec![3]));
        // And back: the owner's own packets need no backlog.
        bench.steering.set(&spec(&[]));
        assert_eq!(bench.poll([(5, 4)]), [4]);
        bench.steering.set(&spec(&[1]));
        assert!(bench.poll([(5, 5)]).is_empty());
        assert_eq!(bench.work(1), [5]);
    }

    /// INV-RX-1, INV-RX-3, INV-RX-9: a backlog that overflows drops from the end and counts; of a
    /// flood, the large flow is dropped, small ones are not.
    #[test]
    fn overflow_is_counted_and_hits_the_flood() {
        let mut bench = Bench::new(2, &[1]);
        // Half full: no limit yet.
        bench.poll((0..50).map(|n| (1, n)));
        assert_eq!(bench.drops.total(), 0);
        for n in 50..100 {
            // One small flow's packet among eight of the large one.
            bench.poll(
                (0..8)
                    .map(|_| (0xF000_0001, n))
                    .chain([(n << 22 | 3, 1000 + n)]),
            );
        }
        let (limit, full) = (
            bench.drops.get(DropReason::FlowLimit),
            bench.drops.get(DropReason::CpuBacklog),
        );
        assert!(limit > 200, "{limit}");
        assert_eq!(bench.shared[1].dropped(), limit + full);
        assert_eq!(bench.hand_off.limited, limit);
        let worked = bench.work(1);
        assert_eq!(worked.len() as u64 + limit + full, 50 + 450);
        assert_eq!(bench.hand_off.handed, worked.len() as u64);
        assert!(worked.len() <= 100);
        assert!(worked.iter().filter(|&&m| m >= 1000).is_sorted());
        assert_eq!(bench.pool.stats().free, 1024);
    }
}
