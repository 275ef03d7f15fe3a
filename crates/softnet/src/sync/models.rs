//! loom models of the protocols in this module: every interleaving of a few steps of two or three threads. Run by `.ci/loom.sh`.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::*;

pub(super) struct Node {
    pub(super) next: Option<NonNull<Node>>,
    pub(super) value: usize,
}

// SAFETY: both functions use `next`, which the models touch in no other way.
unsafe impl Linked for Node {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: owned by the caller's promise.
        unsafe { (*node.as_ptr()).next }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: owned by the caller's promise.
        unsafe { (*node.as_ptr()).next = next }
    }
}

pub(super) fn push(list: &AdoptionList<Node>, value: usize, limit: usize) -> bool {
    let node = NonNull::from(Box::leak(Box::new(Node { next: None, value })));
    // SAFETY: just made, a chain of one.
    let pushed = unsafe { list.push(node, node, 1, limit) }.is_some();
    if !pushed {
        // SAFETY: refused, so still ours.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }
    pushed
}

/// What the list held, oldest first.
pub(super) fn take(list: &AdoptionList<Node>) -> Vec<usize> {
    let mut values = Vec::new();
    list.take(|node| {
        // SAFETY: given to us by `take`, made by `push` from a box.
        values.insert(0, unsafe { Box::from_raw(node.as_ptr()) }.value);
    });
    values
}

/// A queue as `TxQueue` uses the two: push, claim, adopt, end, look again.
struct Queue {
    list: AdoptionList<Node>,
    run: RunState<Vec<usize>>,
}

impl Queue {
    fn new() -> Arc<Queue> {
        Arc::new(Queue {
            list: AdoptionList::new(),
            run: RunState::new(Vec::new()),
        })
    }

    fn transmit(&self, value: usize) {
        assert!(push(&self.list, value, 100));
        self.run();
    }

    fn run(&self) {
        while let Some(mut guard) = self.run.try_begin() {
            loop {
                let mut adopted = take(&self.list);
                guard.append(&mut adopted);
                match guard.end() {
                    Ok(()) => break,
                    Err(missed) => guard = missed,
                }
            }
            if self.list.is_empty() {
                return;
            }
        }
    }
}

/// INV-TX-1, INV-TX-2, INV-TX-3, INV-TX-5: with two senders of two packets and one packet, all packets are adopted when both are done (nothing is
/// stuck, nobody waited), each sender's in its order. The cell inside `RunState` makes loom fail if two threads run at once.
#[test]
fn adoption_leaves_nothing_behind() {
    loom::model(|| {
        let queue = Queue::new();
        let other = queue.clone();
        let thread = thread::spawn(move || other.transmit(10));
        queue.transmit(1);
        queue.transmit(2);
        thread.join().unwrap();
        let sent = queue.run.try_begin().expect("idle").clone();
        assert!(queue.list.is_empty());
        let mine: Vec<_> = sent.iter().copied().filter(|&v| v < 10).collect();
        assert_eq!((mine, sent.len()), (vec![1, 2], 3));
    });
}

/// The same with three senders.
#[test]
fn adoption_with_three_senders() {
    loom::model(|| {
        let queue = Queue::new();
        let threads: Vec<_> = (1..3)
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.transmit(value))
            })
            .collect();
        queue.transmit(3);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut sent = queue.run.try_begin().expect("idle").clone();
        sent.sort_unstable();
        assert_eq!(sent, [1, 2, 3]);
    });
}

/// The model can fail: without the runner's second look at the list a packet is stuck.
#[test]
#[should_panic(expected = "stuck")]
fn without_the_second_look_a_packet_is_stuck() {
    loom::model(|| {
        let queue = Queue::new();
        let forgetful = |queue: &Queue, value| {
            assert!(push(&queue.list, value, 100));
            if let Some(mut guard) = queue.run.try_begin() {
                let mut adopted = take(&queue.list);
                guard.append(&mut adopted);
                let _ = guard.end();
            }
        };
        let other = queue.clone();
        let thread = thread::spawn(move || forgetful(&other, 1));
        forgetful(&queue, 2);
        thread.join().unwrap();
        let stuck = take(&queue.list);
        assert!(stuck.is_empty(), "stuck");
    });
}

