//! loom models of the [`Lanes`] beside a [`RunList`]: push, announce, settle, take, take over, pass over. For each protecting step there is a model without
//! it, which must fail. Run by `.ci/loom.sh`.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::models::Node;
use super::primitive::store_load_barrier;
use super::*;

type Guard<'a> = RunnerGuard<'a, Node, Vec<usize>>;

/// How the queue is run, and which steps are left out.
#[derive(Clone, Copy, Default)]
struct Manner {
    /// A sender whose lane is attended tries to get the run after its push.
    takes_over: bool,
    /// A runner leaves the lanes alone, and rings the worker's bell.
    passes_over: bool,
    /// Without: a sender does not say that its lane is to be looked at.
    unannounced: bool,
    /// Without: taking a lane leaves its epoch as it is.
    timeless: bool,
    /// Without: a lane's bit is cleared after it was taken.
    forgets_late: bool,
    /// Without: the bell.
    silent: bool,
}

struct Queue {
    list: RunList<Node, Vec<usize>>,
    lanes: Lanes<Node>,
    bell: AtomicBool,
    manner: Manner,
}

impl Queue {
    fn new(manner: Manner) -> Arc<Queue> {
        Arc::new(Queue {
            list: RunList::new(Vec::new(), 0),
            lanes: Lanes::new(2, 0),
            bell: AtomicBool::new(false),
            manner,
        })
    }

    /// As `PacketRun::enter_by_lane`, and serves.
    fn transmit(&self, lane: usize, value: usize) {
        let node = NonNull::from(Box::leak(Box::new(Node { next: None, value })));
        // SAFETY: called once, while the node is still ours.
        let own = || unsafe { Box::from_raw(node.as_ptr()) }.value;
        if !self.lanes.is_attended(lane)
            && let Some((guard, left)) = self.list.try_begin()
        {
            return self.serve(guard, values(left).chain([own()]).collect());
        }
        loop {
            // SAFETY: ours, a chain of one.
            match unsafe { self.lanes.push(lane, node, node, 1, 100) } {
                LanePush::Left(_) => {
                    if self.manner.takes_over
                        && let Some((guard, left)) = self.list.try_begin()
                    {
                        let all = values(left).chain(self.take(lane)).collect();
                        self.serve(guard, all);
                    }
                    return;
                }
                LanePush::Full => unreachable!("the limit is far"),
                LanePush::Unattended(epoch) => {
                    if !self.manner.unannounced {
                        self.lanes.announce(lane);
                    }
                    if let Some((guard, left)) = self.list.begin_or_note() {
                        return self.serve(guard, values(left).chain([own()]).collect());
                    }
                    // SAFETY: ours, a chain of one.
                    if unsafe { self.lanes.settle(lane, epoch, node, node, 1) } {
                        return;
                    }
                }
            }
        }
    }

    fn take(&self, lane: usize) -> impl Iterator<Item = usize> {
        let taken = match self.manner {
            Manner {
                forgets_late: true, ..
            } => {
                let taken = self.lanes.swap(lane, 2);
                self.lanes.forget(lane);
                taken
            }
            Manner { timeless: true, .. } => {
                self.lanes.forget(lane);
                self.lanes.swap(lane, 0)
            }
            _ => self.lanes.take(lane),
        };
        values(taken)
    }

    /// What waits, in the list and, unless these are passed over, in the lanes.
    fn collect(&self, guard: &mut Guard<'_>, lanes: bool) -> Vec<usize> {
        let mut all: Vec<_> = values(guard.take()).collect();
        if lanes {
            // As `take_announced`, lane by lane.
            (0..2)
                .filter(|&lane| self.lanes.is_announced(lane))
                .for_each(|lane| all.extend(self.take(lane)));
        }
        all
    }

    fn serve(&self, mut guard: Guard<'_>, mut adopted: Vec<usize>) {
        loop {
            guard.append(&mut adopted);
            let quiet = self.lanes.is_quiet();
            if quiet || self.manner.passes_over {
                match guard.end() {
                    Ok(()) => {
                        if !quiet && !self.manner.silent {
                            store_load_barrier();
                            self.bell.store(true, Ordering::SeqCst);
                        }
                        return;
                    }
                    Err(again) => guard = again,
                }
            }
            adopted = self.collect(&mut guard, !self.manner.passes_over);
        }
    }

