//! `hfsc`: classes with service curves, in a hierarchy (tc-hfsc(7), tc-hfsc(8)).
//!
//! A leaf's real-time curve (`rt`) is what it gets whatever others get; what that leaves is shared
//! among classes by their link-sharing curves (`ls`), up to their upper limits (`ul`).
//! [`scheduler`] says which leaf is next, [`curve`] what a curve is.
//!
//! A packet goes to the leaf that its priority names (`major:minor`), else to the one of the first
//! filter that matches, else to the default class. Where a filter names a class that is no leaf,
//! that class's own filters are asked; one that leads upwards leads to the default class. What
//! leads to no leaf is dropped (`no_class`). The qdisc is the class above all others, of minor
//! number 0: as long as there are no others it is a leaf, which is first in, first out.
//!
//! Differences from the kernel: a leaf that holds its packets back (a `tbf`) counts as passive
//! until it lets one go, where the kernel's stop until then; what was attached to a class that gets
//! classes below it is removed; the class of the qdisc has no curves, which would do nothing.
//!
//! There is one instance for all transmit queues, with `parallel = true` as well: a curve is of the
//! service that a class gets in all, to the packet, and instances could share a rate at best
//! ([`crate::rate`]).

mod class;
mod curve;
mod highest;
mod race;
mod scheduler;
mod sharing;
mod spec;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::class::{ClassKind, Classes};
use super::held::Held;
use super::kind::{Kind, QdiscSpec, of_children, parts};
use super::option::{Form, QdiscOption, Unset, options};
use super::sorts::prefetch_next;
use super::spec::{QdiscEnv, SpecError};
use crate::account::{Child, Children, ClassCounters, OwnCounters, OwnStats};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::class::ClassSpec;
use class::Class;
use scheduler::{Choice, Scheduler};

pub use curve::ServiceCurve;
pub use spec::{HfscClassSpec, HfscSpec};

/// Filters that are asked one after the other at most.
const HOPS: usize = 9;
/// The words of a class's statistics.
const WORK: usize = 0;
const REAL_TIME_WORK: usize = 1;
const PERIOD: usize = 2;
const LEVEL: usize = 3;

/// `hfsc`: classes with service curves (tc-hfsc(8)).
#[derive(Debug)]
pub struct Hfsc {
    handle: Handle,
    default: u16,
    filters: Filters,
    classes: Children,
    scheduler: Scheduler,
    /// Leaves with packets that the scheduler does not see.
    held: Held,
    /// Slot of the class that the qdisc is.
    root: usize,
    /// A class that will be chosen soon, and was asked for as the last packet of a `pfifo` left; or
    /// `NONE`. It may be gone meanwhile.
    soon: usize,
}

impl Kind for Hfsc {
    type Spec = HfscSpec;
    const NAME: &'static str = "hfsc";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Hfsc(s) =>
        /// number of the class for all other packets: a text, hexadecimal as in tc, so that `"30"`
        /// is class 1:30; packets for which it names no leaf are dropped
        "default": Form::Own; unset = Unset::Words("`\"0\"`"); wrong = "30",
    };
    const HAS_FILTERS: bool = true;
    const IS_SINGLE: bool = true;

    fn make(spec: &HfscSpec, handle: Handle, env: &QdiscEnv) -> Hfsc {
        let mut classes = Children::none();
        let queue = Hfsc::default_child(spec, env).make(Handle::NONE, env);
        let (root, _) = classes.insert(0, Child::new(queue));
        Hfsc {
            handle,
            default: spec.default,
            filters: Filters::default(),
            classes,
            scheduler: Scheduler::new(root),
            held: Held::default(),
            root,
            soon: class::NONE,
        }
    }

    fn change(&mut self, spec: &HfscSpec, _: &mut Cx) {
        self.default = spec.default;
    }

    parts!(classes, filters);

    fn child_changed(&mut self, slot: usize, cx: &mut Cx) {
        self.update(slot, cx);
        if slot != self.root
            && self.scheduler.is_active(slot)
            && let Some(len) = self.next_len(slot, cx)
        {
            self.scheduler.set_next(slot, len);
        }
    }
}

impl ClassKind for Hfsc {
    type Class = HfscClassSpec;
    const CLASSES: Classes = Classes {
        nested: true,
        filters: true,
        root: true,
        in_use: "HFSC class in use",
        options: HfscClassSpec::OPTIONS,
        default: |_| ClassSpec::Hfsc(HfscClassSpec::default()),
    };

