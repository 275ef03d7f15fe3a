//! loom models of the pointer ring: MC-1 and MC-10 of the kernel's list, and what only user space needs: producers that stop half way.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A chain of so many nodes.
type Chain = Box<(usize, u32)>;

fn leak(value: usize, nodes: u32) -> NonNull<(usize, u32)> {
    NonNull::from(Box::leak(Box::new((value, nodes))))
}

fn own(chain: NonNull<(usize, u32)>) -> Chain {
    // SAFETY: made by `leak`; the ring gives it back once, which is what the models show (a second time, the box would be freed twice).
    unsafe { Box::from_raw(chain.as_ptr()) }
}

type Producer = std::sync::Arc<Ring<(usize, u32)>>;
type Consumer = RingConsumer<(usize, u32)>;

fn ring(limit: u32) -> (Producer, Consumer) {
    Ring::new(limit).expect("a short ring")
}

/// Whether it got in.
fn produce(ring: &Producer, value: usize) -> bool {
    let Ok(room) = ring.reserve(1) else {
        return false;
    };
    ring.publish(room, leak(value, 1))
        .map_err(|(chain, _)| drop(own(chain)))
        .is_ok()
}

fn consume(consumer: &mut Consumer) -> Vec<usize> {
    let mut values = Vec::new();
    while let Some(chain) = consumer.take() {
        let chain = own(chain);
        consumer.release(chain.1 as usize);
        values.push(chain.0);
    }
    values
}

fn of(values: &[usize], sender: usize) -> Vec<usize> {
    values
        .iter()
        .copied()
        .filter(|v| v / 10 == sender)
        .collect()
}

/// INV-RING-1, INV-PF-2: two producers and a consumer at the same time; every chain comes once, each producer's in order.
#[test]
fn what_two_producers_put_in_comes_out() {
    loom::model(|| {
        let (ring, mut consumer) = ring(2);
        let other = ring.clone();
        let thread = thread::spawn(move || [10, 11].map(|v| produce(&other, v)));
        let mine = [produce(&ring, 20)];
        let mut out = consume(&mut consumer);
        let theirs = thread.join().unwrap();
        out.extend(consume(&mut consumer));
        let accepted: Vec<_> = [10, 11]
            .into_iter()
            .zip(theirs)
            .chain([20].into_iter().zip(mine))
            .filter_map(|(v, ok)| ok.then_some(v))
            .collect();
        let mut sorted = out.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, accepted);
        assert!(of(&out, 1).is_sorted() && ring.is_empty());
        // INV-PF-3: two fit at any time, so at most the third is refused.
        assert!(accepted.len() >= 2);
    });
}

/// A ring of one slot laps at every chain.
#[test]
fn the_limit_is_exact_while_it_laps() {
    loom::model(|| {
        let (ring, mut consumer) = ring(1);
        assert!(produce(&ring, 10));
        let other = ring.clone();
        let thread = thread::spawn(move || produce(&other, 20));
        let mut out = consume(&mut consumer);
        let late = thread.join().unwrap();
        out.extend(consume(&mut consumer));
        assert_eq!(out.len(), 1 + usize::from(late));
        assert!(
            produce(&ring, 30) && !produce(&ring, 31),
            "one fits, not two"
        );
        assert_eq!(consume(&mut consumer), [30]);
    });
}

/// MC-10: a resize from 2 to 1 to 4 to 0 while a producer goes on.
#[test]
fn a_resize_loses_nothing() {
    loom::model(|| {
        let (ring, mut consumer) = ring(2);
        let other = ring.clone();
        let thread = thread::spawn(move || [10, 11].map(|v| produce(&other, v)));
        let mut out = Vec::new();
        for limit in [1, 4] {
            let mut taken = 0;
            consumer.resize(limit, |chain| {
                out.push(own(chain).0);
                taken += 1;
            });
            consumer.release(taken);
        }
        let accepted = thread.join().unwrap();
        let before = out.len();
        consumer.resize(0, |chain| out.push(own(chain).0));
        consumer.release(out.len() - before);
        let expected: Vec<_> = [10, 11]
            .into_iter()
            .zip(accepted)
            .filter_map(|(v, ok)| ok.then_some(v))
            .collect();
        assert_eq!(out, expected);
        assert!(ring.is_empty() && !produce(&ring, 12));
    });
}