    /// The worker: as long as its bell rings.
    fn work(&self) {
        while self.bell.swap(false, Ordering::SeqCst) {
            store_load_barrier();
            self.lanes.announce_all();
            if let Some((mut guard, left)) = self.list.begin_or_miss() {
                let mut all: Vec<_> = values(left).collect();
                self.lanes.take_announced(|taken| all.extend(values(taken)));
                all.append(&mut self.collect(&mut guard, true));
                self.serve(guard, all);
            }
        }
    }

    /// What was sent, once nobody is active any more; what waits is stuck.
    fn sent(&self) -> Vec<usize> {
        let (guard, left) = self.list.try_begin().expect("idle");
        let waiting: usize = (0..2).map(|lane| self.lanes.waiting(lane)).sum();
        assert!(left.is_empty() && waiting == 0, "stuck");
        guard.clone()
    }
}

/// Oldest first.
fn values(taken: Taken<'_, Node>) -> impl Iterator<Item = usize> + use<> {
    let mut values = Vec::new();
    taken.visit(|node| {
        // SAFETY: given to us by `visit`, made by `transmit` from a box.
        values.push(unsafe { Box::from_raw(node.as_ptr()) }.value);
    });
    values.into_iter().rev()
}

/// INV-TX-1, INV-TX-2, INV-TX-3, INV-TX-5: two threads, one with two packets for lane 0 and one with a packet for `other_lane`. All are sent when both, and the worker, are done,
/// nobody waited, and each sender's are in its order.
fn two_senders(other_lane: usize, manner: Manner) {
    loom::model(move || {
        let queue = Queue::new(manner);
        let other = queue.clone();
        let thread = thread::spawn(move || other.transmit(other_lane, 10));
        queue.transmit(0, 1);
        queue.transmit(0, 2);
        thread.join().unwrap();
        queue.work();
        let sent = queue.sent();
        let mine: Vec<_> = sent.iter().copied().filter(|&v| v < 10).collect();
        assert_eq!((mine, sent.len()), (vec![1, 2], 3));
    });
}

/// Two senders to one lane while a third thread has the run from the start, which ends as `manner` says.
fn senders_and_a_runner(manner: Manner) {
    loom::model(move || {
        let queue = Queue::new(manner);
        let threads: Vec<_> = (1..3)
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.transmit(0, value))
            })
            .collect();
        let begun = queue.list.try_begin();
        if let Some((guard, left)) = begun {
            queue.serve(guard, values(left).collect());
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        queue.work();
        let mut sent = queue.sent();
        sent.sort_unstable();
        assert_eq!(sent, [1, 2]);
    });
}

const SERVES: Manner = Manner {
    takes_over: false,
    passes_over: false,
    unannounced: false,
    timeless: false,
    forgets_late: false,
    silent: false,
};

#[test]
fn lanes_that_are_served_leave_nothing_behind() {
    two_senders(0, SERVES);
    two_senders(1, SERVES);
    senders_and_a_runner(SERVES);
}

#[test]
fn lanes_that_are_passed_over_and_taken_over_leave_nothing_behind() {
    let manner = Manner {
        takes_over: true,
        passes_over: true,
        ..SERVES
    };
    two_senders(0, manner);
    two_senders(1, manner);
    senders_and_a_runner(manner);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_announcement_a_packet_is_stuck_in_its_lane() {
    senders_and_a_runner(Manner {
        unannounced: true,
        ..SERVES
    });
}

#[test]
#[should_panic(expected = "stuck")]
fn without_epochs_a_packet_is_stuck_in_its_lane() {
    senders_and_a_runner(Manner {
        timeless: true,
        ..SERVES
    });
}

#[test]
#[should_panic(expected = "stuck")]
fn without_clearing_first_a_packet_is_stuck_in_its_lane() {
    senders_and_a_runner(Manner {
        forgets_late: true,
        ..SERVES
    });
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_bell_what_is_passed_over_is_stuck() {
    senders_and_a_runner(Manner {
        passes_over: true,
        silent: true,
        ..SERVES
    });
}
