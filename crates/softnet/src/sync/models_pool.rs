//! loom models of the protocols that the packet pool stands on: stealing from a thread's cache,
//! the depot's stack, the bound of a remote-free list, the wake-up of a sleeping owner. Each has
//! a twin in which the step that protects it is left out, which must fail.

use std::cell::Cell;
use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use loom::thread;

use super::*;

/// A cache as the pool has it: what is inside changes through cells.
type Cache = Biased<Cell<usize>>;

fn steal(cache: &Cache, barrier: bool) -> usize {
    let Some(claim) = cache.claim() else { return 0 };
    if barrier {
        assert!(membarrier::heavy());
    }
    // SAFETY: the barrier was executed, but in the twin that is to fail.
    let Some(inside) = (unsafe { claim.enter() }) else {
        return 0;
    };
    inside.replace(0)
}

/// The owner frees a buffer and allocates one; a thief takes all. Nothing is lost or doubled, and
/// loom's cell fails if both are in at once.
fn owner_and_thief(membarrier: bool, barrier: bool) {
    let cache = Arc::new(Cache::of(Cell::new(1), membarrier));
    let other = cache.clone();
    let thief = thread::spawn(move || steal(&other, barrier));
    let mut mine = 1_usize;
    // SAFETY: this thread is the only owner, and in once at a time.
    if let Some(inside) = unsafe { cache.enter() } {
        inside.set(inside.get() + 1);
        mine -= 1;
    }
    // SAFETY: as above.
    if let Some(inside) = unsafe { cache.enter() }
        && inside.get() > 0
    {
        inside.set(inside.get() - 1);
        mine += 1;
    }
    let stolen = thief.join().unwrap();
    // SAFETY: as above.
    let left = unsafe { cache.enter() }.expect("no thief any more").get();
    assert_eq!(mine + stolen + left, 2);
}

/// INV-BUF-1, INV-BUF-2 while a cache is stolen from.
#[test]
fn stealing_loses_and_doubles_nothing() {
    loom::model(|| owner_and_thief(true, true));
}

/// The model can fail: without the thief's barrier both get in.
#[test]
#[should_panic]
fn without_the_barrier_owner_and_thief_meet() {
    loom::model(|| owner_and_thief(true, false));
}

/// On a kernel without `membarrier`, where both have fences. It fails without the fence in
/// `enter_slow`, too.
#[test]
fn with_fences_owner_and_thief_do_not_meet() {
    loom::model(|| owner_and_thief(false, true));
}

/// The twin, without the thief's fence.
#[test]
#[should_panic]
fn without_the_thiefs_fence_they_meet() {
    loom::model(|| owner_and_thief(false, false));
}

/// Two thieves and an owner.
#[test]
fn two_thieves_take_once() {
    loom::model(|| {
        let cache = Arc::new(Cache::new(Cell::new(1)));
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let cache = cache.clone();
                thread::spawn(move || steal(&cache, true))
            })
            .collect();
        let stolen: usize = thieves.into_iter().map(|t| t.join().unwrap()).sum();
        // SAFETY: the only owner, not in yet.
        let left = unsafe { cache.enter() }.expect("no thief any more").get();
        assert_eq!(stolen + left, 1);
    });
}

/// After `close` the owner never enters again, and once it is seen out, what it did before is seen.
/// If it is not, the owner learns of the closing, by leaving or by being turned away: somebody
/// sweeps.
fn closing(learns: bool) {
    let cache = Arc::new(Cache::new(Cell::new(0)));
    let other = cache.clone();
    let closer = thread::spawn(move || {
        other.close();
        assert!(membarrier::heavy());
        // SAFETY: the owner is out for ever.
        (!other.is_busy()).then(|| unsafe { other.peek() }.get())
    });
    let (mut entered, mut learned) = (0, false);
    for _ in 0..2 {
        // SAFETY: the only owner, in once at a time.
        if let Some(inside) = unsafe { cache.enter() } {
            inside.set(inside.get() + 1);
            entered += 1;
            if learns {
                learned |= inside.leave();
            }
        } else {
            learned = true;
        }
    }
    match closer.join().unwrap() {
        Some(seen) => assert_eq!(seen, entered),
        None => assert!(learned, "nobody sweeps"),
    }
    // SAFETY: as above.
    assert!(cache.is_closed() && unsafe { cache.enter() }.is_none());
}

#[test]
fn a_closed_cache_is_left_alone() {
    loom::model(|| closing(true));
}

/// The twin: an owner that does not look when it leaves, and does not come again.
#[test]
#[should_panic(expected = "nobody sweeps")]
fn an_owner_that_does_not_look_misses_the_closing() {
    loom::model(|| closing(false));
}