/// Nothing gets into a closed ring, and what was on its way goes back to its producer: the consumer may forget the ring.
#[test]
fn after_a_close_nothing_comes() {
    loom::model(|| {
        let (ring, mut consumer) = ring(2);
        let other = ring.clone();
        let thread = thread::spawn(move || produce(&other, 10));
        let mut out = Vec::new();
        consumer.close(|chain| out.push(own(chain).0));
        let closed = (ring.reserve(1).is_err(), consumer.take().is_none());
        assert_eq!(closed, (true, true));
        assert_eq!(thread.join().unwrap(), !out.is_empty());
        consumer.release(out.len());
        assert!(ring.is_empty());
    });
}

/// The run protocol of a lockless discipline: publish, then claim the run or leave MISSED.
struct Queue {
    ring: Producer,
    run: RunState<(Consumer, Vec<usize>)>,
}

impl Queue {
    fn new(limit: u32) -> Arc<Queue> {
        let (ring, consumer) = ring(limit);
        Arc::new(Queue {
            ring,
            run: RunState::new((consumer, Vec::new())),
        })
    }

    fn transmit(&self, value: usize) {
        assert!(produce(&self.ring, value));
        let Some(mut guard) = self.run.begin_or_miss() else {
            return;
        };
        loop {
            let (consumer, sent) = &mut *guard;
            sent.extend(consume(consumer));
            match guard.end() {
                Ok(()) => return,
                Err(missed) => guard = missed,
            }
        }
    }

    fn sent(&self) -> Vec<usize> {
        let mut guard = self.run.try_begin().expect("idle");
        std::mem::take(&mut guard.1)
    }
}

/// MC-1, INV-TX-2, INV-TX-3, INV-TX-5 (BUG-TX-1, BUG-TX-4): when the senders are done, all has left, each sender's in order.
#[test]
fn a_lockless_queue_leaves_nothing_behind() {
    loom::model(|| {
        let queue = Queue::new(4);
        let other = queue.clone();
        let thread = thread::spawn(move || other.transmit(10));
        queue.transmit(20);
        queue.transmit(21);
        thread.join().unwrap();
        let sent = queue.sent();
        assert_eq!(
            (sent.len(), of(&sent, 2)),
            (3, vec![20, 21]),
            "stuck: {sent:?}"
        );
    });
}

/// The same with three senders.
#[test]
fn a_lockless_queue_with_three_senders() {
    loom::model(|| {
        let queue = Queue::new(4);
        let threads: Vec<_> = [10, 30]
            .into_iter()
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.transmit(value))
            })
            .collect();
        queue.transmit(20);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut sent = queue.sent();
        sent.sort_unstable();
        assert_eq!(sent, [10, 20, 30], "stuck");
    });
}

/// The model can fail: without MISSED a packet is stuck (BUG-TX-1).
#[test]
#[should_panic(expected = "stuck")]
fn without_missed_a_packet_is_stuck() {
    loom::model(|| {
        let queue = Queue::new(4);
        let forgetful = |queue: &Queue, value| {
            assert!(produce(&queue.ring, value));
            if let Some(mut guard) = queue.run.try_begin() {
                let (consumer, sent) = &mut *guard;
                sent.extend(consume(consumer));
                let _ = guard.end();
            }
        };
        let other = queue.clone();
        let thread = thread::spawn(move || forgetful(&other, 10));
        forgetful(&queue, 20);
        thread.join().unwrap();
        assert_eq!(queue.sent().len(), 2, "stuck");
    });
}

/// A producer that stops after it has reserved keeps nobody from sending, also when nobody ever hears of it again.
#[test]
fn a_producer_that_stops_half_way_holds_up_nobody() {
    loom::model(|| {
        let queue = Queue::new(4);
        let stopped = queue.ring.reserve(1).expect("room");
        let other = queue.clone();
        let thread = thread::spawn(move || other.transmit(10));
        queue.transmit(20);
        thread.join().unwrap();
        let mut sent = queue.sent();
        sent.sort_unstable();
        assert_eq!(sent, [10, 20]);
        assert_eq!(stopped.nodes(), queue.ring.len());
    });
}

/// The model can fail: a consumer that waits for a hole instead of passing it leaves what is behind it.
#[test]
#[should_panic(expected = "stuck")]
fn without_passing_a_hole_holds_up_others() {
    loom::model(|| {
        let (ring, mut consumer) = ring(4);
        let _stopped = ring.reserve(1).expect("room");
        let other = ring.clone();
        let thread = thread::spawn(move || produce(&other, 10));
        thread.join().unwrap();
        assert!(consumer.take_without_passing().is_some(), "stuck");
    });
}

