//! Random interleavings of allocating, freeing, sharing, handing over and thread exit, with every
//! buffer counted; and the soak.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::testing::small;
use super::*;

/// A step of one of a few threads.
#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    FreeOne,
    FreeAll,
    Share,
    Chain,
    Unique,
    GiveTo(usize),
    Poll,
    Sleep,
    Exit,
    DeferMax(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40_usize).prop_map(Step::Alloc),
        3 => Just(Step::FreeOne),
        2 => Just(Step::FreeAll),
        2 => Just(Step::Share),
        1 => Just(Step::Chain),
        1 => Just(Step::Unique),
        3 => (0..3_usize).prop_map(Step::GiveTo),
        1 => Just(Step::Poll),
        1 => Just(Step::Sleep),
        1 => Just(Step::Exit),
        1 => (0..40_usize).prop_map(Step::DeferMax),
    ]
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does what it is told, one job after the other.
struct Actor {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Actor {
    fn new() -> Actor {
        let (jobs, todo) = mpsc::channel::<Job>();
        let thread = thread::spawn(move || todo.iter().for_each(|job| job()));
        Actor {
            jobs: Some(jobs),
            thread: Some(thread),
        }
    }

    fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move || drop(done.send(f())));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        result.recv().unwrap()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().unwrap().join();
    }
}

/// Does the step with the packets of a thread; the steps that concern threads are the caller's.
fn act(pool: &Pool, mut mine: PacketList, step: &Step) -> PacketList {
    match *step {
        Step::Alloc(n) => {
            let before = mine.len();
            let got = pool.alloc_bulk(n, &mut mine);
            assert_eq!(mine.len(), before + got);
        }
        Step::FreeOne => drop(mine.pop_front()),
        Step::FreeAll => drop(mine.take()),
        Step::Share => {
            if let Some(mut packet) = mine.pop_front() {
                mine.extend(packet.share(pool));
                mine.push_front(packet);
            }
        }
        Step::Chain => {
            if let Some(mut packet) = mine.pop_front() {
                if !packet.is_shared() && !packet.is_chained() {
                    assert!(packet.append(b"first"));
                    if let Ok(mut segment) = pool.alloc() {
                        assert!(segment.append(b"second"));
                        packet.append_segment(segment);
                    }
                }
                mine.push_back(packet);
            }
        }
        Step::Unique => {
            if let Some(mut packet) = mine.pop_front() {
                let unique = packet.make_unique(pool);
                assert_eq!(unique, !packet.is_shared());
                mine.push_back(packet);
            }
        }
        Step::Poll => pool.poll_remote_free(),
        Step::Sleep => drop(pool.prepare_sleep()),
        Step::DeferMax(n) => pool.set_defer_max(n),
        Step::GiveTo(_) | Step::Exit => {}
    }
    mine
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// INV-BUF-1, INV-BUF-2, INV-BUF-3, INV-BUF-8: after every step each buffer is free in one
    /// place or in use, and at the end all can be allocated, and are different ones.
    #[test]
    fn every_buffer_is_somewhere(
        buffers in 1..300_usize,
        steps in prop::collection::vec((0..3_usize, step()), 1..if cfg!(miri) { 12 } else { 120 }),
    ) {
        let pool = small(buffers);
        let mut actors: Vec<_> = (0..3).map(|_| Actor::new()).collect();
        let mut held: Vec<_> = (0..3).map(|_| PacketList::new()).collect();
        for (who, step) in steps {
            match step {
                Step::Exit => actors[who] = Actor::new(),
                Step::GiveTo(other) => {
                    let mut packets = held[who].take();
                    held[other].append(&mut packets);
                }
                _ => {
                    let (pool, mine) = (pool.clone(), held[who].take());
                    held[who] = actors[who].run(move || act(&pool, mine, &step));
                }
            }
            let s = pool.stats();
            prop_assert_eq!(s.free, s.cached + s.deferred + s.depot + s.unused, "{:?}", s);
            for owner in pool.thread_stats() {
                prop_assert!(owner.cached <= pool.inner().capacity);
                prop_assert!(owner.outgoing <= cache::OUTGOING * pool.inner().batch);
            }
        }
        drop(held);
        prop_assert_eq!(pool.stats().free, buffers);
        let mut all = PacketList::new();
        prop_assert_eq!(pool.alloc_bulk(buffers, &mut all), buffers);
        let starts = all.iter().map(|p| p.data().as_ptr());
        let distinct: std::collections::HashSet<_> = starts.collect();
        prop_assert_eq!(distinct.len(), buffers);
        prop_assert!(pool.alloc().is_err());
    }
}