/// Magazines as the depot has them: a popped one is used, which the cells check.
struct Depot {
    stack: IndexStack,
    magazines: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are used by who popped their number.
unsafe impl Sync for Depot {}

/// INV-BUF-2 for the depot: each magazine is popped by one thread at a time, which sees what was
/// written before the push.
#[test]
fn the_depot_gives_each_magazine_to_one() {
    loom::model(|| {
        let depot = Arc::new(Depot {
            stack: IndexStack::new(2),
            magazines: (0..2).map(|_| UnsafeCell::new(0)).collect(),
        });
        depot.stack.push(0);
        depot.stack.push(1);
        let use_one = |depot: &Depot| {
            let Some(index) = depot.stack.pop() else {
                return false;
            };
            // SAFETY: popped by us; loom checks that nobody else uses it.
            depot.magazines[index as usize].with_mut(|uses| unsafe { *uses += 1 });
            depot.stack.push(index);
            true
        };
        let other = depot.clone();
        let thread = thread::spawn(move || use_one(&other));
        assert!(use_one(&depot), "there are as many magazines as threads");
        assert!(thread.join().unwrap());
        let mut left = [depot.stack.pop().unwrap(), depot.stack.pop().unwrap()];
        left.sort_unstable();
        assert_eq!((left, depot.stack.pop()), ([0, 1], None));
    });
}

/// A thread that pops twice and pushes the first back (what makes ABA), against one that pops.
fn aba(pop: fn(&AtomicU32, &[AtomicU32]) -> Option<u32>) {
    let (head, links) = (
        Arc::new(AtomicU32::new(2)),
        Arc::new([AtomicU32::new(0), AtomicU32::new(1)]),
    );
    let (head2, links2) = (head.clone(), links.clone());
    let thread = thread::spawn(move || pop(&head2, &links2[..]));
    let first = pop(&head, &links[..]);
    let second = pop(&head, &links[..]);
    if let Some(first) = first {
        links[first as usize].store(head.load(Ordering::Acquire), Ordering::Release);
        let _ = head.compare_exchange(
            links[first as usize].load(Ordering::Acquire),
            first + 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
    let third = thread.join().unwrap();
    let fourth = pop(&head, &links[..]);
    assert!(
        second.is_none() || (second != third && second != fourth),
        "doubled"
    );
}

/// The model can fail: a stack without a tag gives a magazine to two.
#[test]
#[should_panic(expected = "doubled")]
fn without_the_tag_a_magazine_is_doubled() {
    loom::model(|| {
        aba(|head, links| {
            let mut top = head.load(Ordering::Acquire);
            loop {
                let index = top.checked_sub(1)?;
                let below = links[index as usize].load(Ordering::Acquire);
                match head.compare_exchange(top, below, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Some(index),
                    Err(now) => top = now,
                }
            }
        });
    });
}

/// The same scenario with the real stack.
#[test]
fn with_the_tag_it_is_not() {
    loom::model(|| {
        let stack = Arc::new(IndexStack::new(2));
        stack.push(0);
        stack.push(1);
        let other = stack.clone();
        let thread = thread::spawn(move || other.pop());
        let first = stack.pop();
        let second = stack.pop();
        first.into_iter().for_each(|first| stack.push(first));
        let third = thread.join().unwrap();
        let fourth = stack.pop();
        assert!(
            second.is_none() || (second != third && second != fourth),
            "doubled"
        );
    });
}

/// A node of a remote-free list; loom fails if two threads use a field at once.
struct Magazine {
    next: UnsafeCell<Option<NonNull<Magazine>>>,
    buffers: UnsafeCell<usize>,
}

// SAFETY: both functions use `next`, which the models touch in no other way.
unsafe impl Linked for Magazine {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: owned by the caller's promise.
        unsafe { node.as_ref().next.with(|next| *next) }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: owned by the caller's promise.
        unsafe { node.as_ref().next.with_mut(|link| *link = next) }
    }
}

type RemoteFree = AdoptionList<Magazine>;

/// Sends a magazine of `buffers` to its owner; returns what went to the depot instead.
fn send(list: &RemoteFree, buffers: usize, limit: usize) -> usize {
    let node = NonNull::from(Box::leak(Box::new(Magazine {
        next: UnsafeCell::new(None),
        buffers: UnsafeCell::new(buffers),
    })));
    // SAFETY: just made, a chain of one that stands for `buffers`.
    if buffers <= limit && unsafe { list.push(&Chain::one(node), buffers, limit) }.is_some() {
        return 0;
    }
    // SAFETY: refused, so still ours.
    drop(unsafe { Box::from_raw(node.as_ptr()) });
    buffers
}

fn drain(list: &RemoteFree) -> usize {
    let mut buffers = 0;
    list.take(|chain| {
        // SAFETY: `take` gives each node to us; made from a box by `send`, which pushes one by one.
        let magazine = unsafe { Box::from_raw(chain.head.as_ptr()) };
        // SAFETY: ours.
        buffers += magazine.buffers.with(|buffers| unsafe { *buffers });
    });
    buffers
}

/// INV-BUF-1, INV-BUF-5, INV-BUF-9: two senders; the owner and a thief empty its remote-free
/// list: it never holds more than the limit, and every buffer is drained, stolen, left or in the
/// depot once.
#[test]
fn the_remote_free_list_is_bounded_and_loses_nothing() {
    loom::model(|| {
        let list = Arc::new(RemoteFree::expecting(0));
        let other = list.clone();
        let sender = thread::spawn(move || send(&other, 2, 3));
        let other = list.clone();
        let thief = thread::spawn(move || drain(&other));
        let mut depot = send(&list, 2, 3);
        assert!(list.len() <= 3);
        let drained = drain(&list);
        depot += sender.join().unwrap();
        let stolen = thief.join().unwrap();
        assert_eq!(depot + drained + stolen + drain(&list), 4);
    });
}

/// The twin: a count beside the list, read and then changed, lets the list grow beyond the limit.
#[test]
#[should_panic(expected = "beyond the limit")]
fn with_the_count_beside_the_list_the_bound_is_not_kept() {
    loom::model(|| {
        let count = Arc::new(AtomicUsize::new(0));
        let send = |count: &AtomicUsize| {
            if count.load(Ordering::Acquire) + 2 <= 3 {
                count.fetch_add(2, Ordering::AcqRel);
            }
        };
        let other = count.clone();
        let sender = thread::spawn(move || send(&other));
        send(&count);
        sender.join().unwrap();
        assert!(count.load(Ordering::Relaxed) <= 3, "beyond the limit");
    });
}

/// An owner that goes to sleep looks at its remote-free list after it said so: it sees the
/// buffers that reach half the bound, or is woken.
#[test]
fn a_sleeping_owner_is_woken_at_half_the_bound() {
    loom::model(|| {
        let owner = Arc::new((RemoteFree::expecting(0), Notify::new()));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let owner = owner.clone();
                thread::spawn(move || {
                    assert_eq!(send(&owner.0, 1, 2), 0);
                    usize::from(owner.0.len() >= 1 && owner.1.wake(|| ()))
                })
            })
            .collect();
        owner.1.prepare();
        let seen = owner.0.len();
        let kicks: usize = senders.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(seen >= 1 || kicks != 0, "slept on");
        drain(&owner.0);
    });
}

