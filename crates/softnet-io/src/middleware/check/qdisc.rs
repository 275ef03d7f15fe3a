//! Checks of a qdisc: it loses nothing, makes nothing, and counts what it holds.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::ClassPath;
use softnet::time::Time;

use super::{Check, Checked};

/// The state before a call.
struct Before {
    stats: QdiscStats,
    /// Dropped packets, and wire packets.
    dropped: (usize, u64),
    reinject: usize,
}

impl Before {
    fn call(qdisc: &impl Qdisc, cx: &Cx) -> Before {
        Before {
            stats: *qdisc.stats(),
            dropped: (cx.dropped.packets().len(), cx.dropped.wire_packets()),
            reinject: cx.reinject.len(),
        }
    }
}

impl Check {
    /// A packet has left the qdisc. False: it was never put in (a copy, or a segment).
    fn leaves(&mut self, packet: &Packet) -> bool {
        packet.set_holder(None);
        self.inside.remove(&packet.identity())
    }

    /// Wire packets: those before, and `added`, without what left, are those queued now.
    fn conserved(
        &mut self,
        before: &Before,
        added: u64,
        stolen: bool,
        qdisc: &impl Qdisc,
        cx: &Cx,
    ) {
        self.intact(cx.dropped.packets());
        self.intact(&cx.reinject);
        for packet in cx.dropped.packets().iter().skip(before.dropped.0) {
            self.leaves(packet);
        }
        let mut left = cx.dropped.wire_packets() - before.dropped.1;
        for packet in cx.reinject.iter().skip(before.reinject) {
            if self.leaves(packet) {
                left += packet.wire_packets();
            }
        }
        let stats = qdisc.stats();
        let (entered, accounted) = (before.stats.queued + added, stats.queued + left);
        if stolen {
            self.exact = false;
        } else {
            let lost = entered.saturating_sub(accounted);
            self.none(lost, "lost wire packets: neither queued, sent nor dropped");
        }
        let made = accounted.saturating_sub(entered);
        self.none(
            made,
            "made wire packets: queued, sent and dropped are more than it was given",
        );
        let empty = [stats.qlen, stats.queued].map(|number| number == 0);
        self.ensure(
            empty[0] == empty[1],
            "counts frames without wire packets, or the reverse",
        );
        self.ensure(
            !empty[0] || stats.backlog == 0,
            "counts bytes queued of no packet",
        );
        let held = self.holder.held() as u64;
        if self.exact && held != stats.qlen {
            let qlen = stats.qlen;
            self.ensure(
                false,
                &format!("holds {held} packets and counts {qlen} queued"),
            );
        }
    }
}

impl<Q: Qdisc> Qdisc for Checked<Q> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let (before, added) = (Before::call(&self.driver, cx), packets.wire_packets());
        for packet in &*packets {
            packet.set_holder(Some(self.check.holder));
            self.check.inside.insert(packet.identity());
            self.check.exact &= packet.gso().is_none() && !packet.is_chained();
        }
        let (holder, qdisc) = (self.check.holder, &mut self.driver);
        let verdict = holder.run(|| qdisc.enqueue(packets, cx));

        let check = &mut self.check;
        check.none(
            packets.len() as u64,
            "left packets in the list that it was to enqueue",
        );
        let stolen = verdict == Verdict::Stolen;
        check.conserved(&before, added, stolen, &self.driver, cx);
        let dropped = cx.dropped.wire_packets() != before.dropped.1;
        check.ensure(
            dropped || verdict < Verdict::Congestion,
            "says that it dropped packets, and dropped none",
        );
        verdict
    }

    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let before = Before::call(&self.driver, cx);
        let (holder, qdisc) = (self.check.holder, &mut self.driver);
        let passed = holder.run(|| qdisc.try_pass(packets, sum, cx));

        let check = &mut self.check;
        check.conserved(&before, 0, false, &self.driver, cx);
        let charged = charged(&before, self.driver.stats());
        if passed {
            check.none(
                before.stats.queued,
                "lets packets pass others that are queued",
            );
            check.ensure(
                charged == sum,
                "let packets pass and did not count them as sent",
            );
        } else {
            let nothing = charged == WireSum::default();
            check.ensure(nothing, "lets no packet pass and counts some as sent");
        }
        passed
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let (before, already) = (Before::call(&self.driver, cx), out.len());
        let (holder, qdisc) = (self.check.holder, &mut self.driver);
        let next = holder.run(|| qdisc.dequeue(budget, out, cx));

        let check = &mut self.check;
        check.intact(out);
        let mut sum = WireSum::default();
        for packet in out.iter().skip(already) {
            check.ensure(
                sum.packets < budget as u64,
                "dequeued after the budget was used up",
            );
            sum.add(packet);
            check.leaves(packet);
        }
        let mut left = before;
        let entered = left.stats.queued;
        check.none(
            sum.packets.saturating_sub(entered),
            "duplicated wire packets: it sent more than were queued",
        );
        left.stats.queued -= sum.packets;
        check.conserved(&left, 0, false, &self.driver, cx);
        let stats = self.driver.stats();
        check.ensure(
            charged(&left, stats) == sum,
            "counts other packets or bytes as sent than it dequeued",
        );
        if next == Next::Idle && cx.reinject.is_empty() {
            check.none(stats.queued, "says Idle with wire packets queued");
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        let peek = self.driver.peek(now);
        let queued = self.driver.stats().qlen != 0;
        let fits = match peek {
            Peek::Idle => !queued,
            Peek::Packet(_) | Peek::At(_) => queued,
            Peek::Unknown => true,
        };
        self.check.ensure(
            fits,
            "peeks at packets that it does not count, or at none of those",
        );
        peek
    }

    fn drain(&mut self, out: &mut PacketList) {
        let (queued, already) = (self.driver.stats().queued, out.len());
        self.driver.drain(out);
        self.check.intact(out);
        let mut drained = 0;
        for packet in out.iter().skip(already) {
            drained += packet.wire_packets();
            self.check.leaves(packet);
        }
        self.check.none(
            queued.saturating_sub(drained),
            "lost wire packets when it was drained",
        );
        self.check.none(
            drained.saturating_sub(queued),
            "made wire packets when it was drained",
        );
        let stats = self.driver.stats();
        self.check.none(
            stats.qlen + stats.backlog + stats.queued,
            "counts packets after it was drained",
        );
        let held = self.check.holder.held() as u64;
        self.check.none(held, "keeps packets after it was drained");
    }

    fn wants_enqueue_time(&self) -> bool {
        self.driver.wants_enqueue_time()
    }

    fn take_classes(&mut self, path: &mut ClassPath) {
        self.driver.take_classes(path);
    }

    fn is_noqueue(&self) -> bool {
        self.driver.is_noqueue()
    }

    fn stats(&self) -> &QdiscStats {
        self.driver.stats()
    }
}

/// Packets and bytes that were counted as sent since `before`.
fn charged(before: &Before, stats: &QdiscStats) -> WireSum {
    WireSum {
        packets: stats.packets.wrapping_sub(before.stats.packets),
        bytes: stats.bytes.wrapping_sub(before.stats.bytes),
    }
}
