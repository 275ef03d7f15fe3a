//! The kernel's past errors with deferred frees, as tests: BUG-BUF-1, 2, 3, 4, 7 and
//! 8. (5, 6, 9 and 10 are beside the items that they broke, in `defer_tests` and `share_tests`;
//! see `tests` for what has no counterpart here.)

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::testing::{
    Gone, all_again, assert_given_back, assert_swept, elsewhere, list, small, watched, witnessed,
};
use super::*;

/// Something that another thread does, after which it lives on, idle, without ever entering a
/// pool again, until the test is over.
struct Idle(Option<mpsc::Sender<()>>, Option<thread::JoinHandle<()>>);

impl Idle {
    fn after(f: impl FnOnce() + Send + 'static) -> Idle {
        let (done, is_done) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            f();
            let _ = done.send(());
            let _ = ended.recv();
        });
        is_done.recv().expect("what the other thread does");
        Idle(Some(end), Some(thread))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0 = None;
        let _ = self.1.take().map(thread::JoinHandle::join);
    }
}

fn packet(pool: &Pool, bytes: &[u8]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(bytes));
    packet
}

fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Where the packets' buffers lie.
fn addresses(packets: &PacketList) -> HashSet<usize> {
    packets.iter().map(|p| p.data().as_ptr().addr()).collect()
}

