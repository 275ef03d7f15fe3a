//! Sorting of packets into the queues of classes, as the kinds do it whose classes are leaves
//! alone.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Verdict, WireSum};
use softnet::stats::DropReason;

use crate::account::Children;
use crate::filter::{Filters, Lost};
use crate::handle::Handle;

/// A qdisc that sorts packets into the queues of its classes.
pub(super) trait Sorts {
    /// The slot of the class that a packet goes to.
    ///
    /// # Errors
    /// If there is none, or a filter takes it out.
    fn slot(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost>;

    /// The same without filters; `None`: there is none.
    fn unfiltered(&self, packet: &Packet) -> Option<usize>;

    fn classes(&mut self) -> &mut Children;

    /// True if filters are asked, which count the packets that they are asked about.
    fn is_filtered(&self) -> bool;

    /// The first of these packets is the next one: asks for what it will need. Where there are few
    /// classes, it is there.
    fn look_ahead(&self, _: &PacketList) {}

    /// A class may have got its first packet, or may have lost its last one as others came.
    fn queued(&mut self, slot: usize);

    /// As [`Qdisc::enqueue`](softnet::qdisc::Qdisc::enqueue).
    #[inline]
    fn sort(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        // Consecutive packets of one class stay one list.
        let mut run = PacketList::new();
        let mut current = 0;
        while let Some(mut packet) = packets.pop_front() {
            self.look_ahead(packets);
            let slot = match self.slot(&mut packet, cx) {
                Ok(slot) => slot,
                Err(lost) => {
                    let lost = lost.settle(packet, &mut self.classes().stats, cx);
                    verdict = verdict.max(lost);
                    continue;
                }
            };
            if slot != current && !run.is_empty() {
                verdict = verdict.max(self.put(current, &mut run, cx));
            }
            current = slot;
            if !run.is_empty() {
                run.push_back(packet);
                continue;
            }
            match self.classes().push_pfifo(slot, packet) {
                Ok(true) => self.queued(slot),
                Ok(false) => {}
                Err(packet) => run.push_back(packet),
            }
        }
        if !run.is_empty() {
            verdict = verdict.max(self.put(current, &mut run, cx));
        }
        verdict
    }

    fn put(&mut self, slot: usize, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let verdict = self.classes().enqueue(slot, packets, cx);
        self.queued(slot);
        verdict
    }

    /// Sorts packets whose classes are no more. Filters are not asked again: their actions have
    /// been done.
    fn sort_again(&mut self, packets: &mut PacketList, cx: &mut Cx) {
        while let Some(packet) = packets.pop_front() {
            let slot = self.unfiltered(&packet).unwrap_or(0);
            self.put(slot, &mut packet.into(), cx);
        }
    }

    /// As [`Qdisc::try_pass`](softnet::qdisc::Qdisc::try_pass), for packets of one class. Filters
    /// would count them twice, here and in `enqueue`.
    fn pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        let Some(first) = packets.front() else {
            return false;
        };
        if self.classes().stats.qlen != 0 || self.is_filtered() {
            return false;
        }
        let Some(slot) = self.unfiltered(first) else {
            return false;
        };
        let mut others = packets.iter().skip(1);
        others.all(|packet| self.unfiltered(packet) == Some(slot))
            && self.classes().try_pass(slot, packets, sum, cx)
    }
}

/// The class of this qdisc that a packet's priority names.
#[inline]
pub(super) fn named(packet: &Packet, handle: Handle) -> Option<Handle> {
    let named = Handle::from_raw(packet.priority());
    (named.qdisc() == handle).then_some(named)
}

/// The class of a packet in `drr` and `qfq`: that which its priority names, else that of the first
/// filter that matches.
///
/// # Errors
/// If there is none, or a filter takes it out.
#[inline]
pub(super) fn by_class(
    packet: &mut Packet,
    handle: Handle,
    filters: &Filters,
    classes: &Children,
    cx: &mut Cx,
) -> Result<usize, Lost> {
    let found = named(packet, handle).and_then(|class| classes.find(class.minor()));
    if let Some(slot) = found {
        return Ok(slot);
    }
    let class = filters.classify(packet, cx).class()?;
    let ours = class.filter(|class| class.qdisc() == handle);
    let found = ours.and_then(|class| classes.find(class.minor()));
    found.ok_or(Lost::Dropped(DropReason::NoClass))
}

/// Asks for what the class needs that the first packet's priority names. Returns its slot.
#[inline]
pub(super) fn prefetch_next(
    packets: &PacketList,
    handle: Handle,
    classes: &Children,
) -> Option<usize> {
    let class = packets.front().and_then(|next| named(next, handle))?;
    let slot = classes.find(class.minor())?;
    classes.prefetch(slot);
    Some(slot)
}

/// The band of a packet for a class, in `prio` and `ets` (INV-PF-1): that of the class which its
/// priority or a filter names, else the map's for the low four bits of its priority. A band that
/// does not exist counts as that of priority 0.
#[inline]
pub(super) fn band(
    packet: &Packet,
    class: Option<Handle>,
    priomap: &[u8; 16],
    bands: &Children,
) -> usize {
    let of_priority = |priority: u32| usize::from(priomap[(priority & 15) as usize]);
    let priority = packet.priority();
    match class {
        None if Handle::from_raw(priority).major() != 0 => of_priority(0),
        None => of_priority(priority),
        Some(class) => bands.find(class.minor()).unwrap_or_else(|| of_priority(0)),
    }
}
