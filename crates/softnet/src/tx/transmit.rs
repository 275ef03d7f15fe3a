//! What a device does with a list of packets before they are on a queue's adoption list: actions, the choice of queues, and the limit on
//! devices without a queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::{COPIED, DEFERRED, Device, uses};
use super::queue_map::{QueueMap, QueueMapError};
use super::recursion::Inside;
use super::select::Held;
use super::{Egress, TxQueue, TxRing, XmitResult};
use crate::mem::{PacketList, Pool};
use crate::qdisc::Qdisc;
use crate::stats::{DropReason, sampled};
use crate::time::{Clock, Time};

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// Sends `packets` out of this device. Takes ownership always; never blocks. All packets of one flow take one queue, in order.
    #[inline(never)]
    pub fn transmit(&self, mut packets: PacketList, now: Time) -> XmitResult {
        // From here on the list is handed on by reference: to copy what was just written in smaller pieces stalls the processor.
        let packets = &mut packets;
        if packets.is_empty() {
            return XmitResult::Success;
        }
        // Relaxed: who sends while the control path changes this is served by the old or the new way.
        match self.uses.load(Ordering::Relaxed) {
            0 => self.push(packets, now),
            uses::MEASURE if !sampled() => self.push(packets, now),
            other => self.pass(other, packets, now),
        }
    }

    /// [`transmit`](Device::transmit) where there is more to do than to push.
    #[cold]
    fn pass(&self, uses: u8, packets: &mut PacketList, now: Time) -> XmitResult {
        let measured = uses == uses::MEASURE || uses & uses::MEASURE != 0 && sampled();
        let clock = self.clock.get().filter(|_| measured);
        let start = clock.map(Clock::now);
        let result = self.act(uses, packets, now);
        if let (Some(clock), Some(start)) = (clock, start) {
            let nanos = clock.now().nanos().saturating_sub(start.nanos());
            self.calls.record(nanos);
        }
        result
    }

    fn act(&self, uses: u8, packets: &mut PacketList, now: Time) -> XmitResult {
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

    /// Notes that this thread is inside of the device, unless it has no business there.
    pub(super) fn enter(&self) -> Option<Inside> {
        Inside::enter(std::ptr::from_ref(self).addr())
    }

    #[cold]
    fn refuse(&self, reason: DropReason, packets: &PacketList) -> XmitResult {
        self.drops.add(reason, packets.wire_packets());
        XmitResult::Drop
    }

    /// Chooses queues and pushes.
    #[inline]
    pub(super) fn push(&self, packets: &mut PacketList, now: Time) -> XmitResult {
        // Relaxed: a sender that reads the old number uses a queue that hands the packets on.
        match &self.queues[..self.active.load(Ordering::Relaxed)] {
            [] => self.refuse(DropReason::DeviceDown, packets),
            [only] if self.selector.is_plain() => only.transmit_list(packets, now),
            queues => self.spread(queues, packets, now),
        }
    }

    /// Splits the list by queue; packets for one queue stay together and in order.
    fn spread(&self, queues: &[TxQueue<R, Q>], packets: &mut PacketList, now: Time) -> XmitResult {
        let plain = self.selector.is_plain();
        // With one discipline for all rings, the choice is of a ring.
        let queue_of = |choice: usize| choice % queues.len();
        let is_empty = |choice: usize| queues[queue_of(choice)].is_empty();
        let mut result = XmitResult::Success;
        let mut run = PacketList::new();
        let mut held = Held::default();
        let mut current = 0;
        while let Some(mut packet) = packets.pop_front() {
            if held.is_full() {
                result = result.max(queues[current].transmit_list(&mut run, now));
                held.release();
            }
            let choice = self.selector.choose(&mut packet, &mut held, is_empty);
            if !plain {
                packet.set_queue(Some(choice as u16));
            }
            let queue = queue_of(choice);
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

    /// Shares the queues out as `map` says, while packets flow. Flows may be reordered once, where the new map gives them another queue. Control
    /// path only, one caller at a time.
    ///
    /// # Errors
    /// If the map does not fit the device; nothing is changed then.
    pub fn set_queue_map(&self, map: &QueueMap) -> Result<(), QueueMapError> {
        map.check(self.queues.len())?;
        self.selector.set(map);
        Ok(())
    }

    /// Attaches actions to the device's way out, in the place of those it has; none takes them off. Senders that are in the old ones finish
    /// there. Control path only.
    pub fn set_egress(&self, egress: Option<Box<dyn Egress<R, Q>>>) {
        let attached = egress.is_some();
        self.egress.store(egress.map(Arc::new));
        self.change_uses(uses::EGRESS, attached);
    }

    /// Measures transmit calls by `clock`, one in [`SAMPLE`](crate::stats::SAMPLE), from now on. Only the first clock counts.
    pub fn measure(&self, clock: Clock) {
        let _ = self.clock.set(clock);
        self.change_uses(uses::MEASURE, true);
    }

    pub(super) fn change_uses(&self, bit: u8, set: bool) {
        if set {
            self.uses.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.uses.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Buffers for copies and segments.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Counts packets that actions on this device's way out have added by copying.
    pub fn count_copied(&self, wire_packets: u64) {
        self.acted.add(COPIED, wire_packets);
    }

    /// What was counted so.
    pub fn copied(&self) -> u64 {
        self.acted.sum(COPIED)
    }

    /// Has this device's worker receive `packets` later, as if they had arrived at it, without counting them as received: they are still on their way. Never
    /// blocks. Returns how many wire packets were dropped, because too many wait (as [`DropReason::CpuBacklog`]) or because no
    /// engine has the device (as [`DropReason::NoForward`]).
    pub fn receive_later(&self, mut packets: PacketList) -> u64 {
        if packets.is_empty() {
            return 0;
        }
        let (reason, refused) = match self.ingress.get() {
            Some(ingress) => {
                let offered = packets.wire_packets();
                ingress.receive_later(&mut packets);
                let refused = packets.wire_packets();
                self.acted.add(DEFERRED, offered - refused);
                (DropReason::CpuBacklog, refused)
            }
            None => (DropReason::NoForward, packets.wire_packets()),
        };
        let lost = refused;
        if lost > 0 {
            self.drops.add(reason, lost);
        }
        lost
    }
}
