//! The protocols on real threads, and under miri.

use std::sync::atomic::{AtomicUsize, Ordering};

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
    assert!(run.is_running() && run.try_begin().is_none() && run.begin_or_miss().is_none());
    drop(guard);
    assert!(run.try_begin().is_some());
}

#[test]
fn try_lock_counts_exactly() {
    let lock = TryLock::new(0);
    let counted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    if let Some(mut value) = lock.try_lock() {
                        *value += 1;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(*lock.lock_slow(), counted.load(Ordering::Relaxed));
}
