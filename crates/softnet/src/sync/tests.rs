//! The protocols on real threads, and under miri.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::testing::{Node, Values};
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

/// INV-TX-1 to INV-TX-3 on real threads, with lists long enough for their places to be noted.
#[test]
fn a_run_list_loses_and_reorders_nothing() {
    const SENDERS: usize = 3;
    let list = OwnedList::new(Vec::new(), 16);
    let send = |value| {
        let mut own = Values::one(value);
        match list.enter(&mut own, |_| usize::MAX) {
            Entry::Acquired(mut guard, left) => {
                let left = guard.take_left(left);
                guard.extend(left.0);
                guard.extend(own.0);
                while let Err(again) = guard.end() {
                    guard = again;
                    let (more, _) = guard.take(usize::MAX).expect("no limit");
                    guard.extend(more.0);
                }
            }
            Entry::Queued(_) => {}
            Entry::Full => unreachable!("there is no limit"),
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

#[test]
fn a_sender_that_looks_becomes_the_owner_as_soon_as_there_is_none() {
    let list = OwnedList::<Values, ()>::new((), 0);
    let (owner, _) = list.try_begin().expect("idle");
    assert!(list.begin_within(10).is_none());
    assert_eq!(list.push(&mut Values::one(1), 100), Some(0));
    std::thread::scope(|scope| {
        // A short time again and again: of a long one, the first look would be late.
        let looks = || {
            let begun = std::iter::from_fn(|| Some(list.begin_within(100)));
            let (mut owner, left) = begun.flatten().next()?;
            Some(owner.take_left(left))
        };
        let sender = scope.spawn(looks);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let _ = owner.leave();
        assert_eq!(sender.join().expect("no panic"), Some(Values::one(1)));
    });
}

#[test]
fn a_sender_looks_often_enough_and_no_longer_than_it_may() {
    for pauses in [1, 2, 8, 100, 25_600, u32::MAX] {
        let (mut sum, mut longest, mut looks) = (0_u64, 0, 0);
        for gap in gaps(pauses) {
            (sum, longest, looks) = (sum + u64::from(gap), longest.max(gap), looks + 1);
        }
        assert_eq!(sum, u64::from(pauses));
        assert!(longest <= (pauses / 4).max(1), "{longest} of {pauses}");
        let least = 5.min(pauses);
        assert!((least..=8).contains(&looks), "{looks} looks in {pauses}");
    }
    assert_eq!(gaps(0).count(), 0);
    assert!(gaps(100).eq([3, 6, 12, 24, 25, 25, 5]));
}

#[test]
fn a_claim_ends_the_look_for_the_ownership() {
    let list = OwnedList::<Values, ()>::new((), 0);
    let (_owner, _) = list.try_begin().expect("idle");
    list.claim();
    assert!(list.begin_within(u32::MAX).is_none());
}

/// The count has 16 bits: a limit above what it can tell was no limit at all.
#[test]
#[cfg_attr(miri, ignore = "65,536 allocations")]
fn a_limit_above_the_count_still_holds() {
    let many = || Values((0..65_535).collect());
    let list = OwnedList::<Values, ()>::new((), 0);
    assert_eq!(list.push(&mut many(), 70_000), Some(0));
    let mut one = Values::one(0);
    assert_eq!(list.push(&mut one, 70_000), None);
    assert_eq!(one, Values::one(0), "refused, so still ours");
    let (_guard, left) = list.try_begin().expect("idle");
    assert_eq!(left.0.len(), 65_535);
    let adoption = AdoptionList::<Node>::expecting(0);
    let push = |mut values: Values| {
        let chain = values.take_nodes().expect("some");
        // SAFETY: just made.
        let pushed = unsafe { adoption.push(&chain, chain.len, 70_000) };
        if pushed.is_none() {
            // SAFETY: still ours.
            unsafe { values.put_front(chain) };
        }
        pushed.is_some()
    };
    assert!(push(many()));
    assert!(!push(Values::one(0)));
    // SAFETY: given to us, made by `take_nodes`.
    adoption.take(|chain| unsafe { Values::default().put_front(chain) });
}

/// A list that is dropped with nodes drops them.
#[test]
fn what_waits_goes_with_the_list() {
    let list = OwnedList::<Values, ()>::new((), 0);
    assert_eq!(list.push(&mut Values(vec![1, 2, 3]), 10), Some(0));
    assert_eq!(list.push(&mut Values::default(), 0), Some(0), "nothing");
    assert_eq!(list.len(), 3);
}

/// Under load some sender always was the owner when the control path looked. Now it is next.
#[test]
fn the_control_path_is_next() {
    let list = OwnedList::<Values, ()>::new((), 0);
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

/// Flags that are set between the beginning and the taking stay, and what was left is taken once.
#[test]
fn what_was_left_is_taken_once_and_flags_stay() {
    let list = OwnedList::<Values, ()>::new((), 0);
    let push = |value| list.push(&mut Values::one(value), 100);
    assert_eq!(push(1), Some(0));
    let (mut owner, left) = list.begin_within(1).expect("idle");
    assert!(left.some() && list.len() == 1);
    assert!(list.begin_or_miss().is_none());
    assert_eq!(push(2), Some(1));
    assert_eq!(owner.take_left(left), Values(vec![1, 2]));
    let mut owner = owner.end().expect_err("an event was missed");
    assert_eq!(owner.take(100), Some((Values::default(), true)));
    assert_eq!(push(3), Some(0));
    assert!(owner.leave());
    let (mut owner, left) = list.begin_within(1).expect("idle");
    list.claim();
    assert_eq!(owner.take_left(left), Values::one(3));
    assert_eq!(push(4), Some(0));
    assert!(owner.take(100).is_none() && owner.leave(), "claimed");
    assert!(list.try_begin().is_none());
    let (owner, left) = list.begin_overdue(1).expect("one waits");
    assert_eq!(left, Values::one(4));
    assert!(owner.leave(), "claimed still");
    assert!(list.try_begin().is_none());
}
