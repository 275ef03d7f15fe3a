//! Receive packet steering (RPS) and receive flow steering (RFS): which worker a received packet
//! is for (the kernel's `get_rps_cpu`).
//!
//! A queue's table maps the hash of a flow to an entry, and an entry to the worker that has the
//! flow. Which worker is *wanted* comes from the port's map (by entry, so that flows that share
//! one agree) or from the [`FlowTable`] (by flow). The entry follows when the packets that went to
//! the old worker have all been processed there.
//!
//! INV-RX-2: packets of one flow are processed in order, also while the map or the flow's consumer
//! changes. An entry is changed only if the [`Mark`] taken after its last push has passed, and
//! never twice within one poll. What a queue's owner keeps for itself it has forwarded before it
//! lets go of the claim, so that no mark need pass.
//!
//! Belongs to one receive queue and is used by the holder of its claim.

use std::sync::Arc;

use super::FlowTable;
use super::backlog::Mark;
use softnet::mem::Packet;

/// Entries of a queue's table (the kernel's `rps_flow_cnt`).
pub(crate) const ENTRIES: usize = 4096;

/// Receive flow steering of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rfs {
    /// By the map alone.
    #[default]
    Off,
    /// To the worker that was recorded for the flow, else by the map.
    Follow,
    /// By the map, and the worker that polls the port is recorded as the consumer of its flows.
    /// (The hash of a flow is the same both ways.)
    Record,
}

/// Steering of a port's received packets to workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteeringSpec {
    /// Numbers of the workers that flows are spread over (the kernel's `rps_cpus`). Empty: the
    /// worker that polls the queue.
    pub rps: Vec<usize>,
    /// Steering of flows to where their consumers run.
    pub rfs: Rfs,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mark: u64,
    worker: u16,
    /// Used in the poll that is going on; `mark` is not known yet.
    open: bool,
}

/// No worker has the flow.
const NOBODY: u16 = u16::MAX;

/// The steering of one receive queue.
#[derive(Debug)]
pub(super) struct Steering {
    /// The worker that owns the queue.
    owner: u16,
    map: Vec<u16>,
    rfs: Rfs,
    table: Arc<FlowTable>,
    entries: Box<[Entry]>,
    /// Entries used in this poll.
    open: Vec<u16>,
}

impl Steering {
    pub(super) fn new(owner: u16, table: Arc<FlowTable>) -> Steering {
        let nobody = Entry {
            mark: 0,
            worker: NOBODY,
            open: false,
        };
        Steering {
            owner,
            map: Vec::new(),
            rfs: Rfs::Off,
            table,
            entries: vec![nobody; ENTRIES].into_boxed_slice(),
            open: Vec::new(),
        }
    }

    /// Changes what is wanted. Flows move as their packets are processed. `spec` names workers
    /// that exist.
    pub(super) fn set(&mut self, spec: &SteeringSpec) {
        self.map = spec.rps.iter().map(|&w| w as u16).collect();
        self.rfs = spec.rfs;
    }

    /// The worker that the packet is for. `passed` says whether a mark of a worker's backlog has
    /// passed; `workers` is their number.
    pub(super) fn choose(
        &mut self,
        packet: &mut Packet,
        workers: usize,
        passed: impl Fn(u16, Mark) -> bool,
    ) -> u16 {
        let Some(hash) = flow_hash(packet) else {
            // Not a flow (BUG-RX-10): processed where it arrived.
            return self.owner;
        };
        let index = hash as usize & (ENTRIES - 1);
        let wanted = self.wanted(hash, index, workers);
        let entry = &mut self.entries[index];
        if entry.worker != wanted {
            let free = entry.worker == NOBODY
                || !entry.open
                    && (entry.worker == self.owner || passed(entry.worker, Mark(entry.mark)));
            if free {
                entry.worker = wanted;
            }
        }
        if !entry.open {
            entry.open = true;
            self.open.push(index as u16);
        }
        entry.worker
    }

    fn wanted(&self, hash: u32, index: usize, workers: usize) -> u16 {
        match self.rfs {
            Rfs::Follow => {
                let consumer = self.table.worker(hash).filter(|&w| w < workers);
                if let Some(consumer) = consumer {
                    return consumer as u16;
                }
            }
            Rfs::Record => self.table.record(hash, usize::from(self.owner)),
            Rfs::Off => {}
        }
        // reciprocal_scale, over the entries: the quotient is below the length.
        self.map
            .get(index * self.map.len() / ENTRIES)
            .map_or(self.owner, |&worker| worker)
    }

