//! Leaves of an `hfsc` are served.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Peek};

use super::scheduler::Choice;
use super::{Hfsc, REAL_TIME_WORK, WORK};

impl Hfsc {
    pub(super) fn serve(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        if self.scheduler.is_bare() {
            return self.classes.dequeue(self.root, budget, out, cx);
        }
        let mut left = budget as u64;
        let later = cx.now.plus_nanos(1);
        while let Some(slot) = self.held.due(cx.now) {
            self.start(slot, cx);
        }
        loop {
            if self.classes.stats.qlen == 0 {
                return Next::Idle;
            }
            if left == 0 {
                return Next::Ready;
            }
            let Some(choice) = self.scheduler.choose(cx.now) else {
                self.classes.stats.overlimits += 1;
                let next = self.scheduler.next_event().min(self.held.next());
                return Next::At(next.max(later));
            };
            let leaf = choice.leaf;
            if self.classes.is_pfifo(leaf) {
                self.foresee(choice);
            }
            let Some(sent) = self.classes.pop_pfifo(leaf, 1, || 0, out) else {
                self.scheduler.step_back(leaf);
                left = left.saturating_sub(self.serve_leaf(choice, out, cx));
                continue;
            };
            left = left.saturating_sub(sent.size.packets);
            // Whether it has another packet cannot be foreseen: nothing branches on that alone.
            let next = if self.scheduler.is_real_time(leaf) && !sent.emptied {
                self.next_len(leaf, cx)
            } else {
                (!sent.emptied).then_some(0)
            };
            self.scheduler.charge(choice, sent.size.bytes, next, cx.now);
            self.publish_sent(choice);
        }
    }

    /// Asks for what the leaf needs that is next after this one, while this one's packet leaves.
    #[inline]
    fn foresee(&mut self, choice: Choice) {
        if choice.real_time {
            return;
        }
        if let Some(next) = self.scheduler.step_aside(choice.leaf) {
            self.classes.prefetch_next(next);
            self.scheduler.prefetch(next);
        }
    }

    /// Takes over what a packet that left has changed.
    #[inline]
    fn publish_sent(&self, choice: Choice) {
        self.publish(choice.leaf, |class, own| own.put(WORK, class.total));
        if choice.real_time
            && let Some(child) = self.classes.get(choice.leaf)
        {
            let cumulative = self.scheduler.class(choice.leaf).cumulative;
            child.counters().own.put(REAL_TIME_WORK, cumulative);
        }
    }

    /// Lets a leaf send a packet whose qdisc is another one than a `pfifo`. Returns how many wire
    /// packets left.
    #[inline(never)]
    fn serve_leaf(&mut self, choice: Choice, out: &mut PacketList, cx: &mut Cx) -> u64 {
        let leaf = choice.leaf;
        let later = cx.now.plus_nanos(1);
        let until = match self.classes.peek(leaf, cx) {
            Peek::Packet(_) => None,
            Peek::At(time) => Some(time.max(later)),
            Peek::Idle | Peek::Unknown => Some(later),
        };
        let sent = match until {
            None => self.classes.send_one(leaf, out, cx),
            Some(_) => Default::default(),
        };
        if sent.packets == 0 {
            self.scheduler.deactivate(leaf, cx.now);
            self.publish_counts(leaf);
            if !self.is_empty(leaf) {
                self.held.hold(leaf, until.unwrap_or(later));
            }
            return 0;
        }
        let mut next = None;
        if !self.is_empty(leaf) {
            match self.classes.peek(leaf, cx) {
                Peek::Packet(size) => next = Some(size.bytes),
                Peek::At(time) => self.held.hold(leaf, time.max(later)),
                Peek::Idle | Peek::Unknown if self.is_empty(leaf) => {}
                Peek::Idle | Peek::Unknown => self.held.hold(leaf, later),
            }
        }
        self.scheduler.charge(choice, sent.bytes, next, cx.now);
        self.publish_sent(choice);
        sent.packets
    }
}
