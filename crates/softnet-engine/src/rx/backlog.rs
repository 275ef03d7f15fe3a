//! A worker's backlog: where other workers, or any thread, put packets for it (the kernel's
//! `input_pkt_queue` and `process_queue`).
//!
//! A sender pushes a whole list in one atomic operation and waits for nobody. The owner takes
//! everything in one, and processes it within its quota. There is no scheduled flag: a worker that
//! is awake looks at its backlog in every round, and one that goes to sleep looks once more after
//! [`Notify::prepare`](softnet::sync::Notify::prepare). So no wake-up is sent to a worker that is
//! awake, however much arrives (INV-RX-4, INV-RX-5; BUG-RX-2), and a sender need only
//! [wake](softnet::tx::Notifier::wake) the worker once, at the end of its own round.
//!
//! INV-RX-3: the input holds at most `max` packets (the kernel: one more), and so does what the
//! owner has taken and not yet processed. A packet that keeps much memory counts as several.

use std::sync::Arc;

use softnet::mem::{Packet, PacketAdoption, PacketList};

/// Packets that may wait to be taken (the kernel's `net.core.netdev_max_backlog`).
pub const MAX_BACKLOG: usize = 1000;
/// Most that [`Backlog::new`] allows: the list counts to 65,535.
pub const BACKLOG_LIMIT: usize = 65_000;

/// The side of a backlog that everyone sees.
#[derive(Debug)]
pub struct Backlog {
    input: PacketAdoption,
    max: usize,
}

/// Memory that counts as one packet, if a packet has more: 1,000 large frames of 66 KiB must not
/// keep 33,000 small buffers.
const UNIT: u64 = 8192;

/// Units that a packet counts as.
fn weight(packet: &Packet) -> usize {
    packet.memory().div_ceil(UNIT).max(1) as usize
}

/// A point in a backlog: behind everything that was pushed when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(super) u64);

impl Backlog {
    /// An empty backlog for at most `max` packets (at least 1, at most [`BACKLOG_LIMIT`]), and its
    /// owner's side.
    pub fn new(max: usize) -> (Arc<Backlog>, BacklogOwner) {
        let max = max.clamp(1, BACKLOG_LIMIT);
        let backlog = Arc::new(Backlog {
            input: PacketAdoption::expecting(max),
            max,
        });
        let owner = BacklogOwner {
            backlog: backlog.clone(),
            process: PacketList::new(),
            begun: false,
            flowing: false,
        };
        (backlog, owner)
    }

    /// Appends packets, in order; returns those at the end that do not fit. Never waits: it is
    /// tried again only when the owner or another sender changed the list. The caller wakes the
    /// owner if it sleeps, afterwards.
    #[must_use = "what does not fit is to be counted"]
    pub fn push(&self, mut packets: PacketList) -> PacketList {
        let mut refused = PacketList::new();
        let mut free = self.max;
        loop {
            let (mut count, mut sum) = (0, 0);
            for packet in packets.iter() {
                let next = sum + weight(packet);
                // One that is heavier than all that may wait is let in by an empty list.
                if next > free && (count > 0 || free < self.max) {
                    break;
                }
                (count, sum) = (count + 1, next);
            }
            if count < packets.len() {
                let mut fits = PacketList::new();
                packets.split_front(count, &mut fits);
                packets.append(&mut refused);
                refused = std::mem::replace(&mut packets, fits);
            }
            match self.input.push(packets, sum, self.max) {
                Ok(_) => return refused,
                Err(back) => packets = back,
            }
            free = self.max.saturating_sub(self.input.len());
        }
    }

    /// A mark behind everything that the calling thread has pushed.
    pub fn mark(&self) -> Mark {
        Mark(self.input.mark())
    }

    /// True if the owner is done with everything in front of `mark`. May say no for a while after
    /// it is.
    pub fn passed(&self, mark: Mark) -> bool {
        self.input.passed(mark.0)
    }

    /// Packets that wait to be taken; one that keeps much memory counts as several.
    pub fn len(&self) -> usize {
        self.input.len()
    }

    /// True if none waits to be taken. To be asked after `Notify::prepare`, too.
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Packets that may wait.
    pub fn max(&self) -> usize {
        self.max
    }
}