/// The model can fail: if passing a hole did not make the late publish fail, the chain would be published where nobody looks any more.
#[test]
#[should_panic(expected = "lost")]
fn without_a_new_word_a_passed_chain_is_lost() {
    loom::model(|| {
        let (ring, mut consumer) = ring(4);
        let room = ring.reserve(1).expect("room");
        let other = ring.clone();
        let thread = thread::spawn(move || other.publish(room, leak(10, 1)).is_ok());
        consumer.skip_without_word();
        let published = thread.join().unwrap();
        let out = consume(&mut consumer);
        assert!(!published || out == [10], "lost");
    });
}

/// The way of the transmit queue: take the run and pass an empty discipline by, or put a chain in and leave a note.
struct Lockless {
    ring: Producer,
    run: RunList<super::models::Node, Passing>,
}

struct Passing {
    consumer: Consumer,
    sent: Vec<usize>,
    /// The last look found nothing, and no note has come since.
    drained: bool,
}

impl Lockless {
    fn new() -> Arc<Lockless> {
        let (ring, consumer) = ring(4);
        let passing = Passing {
            consumer,
            sent: Vec::new(),
            drained: true,
        };
        Arc::new(Lockless {
            ring,
            run: RunList::new(passing, 0),
        })
    }

    /// `careful`: a bypass looks whether something is queued.
    fn transmit(&self, value: usize, careful: bool) {
        let guard = match self.run.try_begin() {
            Some((mut guard, _)) => {
                if guard.drained || !careful {
                    guard.sent.push(value);
                    match guard.end() {
                        Ok(()) => return,
                        Err(again) => again,
                    }
                } else {
                    assert!(produce(&self.ring, value));
                    guard
                }
            }
            None => {
                assert!(produce(&self.ring, value));
                match self.run.begin_or_note() {
                    Some((guard, _)) => guard,
                    None => return,
                }
            }
        };
        self.serve(guard);
    }

    fn serve(&self, mut guard: RunnerGuard<'_, super::models::Node, Passing>) {
        loop {
            drop(guard.take());
            let passing = &mut *guard;
            passing.drained = false;
            let out = consume(&mut passing.consumer);
            passing.sent.extend(out);
            passing.drained = true;
            match guard.end() {
                Ok(()) => return,
                Err(again) => guard = again,
            }
        }
    }
}

/// INV-TX-2, INV-TX-3, BUG-TX-8 with the run of the transmit queue: nothing is stuck behind a note that was not written, and no bypass passes a packet
/// of the same sender.
#[test]
fn notes_and_bypasses_lose_and_reorder_nothing() {
    loom::model(|| {
        let queue = Lockless::new();
        let other = queue.clone();
        let thread = thread::spawn(move || {
            other.transmit(10, true);
            other.transmit(11, true);
        });
        queue.transmit(20, true);
        queue.transmit(21, true);
        thread.join().unwrap();
        let (guard, _) = queue.run.try_begin().expect("idle");
        let sent = guard.sent.clone();
        assert_eq!(sent.len(), 4, "stuck: {sent:?}");
        assert!(
            of(&sent, 1).is_sorted() && of(&sent, 2).is_sorted(),
            "{sent:?}"
        );
    });
}

/// The same with three senders, so that one finds MISSED set by another.
#[test]
fn a_note_that_is_there_already_is_read() {
    loom::model(|| {
        let queue = Lockless::new();
        let threads: Vec<_> = [10, 30]
            .into_iter()
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.transmit(value, true))
            })
            .collect();
        queue.transmit(20, true);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let (guard, _) = queue.run.try_begin().expect("idle");
        assert_eq!(guard.sent.len(), 3, "stuck");
    });
}

/// The model can fail: a bypass that does not ask whether something is queued passes it (BUG-TX-8).
#[test]
#[should_panic(expected = "passed")]
fn a_bypass_that_does_not_look_passes_what_is_queued() {
    loom::model(|| {
        let queue = Lockless::new();
        // A run that ended with its quota: a packet is queued, and the worker has been told.
        assert!(produce(&queue.ring, 10));
        let (mut guard, _) = queue.run.try_begin().expect("idle");
        guard.drained = false;
        let _ = guard.leave();
        queue.transmit(11, false);
        if let Some((guard, _)) = queue.run.begin_or_miss() {
            queue.serve(guard);
        }
        let (guard, _) = queue.run.try_begin().expect("idle");
        assert!(guard.sent.is_sorted(), "passed: {:?}", guard.sent);
    });
}
