//! The protocols on real threads, and under miri.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn run_state_never_lets_two_in_and_loses_no_event() {
    let run = RunState::new(0_usize);
    let events = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    events.fetch_add(1, Ordering::Relaxed);
                    let Some(mut guard) = run.begin_or_miss() else {
                        continue;
                    };
                    loop {
                        *guard = events.load(Ordering::Relaxed);
                        match guard.end() {
                            Ok(()) => break,
                            Err(missed) => guard = missed,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(*run.try_begin().expect("idle"), 3 * ROUNDS);
}

#[test]
fn a_run_given_up_by_a_panic_can_be_claimed_again() {
    let run = RunState::new(());
    let guard = run.begin_slow();
    assert!(run.try_begin().is_none() && run.begin_or_miss().is_none());
    drop(guard);
    assert!(run.try_begin().is_some());
}

struct Node {
    next: Option<NonNull<Node>>,
    value: usize,
}

// SAFETY: both functions use `next`, which the test touches in no other way; a node is a number
// and a link.
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

fn values(taken: Taken<'_, Node>) -> Vec<usize> {
    let mut values = Vec::new();
    taken.visit(|node| {
        // SAFETY: given to us by `visit`, made from a box by the sender.
        values.push(unsafe { Box::from_raw(node.as_ptr()) }.value);
    });
    values.reverse();
    values
}

/// INV-TX-1 to INV-TX-3 on real threads, with lists long enough for their places to be noted.
#[test]
fn a_run_list_loses_and_reorders_nothing() {
    const SENDERS: usize = 3;
    let list = OwnedList::new(Vec::new(), 16);
    let send = |value| {
        let node = NonNull::from(Box::leak(Box::new(Node { next: None, value })));
        loop {
            if let Some((mut guard, left)) = list.try_begin() {
                guard.extend(values(left));
                // SAFETY: not pushed, so still ours.
                guard.push(unsafe { Box::from_raw(node.as_ptr()) }.value);
                while let Err(again) = guard.end() {
                    guard = again;
                    let more = values(guard.take(usize::MAX).expect("no limit"));
                    guard.extend(more);
                }
                return;
            }
            // SAFETY: a chain of one, which is ours until it is pushed.
            match unsafe { list.push(node, node, 1, usize::MAX, false) } {
                Pushed::Queued(_) => return,
                Pushed::Full => unreachable!("there is no limit"),
                Pushed::Unowned => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let send = &send;
            scope.spawn(move || (0..ROUNDS).for_each(|n| send(sender * ROUNDS + n)));
        }
    });
    let (sent, left) = list.try_begin().expect("idle");
    assert!(left.is_empty());
    assert_eq!(sent.len(), SENDERS * ROUNDS);
    for sender in 0..SENDERS {
        let own = sent.iter().filter(|&&v| v / ROUNDS == sender);
        assert!(own.is_sorted(), "INV-TX-3");
    }
}

fn leaked(value: usize, next: Option<NonNull<Node>>) -> NonNull<Node> {
    NonNull::from(Box::leak(Box::new(Node { next, value })))
}

/// A chain of `n` nodes; its newest and its oldest.
fn chain(n: usize) -> (NonNull<Node>, NonNull<Node>) {
    let oldest = leaked(0, None);
    let newest = (1..n).fold(oldest, |next, value| leaked(value, Some(next)));
    (newest, oldest)
}

/// The count has 16 bits: a limit above what it can tell was no limit at all.
#[test]
#[cfg_attr(miri, ignore = "65,536 allocations")]
fn a_limit_above_the_count_still_holds() {
    let list = OwnedList::<Node, ()>::new((), 0);
    let (guard, _) = list.try_begin().expect("idle");
    let (newest, oldest) = chain(65_535);
    // SAFETY: just made, and linked so.
    let pushed = unsafe { list.push(newest, oldest, 65_535, 70_000, false) };
    assert_eq!(pushed, Pushed::Queued(0));
    let one = leaked(0, None);
    // SAFETY: a chain of one.
    let pushed = unsafe { list.push(one, one, 1, 70_000, false) };
    assert_eq!(pushed, Pushed::Full);
    drop(guard);
    let adoption = AdoptionList::<Node>::new();
    let (_, left) = list.try_begin().expect("idle");
    let mut nodes = 0;
    left.visit(|node| {
        nodes += 1;
        // SAFETY: given to us, made from a box.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    });
    assert_eq!(nodes, 65_535);
    let (newest, oldest) = chain(65_535);
    // SAFETY: as above.
    assert!(unsafe { adoption.push(newest, oldest, 65_535, 70_000) }.is_some());
    // SAFETY: still ours.
    assert!(unsafe { adoption.push(one, one, 1, 70_000) }.is_none());
    // SAFETY: as above.
    adoption.take(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
    // SAFETY: refused, so still ours.
    drop(unsafe { Box::from_raw(one.as_ptr()) });
}

/// Under load some sender always was the owner when the control path looked. Now it is next.
#[test]
fn the_control_path_is_next() {
    let list = OwnedList::<Node, ()>::new((), 0);
    let (served, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut guard, _) = list.try_begin().expect("idle");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = list.begin_slow();
            served.store(true, Ordering::Release);
            while !over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let _ = guard.leave();
        });
        // The owner notices, and may not adopt any more.
        while guard.take(usize::MAX).is_some() {
            std::thread::yield_now();
        }
        assert!(guard.leave());
        while !served.load(Ordering::Acquire) {
            assert!(list.try_begin().is_none());
            assert!(list.begin_or_miss().is_none());
        }
        over.store(true, Ordering::Release);
    });
    assert!(list.try_begin().is_some());
}
