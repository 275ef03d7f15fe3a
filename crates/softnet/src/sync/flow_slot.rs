//! Which queue a flow uses, such that it changes only while none of its packets waits in the old
//! one. (What `ooo_okay` is for in the kernel.)
//!
//! Senders of a flow share its slot. Each [`pin`](FlowSlot::pin)s it, pushes its packets on the
//! queue that the slot names, and unpins it.
//!
//! Invariant: when a sender pushes, every packet that was pushed under this slot before, and
//! still waits, waits in the same queue.
//!
//! Argument: the slot is one word: queue, number of pins, version. Every pin adds 1 to the
//! version, in the same atomic step that reads the queue. A sender that wants another queue reads
//! the word (L), finds no pin, finds the queue empty, and changes the queue by a compare-and-swap
//! (C) that succeeds only on the word read. Had anybody pinned between L and C, the version would
//! differ: so nobody is between pin and unpin at C, and all that were unpinned before L, whose
//! pushes L sees (unpin releases (U), L acquires), so that the look at the queue, which follows
//! L, finds their packets if they still wait. A flow with a busy queue stays there: nobody waits,
//! the choice is put off.
//!
//! Bounds: 2^20 threads may pin a slot at once; the version has 28 bits, so a sender that sleeps
//! between L and C for exactly a multiple of 2^28 pins of one slot could move a flow too early
//! (which costs order, nothing else).

use super::primitive::{AtomicU64, Ordering};

/// Names no queue: what a new slot holds.
const NONE: u16 = u16::MAX;
const QUEUE: u64 = 0xFFFF;
const PIN: u64 = 1 << 16;
const PINS: u64 = ((1 << 20) - 1) << 16;
const VERSION: u64 = 1 << 36;

/// The queue of one flow (or of the flows that share the slot).
#[derive(Debug)]
pub(crate) struct FlowSlot(AtomicU64);

impl Default for FlowSlot {
    /// A slot without a queue: the first sender chooses.
    fn default() -> FlowSlot {
        FlowSlot(AtomicU64::new(u64::from(NONE)))
    }
}

impl FlowSlot {
    /// Chooses a queue, `wanted` if it may be: if the slot names none, or names that one, or
    /// names one that the flow `may` not take (any more), or one that `is_empty` says holds
    /// nothing. Else the one it names. The choice holds until the pin is dropped: push in between.
    ///
    /// `is_empty` must be exact for packets whose push happens before the call. Lock-free: goes
    /// round again only if another thread's step succeeded meanwhile.
    pub(crate) fn pin(
        &self,
        wanted: u16,
        may: impl Fn(u16) -> bool,
        is_empty: impl Fn(u16) -> bool,
    ) -> FlowPin<'_> {
        self.pin_by(wanted, may, is_empty, PIN | VERSION)
    }

    /// [`pin`](FlowSlot::pin), with what a pin adds to the word; the models leave parts of it out
    /// to show what they protect from.
    #[inline]
    pub(super) fn pin_by(
        &self,
        wanted: u16,
        may: impl Fn(u16) -> bool,
        is_empty: impl Fn(u16) -> bool,
        step: u64,
    ) -> FlowPin<'_> {
        // L: pairs with U.
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let queue = (word & QUEUE) as u16;
            let free = queue == NONE || !may(queue) || (word & PINS == 0 && is_empty(queue));
            let take = if queue == wanted || free {
                wanted
            } else {
                queue
            };
            let next = (word & !QUEUE | u64::from(take)).wrapping_add(step);
            // C. Acquire on failure: the word read counts as L for the next round.
            match self
                .0
                .compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return FlowPin {
                        slot: self,
                        queue: take,
                        pins: step & PINS,
                    };
                }
                Err(now) => word = now,
            }
        }
    }
}

/// A sender's hold on its flow's queue, while it pushes.
#[derive(Debug)]
pub(crate) struct FlowPin<'a> {
    slot: &'a FlowSlot,
    queue: u16,
    pins: u64,
}

impl FlowPin<'_> {
    /// The queue to push on.
    pub(crate) fn queue(&self) -> u16 {
        self.queue
    }

    /// True if it holds this slot.
    pub(crate) fn is_of(&self, slot: &FlowSlot) -> bool {
        std::ptr::eq(self.slot, slot)
    }
}

