//! Peer `dpdk-sched`: DPDK's `rte_sched` on one core, in a C program of its own. A class is a pipe
//! with one queue.
//!
//! At its best setting: no traffic classes that are not used, and for each figure the better size
//! of the core's cache and the better traffic class, strict or best effort.

use std::cell::Cell;
use std::time::Duration;

use super::FRAME;
use crate::buffers::{Counts, Reading};
use crate::error::BenchError;
use crate::htb_tree::RATE;
use crate::peers::dpdk;

const SOURCE: &str = include_str!("../../peers/dpdk_sched.c");
/// Packets in a burst.
pub(super) const BULK: usize = 32;
/// Memory for packets and the scheduler.
const MEGABYTES: usize = 128;

/// Packets in the core's cache, and the traffic class.
pub(crate) type Setting = (usize, usize);

/// The first strict one, and best effort.
const TRAFFIC_CLASSES: [usize; 2] = [0, 12];
const CACHES: [usize; 2] = [256, 512];

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Sched {
    classes: u16,
    waiting: usize,
    cpu: usize,
}

impl Sched {
    pub(crate) fn new(classes: u16, waiting: usize, cpu: usize) -> Sched {
        Sched {
            classes,
            waiting,
            cpu,
        }
    }

    /// Measures with the setting that is `best`, which the first time is found out.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] without libdpdk or a C compiler.
    pub(crate) fn measure(
        &self,
        best: &Cell<Option<Setting>>,
        time: Duration,
    ) -> Result<Reading, BenchError> {
        let setting = match best.get() {
            Some(setting) => setting,
            None => {
                let classes = |cache| TRAFFIC_CLASSES.map(|class| (cache, class));
                let run = |setting| self.run(setting, time);
                let found = dpdk::fastest(CACHES.into_iter().flat_map(classes), run)?;
                best.set(found);
                found.unwrap_or((CACHES[0], TRAFFIC_CLASSES[0]))
            }
        };
        self.run(setting, time)
    }

    fn run(&self, (cache, class): Setting, time: Duration) -> Result<Reading, BenchError> {
        let program = dpdk::compile("dpdk_sched", SOURCE)?;
        let ms = |time: Duration| time.as_millis().max(1) as u64;
        let memory = dpdk::Memory::new(MEGABYTES);
        let numbers = [
            self.cpu as u64,
            self.classes.into(),
            self.waiting as u64,
            BULK as u64,
            FRAME as u64,
            RATE,
            ms(time / 4),
            ms(time),
            cache as u64,
            class as u64,
        ];
        let answer = program.run(&numbers.map(|n| n.to_string()), &memory)?;
        if answer.number("drops")? > 0 {
            return Err(BenchError::Measure(
                "dpdk-sched: packets were dropped".into(),
            ));
        }
        Ok(Reading {
            packets: answer.number("packets")?,
            time: Duration::from_nanos(answer.number("ns")?),
            counts: Counts::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::pinned::Cpus;

    /// The program itself fails if a packet is lost.
    #[test]
    fn the_scheduler_passes_packets_on() {
        let cpu = Cpus::choose().expect("a process has a CPU").b;
        for (classes, waiting) in [(10, 0), (1024, 2)] {
            let best = Cell::new(None);
            match Sched::new(classes, waiting, cpu).measure(&best, Duration::from_millis(5)) {
                Ok(reading) => assert!(reading.packets > 0),
                Err(BenchError::Unavailable(why)) => return softnet_tests::skip(&why),
                Err(other) => panic!("{other}"),
            }
        }
    }
}
