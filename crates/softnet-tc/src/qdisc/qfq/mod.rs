//! `qfq`: weighted fair queueing in constant time (tc-qfq(8)).
//!
//! Classes of the same weight and `maxpkt` are aggregates of at most 8, which have a start and a
//! finish time in virtual time and are scheduled by them; within one, classes take turns. Which
//! aggregate is next takes a few instructions whatever their number: [`scheduler`] says how.
//! Sources: Checconi, Rizzo and Valente, "QFQ: Efficient Packet Scheduling with Tight Guarantees",
//! IEEE/ACM Transactions on Networking 21(3), 2013; Valente, "Reducing the Execution Time of
//! Fair-Queueing Schedulers", Computer Communications 47, 2014 (QFQ+, aggregates).
//!
//! A packet goes to the class that its priority names (`major:minor`), else to that of the first
//! filter that matches. One that leads to no class is dropped (`no_class`).
//!
//! Differences from the kernel: a class that holds its packets back (a `tbf`) is out of the race
//! meanwhile, where the kernel's stop until it lets one go. A large frame of more than 64 KiB with
//! all its headers is served as one of 64 KiB; the kernel's drops it.

mod aggregate;
mod groups;
mod scheduler;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict, WireSum};
use softnet::time::Time;

use super::class::{ClassKind, ClassSpec, Classes};
use super::held::Held;
use super::kind::{Kind, of_children, parts};
use super::option::{Form, Unset, options, parameters};
use super::sorts::{by_class, prefetch_next};
use super::spec::{QdiscEnv, SpecError};
use crate::account::{Child, Children, ClassCounters, OwnStats, Run};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::rate::Instance;
use scheduler::Scheduler;

/// Bounds of a weight, and of the sum of all.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1 << 10;
const MOST_WEIGHT: u64 = 64 << 10;
/// Bounds of the longest packet.
const PACKETS: std::ops::RangeInclusive<u32> = 512..=1 << 16;

parameters! {
    /// Parameters of a class of `qfq`.
    pub struct QfqClassSpec {
        /// Share of the rate, relative to other classes: 1 to 1024. All together at most 65536.
        pub weight: u32 = 1,
        /// Bytes of the longest packet, 512 to 65536. It grows as longer ones come.
        pub maxpkt: u32 = 1514,
    }
}

/// `qfq`: weighted fair queueing in constant time (tc-qfq(8)).
#[derive(Debug)]
pub struct Qfq {
    handle: Handle,
    filters: Filters,
    classes: Children,
    scheduler: Scheduler,
    /// Classes with packets that the scheduler does not see.
    held: Held,
    /// There are others.
    instance: Option<Instance>,
}

impl Kind for Qfq {
    type Spec = ();
    const NAME: &'static str = "qfq";
    const CAN_CHANGE: bool = false;
    const HAS_FILTERS: bool = true;

    fn make((): &(), handle: Handle, env: &QdiscEnv) -> Qfq {
        Qfq {
            handle,
            filters: Filters::default(),
            classes: Children::none(),
            scheduler: Scheduler::new(env.txqueuelen),
            held: Held::default(),
            instance: env.instance.clone(),
        }
    }

    parts!(classes, filters);

    fn child_changed(&mut self, slot: usize, _: &mut Cx) {
        self.update(slot);
    }
}

impl ClassKind for Qfq {
    type Class = QfqClassSpec;
    const CLASSES: Classes = Classes {
        in_use: "QFQ class in use",
        options: options! { ClassSpec::Qfq(s) =>
            /// share of the rate, relative to other classes; 65536 in all
            "weight": Form::Number("a weight from 1 to 1024", 1, *WEIGHTS.end() as u64)
                => s.weight; wrong = "0",
            /// a size; the longest packet, 512 to 65536
            "maxpkt": Form::Size => s.maxpkt; wrong = "511";
                unset = Unset::Words("a frame of the port's MTU"),
        },
        default: |link| {
            ClassSpec::Qfq(QfqClassSpec {
                maxpkt: link.frame(),
                ..QfqClassSpec::default()
            })
        },
        ..Classes::FLAT
    };
    const MOST_WEIGHT: u64 = MOST_WEIGHT;

    fn check_class(class: &QfqClassSpec) -> Result<(), SpecError> {
        let wrong = |parameter, reason| Err(SpecError::parameter("qfq", parameter, reason));
        if !WEIGHTS.contains(&class.weight) {
            return wrong("weight", "must be between 1 and 1024");
        }
        if !PACKETS.contains(&class.maxpkt) {
            return wrong("maxpkt", "must be between 512 and 65536 bytes");
        }
        Ok(())
    }

    fn weight(class: &QfqClassSpec) -> u64 {
        class.weight.into()
    }

    fn own_stats(counters: &ClassCounters) -> Option<OwnStats> {
        let [maxpkt, ..] = counters.own.words();
        Some(OwnStats::Qfq { maxpkt })
    }

    fn add_class(
        &mut self,
        slot: usize,
        _: u16,
        _: Option<usize>,
        class: &QfqClassSpec,
        _: &mut PacketList,
        _: &mut Cx,
    ) {
        self.held.set(slot);
        self.scheduler.add(slot, class.weight, class.maxpkt);
        self.publish(slot, class.maxpkt);
    }

    fn change_class(&mut self, slot: usize, class: &QfqClassSpec, _: &mut Cx) {
        self.scheduler.change(slot, class.weight, class.maxpkt);
        self.publish(slot, class.maxpkt);
    }

