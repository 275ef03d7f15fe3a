//! loom models of the receive side: hand-over to a backlog against a worker that goes to sleep
//! (MC-11), and flows that move from one worker to another (MC-13).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::models::{Node, push, take};
use super::*;

/// A worker as others see it: its backlog and its sleep.
struct Target {
    backlog: AdoptionList<Node>,
    notify: Notify,
    batches: BatchSequence,
    /// Wake-ups sent.
    woken: AtomicUsize,
    processed: AtomicUsize,
}

impl Target {
    fn new(batches: u64) -> Arc<Target> {
        Arc::new(Target {
            backlog: AdoptionList::new(),
            notify: Notify::new(),
            batches: BatchSequence::starting_at(batches),
            woken: AtomicUsize::new(0),
            processed: AtomicUsize::new(0),
        })
    }

    /// What another worker does: hands over, and kicks at the end of its round.
    fn hand_off(&self, value: usize) {
        assert!(push(&self.backlog, value, 100));
        if self.notify.notify_published() {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn process(&self) {
        self.batches.begin();
        let mut taken = 0;
        self.backlog.take_now(|node| {
            // SAFETY: given to us by `take_now`, made by `push` from a box.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
            taken += 1;
        });
        self.processed.fetch_add(taken, Ordering::Relaxed);
        self.batches.end();
    }
}

/// INV-RX-1, INV-RX-4, INV-RX-5: two workers hand over while the target works and lies down. If
/// it sleeps in the end with packets in its backlog, exactly one wake-up is on its way; if it was
/// never asleep, none was sent.
fn going_to_sleep(look: bool) {
    loom::model(move || {
        let target = Target::new(0);
        let threads: Vec<_> = (0..2)
            .map(|value| {
                let target = target.clone();
                thread::spawn(move || target.hand_off(value))
            })
            .collect();
        target.process();
        target.notify.prepare();
        let asleep = !look || target.backlog.is_empty();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let (left, woken) = (
            take(&target.backlog).len(),
            target.woken.load(Ordering::Relaxed),
        );
        assert!(woken <= 1, "one wake-up for one sleep");
        assert!(!asleep || left == 0 || woken == 1, "asleep with work");
        assert_eq!(target.processed.load(Ordering::Relaxed) + left, 2);
    });
}

#[test]
fn a_backlog_is_never_left_to_a_sleeper() {
    going_to_sleep(true);
}

/// The model can fail: a worker that lies down without a last look sleeps on packets.
#[test]
#[should_panic(expected = "asleep with work")]
fn without_the_last_look_a_worker_sleeps_on_packets() {
    going_to_sleep(false);
}

/// The model can fail: a sender that kicks before it hands over wakes nobody.
#[test]
#[should_panic(expected = "asleep with work")]
fn a_kick_before_the_hand_over_is_lost() {
    loom::model(|| {
        let target = Target::new(0);
        let sender = target.clone();
        let thread = thread::spawn(move || {
            let kicked = sender.notify.notify_published();
            assert!(push(&sender.backlog, 1, 100));
            kicked
        });
        target.notify.prepare();
        let asleep = target.backlog.is_empty();
        let woken = thread.join().unwrap();
        let left = take(&target.backlog).len();
        assert!(!asleep || left == 0 || woken, "asleep with work");
    });
}

/// INV-RX-4 with the event of a bell beside the backlog (a claim that was missed): both are
/// looked at after `prepare`.
#[test]
fn a_missed_claim_wakes_the_owner() {
    loom::model(|| {
        let notify = Arc::new(Notify::new());
        let bell = Arc::new(AtomicBool::new(false));
        let queue = Arc::new(RunState::new(0));
        let event = Arc::new(AtomicUsize::new(0));
        let (notify2, bell2, queue2, event2) =
            (notify.clone(), bell.clone(), queue.clone(), event.clone());
        // Another worker polls the queue; if the owner came by meanwhile, it rings for it.
        let thread = thread::spawn(move || {
            let Some(mut guard) = queue2.try_begin() else {
                return false;
            };
            *guard = event2.load(Ordering::Relaxed);
            if guard.end().is_ok() {
                return false;
            }
            bell2.store(true, Ordering::SeqCst);
            notify2.notify()
        });
        event.store(1, Ordering::Relaxed);
        if let Some(mut guard) = queue.begin_or_miss() {
            *guard = event.load(Ordering::Relaxed);
            drop(guard.end());
        }
        notify.prepare();
        let asleep = !bell.load(Ordering::SeqCst);
        let woken = thread.join().unwrap();
        let seen = queue.try_begin().map(|guard| *guard);
        assert!(!asleep || woken || seen == Some(1), "the event was lost");
    });
}

/// INV-RX-2: when the mark of a flow's last packet has passed, that packet has been processed, so
/// that the flow may go elsewhere. The numbers wrap in the middle.
fn moving(mark: fn(&Target) -> u64) {
    loom::model(move || {
        let target = Target::new(u64::MAX - 1);
        let owner = target.clone();
        let thread = thread::spawn(move || {
            owner.process();
            owner.process();
        });
        assert!(push(&target.backlog, 1, 100));
        let mark = mark(&target);
        let overtaken =
            target.batches.passed(mark) && target.processed.load(Ordering::Relaxed) == 0;
        thread.join().unwrap();
        let _ = take(&target.backlog);
        assert!(!overtaken, "overtaken");
    });
}

#[test]
fn a_flow_moves_only_behind_its_packets() {
    moving(|target| target.batches.mark());
}

/// The model can fail: the number of the current batch is not enough, for the packet may be in
/// the next.
#[test]
#[should_panic(expected = "overtaken")]
fn a_mark_one_lower_lets_a_flow_overtake_itself() {
    moving(|target| target.batches.mark().wrapping_sub(1));
}

/// It errs on one side only: when the owner has been round twice more, every mark has passed.
#[test]
fn a_mark_passes_at_last() {
    loom::model(|| {
        let target = Target::new(0);
        let owner = target.clone();
        let thread = thread::spawn(move || owner.process());
        assert!(push(&target.backlog, 1, 100));
        let mark = target.batches.mark();
        thread.join().unwrap();
        target.process();
        target.process();
        assert!(target.batches.passed(mark));
        assert_eq!(target.processed.load(Ordering::Relaxed), 1);
    });
}
