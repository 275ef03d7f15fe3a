//! Senders that keep to their CPU's lane: where packets wait, who takes them, and that each thread's stay in order (INV-TX-1 to -3, -8).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::lane::pretend_cpu;
use super::testbench::BUFFERS;
use super::*;
use crate::packet::PacketList;
use crate::qdisc::QdiscSpec;
use crate::stats::DropReason;
use crate::testing::{Record, RecordingRing};
use crate::time::Time;

/// A driver that, while it is gated, keeps each call until the test lets it go.
#[derive(Debug)]
struct Gated {
    ring: RecordingRing,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    closed: AtomicBool,
    arrived: AtomicUsize,
    passed: AtomicUsize,
}

impl Gate {
    fn close(&self) {
        self.arrived.store(0, Ordering::Release);
        self.passed.store(0, Ordering::Release);
        self.closed.store(true, Ordering::Release);
    }

    /// Waits until the driver has been called once more.
    fn await_call(&self, calls: usize) {
        let patience = Instant::now() + Duration::from_secs(20);
        while self.arrived.load(Ordering::Acquire) < calls {
            assert!(Instant::now() < patience, "the driver was not called");
            std::thread::yield_now();
        }
    }
}

impl TxRing for Gated {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let gate = &self.gate;
        if gate.closed.load(Ordering::Acquire) {
            let call = gate.arrived.fetch_add(1, Ordering::AcqRel);
            while gate.passed.load(Ordering::Acquire) <= call && gate.closed.load(Ordering::Acquire)
            {
                std::thread::yield_now();
            }
        }
        self.ring.xmit(packets, sent)
    }
}

struct Bench {
    bench: testbench::Bench<Gated>,
    record: Arc<Record>,
    gate: Arc<Gate>,
}

impl Deref for Bench {
    type Target = testbench::Bench<Gated>;
    fn deref(&self) -> &Self::Target {
        &self.bench
    }
}

impl Bench {
    fn new(max_burst: usize) -> Bench {
        let (ring, record) = RecordingRing::new();
        let gate = Arc::new(Gate::default());
        let ring = Gated {
            ring,
            gate: gate.clone(),
        };
        let policy = TxPolicy {
            max_burst,
            served_by: ServedBy::SendersByCpu,
            // Has no effect here.
            lockless: true,
            ..TxPolicy::default()
        };
        let fifo = QdiscSpec::Pfifo { limit: 500 };
        let bench = testbench::Bench::with(fifo, vec![ring], policy);
        Bench {
            bench,
            record,
            gate,
        }
    }

    fn queue(&self) -> &TxQueue<Gated> {
        &self.device.queues()[0]
    }

    fn send(&self, mark: u32) -> XmitResult {
        let packet = self.packet(0, mark);
        self.device.transmit(packet.into(), Time::ZERO)
    }

    fn lanes(&self) -> [usize; 2] {
        let lanes = self.queue().run.lanes().unwrap();
        [lanes.waiting(0), lanes.waiting(1)]
    }

    /// Has another thread send packet 1000, which stays in the driver while `f` runs.
    fn while_running(&self, f: impl FnOnce()) {
        self.gate.close();
        std::thread::scope(|scope| {
            scope.spawn(|| self.send(1000));
            self.gate.await_call(1);
            // Also if it panics: the thread is waited for.
            let _open = Open(&self.gate);
            f();
        });
    }

    /// Sends packets 1000 and 0 to 4 so that the last is left in lane 0: a run in which round after round there was something takes the lane's senders for busy.
    fn strand(&self) {
        self.gate.close();
        std::thread::scope(|scope| {
            scope.spawn(|| self.send(1000));
            let _open = Open(&self.gate);
            for round in 0..5 {
                self.gate.await_call(round + 1);
                assert_eq!(self.send(round as u32), XmitResult::Success);
                self.gate.passed.store(round + 1, Ordering::Release);
            }
        });
        assert_eq!(self.record.marks(), [1000, 0, 1, 2, 3]);
        assert_eq!(self.lanes(), [1, 0]);
        assert!(!self.doorbell.is_silent() && !self.queue().is_empty());
        self.record.sent.lock().unwrap().clear();
    }