/// The side of a backlog that its worker has.
#[derive(Debug)]
pub struct BacklogOwner {
    backlog: Arc<Backlog>,
    /// Taken and not yet processed.
    process: PacketList,
    /// Packets were given out since `process` was filled.
    begun: bool,
    /// There was something the last time.
    flowing: bool,
}

impl BacklogOwner {
    /// Moves packets to the end of `out` until they stand for `quota` wire packets or more, taking
    /// what arrived meanwhile when nothing is left of the last batch. The packets count as done at
    /// the next call, or at [`done`](BacklogOwner::done). Returns the wire packets.
    pub fn poll(&mut self, quota: usize, out: &mut PacketList) -> usize {
        self.done();
        // A look costs one more transfer of a line that senders write. Where something was there
        // the last time, it is taken at once.
        if self.process.is_empty() && (self.flowing || !self.backlog.is_empty()) {
            self.process = self.backlog.input.take();
            self.begun = true;
            self.flowing = !self.process.is_empty();
            self.done();
        }
        self.process.split_wire_packets(quota, out)
    }

    /// Takes back the end of what [`poll`](BacklogOwner::poll) gave out: it comes first next time.
    pub fn put_back(&mut self, mut packets: PacketList) {
        packets.append(&mut self.process);
        self.process = packets;
    }

    /// Everything that [`poll`](BacklogOwner::poll) gave out is processed.
    pub fn done(&mut self) {
        if self.begun && self.process.is_empty() {
            self.backlog.input.end_batch();
            self.begun = false;
        }
    }

    /// Packets taken and not yet given out.
    pub fn taken(&self) -> usize {
        self.process.len()
    }