/// Threads that allocate, write, share, hand over, free, poll, sleep and exit at random, for
/// `SOFTNET_SOAK_SECONDS` (default: one half). Payloads are checked, so a buffer with two owners
/// is found; at the end every buffer can be allocated again.
#[test]
fn soak_with_many_threads_and_random_exits() {
    let threads: u64 = if cfg!(miri) { 3 } else { 64 };
    let seconds = std::env::var("SOFTNET_SOAK_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(0.5));
    let buffers = if cfg!(miri) { 300 } else { 6000 };
    let pool = small(buffers);
    // Packets under way from any thread to any other.
    let mail: Vec<_> = (0..threads)
        .map(|_| Mutex::new(PacketList::new()))
        .collect();
    let lives = AtomicU64::new(0);
    let (passed, lives_ref) = (AtomicU64::new(0), &lives);
    thread::scope(|scope| {
        for slot in 0..threads {
            let (pool, mail, passed) = (&pool, &mail, &passed);
            scope.spawn(move || {
                let mut seed = slot + 1;
                let mut lives = 0;
                while Instant::now() < end && !(cfg!(miri) && lives == 2) {
                    seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x55;
                    lives += 1;
                    // A real thread, whose exit is waited for: the scope alone would wait for its
                    // closure, and its cache is given back after that.
                    thread::scope(|inner| {
                        let life = inner.spawn(|| life(pool, mail, seed, end, passed));
                        life.join().unwrap();
                    });
                }
                lives_ref.fetch_add(lives, Ordering::Relaxed);
            });
        }
    });
    drop(mail);
    let stats = pool.stats();
    assert_eq!(stats.free, buffers, "{stats:?}");
    let mut all = PacketList::new();
    // A thread that is still exiting may hold some for an instant.
    while pool.alloc_bulk(buffers - all.len(), &mut all) + all.len() < buffers
        && all.len() < buffers
    {
        thread::yield_now();
    }
    let distinct: std::collections::HashSet<_> = all.iter().map(|p| p.data().as_ptr()).collect();
    assert_eq!(distinct.len(), buffers);
    println!(
        "{} threads lived, {} packets passed; {stats:?}",
        lives.load(Ordering::Relaxed),
        passed.load(Ordering::Relaxed)
    );
}

/// One thread's life.
fn life(pool: &Pool, mail: &[Mutex<PacketList>], mut seed: u64, end: Instant, passed: &AtomicU64) {
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let check = |packet: &Packet| {
        let data = packet.data();
        assert!(
            data.len() == 64 && data.iter().all(|&b| b == data[0]),
            "somebody else wrote: {data:?}"
        );
    };
    let mut mine = PacketList::new();
    let rounds = random(if cfg!(miri) { 5 } else { 3000 });
    for round in 0..rounds {
        if round % 64 == 0 && Instant::now() >= end {
            break;
        }
        match random(10) {
            0..=2 => {
                let mut fresh = PacketList::new();
                pool.alloc_bulk(1 + random(48) as usize, &mut fresh);
                let byte = random(256) as u8;
                for mut packet in fresh {
                    assert!(packet.append(&[byte; 64]));
                    mine.push_back(packet);
                }
            }
            3 => {
                if let Some(mut packet) = mine.pop_front() {
                    mine.extend(packet.share(pool));
                    mine.push_back(packet);
                }
            }
            4..=6 => {
                let to = random(mail.len() as u64) as usize;
                if let Ok(mut there) = mail[to].try_lock() {
                    passed.fetch_add(mine.len() as u64, Ordering::Relaxed);
                    there.append(&mut mine);
                }
            }
            7 => {
                let from = random(mail.len() as u64) as usize;
                if let Ok(mut here) = mail[from].try_lock() {
                    mine.append(&mut here);
                }
                mine.iter().for_each(check);
            }
            8 => {
                mine.iter().for_each(check);
                drop(mine.take());
            }
            _ => {
                drop(mine.pop_front());
                if random(4) == 0 {
                    let _ = pool.prepare_sleep();
                    thread::yield_now();
                }
                pool.poll_remote_free();
            }
        }
    }
}