impl Drop for FlowPin<'_> {
    fn drop(&mut self) {
        // U: pairs with L.
        self.slot.0.fetch_sub(self.pins, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: fn(u16) -> bool = |_| true;

    #[test]
    fn a_flow_moves_only_while_its_queue_is_empty_and_unpinned() {
        let slot = FlowSlot::default();
        assert_eq!(slot.pin(3, ALL, |_| false).queue(), 3, "the first chooses");
        assert_eq!(slot.pin(5, ALL, |_| false).queue(), 3, "packets wait there");
        let pin = slot.pin(3, ALL, ALL);
        assert_eq!(slot.pin(5, ALL, ALL).queue(), 3, "somebody pushes there");
        drop(pin);
        let asked = std::cell::Cell::new(None);
        let empty = |queue| {
            asked.set(Some(queue));
            true
        };
        assert_eq!(slot.pin(5, ALL, empty).queue(), 5);
        assert_eq!(asked.get(), Some(3), "the old queue is looked at");
        let pin = slot.pin(5, ALL, ALL);
        let other = slot.pin(1, |q| q < 4, |_| false);
        assert_eq!(other.queue(), 1, "5 is gone");
        drop((pin, other));
        assert_eq!(slot.0.load(Ordering::Relaxed) & PINS, 0);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    /// A flow's slot and how many of its packets wait in each of two queues. Nothing leaves them.
    struct Flow {
        slot: FlowSlot,
        waiting: [AtomicUsize; 2],
    }

    impl Flow {
        fn send(&self, wanted: u16, step: u64) {
            // Relaxed throughout: the slot alone orders pushes and looks.
            let waiting = |q: u16| self.waiting[usize::from(q)].load(Ordering::Relaxed);
            let pin = self
                .slot
                .pin_by(wanted, |_| true, |q| waiting(q) == 0, step);
            self.waiting[usize::from(pin.queue())].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn packets_stay_together(step: u64, sends: usize) {
        loom::model(move || {
            let flow = Arc::new(Flow {
                slot: FlowSlot::default(),
                waiting: [AtomicUsize::new(0), AtomicUsize::new(0)],
            });
            // The flow was in queue 0 and has left it.
            drop(flow.slot.pin(0, |_| true, |_| true));
            let other = flow.clone();
            let thread = thread::spawn(move || (0..sends).for_each(|_| other.send(0, step)));
            flow.send(1, step);
            thread.join().unwrap();
            let [a, b] = [0, 1].map(|q| flow.waiting[q].load(Ordering::Relaxed));
            assert_eq!(a + b, sends + 1);
            assert!(a == 0 || b == 0, "apart");
        });
    }

    #[test]
    fn inv_tx_15_a_flows_packets_wait_in_one_queue() {
        packets_stay_together(PIN | VERSION, 1);
        packets_stay_together(PIN | VERSION, 2);
    }

    #[test]
    #[should_panic(expected = "apart")]
    fn without_the_pins_a_sender_between_choice_and_push_is_overlooked() {
        packets_stay_together(VERSION, 1);
    }

    #[test]
    #[should_panic(expected = "apart")]
    fn without_the_version_a_sender_that_came_and_went_is_overlooked() {
        packets_stay_together(PIN, 1);
    }

    /// Three senders that want three different things.
    #[test]
    fn three_senders_agree() {
        loom::model(|| {
            let flow = Arc::new(Flow {
                slot: FlowSlot::default(),
                waiting: [AtomicUsize::new(0), AtomicUsize::new(0)],
            });
            let threads: Vec<_> = [0, 1]
                .map(|wanted| {
                    let flow = flow.clone();
                    thread::spawn(move || flow.send(wanted, PIN | VERSION))
                })
                .into();
            flow.send(1, PIN | VERSION);
            threads.into_iter().for_each(|t| t.join().unwrap());
            let [a, b] = [0, 1].map(|q| flow.waiting[q].load(Ordering::Relaxed));
            assert_eq!((a + b, a.min(b)), (3, 0));
        });
    }
}