    /// Ends a poll: everything chosen for a worker has been pushed, and `mark` is the mark behind
    /// it.
    pub(super) fn settle(&mut self, mark: impl Fn(u16) -> Mark) {
        for index in self.open.drain(..) {
            let entry = &mut self.entries[usize::from(index)];
            entry.open = false;
            if entry.worker != self.owner {
                entry.mark = mark(entry.worker).0;
            }
        }
    }
}

/// The packet's flow hash, which is noted in it. `None` if its headers are bad.
pub(super) fn flow_hash(packet: &mut Packet) -> Option<u32> {
    if packet.flow_hash().is_none() {
        let hash = packet.parse().ok()?.flow_hash(packet.data());
        packet.set_flow_hash(hash);
    }
    packet.flow_hash()
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use softnet::testing::{frame, pool};

    const WORKERS: usize = 4;

    fn steering(rps: &[usize], rfs: Rfs) -> (Steering, Arc<FlowTable>) {
        let table = Arc::new(FlowTable::new(1024, WORKERS));
        let mut steering = Steering::new(0, table.clone());
        steering.set(&SteeringSpec {
            rps: rps.to_vec(),
            rfs,
        });
        (steering, table)
    }

    fn packet(hash: u32) -> Packet {
        let mut packet = frame(&pool(8), 1, 2, 60, 0);
        packet.set_flow_hash(hash);
        packet
    }

    #[test]
    fn a_map_is_used_evenly_and_a_flow_has_one_worker() {
        let (mut steering, _) = steering(&[1, 2, 3], Rfs::Off);
        let mut counts = [0_u32; WORKERS];
        for n in 0..3000_u32 {
            let hash = n.wrapping_mul(0x9E37_79B9);
            let first = steering.choose(&mut packet(hash), WORKERS, |_, _| true);
            steering.settle(|_| Mark(0));
            assert_eq!(
                steering.choose(&mut packet(hash), WORKERS, |_, _| true),
                first
            );
            steering.settle(|_| Mark(0));
            counts[usize::from(first)] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(
            counts[1..].iter().all(|&n| (900..1100).contains(&n)),
            "{counts:?}"
        );
    }

    /// INV-RX-2: an entry changes hands only when its mark has passed, and never in the middle of
    /// a poll.
    #[test]
    fn a_flow_stays_while_its_packets_wait() {
        let (mut steering, _) = steering(&[1], Rfs::Off);
        let passed = Cell::new(true);
        let choose = |steering: &mut Steering| {
            let mut packet = packet(7);
            steering.choose(&mut packet, WORKERS, |worker, mark| {
                assert_eq!((worker, mark), (1, Mark(42)));
                passed.get()
            })
        };
        assert_eq!(choose(&mut steering), 1);
        steering.set(&SteeringSpec {
            rps: vec![2],
            rfs: Rfs::Off,
        });
        assert_eq!(choose(&mut steering), 1, "the poll is still going on");
        steering.settle(|_| Mark(42));
        passed.set(false);
        assert_eq!(choose(&mut steering), 1, "its packets wait");
        steering.settle(|_| Mark(42));
        passed.set(true);
        assert_eq!(choose(&mut steering), 2);
    }

    #[test]
    fn without_a_map_everything_stays_and_so_does_what_is_no_flow() {
        let (mut none, _) = steering(&[], Rfs::Off);
        assert_eq!(none.choose(&mut packet(7), WORKERS, |_, _| true), 0);
        let (mut some, _) = steering(&[3], Rfs::Off);
        // BUG-RX-10: an IPv4 header that is cut off has no hash.
        let mut bad = frame(&pool(8), 1, 2, 16, 0);
        bad.data_mut()[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(some.choose(&mut bad, WORKERS, |_, _| true), 0);
        assert!(bad.flow_hash().is_none());
    }

    /// BUG-RX-11: a consumer that no longer exists is no index.
    #[test]
    fn flows_follow_their_consumer_if_it_exists() {
        let (mut steering, table) = steering(&[1], Rfs::Follow);
        let mut choose = |hash, workers| {
            let worker = steering.choose(&mut packet(hash), workers, |_, _| true);
            steering.settle(|_| Mark(0));
            worker
        };
        assert_eq!(choose(99, WORKERS), 1);
        table.record(99, 3);
        assert_eq!(choose(99, WORKERS), 3);
        assert_eq!(choose(99, 2), 1);
    }

    #[test]
    fn a_recording_port_names_its_worker() {
        let (mut steering, table) = steering(&[], Rfs::Record);
        assert_eq!(steering.choose(&mut packet(5), WORKERS, |_, _| true), 0);
        assert_eq!(table.worker(5), Some(0));
    }
}