/// An event set before `begin_or_miss` is seen by a run that starts or goes round after it.
#[test]
fn an_event_during_a_run_is_not_missed() {
    loom::model(|| {
        let event = Arc::new(AtomicBool::new(false));
        let run = Arc::new(RunState::new(false));
        let go = |run: &RunState<bool>, event: &AtomicBool| {
            let Some(mut guard) = run.begin_or_miss() else {
                return;
            };
            loop {
                *guard |= event.load(Ordering::Relaxed);
                match guard.end() {
                    Ok(()) => return,
                    Err(missed) => guard = missed,
                }
            }
        };
        let (run2, event2) = (run.clone(), event.clone());
        let thread = thread::spawn(move || go(&run2, &event2));
        event.store(true, Ordering::Relaxed);
        go(&run, &event);
        thread.join().unwrap();
        assert!(*run.try_begin().expect("idle"), "the event was missed");
    });
}

/// What two callers published before they were turned away is all seen by the run that goes round,
/// also what the second of them published, who found the event noted already.
#[test]
fn the_second_event_during_a_run_is_not_missed() {
    loom::model(|| {
        let events = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let run = Arc::new(RunState::new([false; 2]));
        let go = |guard: Option<RunGuard<'_, [bool; 2]>>, events: &[AtomicBool; 2]| {
            let Some(mut guard) = guard else { return };
            loop {
                for (seen, event) in guard.iter_mut().zip(events) {
                    *seen |= event.load(Ordering::Relaxed);
                }
                match guard.end() {
                    Ok(()) => return,
                    Err(missed) => guard = missed,
                }
            }
        };
        let running = run.try_begin();
        let threads = [0, 1].map(|n| {
            let (run, events) = (run.clone(), events.clone());
            thread::spawn(move || {
                events[n].store(true, Ordering::Relaxed);
                go(run.begin_or_miss(), &events);
            })
        });
        go(running, &events);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let seen = *run.try_begin().expect("idle");
        assert_eq!(seen, [true; 2], "an event was missed");
    });
}

/// INV-TX-8: a list that is not empty never grows beyond the limit, and an empty one takes a packet whatever the limit.
#[test]
fn the_limit_is_exact() {
    loom::model(|| {
        let list = Arc::new(AdoptionList::new());
        let other = list.clone();
        let thread = thread::spawn(move || usize::from(push(&other, 1, 1)));
        let mine = usize::from(push(&list, 2, 1)) + usize::from(push(&list, 3, 1));
        let pushed = mine + thread.join().unwrap();
        assert_eq!((pushed, list.len(), take(&list).len()), (1, 1, 1));
        assert!(push(&list, 4, 0));
        assert_eq!(take(&list), [4]);
    });
}

/// A sleeper that looks after `prepare` sees the event or is woken; it is woken once.
#[test]
fn no_wake_up_is_lost_and_none_is_doubled() {
    loom::model(|| {
        let notify = Arc::new(Notify::new());
        let event = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (notify, event, wakes) = (notify.clone(), event.clone(), wakes.clone());
                thread::spawn(move || {
                    event.fetch_add(1, Ordering::Relaxed);
                    if notify.notify() {
                        wakes.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        notify.prepare();
        let seen = event.load(Ordering::Relaxed);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let wakes = wakes.load(Ordering::Relaxed);
        assert!(seen == 2 || wakes == 1, "seen {seen}, woken {wakes} times");
        assert!(wakes <= 1);
        notify.awake();
        assert!(!notify.notify(), "an awake thread is not woken");
    });
}