/// BUG-BUF-1: a wake-up with nothing to poll takes packets in all the same, and so does going to
/// sleep with nothing done. (The kernel returned early where no queue was scheduled.)
#[test]
fn bug_buf_1_a_wake_up_alone_takes_packets_in() {
    let pool = small(256);
    pool.set_defer_max(32);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    pool.set_waker(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let out = list(&pool, 32);
    assert!(pool.prepare_sleep());
    elsewhere(move || drop(out));
    let owner = || pool.thread_stats()[0];
    assert_eq!((owner().deferred, woken.load(Ordering::Relaxed)), (32, 1));
    let allocated = owner().allocated;
    pool.poll_remote_free();
    assert_eq!((owner().deferred, owner().drained), (0, 32));
    // Awake, so that nobody calls; below half the bound, so that nobody would.
    let out = list(&pool, 8);
    elsewhere(move || drop(out));
    assert_eq!((owner().deferred, woken.load(Ordering::Relaxed)), (8, 1));
    assert!(pool.prepare_sleep());
    assert_eq!((owner().deferred, owner().drained), (0, 40));
    assert_eq!(owner().allocated, allocated + 8);
    all_again(&pool);
}

/// BUG-BUF-2: a packet on its way to its owner, or in the remote-free list of one that sleeps for
/// ever, holds on to nothing: what it referred to in another pool (shared data, segments) is let
/// go when it is freed, so that this pool can be taken down.
#[test]
fn bug_buf_2_packets_on_their_way_home_refer_to_nothing() {
    let frames = |pool: &Pool, device: &Pool| {
        let mut data = packet(device, b"payload");
        let mut frames: PacketList = std::iter::from_fn(|| {
            let mut frame = packet(pool, b"header");
            frame.append_segment(data.share(pool)?);
            Some(frame)
        })
        .take(2)
        .collect();
        frames.push_back(data.share(pool).unwrap());
        let mut whole = packet(pool, b"header");
        whole.append_segment(packet(device, b"segment"));
        frames.push_back(whole);
        frames
    };
    for one_by_one in [false, true] {
        let pool = small(256);
        let (device, given_back) = watched(64);
        let out = frames(&pool, &device);
        let before = pool.stats().free;
        drop(device);
        assert_swept(&given_back, 0);
        assert!(pool.prepare_sleep());
        let elsewhere = Idle::after(move || {
            if one_by_one {
                out.into_iter().for_each(drop);
            } else {
                drop(out);
            }
        });
        // 6 headers of `pool` wait in a magazine; neither thread does anything any more.
        let waiting = pool.thread_stats()[1].outgoing;
        assert_eq!((waiting, pool.stats().free), (6, before + 6));
        assert_swept(&given_back, 1);
        drop(elsewhere);
        all_again(&pool);
    }
}

/// BUG-BUF-3: a packet that was freed counts as a holder of its data no longer, though it is
/// deferred: a sender that kept the original to send it again sees at once that it may, and needs
/// no copy. (The kernel took the clone for one still in a device's queue, and the flow froze.)
#[test]
fn bug_buf_3_a_deferred_packet_holds_no_data() {
    let pool = small(256);
    let mut original = packet(&pool, b"segment 1");
    for attempt in 1..=3 {
        let sent = original.share(&pool).unwrap();
        assert!(original.is_shared());
        assert!(pool.prepare_sleep());
        let driver = Idle::after(move || drop(sent));
        assert_eq!(
            pool.thread_stats()[1].outgoing,
            1,
            "deferred, not delivered"
        );
        assert!(!original.is_shared());
        let allocated = pool.stats().allocated;
        assert!(original.make_unique(&pool));
        assert_eq!(pool.stats().allocated, allocated, "no copy");
        original.data_mut()[8] = b'1' + attempt;
        drop(driver);
    }
    assert_eq!(original.data(), b"segment 4");
    drop(original);
    all_again(&pool);
}

/// BUG-BUF-4: a pool's memory is given back when the last packet is freed, and not when the
/// packet's owner polls: neither a magazine nor the list of a sleeping owner delays that.
#[test]
fn bug_buf_4_memory_is_given_back_at_once() {
    // Deferred by the thread that freed them, or sent to their owner.
    for (packets, sent) in [(5, 0), (20, 16)] {
        let (pool, given_back) = watched(256);
        let owner = {
            let theirs = pool.clone();
            let (out, is_out) = mpsc::channel();
            let owner = Idle::after(move || {
                out.send(list(&theirs, packets)).unwrap();
                assert!(theirs.prepare_sleep());
            });
            (owner, is_out.recv().unwrap())
        };
        let (owner, mut out) = owner;
        let last = out.pop_front();
        let theirs = pool.clone();
        let freed = Idle::after(move || {
            drop(out);
            assert_eq!(theirs.stats().remote_freed, sent);
        });
        drop(pool);
        assert_swept(&given_back, 0);
        let freed_last = Idle::after(move || drop(last));
        assert_swept(&given_back, 1);
        drop((owner, freed, freed_last));
    }
}

/// BUG-BUF-7, first half (CVE-2025-38129): a pool is taken down while threads give back its last
/// packets: none of them touches it afterwards (under miri), and it goes only after the last
/// packet.
#[test]
fn bug_buf_7_a_pool_goes_after_its_last_packet() {
    struct Last {
        out: Arc<AtomicUsize>,
        _gone: Gone,
    }
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(self.out.load(Ordering::Acquire), 0, "packets are out");
        }
    }
    let (rounds, threads) = if cfg!(miri) { (2, 3) } else { (200, 4) };
    let given_back = Arc::new(AtomicUsize::new(0));
    let kept = small(64);
    for round in 0..rounds {
        let out = Arc::new(AtomicUsize::new(threads * (1 + round % 5)));
        let last = Last {
            out: out.clone(),
            _gone: Gone(given_back.clone()),
        };
        let pool = witnessed(64, last);
        let start = Arc::new(std::sync::Barrier::new(threads + 1));
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mut packets = list(&pool, 1 + round % 5);
                // Some share the data, some threads are registered, and some are not.
                let also = (thread == 1).then(|| {
                    let mut first = packets.pop_front().unwrap();
                    let shared = first.share(&kept);
                    packets.push_front(first);
                    shared
                });
                let owner = (thread == 0).then(|| pool.clone());
                let (start, out) = (start.clone(), out.clone());
                thread::spawn(move || {
                    owner.iter().for_each(|pool| drop(pool.alloc()));
                    drop(owner);
                    start.wait();
                    drop(also);
                    while !packets.is_empty() {
                        out.fetch_sub(1, Ordering::Release);
                        drop(packets.pop_front());
                    }
                })
            })
            .collect();
        start.wait();
        drop(pool);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_given_back(&given_back, round + 1);
    }
    all_again(&kept);
}

