//! Embedding: senders, a helper thread, back-pressure; nothing sticks and nothing is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Wake;
use std::time::{Duration, Instant};

use super::*;
use softnet::qdisc::PfifoFast;
use softnet::stats::DropReason;
use softnet::testing::Script;
use softnet::tx;

fn start(qdisc: QdiscSpec) -> (Sender<ScriptedRing>, Arc<Script>, Pool) {
    let pool = pool(BUFFERS);
    let (ring, script) = ScriptedRing::new();
    let clock = Clock::monotonic();
    let out = super::start(config("sender"), qdisc, vec![ring], &pool, clock);
    (out, script, pool)
}

/// The helper thread goes on where a rate limit, a quota or a full driver ended a sender's run;
/// with back-pressure no limit is ever reached.
#[test]
fn senders_that_wait_for_capacity_lose_nothing() {
    const SENDERS: u32 = 8;
    let each = if cfg!(miri) { 5 } else { 200 };
    // Twice what they wait for, and one each: the length that they see lacks what the queue's owner
    // has just taken over, so that as much may come in its place.
    let tbf = shaped(20_000_000, 2_000, 100 * 200);
    let (out, script, pool) = start(tbf);
    let clock = Clock::monotonic();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (out, clock, pool) = (&out, &clock, &pool);
            scope.spawn(move || {
                for n in 0..each {
                    let queue = &out.device().queues()[0];
                    assert!(
                        queue
                            .wait_for_capacity(80, Duration::from_secs(20))
                            .unwrap()
                    );
                    let packet = frame(pool, 1, 2, 100, sender << 24 | n);
                    out.device().transmit(packet.into(), clock.now());
                }
            });
        }
    });
    let device = out.device().clone();
    out.stop(Duration::from_secs(20));
    let stats = device.stats();
    assert_eq!(
        (stats.tx_packets, stats.dropped(), stats.queued),
        (u64::from(SENDERS * each), 0, 0)
    );
    let marks = script.marks();
    for sender in 0..SENDERS {
        assert!(marks.iter().filter(|&&m| m >> 24 == sender).is_sorted());
    }
}

#[test]
fn room_is_refused_in_time_and_given_when_the_driver_wakes() {
    let (out, script, pool) = start(QdiscSpec::default());
    script.set_capacity(0);
    let queue = &out.device().queues()[0];
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    assert!(
        !queue
            .wait_for_capacity(10, Duration::from_millis(5))
            .unwrap(),
        "ten wait"
    );
    assert!(queue.wait_for_capacity(11, Duration::ZERO).unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| queue.wait_for_capacity(1, Duration::from_secs(20)));
        script.set_capacity(usize::MAX);
        queue.wake();
        assert_eq!(waiter.join().unwrap(), Ok(true));
    });
    assert_eq!(script.marks(), (0..10).collect::<Vec<_>>());
}

/// A queue that the control path empties has capacity, and no worker need say so. (A waiter that is
/// not told waits for ever.)
#[test]
fn a_waiter_is_told_when_the_device_goes_down() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..10);
    std::thread::scope(|scope| {
        let queue = &bench.device.queues()[0];
        let waiter = scope.spawn(|| queue.wait_for_capacity(1, Duration::MAX));
        std::thread::yield_now();
        bench.device.deactivate().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(true));
    });
}

#[test]
fn what_cannot_leave_in_time_is_dropped_and_counted() {
    let slow = shaped(1, 100, 100_000);
    let (out, _, pool) = start(slow);
    let list: PacketList = (0..10).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.device().transmit(list, Clock::monotonic().now());
    let device = out.device().clone();
    out.stop(Duration::from_millis(5));
    assert_eq!(device.stats().drops, [(DropReason::QdiscReset, 9)]);
}

/// The helper thread restarts a driver that has stopped answering, once and not before its time,
/// though there is no event. (In virtual time, which flies here; the thread looks once in a real
/// second.)
#[test]
fn bug_tx_23_the_helper_restarts_a_driver_that_is_stuck() {
    let pool = pool(64);
    let (ring, script) = ScriptedRing::new();
    script.set_capacity(0);
    script.restart_helps();
    let clock = Clock::virtual_at(Time(1_000_000_000));
    let qdisc = QdiscSpec::default();
    let out = super::start(config("stuck"), qdisc, vec![ring], &pool, clock.clone());
    let list: PacketList = (0..5).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    let stopped = clock.now();
    out.device().transmit(list, stopped);
    let patience = Instant::now() + Duration::from_secs(30);
    while !out.device().is_empty() {
        assert!(Instant::now() < patience, "stuck: {:?}", out.device());
        clock.advance(Duration::from_millis(100));
        std::thread::sleep(Duration::from_millis(1));
    }
    clock.advance(Duration::from_secs(100));
    let device = out.device().clone();
    out.stop(Duration::from_secs(20));
    let stats = device.stats();
    assert_eq!((stats.tx_packets, stats.dropped()), (5, 0));
    let restarts = script.restarts();
    assert_eq!((stats.tx_timeouts, restarts.len()), (1, 1));
    assert!(restarts[0].since(stopped) >= WATCHDOG_TIMEO);
    assert_eq!(pool.stats().free, 64);
}

/// Counts how often a program's loop or task is woken.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    pub(super) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_sender_has_defaults_for_all_but_its_ring() {
    let (ring, script) = ScriptedRing::new();
    let pool = pool(64);
    let out = tx::Sender::builder().pool(&pool).start(ring).unwrap();
    let packet = out.packet(&[7; 100]).unwrap();
    assert_eq!(out.transmit(packet), XmitResult::Success);
    assert_eq!(out.device().stats().tx_packets, 1);
    assert_eq!(*out.device().name(), "out");
    let long = out.packet(&[7; 1523]).unwrap();
    out.transmit(long);
    let device = out.device().clone();
    out.stop(Duration::ZERO);
    assert_eq!(device.stats().drops, [(DropReason::Mtu, 1)]);
    assert_eq!(script.sent().len(), 1);
}

