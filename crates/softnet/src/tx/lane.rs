//! Which lane of a queue a thread uses (see [`ServedBy::SendersByCpu`](super::ServedBy)): that of the CPU on which it runs, as far as its packets' order allows it to change.

use std::cell::Cell;
use std::num::NonZero;

use crate::packet::PacketRun;
use crate::sync::MAX_LANES;

/// Packet lists that a thread sends between two looks at the CPU on which it runs.
const LOOK_EVERY: u32 = if cfg!(test) { 3 } else { 256 };

/// What a thread remembers. (Each by itself: to copy the whole of what was just changed in part stalls the processor.)
struct Place {
    /// The only queue to which it sends, by its address; [`NONE`] or [`MANY`].
    queue: Cell<usize>,
    lane: Cell<usize>,
    /// Packet lists until it looks at its CPU again.
    looks: Cell<u32>,
    /// None of its packets waits in its lane.
    out: Cell<bool>,
}

const NONE: usize = 0;
const MANY: usize = usize::MAX;

thread_local! {
    static PLACE: Place = const {
        Place {
            queue: Cell::new(NONE),
            lane: Cell::new(0),
            looks: Cell::new(0),
            out: Cell::new(true),
        }
    };
}

#[cfg(not(test))]
fn cpu() -> usize {
    rustix::thread::sched_getcpu()
}

#[cfg(test)]
pub(super) use pretended::{cpu, pretend_cpu};

/// Lanes for the CPUs of this machine; the same for all queues.
pub(super) fn lanes() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
    if cfg!(test) { 2 } else { cpus.min(MAX_LANES) }
}

/// The calling thread's lane of a queue with lanes.
///
/// A thread that was moved to another CPU changes its lane as soon as none of its packets waits in the old one, so that none is passed by what it sends from then on. A thread
/// that sends to several queues keeps the lane that it had first, for all of them.
#[inline]
pub(super) fn lane_of<T>(run: &PacketRun<T>) -> usize {
    let Some(lanes) = run.lanes() else {
        return 0;
    };
    PLACE.with(|place| {
        let (sends_to, queue) = (place.queue.get(), std::ptr::from_ref(run).addr());
        let looks = place.looks.get();
        if sends_to == queue && looks > 0 {
            place.looks.set(looks - 1);
        } else if sends_to == queue || sends_to == NONE {
            if place.out.get() {
                place.lane.set(cpu() % lanes.len());
                place.queue.set(queue);
                place.looks.set(LOOK_EVERY);
            }
        } else {
            place.queue.set(MANY);
        }
        place.lane.get()
    })
}

/// Notes whether what the thread sent has left its lane, or still waits there.
#[inline]
pub(super) fn note_out(out: bool) {
    PLACE.with(|place| place.out.set(out));
}

/// In tests a thread is on the CPU that the test wants.
#[cfg(test)]
mod pretended {
    use std::cell::Cell;

    thread_local! {
        static CPU: Cell<usize> = const { Cell::new(0) };
    }

    pub(in crate::tx) fn cpu() -> usize {
        CPU.with(Cell::get)
    }

    pub(in crate::tx) fn pretend_cpu(cpu: usize) {
        CPU.with(|cell| cell.set(cpu));
    }
}