    /// At rest, with nothing left.
    fn check(&self, offered: u64) {
        self.bench.check(offered);
        assert!(self.queue().is_empty());
    }
}

struct Open<'a>(&'a Gate);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed.store(false, Ordering::Release);
    }
}

/// INV-TX-3: a thread that is moved keeps its lane while packets of it wait there, and changes it once they are gone.
#[test]
fn a_thread_that_moves_keeps_its_order() {
    let bench = Bench::new(1000);
    pretend_cpu(0);
    bench.while_running(|| {
        bench.send(0);
        pretend_cpu(1);
        for mark in 1..20 {
            assert_eq!(bench.send(mark), XmitResult::Success);
        }
        assert_eq!(bench.lanes(), [20, 0]);
        assert_eq!(bench.queue().waiting(), 20);
        assert!(!bench.queue().is_empty());
    });
    bench.work(Time::ZERO);
    let order: Vec<u32> = [1000].into_iter().chain(0..20).collect();
    assert_eq!(bench.record.marks(), order);
    bench.check(21);
    // Those go straight through, and then the thread has changed.
    (20..30).for_each(|mark| {
        bench.send(mark);
    });
    bench.while_running(|| {
        bench.send(30);
        assert_eq!(bench.lanes(), [0, 1]);
    });
    bench.work(Time::ZERO);
    bench.check(33);
}

/// INV-TX-8: the burst limit is each lane's.
#[test]
fn inv_tx_8_a_lane_has_the_burst_limit() {
    let bench = Bench::new(3);
    pretend_cpu(0);
    bench.while_running(|| {
        let results: Vec<_> = (0..5).map(|mark| bench.send(mark)).collect();
        let accepted = [XmitResult::Success; 3];
        assert_eq!(results[..3], accepted);
        assert_eq!(results[3..], [XmitResult::Drop; 2]);
    });
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), [1000, 0, 1, 2]);
    assert_eq!(bench.device.drops().get(DropReason::QdiscBurst), 2);
    bench.check(6);
}

/// INV-TX-2: a runner that has seen the lanes busy leaves them to their senders, and rings for the worker, who takes what these do not.
#[test]
fn inv_tx_2_what_is_passed_over_is_taken_by_the_worker() {
    let bench = Bench::new(1000);
    bench.strand();
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), [4]);
    bench.check(6);
}

/// INV-TX-2: a sender finds in its lane what was passed over, and takes it as soon as it is much.
#[test]
fn inv_tx_2_what_is_passed_over_is_taken_over() {
    let bench = Bench::new(1000);
    bench.strand();
    let mut mark = 4;
    while bench.lanes()[0] != 0 {
        mark += 1;
        bench.send(mark);
    }
    assert!((20..100).contains(&mark), "{mark}");
    assert_eq!(bench.record.marks(), (4..=mark).collect::<Vec<_>>());
    bench.work(Time::ZERO);
    bench.check(u64::from(mark) + 2);
}

/// What waits in a lane when the device gets another discipline is moved there, and dropped with a reason when the device goes down.
#[test]
fn lanes_are_emptied_by_the_control_path() {
    let bench = Bench::new(1000);
    bench.strand();
    let fifo = QdiscSpec::PfifoFast { limit: 10 };
    bench.device.set_qdisc(&fifo, Time::ZERO).unwrap();
    assert_eq!(
        (bench.lanes(), bench.device.stats().queues[0].qdisc.qlen),
        ([0, 0], 1)
    );
    bench.work(Time::ZERO);
    assert_eq!(bench.record.marks(), [4]);
    bench.check(6);

    let bench = Bench::new(1000);
    bench.strand();
    bench.queue().set_active(false);
    bench.work(Time::ZERO);
    assert_eq!(bench.device.drops().get(DropReason::DeviceDown), 1);
    bench.queue().set_active(true);
    bench.check(6);
}

/// What waits in a lane is freed with the device.
#[test]
fn lanes_are_freed_with_the_device() {
    let bench = Bench::new(1000);
    bench.strand();
    let pool = bench.pool.clone();
    assert_eq!(pool.stats().free, BUFFERS - 1);
    drop(bench);
    assert_eq!(pool.stats().free, BUFFERS);
}