    fn check_class(class: &HfscClassSpec) -> Result<(), SpecError> {
        class.check()
    }

    /// One without a link-sharing curve shares by its real-time curve.
    fn become_inner(class: &mut HfscClassSpec) {
        class.ls = class.ls.or(class.rt);
    }

    fn own_stats(counters: &ClassCounters) -> Option<OwnStats> {
        let words = counters.own.words();
        Some(OwnStats::Hfsc {
            work: words[WORK],
            rtwork: words[REAL_TIME_WORK],
            period: words[PERIOD],
            level: words[LEVEL],
        })
    }

    fn add_class(
        &mut self,
        slot: usize,
        _: u16,
        parent: Option<usize>,
        class: &HfscClassSpec,
        moved: &mut PacketList,
        cx: &mut Cx,
    ) {
        let parent = parent.unwrap_or(self.root);
        self.held.set(slot);
        self.held.release(parent);
        self.scheduler.deactivate(parent, cx.now);
        self.scheduler.add(slot, parent, class);
        self.publish_counts(slot);
        self.publish_levels(slot);
        self.classes.purge(moved, cx);
    }

    fn change_class(&mut self, slot: usize, class: &HfscClassSpec, cx: &mut Cx) {
        let next = match self.scheduler.is_active(slot) {
            true => self.next_len(slot, cx),
            false => None,
        };
        self.scheduler.change(slot, class, next, cx.now);
        if self.is_leaf(slot) {
            self.update(slot, cx);
        }
        self.publish_counts(slot);
    }

    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
        self.held.release(slot);
        self.scheduler.deactivate(slot, cx.now);
        let parent = self.scheduler.remove(slot);
        self.publish_counts(parent);
        self.publish_levels(parent);
        self.classes.purge(moved, cx);
    }
}

impl Hfsc {
    fn is_leaf(&self, slot: usize) -> bool {
        self.classes
            .get(slot)
            .is_some_and(|child| !child.is_inner())
    }