    /// Drops what was queued, as the kernel does.
    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
        self.held.release(slot);
        self.scheduler.deactivate(slot);
        self.scheduler.remove(slot);
        self.classes.purge(moved, cx);
    }
}

impl Qfq {
    fn publish(&self, slot: usize, maxpkt: u32) {
        if let Some(child) = self.classes.get(slot) {
            child.counters().own.put(0, maxpkt.into());
        }
    }

    fn is_empty(&self, slot: usize) -> bool {
        self.classes.get(slot).is_none_or(Child::is_empty)
    }

    /// A class is in the race as its queue says (INV-Q-7).
    #[inline]
    fn update(&mut self, slot: usize) {
        self.held.release(slot);
        if self.is_empty(slot) {
            self.scheduler.deactivate(slot);
        } else {
            self.scheduler.activate(slot);
        }
    }

    /// A packet longer than any before in its class makes that one of longer packets.
    #[inline]
    fn note_len(&mut self, slot: usize, len: u64) {
        let len = len.min(u64::from(*PACKETS.end())) as u32;
        if self.scheduler.longest(slot) < len {
            let weight = self.scheduler.weight(slot);
            self.scheduler.change(slot, weight, len);
            self.publish(slot, len);
        }
    }

    fn put(&mut self, slot: usize, packet: Packet, cx: &mut Cx) -> Verdict {
        self.note_len(slot, packet.wire_len());
        let packet = match self.classes.push_pfifo(slot, packet) {
            Ok(is_first) => {
                if is_first {
                    self.held.release(slot);
                    self.scheduler.activate(slot);
                }
                return Verdict::Queued;
            }
            Err(packet) => packet,
        };
        let verdict = self.classes.enqueue(slot, &mut packet.into(), cx);
        self.update(slot);
        verdict
    }

    /// Lets the class whose turn it is send one packet, if the budget of its aggregate covers that
    /// or that is `fresh`: of any kind of queue. `None`: it has none to send now, and is out of the
    /// race.
    #[inline(never)]
    fn send_one(
        &mut self,
        slot: usize,
        fresh: &mut bool,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Option<Run> {
        let budget = self.scheduler.budget();
        let fits = |bytes: u64| std::mem::take(fresh) || bytes <= budget;
        let mut run = match self.classes.pop_turn(slot, fits, out, cx) {
            Ok(run) => run,
            Err(until) => {
                self.scheduler.suspend(slot);
                if let Some(until) = until {
                    self.held.hold(slot, until);
                }
                return None;
            }
        };
        // A class that sends nothing now is held when it is its turn.
        if run.sent.packets > 0
            && run.next.is_some()
            && let Peek::Packet(size) = self.classes.peek(slot, cx)
        {
            run.next = Some(size.bytes);
        }
        Some(run)
    }

    fn serve(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        let later = cx.now.plus_nanos(1);
        while let Some(slot) = self.held.due(cx.now) {
            self.update(slot);
        }
        // The aggregate was just chosen: it may send a packet whatever its budget is.
        let mut fresh = false;
        while self.scheduler.is_active() {
            if left == 0 {
                return Next::Ready;
            }
            let Some(slot) = self.scheduler.candidate() else {
                fresh = self.scheduler.next();
                if !fresh {
                    debug_assert!(false, "an active class, and none to serve");
                    return Next::At(later);
                }
                continue;
            };
            if let Some(slot) = self.scheduler.second() {
                self.classes.prefetch(slot);
                self.classes.prefetch_next(slot);
            }
            let budget = self.scheduler.budget();
            let deficit = self.scheduler.deficit(slot);
            let more = |taken: WireSum, next: u64| {
                if taken.packets == 0 {
                    return fresh || next <= budget;
                }
                let bytes = taken.bytes + next;
                taken.packets < left && bytes <= budget && bytes.cast_signed() <= deficit
            };
            let run = self.classes.pop_pfifo_turn(slot, more, out);
            let Some(run) = run.or_else(|| self.send_one(slot, &mut fresh, out, cx)) else {
                continue;
            };
            if run.sent.packets == 0 {
                fresh = self.scheduler.next();
                continue;
            }
            fresh = false;
            left = left.saturating_sub(run.sent.packets);
            self.scheduler.charge(slot, run.sent.bytes, run.next);
        }
        // Not if the last packet that was asked for was the last one there is: as in the kernel,
        // where that shows at the next call.
        if left > 0 {
            self.scheduler.rest();
        }
        match self.held.next() {
            Time::MAX => Next::Idle,
            time => Next::At(time),
        }
    }
}

impl Qdisc for Qfq {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(mut packet) = packets.pop_front() {
            prefetch_next(packets, self.handle, &self.classes);
            let slot = by_class(&mut packet, self.handle, &self.filters, &self.classes, cx);
            let one = match slot {
                Ok(slot) => self.put(slot, packet, cx),
                Err(lost) => lost.settle(packet, &mut self.classes.stats, cx),
            };
            verdict = verdict.max(one);
        }
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let next = self.serve(budget, out, cx);
        if let Some(instance) = &self.instance {
            instance.announce(next, cx.now);
        }
        next
    }

    /// Which class is next shows only as it is served.
    fn peek(&self, now: Time) -> Peek {
        match self.held.next() {
            _ if self.classes.stats.qlen == 0 => Peek::Idle,
            time if time > now && !self.scheduler.is_active() => Peek::At(time),
            _ => Peek::Unknown,
        }
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.classes.drain(out);
        self.held.clear();
        self.scheduler.clear();
    }

    of_children!(classes);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
