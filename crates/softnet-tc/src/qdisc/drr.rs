//! Deficit round robin (Shreedhar and Varghese, 1995) among flows in a slice, as RFC 8290 has it:
//! flows that just got packets are served before the others, once.
//!
//! The lists are linked through the flows themselves by `u32` positions, so that nothing is
//! allocated as flows come and go.

/// Bounds of the quantum. With less a packet would cost too many rounds; with more credits would
/// overflow (BUG-FQ-3).
pub(crate) const QUANTUM: std::ops::RangeInclusive<u32> = 256..=1 << 20;

/// The link of a flow that is in no list.
pub(crate) const UNLISTED: u32 = u32::MAX;
/// The link of the last flow of a list.
const END: u32 = u32::MAX - 1;

/// A flow as the lists see it.
pub(crate) trait Linked {
    /// The position of the next flow of the same list; [`UNLISTED`] at first.
    fn link(&mut self) -> &mut u32;

    /// Bytes that the flow may still send in this round.
    fn credit(&mut self) -> &mut i32;
}

/// Where the flows are.
pub(crate) trait Flows {
    type Flow: Linked;
    fn at(&mut self, index: u32) -> &mut Self::Flow;
}

impl<F: Linked> Flows for [F] {
    type Flow = F;
    #[inline(always)]
    fn at(&mut self, index: u32) -> &mut F {
        &mut self[index as usize]
    }
}

/// A first-in, first-out list of flows. A flow is in one list at most.
#[derive(Debug)]
struct FlowList {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for FlowList {
    fn default() -> FlowList {
        FlowList {
            first: END,
            last: END,
            len: 0,
        }
    }
}

impl FlowList {
    #[inline]
    fn push<F: Flows + ?Sized>(&mut self, flows: &mut F, index: u32) {
        *flows.at(index).link() = END;
        if self.first == END {
            self.first = index;
        } else {
            *flows.at(self.last).link() = index;
        }
        self.last = index;
        self.len += 1;
    }

    /// Takes the first out, which there is.
    #[inline]
    fn pop<F: Flows + ?Sized>(&mut self, flows: &mut F) -> u32 {
        let index = self.first;
        self.first = std::mem::replace(flows.at(index).link(), UNLISTED);
        self.len -= 1;
        index
    }
}

/// Outcome for a flow that was found empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// It is to be served once more, as an old one: if it left, its next packet would make it new
    /// again, and flows in the old list might starve.
    Kept,
    /// It leaves.
    Left,
}

/// The flows of one round robin: the new ones and the others.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    new: FlowList,
    old: FlowList,
}

impl RoundRobin {
    /// Flows in the new and in the old list.
    pub(crate) fn lens(&self) -> (u32, u32) {
        (self.new.len, self.old.len)
    }

    /// True if there is no flow.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.new.len == 0 && self.old.len == 0
    }

    /// Adds a flow that is in no list and just got its first packet.
    #[inline]
    pub(crate) fn add_new<F: Flows + ?Sized>(&mut self, flows: &mut F, index: u32) {
        self.new.push(flows, index);
    }

    /// Adds a flow that is in no list and comes back.
    #[inline]
    pub(crate) fn add_old<F: Flows + ?Sized>(&mut self, flows: &mut F, index: u32) {
        self.old.push(flows, index);
    }

    #[inline]
    fn front(&mut self) -> &mut FlowList {
        if self.new.len != 0 {
            &mut self.new
        } else {
            &mut self.old
        }
    }

    /// The flow that is served next, which stays where it is. A flow that has no credit gets
    /// `quantum` and goes to the end of the old ones. `None` if there is no flow. However much
    /// flows owe, each is visited a few times at most.
    #[inline]
    pub(crate) fn select<F: Flows + ?Sized>(
        &mut self,
        flows: &mut F,
        quantum: i32,
    ) -> Option<u32> {
        self.select_if(flows, quantum, |_| true)
    }

    /// As [`select`](RoundRobin::select), but a flow that has no credit and is not to stay here is
    /// returned as it is, for the caller to [remove](RoundRobin::remove).
    #[inline]
    pub(crate) fn select_if<F: Flows + ?Sized>(
        &mut self,
        flows: &mut F,
        quantum: i32,
        stays: impl Fn(&F::Flow) -> bool,
    ) -> Option<u32> {
        // Of the old flows: how many were visited, and the highest credit among them.
        let (mut visited, mut highest) = (0, i32::MIN);
        loop {
            let was_new = self.new.len != 0;
            let list = self.front();
            let index = list.first;
            if list.len == 0 {
                return None;
            }
            let flow = flows.at(index);
            if *flow.credit() > 0 || !stays(flow) {
                return Some(index);
            }
            let credit = flow.credit();
            *credit += quantum;
            if !was_new {
                highest = highest.max(*credit);
                visited += 1;
            }
            list.pop(flows);
            self.old.push(flows, index);
            if visited == self.old.len && highest <= 0 {
                self.skip_rounds(flows, quantum, highest);
            }
        }
    }

    /// All flows are old, and none has more than `highest`, which is 0 or less: lets the rounds
    /// pass at once in which none would be served. A whole round does not change their order.
    #[cold]
    fn skip_rounds<F: Flows + ?Sized>(&mut self, flows: &mut F, quantum: i32, highest: i32) {
        let quantum = i64::from(quantum);
        let rounds = -i64::from(highest) / quantum + 1;
        let mut index = self.old.first;
        for _ in 0..self.old.len {
            let flow = flows.at(index);
            let credit = flow.credit();
            // It fits: the highest is at most `quantum` then.
            *credit = (i64::from(*credit) + rounds * quantum) as i32;
            index = *flow.link();
        }
    }

    /// The selected flow was found empty: takes it out of its list.
    #[inline]
    pub(crate) fn empty<F: Flows + ?Sized>(&mut self, flows: &mut F) -> Emptied {
        let was_new = self.new.len != 0;
        self.remove(flows);
        if was_new && self.old.len != 0 {
            Emptied::Kept
        } else {
            Emptied::Left
        }
    }

    /// Takes the selected flow, which there is, out of its list.
    #[inline]
    pub(crate) fn remove<F: Flows + ?Sized>(&mut self, flows: &mut F) -> u32 {
        self.front().pop(flows)
    }

    /// Takes out any flow, new ones first.
    pub(crate) fn take<F: Flows + ?Sized>(&mut self, flows: &mut F) -> Option<u32> {
        (!self.is_empty()).then(|| self.remove(flows))
    }
}
