//! Qdiscs that have packets enqueued at the root again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use softnet::qdisc::{Cx, Next, Pfifo, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet_tc::CustomSpec;

/// Mark of a copy, which is not copied again.
const COPY: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Each packet comes once more, as with netem's `duplicate`.
    CopiesWhatComes,
    /// Each packet that leaves comes once more.
    CopiesWhatLeaves,
    /// Nothing leaves: all of it comes again.
    Circles,
    /// Says that more is ready, and gives nothing.
    Lies,
}

#[derive(Debug)]
struct Again {
    kind: Kind,
    queue: Pfifo,
    /// Calls of `dequeue`.
    calls: Arc<AtomicUsize>,
}

fn copies<'a>(packets: impl Iterator<Item = &'a Packet>, cx: &mut Cx) {
    for packet in packets.filter(|packet| packet.mark() < COPY) {
        let mut copy = packet.copy(&cx.pool).expect("a buffer");
        copy.set_mark(packet.mark() | COPY);
        cx.reinject.push_back(copy);
    }
}

impl Qdisc for Again {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        if self.kind == Kind::CopiesWhatComes {
            copies(packets.iter(), cx);
        }
        self.queue.enqueue(packets, cx)
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call < 10_000, "dequeues for ever");
        match self.kind {
            Kind::CopiesWhatComes => self.queue.dequeue(budget, out, cx),
            Kind::CopiesWhatLeaves => {
                let next = self.queue.dequeue(budget, out, cx);
                copies(out.iter(), cx);
                next
            }
            Kind::Circles => {
                self.queue.drain(&mut cx.reinject);
                Next::Idle
            }
            Kind::Lies => Next::Ready,
        }
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out);
    }
    fn stats(&self) -> &QdiscStats {
        self.queue.stats()
    }
}

fn again(kind: Kind, calls: &Arc<AtomicUsize>) -> QdiscSpec {
    let calls = calls.clone();
    QdiscSpec::Custom(CustomSpec::new("again", move |_| {
        Box::new(Again {
            kind,
            queue: Pfifo::new(1000),
            calls: calls.clone(),
        })
    }))
}

/// Each packet leaves twice, and each run ends at its quota (INV-TX-1, INV-TX-12).
#[test]
fn copies_leave_after_their_originals() {
    for kind in [Kind::CopiesWhatComes, Kind::CopiesWhatLeaves] {
        let bench = scripted(again(kind, &Arc::default()), 1);
        bench.set_capacity(0);
        bench.send([0]);
        bench.send(1..150);
        bench.set_capacity(usize::MAX);
        bench.device.queues()[0].wake();
        let mut before = 0;
        while bench.device.stats().queued > 0 {
            bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
            let sent = bench.marks(0).len();
            assert!((1..=RUN_QUOTA).contains(&(sent - before)), "{kind:?}");
            before = sent;
        }
        bench.check(300);
        let is_copy = |mark: &u32| *mark >= COPY;
        let (copies, originals): (Vec<u32>, Vec<u32>) =
            bench.marks(0).into_iter().partition(is_copy);
        assert!(originals.into_iter().eq(0..150), "{kind:?}");
        assert!(copies.into_iter().eq(COPY..COPY + 150), "{kind:?}");
    }
}

/// INV-TX-12: what a qdisc moves back to its root is charged, and so is a round without a packet,
/// with and without a byte limit. The owner went round for ever.
#[test]
fn inv_tx_12_a_qdisc_that_sends_nothing_is_left() {
    for kind in [Kind::Circles, Kind::Lies] {
        for packets in [1, 10] {
            let calls = Arc::default();
            let qdisc = again(kind, &calls);
            send_nothing(&scripted(qdisc.clone(), 1), &calls, packets);
            calls.store(0, Ordering::Relaxed);
            let (ring, script) = ScriptedRing::new();
            script.set_byte_limit(500);
            send_nothing(&with_rings(qdisc, vec![ring]), &calls, packets);
        }
    }
}

fn send_nothing<R: TxRing>(bench: &Bench<R>, calls: &AtomicUsize, packets: u32) {
    bench.send(0..packets);
    assert!(calls.load(Ordering::Relaxed) <= RUN_QUOTA);
    bench.device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
    assert!(calls.load(Ordering::Relaxed) <= 2 * RUN_QUOTA);
    bench.check(packets.into());
    assert_eq!(bench.device.stats().queued, u64::from(packets));
    bench.device.deactivate().unwrap();
    bench.check(packets.into());
    let drops = bench.device.stats().drops;
    assert_eq!(drops, [(DropReason::QdiscReset, packets.into())]);
}