#[test]
fn a_sender_without_one_qdisc_for_each_ring_is_refused() {
    let pool = pool(64);
    let rings = |count| (0..count).map(|_| ScriptedRing::new().0).collect();
    for (count, qdiscs, active) in [(0, 0, 0), (0, 1, 1), (2, 1, 1), (1, 2, 2), (3, 3, 2)] {
        let instances = (0..qdiscs).map(|_| PfifoFast::new(10)).collect();
        let qdiscs = Qdiscs {
            active,
            ..Qdiscs::per_queue(instances)
        };
        let sender = tx::Sender::builder().pool(&pool).qdiscs(qdiscs);
        let error = sender.start_all::<ScriptedRing>(rings(count)).unwrap_err();
        assert!(matches!(error, SenderError::Qdiscs { rings, .. } if rings == count));
    }
    assert_eq!(pool.stats().free, 64);
}

/// Without a helper thread the program's loop is woken once for each of its sleeps, told when it
/// has to come at the latest, and sends what a rate held back.
#[test]
fn a_loop_of_the_program_does_the_helper_s_work() {
    let pool = pool(64);
    let (ring, script) = ScriptedRing::new();
    let wakes = Arc::new(Wakes::default());
    let clock = Clock::virtual_at(Time(1_000_000));
    let qdiscs = shaped(100_000, 100, 100_000).instances(1, &pool).unwrap();
    let sender = tx::Sender::builder().qdiscs(qdiscs).pool(&pool);
    let sender = sender.clock(clock.clone());
    let (out, mut runner) = sender.drive(vec![ring], wakes.clone().into()).unwrap();
    assert_eq!(
        out.clock().now(),
        clock.now(),
        "the clock that it was given"
    );
    // A second from now it looks after the driver.
    assert_eq!(
        runner.run(clock.now()),
        clock.now() + Duration::from_secs(1)
    );
    assert_eq!(wakes.take(), 0);
    // The burst is one packet, so the second waits for a millisecond, and the loop is told.
    let packets: PacketList = (0..3).map(|n| frame(&pool, 1, 2, 100, n)).collect();
    out.transmit(packets);
    out.transmit(frame(&pool, 1, 2, 100, 3));
    assert_eq!((script.marks(), wakes.take()), (vec![0], 1));
    let mut next = runner.run(clock.now());
    let mut sent = 1;
    while sent < 4 {
        assert!(next > clock.now(), "nothing to do now");
        clock.advance(next.since(clock.now()));
        next = runner.run(clock.now());
        assert_eq!(script.marks().len(), sent + 1);
        sent += 1;
    }
    assert_eq!(wakes.take(), 0, "its timer is its own");
    assert!(out.device().is_empty());
    out.stop(Duration::ZERO);
}

/// An event that comes while the loop is away from `run` is served at its next turn, and one that
/// comes before the first run wakes it.
#[test]
#[cfg_attr(miri, ignore = "the interpreter has no poll")]
fn a_driver_wakes_the_program_s_loop() {
    let pool = pool(64);
    let (ring, script) = ScriptedRing::new();
    script.set_capacity(0);
    let file = WakeFile::new().unwrap();
    let sender = tx::Sender::builder().pool(&pool);
    let (out, mut runner) = sender.drive(vec![ring], file.waker()).unwrap();
    out.transmit(frame(&pool, 1, 2, 100, 0));
    assert!(script.marks().is_empty());
    assert!(!is_readable(&file));
    script.set_capacity(1);
    out.device().queues()[0].wake();
    assert!(is_readable(&file));
    file.clear();
    assert!(!is_readable(&file));
    runner.run(Time::ZERO);
    assert_eq!(script.marks(), [0]);
}

fn is_readable(file: &WakeFile) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut files = [PollFd::new(file, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).unwrap() == 1
}

/// A sender that stands still in the driver holds up nobody, also where the driver counts as stuck:
/// the loop comes again, and restarts it when nobody owns the queue.
#[test]
fn a_loop_waits_for_no_owner_of_a_stuck_queue() {
    let pool = pool(64);
    let (ring, script) = ScriptedRing::new();
    let clock = Clock::virtual_at(Time(1_000_000));
    let sender = tx::Sender::builder().pool(&pool).clock(clock.clone());
    let waker = std::task::Waker::noop().clone();
    let (out, mut runner) = sender.drive(vec![ring], waker).unwrap();
    script.set_capacity(0);
    out.transmit(frame(&pool, 1, 2, 100, 0));
    clock.advance(2 * WATCHDOG_TIMEO);
    let (stands, stood) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    script.on_next_call(move || {
        stands.send(()).unwrap();
        let _ = gone.recv();
    });
    out.device().queues()[0].wake();
    let (returned, next) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| out.transmit(frame(&pool, 1, 2, 100, 1)));
        stood.recv().unwrap();
        let (runner, clock) = (&mut runner, &clock);
        scope.spawn(move || returned.send(runner.run(clock.now())));
        let next = next.recv_timeout(Duration::from_secs(20));
        go.send(()).unwrap();
        let next = next.expect("the loop waits for the sender");
        assert!(
            next < clock.now() + Duration::from_secs(1),
            "it comes again soon"
        );
    });
    assert_eq!(script.restarts().len(), 0);
    clock.advance(Duration::from_secs(1));
    runner.run(clock.now());
    assert_eq!(script.restarts().len(), 1);
    out.stop(Duration::ZERO);
}
