//! From a list of packets to transmit queues: egress actions, the choice of queues, and the limit
//! on devices without a queue. And the worker's turn at a queue.

use std::sync::atomic::Ordering;

use super::device::{Device, uses};
use super::device_stats::DEFERRED;
use super::recursion::Inside;
use super::select::Held;
use super::{TxQueue, TxRing, XmitResult};
use crate::mem::PacketList;
use crate::qdisc::Qdisc;
use crate::stats::DropReason;
use crate::time::Time;

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// Sends `packets` out of this device. Takes ownership always; never blocks. All packets of
    /// one flow take one queue, in order.
    ///
    /// A single packet waits for no other thread; a list of 8 and more waits 400 ns for each of its
    /// packets, 25.6 µs in all, for an owner of its queue that ends in that time. What else a call
    /// may cost for each queue: it sends at most [`RUN_QUOTA`](super::RUN_QUOTA) wire packets, its
    /// own or others', before each of which the qdisc may drop some ([`Qdisc::dequeue`]; `codel`
    /// 16); it enqueues (or, where the device is down, drops) at most 256 packets of others, or as
    /// many as came since the last owner if that left some of them (both times at most
    /// [`max_burst`](super::TxPolicy::max_burst), or one list that is longer); and it yields the CPU
    /// at most twice, if [`yields`](super::TxPolicy::yields): once where the list is full, once where
    /// much is due.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        // From here on the list is handed on by reference: to copy what was just written in
        // smaller pieces stalls the processor.
        let packets = &mut packets;
        if packets.is_empty() {
            return XmitResult::Success;
        }
        // Relaxed: who sends while the control path changes this is served by the old or the new
        // way.
        match self.uses.load(Ordering::Relaxed) {
            0 => self.push(packets, now),
            other => self.pass(other, packets, now),
        }
    }

    /// As [`transmit`](Device::transmit), for packets that the egress actions had before.
    pub fn transmit_past_egress(&self, mut packets: PacketList, now: Time) -> XmitResult {
        match self.uses.load(Ordering::Relaxed) & !uses::EGRESS {
            _ if packets.is_empty() => XmitResult::Success,
            0 => self.push(&mut packets, now),
            other => self.pass(other, &mut packets, now),
        }
    }

    /// [`transmit`](Device::transmit) where there is more to do than to push.
    #[cold]
    fn pass(&self, uses: u8, packets: &mut PacketList, now: Time) -> XmitResult {
        if uses & uses::DOWN != 0 {
            return self.refuse(DropReason::DeviceDown, packets);
        }
        let mut result = XmitResult::Success;
        if uses & uses::EGRESS != 0
            && let Some(egress) = &*self.egress.load()
        {
            result = egress.apply(self, packets, now);
            if packets.is_empty() {
                return result;
            }
        }
        let _inside = if uses & uses::NOQUEUE != 0 {
            let Some(inside) = self.enter() else {
                return self.refuse(DropReason::RecursionLimit, packets);
            };
            Some(inside)
        } else {
            None
        };
        result.max(self.push(packets, now))
    }

    /// Notes that this thread is inside of the device, unless it is so already, or too deep.
    fn enter(&self) -> Option<Inside> {
        Inside::enter(std::ptr::from_ref(self).addr())
    }

    #[cold]
    fn refuse(&self, reason: DropReason, packets: &PacketList) -> XmitResult {
        self.drops.lose(reason, packets);
        XmitResult::Drop
    }

    /// Chooses queues and pushes.
    #[inline(always)]
    fn push(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        // Relaxed: a sender that reads the old number uses a queue that hands the packets on.
        match &self.queues[..self.active()] {
            [] => self.refuse(DropReason::DeviceDown, packets),
            [only] => {
                if !self.selector.is_plain() {
                    self.choose_rings(packets);
                }
                only.transmit_list(packets, now)
            }
            queues => self.spread(queues, packets, now),
        }
    }

    /// With one qdisc for all rings, the choice is of a ring.
    #[cold]
    #[inline(never)]
    fn choose_rings(&self, packets: &mut PacketList) {
        packets.for_each_mut(|packet| {
            let ring = self.selector.ring(packet);
            packet.set_queue(Some(ring as u16));
        });
    }

    /// Splits the list by queue; packets for one queue stay together and in order.
    fn spread(&self, queues: &[TxQueue<R, Q>], packets: &mut PacketList, now: Time) -> XmitResult {
        let is_empty = |queue: usize| queues[queue].is_empty();
        let mut result = XmitResult::Success;
        let mut run = PacketList::new();
        let mut held = Held::default();
        let mut current = 0;
        while let Some(mut packet) = packets.pop_front() {
            if held.is_full() {
                result = result.max(queues[current].transmit_list(&mut run, now));
                held.release();
            }
            let queue = self.selector.choose(&mut packet, &mut held, is_empty);
            packet.set_queue(Some(queue as u16));
            if queue != current && !run.is_empty() {
                result = result.max(queues[current].transmit_list(&mut run, now));
            }
            current = queue;
            run.push_back(packet);
        }
        result = result.max(queues[current].transmit_list(&mut run, now));
        held.release();
        result
    }

    #[doc(hidden)]
    /// Called by the worker of one of the queues; see [`TxQueue::run_from_worker`].
    pub fn run_from_worker(&self, index: usize, quota: usize, now: Time) -> Option<Time> {
        let queue = &self.queues[index];
        if index >= self.active() {
            // Its ring is another queue's now, and the driver speaks of the ring.
            if queue.waker.take() {
                // Read again: the queue may have come back into use, and stopped, since. What
                // caused the wake-up came after that, and `take` has acquired it.
                self.queues[index % self.active()].wake();
            }
            // A sender may have used it still while the qdisc changed to one for all queues.
            if !queue.is_empty() {
                let mut late = queue.take_stranded(now);
                if !late.is_empty() {
                    self.push(&mut late, now);
                }
                return None;
            }
        }
        let noqueue = self.uses.load(Ordering::Relaxed) & uses::NOQUEUE != 0;
        let _inside = noqueue.then(|| self.enter());
        queue.run_from_worker(quota, now)
    }

    #[doc(hidden)]
    /// Has this device's worker receive `packets` later, as if they had arrived at it, without
    /// counting them as received. Never blocks. Returns how many wire packets were dropped,
    /// because too many wait (as [`DropReason::CpuBacklog`]) or because no engine has the device
    /// (as [`DropReason::NoForward`]).
    pub fn receive_later(&self, mut packets: PacketList) -> u64 {
        let offered = packets.wire_packets();
        let Some(ingress) = self.ingress.get() else {
            self.drops.lose(DropReason::NoForward, &packets);
            return offered;
        };
        if offered == 0 {
            return 0;
        }
        ingress.receive_later(&mut packets);
        let refused = packets.wire_packets();
        self.acted.add(DEFERRED, offered - refused);
        self.drops.lose(DropReason::CpuBacklog, &packets);
        refused
    }
}