/// The twin: an owner that looks first and says afterwards that it sleeps misses the wake-up.
#[test]
#[should_panic(expected = "slept on")]
fn an_owner_that_looks_too_early_sleeps_on() {
    loom::model(|| {
        let owner = Arc::new((RemoteFree::expecting(0), Notify::new()));
        let other = owner.clone();
        let sender = thread::spawn(move || {
            assert_eq!(send(&other.0, 1, 2), 0);
            other.1.wake(|| ())
        });
        let seen = owner.0.len();
        owner.1.prepare();
        let kicked = sender.join().unwrap();
        drain(&owner.0);
        assert!(seen >= 1 || kicked, "slept on");
    });
}

/// The end of a pool (`mem/close.rs`): an unregistered thread that frees the last packet is
/// counted as inside before the free is.
fn last_free(enter: bool) {
    const USED: u8 = 1;
    let pool = Arc::new((
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        UnsafeCell::new(USED),
        AtomicU8::new(0),
    ));
    let other = pool.clone();
    let thread = thread::spawn(move || {
        if enter {
            other.0.fetch_add(1, Ordering::Acquire);
        }
        other.1.fetch_add(1, Ordering::Release);
        // Still in the pool after the free was counted.
        // SAFETY: that this does not race with the end is what the model checks.
        other.2.with(|pool| assert_eq!(unsafe { *pool }, USED));
        if enter {
            other.0.fetch_sub(1, Ordering::Release);
        }
    });
    let complete = pool.1.load(Ordering::Acquire) == 1 && pool.0.load(Ordering::Acquire) == 0;
    if complete {
        // SAFETY: as above.
        pool.2.with_mut(|pool| unsafe { *pool = 0 });
    }
    thread.join().unwrap();
}

/// The pool is freed when nobody is in it.
#[test]
fn the_end_comes_after_the_last_has_left() {
    loom::model(|| last_free(true));
}

/// The twin: without the count of those inside, the pool is freed under the last one's feet.
#[test]
#[should_panic]
fn without_the_count_of_those_inside_it_comes_too_early() {
    loom::model(|| last_free(false));
}
