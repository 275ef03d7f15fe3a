//! loom models of the protocols in this module: a few steps of two or three threads, in every
//! interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions. Run by `.ci/loom.sh`, with 3.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::testing::{Node, Values, free, leaked};
use super::*;

fn push(list: &AdoptionList<Node>, value: usize, limit: usize) -> bool {
    let node = leaked(value, None);
    // SAFETY: just made, a chain of one.
    let pushed = unsafe { list.push(&Chain::one(node), 1, limit) }.is_some();
    if !pushed {
        // SAFETY: refused, so still ours.
        unsafe { free(node) };
    }
    pushed
}

/// Values that the list held, oldest first.
fn take(list: &AdoptionList<Node>) -> Vec<usize> {
    let mut values = Values::default();
    // SAFETY: given to us by `take`, made by `push` or by `take_nodes`.
    list.take(|chain| unsafe { values.put_front(chain) });
    values.0
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

/// Two callers publish and are turned away: the run that goes round sees all that they published,
/// also that of the second, which found the event noted already.
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

/// INV-TX-8: a list that is not empty never grows beyond the limit, and an empty one takes a
/// packet whatever the limit.
#[test]
fn the_limit_is_exact() {
    loom::model(|| {
        let list = Arc::new(AdoptionList::expecting(0));
        let other = list.clone();
        let thread = thread::spawn(move || usize::from(push(&other, 1, 1)));
        let mine = usize::from(push(&list, 2, 1)) + usize::from(push(&list, 3, 1));
        let pushed = mine + thread.join().unwrap();
        assert_eq!((pushed, list.len(), take(&list).len()), (1, 1, 1));
        assert!(push(&list, 4, 0));
        assert_eq!(take(&list), [4]);
    });
}

/// INV-TX-1, INV-TX-3: lists of two threads, taken meanwhile by a third one's turns: each stays in
/// one piece and in its order, and what is taken later was pushed later.
#[test]
fn lists_are_pushed_and_taken_as_they_are() {
    loom::model(|| {
        let list = Arc::new(AdoptionList::expecting(0));
        let push = |list: &AdoptionList<Node>, values: &[usize]| {
            let chain = Values(values.to_vec()).take_nodes().expect("some");
            // SAFETY: just made.
            assert!(unsafe { list.push(&chain, chain.len, 100) }.is_some());
        };
        let other = list.clone();
        let sender = thread::spawn(move || {
            push(&other, &[10, 11]);
            push(&other, &[12]);
        });
        push(&list, &[1, 2]);
        let mut taken = take(&list);
        push(&list, &[3, 4, 5]);
        taken.append(&mut take(&list));
        sender.join().unwrap();
        taken.append(&mut take(&list));
        let of = |own: fn(&usize) -> bool| taken.iter().copied().filter(own).collect::<Vec<_>>();
        assert_eq!(of(|value| *value < 10), [1, 2, 3, 4, 5]);
        assert_eq!(of(|value| *value >= 10), [10, 11, 12]);
        for [first, last] in [[1, 2], [3, 5], [10, 11]] {
            let place = |value| taken.iter().position(|v| *v == value).expect("taken");
            assert_eq!(place(last) - place(first), last - first, "in one piece");
        }
    });
}

/// A list that is refused is the sender's as it was, also after a try that found others.
#[test]
fn a_refused_list_is_as_it_was() {
    loom::model(|| {
        let list = Arc::new(OwnedList::<Values, ()>::new((), 0));
        let push = |list: &OwnedList<Values, ()>, from| {
            let mut own = Values(vec![from, from + 1]);
            let pushed = list.push(&mut own, 3).is_some();
            let left = if pushed { vec![] } else { vec![from, from + 1] };
            assert_eq!(own, Values(left));
            usize::from(pushed)
        };
        let other = list.clone();
        let thread = thread::spawn(move || push(&other, 1));
        let pushed = push(&list, 3) + thread.join().unwrap();
        let (_owner, left) = list.try_begin().expect("idle");
        assert_eq!(pushed, 1);
        assert!(left.0 == [1, 2] || left.0 == [3, 4]);
    });
}

/// A sleeper that looks after `prepare` sees the event or is woken.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let notify = Arc::new(Notify::new());
        let event = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (notify, event, wakes) = (notify.clone(), event.clone(), wakes.clone());
                thread::spawn(move || {
                    event.fetch_add(1, Ordering::SeqCst);
                    notify.wake(|| {
                        wakes.fetch_add(1, Ordering::Relaxed);
                    });
                })
            })
            .collect();
        notify.prepare();
        let seen = event.load(Ordering::Relaxed);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let wakes = wakes.load(Ordering::Relaxed);
        assert!(seen == 2 || wakes != 0, "seen {seen}, not woken");
        notify.awake();
        let woken = notify.wake(|| panic!("an awake thread is not woken"));
        assert!(!woken);
    });
}