    /// True if there is nothing to process.
    pub fn is_empty(&self) -> bool {
        self.process.is_empty() && self.backlog.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softnet::testing::{frame, pool};

    fn marks(list: &PacketList) -> Vec<u32> {
        list.iter().map(|p| p.mark()).collect()
    }

    /// INV-RX-3: exactly `max` wait, whatever the lengths of the lists; what does not fit is the
    /// end of the last one.
    #[test]
    fn the_bound_is_exact_and_refuses_from_the_end() {
        let pool = pool(64);
        let list =
            |range: std::ops::Range<u32>| range.map(|n| frame(&pool, 1, 2, 60, n)).collect();
        let (backlog, mut owner) = Backlog::new(10);
        assert_eq!(
            marks(&backlog.push(list(0..25))),
            (10..25).collect::<Vec<_>>()
        );
        assert_eq!((backlog.len(), backlog.push(list(30..31)).len()), (10, 1));
        let mut out = PacketList::new();
        owner.poll(4, &mut out);
        assert_eq!((backlog.len(), owner.taken()), (0, 6));
        assert!(backlog.push(list(40..47)).is_empty());
        assert_eq!(marks(&backlog.push(list(50..55))), [53, 54]);
        while !owner.is_empty() {
            owner.poll(4, &mut out);
        }
        let all: Vec<u32> = (0..10).chain(40..47).chain(50..53).collect();
        assert_eq!(marks(&out), all);
    }

    /// INV-RX-3: what waits is limited in memory, too.
    #[test]
    fn large_frames_count_for_the_buffers_that_they_hold() {
        let pool = pool(512);
        let large = |n| {
            let mut packet = frame(&pool, 1, 2, 60, n);
            (0..32).for_each(|_| packet.append_segment(frame(&pool, 1, 2, 60, 0)));
            packet
        };
        let each = weight(&large(0));
        assert!(each > 1, "{each}");
        let (backlog, mut owner) = Backlog::new(3 * each);
        let refused = backlog.push((0..5).map(large).collect());
        assert_eq!(marks(&refused), [3, 4]);
        assert_eq!(backlog.push(frame(&pool, 1, 2, 60, 9).into()).len(), 1);
        let mut out = PacketList::new();
        owner.poll(9, &mut out);
        assert_eq!(marks(&out), [0, 1, 2]);
        // One that is heavier than all that may wait passes an empty backlog, alone.
        let (backlog, _owner) = Backlog::new(1);
        assert_eq!(marks(&backlog.push((0..2).map(large).collect())), [1]);
        assert_eq!(marks(&backlog.push(large(2).into())), [2]);
    }

    /// INV-RX-6, INV-RX-2: a poll gives out its quota and no more, and a mark passes when the last
    /// packet in front of it is processed.
    #[test]
    fn a_quota_is_kept_and_marks_pass_in_turn() {
        let pool = pool(64);
        let (backlog, mut owner) = Backlog::new(100);
        assert!(
            backlog
                .push((0..5).map(|n| frame(&pool, 1, 2, 60, n)).collect())
                .is_empty()
        );
        let first = backlog.mark();
        let mut out = PacketList::new();
        owner.poll(3, &mut out);
        assert_eq!((out.len(), owner.is_empty()), (3, false));
        assert!(backlog.push(frame(&pool, 1, 2, 60, 5).into()).is_empty());
        let second = backlog.mark();
        owner.poll(3, &mut out);
        assert_eq!(out.len(), 5, "a poll ends at the end of a batch");
        assert!(!backlog.passed(first), "given out is not processed");
        owner.done();
        assert!(backlog.passed(first) && !backlog.passed(second));
        owner.poll(3, &mut out);
        owner.done();
        assert!(backlog.passed(second) && owner.is_empty());
    }

    /// A backlog that has run dry is taken once more in vain; marks asked for meanwhile still pass
    /// with the packets in front of them, not before.
    #[test]
    fn a_look_in_vain_passes_no_mark() {
        let pool = pool(64);
        let (backlog, mut owner) = Backlog::new(100);
        for n in 0..5 {
            assert!(backlog.push(frame(&pool, 1, 2, 60, n).into()).is_empty());
            let mark = backlog.mark();
            let mut out = PacketList::new();
            owner.poll(8, &mut out);
            assert_eq!(marks(&out), [n]);
            assert!(!backlog.passed(mark), "given out is not processed");
            owner.poll(8, &mut out);
            assert!(backlog.passed(mark), "the next poll says that it is");
            owner.poll(8, &mut out);
            assert_eq!((out.len(), owner.is_empty()), (1, true));
            if n % 2 == 0 {
                // The mark behind nothing passes with the next batch.
                let behind = backlog.mark();
                assert!(!backlog.passed(behind));
                assert!(backlog.push(frame(&pool, 1, 2, 60, 9).into()).is_empty());
                owner.poll(8, &mut out);
                assert!(!backlog.passed(behind));
                owner.done();
                assert!(backlog.passed(behind));
            }
        }
    }

    /// INV-RX-1, INV-RX-2: whatever three senders push is processed or refused, each sender's
    /// packets in order, in bounded batches.
    #[test]
    fn many_senders_lose_nothing_and_keep_order() {
        let each = if cfg!(miri) { 40 } else { 20_000 };
        let pool = pool(1024);
        let (backlog, mut owner) = Backlog::new(50);
        let mut seen = [0_u32; 3];
        let mut worked = 0;
        let refused = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|sender: u32| {
                    let (backlog, pool) = (&backlog, &pool);
                    scope.spawn(move || {
                        let (mut refused, mut n) = (0, 0);
                        while n < each {
                            let mut list = PacketList::new();
                            for _ in 0..1 + n % 7 {
                                n += 1;
                                list.push_back(frame(pool, 1, 2, 60, sender << 24 | n));
                            }
                            refused += backlog.push(list).len();
                            if n % 64 == 0 {
                                std::thread::yield_now();
                            }
                        }
                        (refused, n)
                    })
                })
                .collect();
            let mut work = |owner: &mut BacklogOwner| {
                assert!(backlog.len() <= 50);
                let mut out = PacketList::new();
                owner.poll(64, &mut out);
                assert!(out.len() <= 64);
                for packet in out {
                    let (sender, n) = ((packet.mark() >> 24) as usize, packet.mark() & 0xFF_FFFF);
                    assert!(n > seen[sender], "overtaken");
                    seen[sender] = n;
                    worked += 1;
                }
            };
            while !senders.iter().all(|s| s.is_finished()) {
                work(&mut owner);
                std::thread::yield_now();
            }
            while !owner.is_empty() {
                work(&mut owner);
            }
            senders
                .into_iter()
                .map(|s| s.join().unwrap())
                .fold((0, 0), |sum: (usize, u32), (refused, sent)| {
                    (sum.0 + refused, sum.1 + sent)
                })
        });
        assert_eq!(worked + refused.0, refused.1 as usize);
        assert_eq!(pool.stats().free, 1024);
    }
}