/// BUG-BUF-7, second half: a frame joined from buffers of two pools, some of them shared, is
/// freed in whatever order its holders let go, each buffer once and to its own pool. (The kernel
/// freed the data of clones twice where it had joined recycled and other buffers.)
#[test]
fn bug_buf_7_each_buffer_goes_to_its_own_pool_once() {
    let orders = [
        [0, 1, 2],
        [2, 1, 0],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
    ];
    for order in &orders[..if cfg!(miri) { 2 } else { 6 }] {
        let (a, b) = (small(16), small(16));
        let (own_a, own_b) = (addresses(&list(&a, 16)), addresses(&list(&b, 16)));
        let mut data = packet(&a, b"-of a");
        let mut whole = packet(&b, b"b");
        whole.append_segment(data.share(&b).unwrap());
        whole.append_segment(packet(&a, b"-a"));
        whole.append_segment(packet(&b, b"-b"));
        let clone = whole.share(&a).unwrap();
        let mut holders = [Some(data), Some(whole), Some(clone)];
        assert_eq!((a.stats().free, b.stats().free), (13, 13));
        for &holder in order {
            let gone = holders[holder].take();
            elsewhere(move || drop(gone));
            if holders.iter().all(Option::is_none) {
                assert_eq!((a.stats().free, b.stats().free), (16, 16), "{order:?}");
            }
            // Everything that is free is allocated, from the pool it belongs to, and written:
            // what is left must not be among it.
            for (pool, own) in [(&a, &own_a), (&b, &own_b)] {
                let mut filled = PacketList::new();
                pool.alloc_bulk(16, &mut filled);
                assert!(addresses(&filled).is_subset(own), "{order:?}");
                filled.for_each_mut(|packet| packet.tailroom_mut().fill(0xEE));
            }
            for left in holders.iter().flatten() {
                let expected: &[u8] = if left.is_chained() {
                    b"b-of a-a-b"
                } else {
                    b"-of a"
                };
                assert_eq!(content(left), expected, "{order:?}");
            }
        }
        all_again(&a);
        all_again(&b);
    }
}

/// BUG-BUF-8, first half: a waker is called by a thread that has left its cache, in whatever call
/// it was: it may use the pool, and others may take what the thread has. (The kernel's cache was
/// used by a hard interrupt in the middle of a change.)
#[test]
fn bug_buf_8_nothing_runs_inside_a_cache() {
    let pool = small(256);
    pool.set_defer_max(8);
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, theirs) = (calls.clone(), pool.clone());
    pool.set_waker(move || {
        count.fetch_add(1, Ordering::Relaxed);
        // By another thread, all there is: of a thread that is in its cache nothing could be
        // taken.
        let pool = theirs.clone();
        elsewhere(move || {
            let free = pool.stats().free;
            assert_eq!(pool.alloc_bulk(256, &mut PacketList::new()), free);
        });
        // By the same thread, more than its cache holds.
        drop(list(&theirs, 100));
    });
    type Way = fn(&Pool, PacketList);
    let ways: [Way; 3] = [
        |_, packets| drop(packets),
        |_, packets| packets.into_iter().for_each(drop),
        // Fewer than a magazine: they go when the thread sleeps.
        |pool, mut packets| {
            let mut few = PacketList::new();
            packets.split_front(5, &mut few);
            drop(few);
            assert_eq!(pool.stats().kicks, 2);
            assert!(pool.prepare_sleep());
            assert_eq!(pool.stats().kicks, 3);
        },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let out = list(&pool, 40);
        assert!(pool.prepare_sleep());
        let theirs = pool.clone();
        elsewhere(move || {
            // So that there is something to take.
            drop(list(&theirs, 20));
            way(&theirs, out);
        });
        assert_eq!(calls.load(Ordering::Relaxed), n + 1);
        pool.poll_remote_free();
    }
    assert_eq!(pool.stats().free, 256);
    // The waker holds a handle.
    pool.set_waker(|| {});
    all_again(&pool);
}

/// BUG-BUF-8, second half: a list that has shared packets in it, wherever they are, is freed in
/// bulk without their data, which somebody still reads.
#[test]
fn bug_buf_8_lists_with_shared_members_keep_the_data() {
    for shared_at in 0..5 {
        let pool = small(16);
        let mut kept = Vec::new();
        let mut packets = PacketList::new();
        for at in 0..5 {
            let mut packet = packet(&pool, &[at; 100]);
            if at == shared_at || at == 3 {
                // The one in the list has the data in its own buffer, or does not.
                let other = packet.share(&pool).unwrap();
                let (keep, go) = if at % 2 == 0 {
                    (packet, other)
                } else {
                    (other, packet)
                };
                kept.push((at, keep));
                packets.push_back(go);
            } else {
                packets.push_back(packet);
            }
        }
        let here = shared_at % 2 == 0;
        if here {
            drop(packets);
        } else {
            elsewhere(move || drop(packets));
        }
        let mut free = PacketList::new();
        let n = pool.alloc_bulk(16, &mut free);
        assert_eq!(
            n,
            16 - kept
                .iter()
                .map(|(at, _)| if at % 2 == 0 { 1 } else { 2 })
                .sum::<usize>()
        );
        free.for_each_mut(|packet| packet.tailroom_mut().fill(0xEE));
        drop(free);
        for (at, packet) in &kept {
            assert_eq!(packet.data(), [*at; 100]);
            assert!(!packet.is_shared());
        }
        drop(kept);
        all_again(&pool);
    }
}
