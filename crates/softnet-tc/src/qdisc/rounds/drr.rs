//! `drr`: classes that send in turn, each as much as its quantum says (tc-drr(8)).
//!
//! A packet goes to the class that its priority names (`major:minor`), else to that of the first
//! filter that matches. One that leads to no class is dropped (`no_class`).

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Peek, Qdisc, Verdict, WireSum};
use softnet::time::Time;

use super::{QUANTUM, Rounds};
use crate::account::{Children, ClassCounters, OwnStats};
use crate::filter::{Filters, Lost};
use crate::handle::Handle;
use crate::qdisc::class::{ClassKind, ClassSpec, Classes};
use crate::qdisc::kind::{Kind, of_children, parts};
use crate::qdisc::option::{Form, Unset, options, parameters};
use crate::qdisc::sorts::{Sorts, by_class, named, prefetch_next};
use crate::qdisc::spec::{QdiscEnv, SpecError};
use crate::rate::Instance;

parameters! {
    /// Parameters of a class of `drr`.
    pub struct DrrClassSpec {
        /// Bytes that it may send in each round, 256 to 1 MiB.
        pub quantum: u32 = 1514,
    }
}

impl DrrClassSpec {
    /// A class with this quantum, or the nearest one that there is (`drr_change_class`).
    pub fn new(quantum: u32) -> DrrClassSpec {
        DrrClassSpec {
            quantum: quantum.clamp(*QUANTUM.start(), *QUANTUM.end()),
        }
    }
}

/// `drr`: classes that send in turn (tc-drr(8)).
#[derive(Debug)]
pub struct Drr {
    handle: Handle,
    filters: Filters,
    classes: Children,
    rounds: Rounds,
    /// There are others.
    instance: Option<Instance>,
}

impl Kind for Drr {
    type Spec = ();
    const NAME: &'static str = "drr";
    const CAN_CHANGE: bool = false;
    const HAS_FILTERS: bool = true;

    fn make((): &(), handle: Handle, env: &QdiscEnv) -> Drr {
        Drr {
            handle,
            filters: Filters::default(),
            classes: Children::none(),
            rounds: Rounds::default(),
            instance: env.instance.clone(),
        }
    }

    parts!(classes, filters);

    fn child_changed(&mut self, slot: usize, _: &mut Cx) {
        self.rounds.update(slot, &self.classes);
    }
}

impl ClassKind for Drr {
    type Class = DrrClassSpec;
    const CLASSES: Classes = Classes {
        in_use: "DRR class is in use",
        options: options! { ClassSpec::Drr(s) =>
            /// a size; bytes that it may send in each round
            "quantum": Form::Size => s.quantum; wrong = "0";
                unset = Unset::Words("a frame of the port's MTU"),
        },
        default: |link| ClassSpec::Drr(DrrClassSpec::new(link.frame())),
        ..Classes::FLAT
    };

    fn check_class(class: &DrrClassSpec) -> Result<(), SpecError> {
        if QUANTUM.contains(&class.quantum) {
            return Ok(());
        }
        let reason = "must be between 256 and 1048576 bytes";
        Err(SpecError::parameter("drr", "quantum", reason))
    }

    fn own_stats(counters: &ClassCounters) -> Option<OwnStats> {
        let [deficit, ..] = counters.own.words();
        Some(OwnStats::Drr { deficit })
    }

    fn add_class(
        &mut self,
        slot: usize,
        _: u16,
        _: Option<usize>,
        class: &DrrClassSpec,
        _: &mut PacketList,
        _: &mut Cx,
    ) {
        self.rounds.set(slot, class.quantum);
    }

    fn change_class(&mut self, slot: usize, class: &DrrClassSpec, _: &mut Cx) {
        self.rounds.set(slot, class.quantum);
    }

    /// Drops what was queued, as the kernel does.
    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
        self.rounds.leave(slot, &self.classes);
        self.classes.purge(moved, cx);
    }
}

impl Sorts for Drr {
    #[inline]
    fn slot(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        by_class(packet, self.handle, &self.filters, &self.classes, cx)
    }

    fn unfiltered(&self, packet: &Packet) -> Option<usize> {
        let class = named(packet, self.handle)?;
        self.classes.find(class.minor())
    }

    fn classes(&mut self) -> &mut Children {
        &mut self.classes
    }

    fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    #[inline]
    fn look_ahead(&self, packets: &PacketList) {
        prefetch_next(packets, self.handle, &self.classes);
    }

    #[inline]
    fn queued(&mut self, slot: usize) {
        self.rounds.update(slot, &self.classes);
    }
}

impl Qdisc for Drr {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.sort(packets, cx)
    }

    /// A packet that passes leaves no trace in the round, as if it were enqueued and dequeued.
    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        self.pass(packets, sum, cx)
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        let mut left = budget as u64;
        let next = self.rounds.dequeue(&mut self.classes, &mut left, out, cx);
        if let Some(instance) = &self.instance {
            instance.announce(next, cx.now);
        }
        next
    }

    fn peek(&self, now: Time) -> Peek {
        self.rounds.peek(&self.classes, now)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.classes.drain(out);
        self.rounds.clear(&self.classes);
    }

    of_children!(classes);
}
