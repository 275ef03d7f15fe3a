//! The subject of the experiments with packet buffers: a pool or allocator from which packets are
//! allocated, one or many at a time.

use std::time::Duration;

use ::softnet::mem::{Pool, PoolConfig};

use crate::error::{BenchError, failed};
use crate::interleave::{self, Turn};
use crate::options::Options;
use crate::report::{Collector, Param};

#[allow(unsafe_code, reason = "packets are linked through their own memory")]
pub(crate) mod line;
pub(crate) mod pinned;
mod softnet;
pub(crate) mod source;

pub(crate) use softnet::Softnet;

/// Bytes of data in a buffer.
pub(crate) const DATA: usize = 2048;
/// Retries of a turn in which no packet passed, as the threads did not get their CPUs.
const RETRIES: usize = 3;

/// A source of packets. Every implementation does the same work: an allocated packet has a fresh
/// header line of 64 bytes, and the packets of a burst are linked through it.
pub(crate) trait Buffers: Sync {
    /// A packet.
    type Packet: Send;
    /// Packets linked to a list.
    type Burst: Default;

    /// One packet, if there is one.
    fn alloc(&self) -> Option<Self::Packet>;
    /// Appends up to `n` packets to `burst`; returns how many.
    fn alloc_bulk(&self, n: usize, burst: &mut Self::Burst) -> usize;
    /// Reads the length of the frame from the header line.
    fn frame_len(&self, packet: &Self::Packet) -> usize;
    /// Adds a packet at the end.
    fn push(&self, burst: &mut Self::Burst, packet: Self::Packet);
    /// A burst of these packets.
    fn gather(&self, packets: impl Iterator<Item = Self::Packet>) -> Self::Burst {
        let mut burst = Self::Burst::default();
        packets.for_each(|packet| self.push(&mut burst, packet));
        burst
    }
    /// Takes the first packet.
    fn pop(&self, burst: &mut Self::Burst) -> Option<Self::Packet>;
    /// Frees one packet.
    fn free(&self, packet: Self::Packet);
    /// Frees all packets of a burst.
    fn free_bulk(&self, burst: Self::Burst);

    /// Called by each thread before its first packet.
    fn start(&self) {}
    /// Called before the thread sleeps; false if it must not.
    fn before_sleep(&self) -> bool {
        true
    }
    /// Called when it is awake again.
    fn after_sleep(&self) {}

    /// The pool's counters since it was made, if it counts.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// Work of a pool besides handing out packets; `None` is not counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Exchanges with the shared depot.
    pub(crate) depot_ops: Option<u64>,
    /// Packets that another thread sent to their owner.
    pub(crate) deferred: Option<u64>,
    /// Packets that went to the depot instead of their owner.
    pub(crate) bypassed: Option<u64>,
    /// Wake-ups of sleeping owners.
    pub(crate) wakes: Option<u64>,
}

impl Counts {
    /// The counts after `before`.
    pub(crate) fn since(self, before: Counts) -> Counts {
        let since = |after: Option<u64>, before: Option<u64>| Some(after?.wrapping_sub(before?));
        Counts {
            depot_ops: since(self.depot_ops, before.depot_ops),
            deferred: since(self.deferred, before.deferred),
            bypassed: since(self.bypassed, before.bypassed),
            wakes: since(self.wakes, before.wakes),
        }
    }
}

/// The result of one turn at one figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) packets: u64,
    pub(crate) time: Duration,
    /// Counted during the turn.
    pub(crate) counts: Counts,
}

/// A pool of so many buffers.
pub(crate) fn pool(buffers: usize, buffer_size: usize) -> Result<Pool, BenchError> {
    let config = PoolConfig {
        buffers,
        buffer_size,
    };
    Pool::new(config).map_err(failed)
}

/// A variant's turns at one figure.
pub(crate) fn figure(
    name: &'static str,
    params: Vec<Param>,
    slice: Duration,
    measure: impl Fn(Duration) -> Result<Reading, BenchError> + 'static,
) -> Turn {
    let of = params.clone();
    let turn = move |results: &mut Collector| {
        let mut reading = measure(slice)?;
        for _ in 0..RETRIES {
            if reading.packets > 0 {
                break;
            }
            reading = measure(slice)?;
        }
        let packets = reading.packets as f64;
        if reading.packets == 0 {
            results.skip(name, &of, "no packet passed in the time");
            return Ok(());
        }
        let ns = reading.time.as_secs_f64() * 1e9 / packets;
        let mut fields = vec![("ns_per_packet", ns), ("mpps", 1e3 / ns)];
        let counts = [
            ("depot_ops_per_packet", reading.counts.depot_ops),
            ("deferred_per_packet", reading.counts.deferred),
            ("bypassed_per_packet", reading.counts.bypassed),
            ("wakes_per_packet", reading.counts.wakes),
        ];
        for (name, count) in counts {
            fields.extend(count.map(|count| (name, count as f64 / packets)));
        }
        results.add(name, &of, &fields);
        Ok(())
    };
    Turn::new(name, &params, turn)
}

/// Lets the variants of one figure take turns, with `slice` for each.
pub(crate) fn take_turns(
    options: &Options,
    slice: Duration,
    figures: Vec<Turn>,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let Some(first) = figures.first() else {
        return Ok(());
    };
    // After a quarter of it to warm up.
    let rounds = options.rounds().of(&first.params, slice);
    let rounds = rounds.in_turns_of(slice.mul_f64(1.3));
    interleave::measure(options, rounds, figures, results)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Allocates until nothing is left or `at_most`, frees in both ways, and does it again:
    /// nothing is lost or given out twice.
    pub(crate) fn everything_comes_back<B: Buffers>(buffers: &B, at_most: usize) {
        for bulk in [1, 7, 64] {
            let mut burst = B::Burst::default();
            let mut got = 0;
            while got < at_most {
                let n = if bulk == 1 {
                    buffers.alloc().map_or(0, |p| {
                        usize::from({
                            buffers.push(&mut burst, p);
                            true
                        })
                    })
                } else {
                    buffers.alloc_bulk(bulk.min(at_most - got), &mut burst)
                };
                assert!(n > 0, "only {got} of {at_most}");
                got += n;
            }
            for _ in 0..got / 2 {
                let packet = buffers
                    .pop(&mut burst)
                    .expect("the burst is as long as was said");
                assert_eq!(buffers.frame_len(&packet), 0);
                buffers.free(packet);
            }
            buffers.free_bulk(burst);
        }
    }

    #[test]
    fn softnet_s_pool_loses_nothing() {
        let softnet = Softnet::new(1000, true).expect("a small pool");
        everything_comes_back(&softnet, 1000);
    }

    #[test]
    fn a_figure_without_packets_is_a_row_with_the_reason() {
        let figure = figure("dpdk", Vec::new(), Duration::from_millis(1), |time| {
            Ok(Reading {
                packets: 0,
                time,
                counts: Counts::default(),
            })
        });
        let mut results = Collector::default();
        (figure.measure)(&mut results).expect("it is no error");
        let report = results.report("x");
        assert!(report["rows"][0]["skipped"].is_string(), "{report}");
    }
}