    /// The leaf that a packet goes to.
    ///
    /// # Errors
    /// If there is none, or a filter takes it out.
    fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        let find = |class: Handle| {
            let ours = class.qdisc() == self.handle;
            ours.then(|| self.classes.find(class.minor())).flatten()
        };
        let named = find(Handle::from_raw(packet.priority()));
        if let Some(leaf) = named.filter(|&slot| self.is_leaf(slot)) {
            return Ok(leaf);
        }
        let (mut filters, mut above) = (&self.filters, self.root);
        for _ in 0..HOPS {
            let Some(class) = filters.classify(packet, cx).class()? else {
                break;
            };
            let level = |slot: usize| self.scheduler.class(slot).level;
            let below = find(class).filter(|&slot| level(slot) < level(above));
            match below {
                Some(slot) if self.is_leaf(slot) => return Ok(slot),
                Some(slot) => (filters, above) = (self.classes.filters(slot), slot),
                None => break,
            }
        }
        let default = self.classes.find(self.default);
        let leaf = default.filter(|&slot| self.is_leaf(slot));
        leaf.ok_or(Lost::Dropped(DropReason::NoClass))
    }

    /// The first of these packets is the next one: asks for what it will need.
    #[inline]
    fn look_ahead(&self, packets: &PacketList) {
        let slot = prefetch_next(packets, self.handle, &self.classes);
        if let Some(class) = slot.and_then(|slot| self.scheduler.classes.get(slot)) {
            class.prefetch();
        }
    }

    fn is_empty(&self, slot: usize) -> bool {
        self.classes.get(slot).is_none_or(Child::is_empty)
    }

    /// Length of a class's next packet, if one may leave.
    #[inline]
    fn next_len(&mut self, slot: usize, cx: &mut Cx) -> Option<u64> {
        match self.classes.peek(slot, cx) {
            Peek::Packet(size) => Some(size.bytes),
            _ => None,
        }
    }

    /// Takes over the levels of a class and those above it.
    fn publish_levels(&self, slot: usize) {
        let mut at = slot;
        while at != class::NONE {
            let class = self.scheduler.class(at);
            if let Some(child) = self.classes.get(at) {
                child.counters().own.put(LEVEL, class.level.into());
            }
            at = class.parent;
        }
    }

    /// Takes over what a class and those above it have counted, which of the root is nothing.
    #[inline]
    fn publish_counts(&self, slot: usize) {
        self.publish(slot, |class, own| {
            own.put(WORK, class.total);
            own.put(REAL_TIME_WORK, class.cumulative);
            own.put(PERIOD, class.period);
        });
    }

    /// Takes over what a packet has changed that a leaf sent.
    #[inline]
    fn publish_sent(&self, choice: Choice) {
        self.publish(choice.leaf, |class, own| own.put(WORK, class.total));
        if choice.real_time
            && let Some(child) = self.classes.get(choice.leaf)
        {
            let work = self.scheduler.class(choice.leaf).cumulative;
            child.counters().own.put(REAL_TIME_WORK, work);
        }
    }

    #[inline]
    fn publish(&self, slot: usize, put: impl Fn(&Class, &OwnCounters)) {
        let mut class = self.scheduler.class(slot);
        let mut at = slot;
        while class.parent != class::NONE {
            if let Some(child) = self.classes.get(at) {
                put(class, &child.counters().own);
            }
            at = class.parent;
            class = self.scheduler.class(at);
        }
    }

    /// A leaf that was not in the race comes into it, with a first packet of this length.
    #[inline]
    fn activate(&mut self, slot: usize, len: u64, now: Time) {
        self.scheduler.activate(slot, len, now);
        // Nothing else has changed.
        self.publish(slot, |class, own| own.put(PERIOD, class.period));
    }

    /// A leaf is in the race as its queue says (INV-Q-7).
    #[inline]
    fn update(&mut self, slot: usize, cx: &mut Cx) {
        if slot == self.root {
            return;
        }
        if self.is_empty(slot) {
            self.held.release(slot);
            self.scheduler.deactivate(slot, cx.now);
            self.publish_counts(slot);
        } else if !self.scheduler.is_active(slot) {
            self.held.release(slot);
            self.start(slot, cx);
        }
    }

    /// A leaf with packets comes into the race, as soon as it lets one go.
    fn start(&mut self, slot: usize, cx: &mut Cx) {
        let later = cx.now.plus_nanos(1);
        match self.classes.peek(slot, cx) {
            Peek::Packet(size) => self.activate(slot, size.bytes, cx.now),
            Peek::At(time) => self.held.hold(slot, time.max(later)),
            // It dropped what it had as it was looked at; or it does not do what it says.
            Peek::Idle | Peek::Unknown if self.is_empty(slot) => {}
            Peek::Idle | Peek::Unknown => self.held.hold(slot, later),
        }
    }

    fn put(&mut self, slot: usize, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let verdict = self.classes.enqueue(slot, packets, cx);
        self.update(slot, cx);
        verdict
    }

    fn serve(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
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
            let Some(sent) = self.classes.pop_pfifo(leaf, 1, || 0, out) else {
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
            let bytes = sent.size.bytes;
            let soon = self.scheduler.charge(choice, bytes, next, cx.now);
            self.publish_sent(choice);
            if let Some(slot) = soon {
                self.classes.prefetch(slot);
                self.scheduler.class(slot).prefetch();
            }
            let before = std::mem::replace(&mut self.soon, soon.unwrap_or(class::NONE));
            self.classes.prefetch_next(before);
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

impl Qdisc for Hfsc {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        // Consecutive packets of one class stay one list.
        let mut run = PacketList::new();
        let mut current = self.root;
        while let Some(mut packet) = packets.pop_front() {
            self.look_ahead(packets);
            let slot = match self.classify(&mut packet, cx) {
                Ok(slot) => slot,
                Err(lost) => {
                    let lost = lost.settle(packet, &mut self.classes.stats, cx);
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
            let len = packet.wire_len();
            match self.classes.push_pfifo(slot, packet) {
                Ok(true) if slot != self.root => {
                    self.held.release(slot);
                    self.activate(slot, len, cx.now);
                }
                Ok(_) => {}
                Err(packet) => run.push_back(packet),
            }
        }
        if !run.is_empty() {
            verdict = verdict.max(self.put(current, &mut run, cx));
        }
        verdict
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.serve(budget, out, cx)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.classes.drain(out);
        self.held.clear();
        self.scheduler.reset();
        for slot in 0..self.scheduler.classes.len() {
            self.publish_counts(slot);
        }
    }

    of_children!(classes);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
