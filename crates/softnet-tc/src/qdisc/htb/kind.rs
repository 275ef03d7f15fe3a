//! `htb` as a kind of qdisc, and its classes as they come and go.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Fifo};

use super::pots::Sharing;
use super::scheduler::Scheduler;
use super::{Htb, HtbClassSpec, HtbSpec};
use crate::account::{Children, MAX_HEADER, Xstat, Xstats};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::qdisc::class::{ClassKind, Classes};
use crate::qdisc::kind::{Kind, QdiscSpec, parts};
use crate::qdisc::option::{Form, QdiscOption, Unset, options};
use crate::qdisc::spec::{QdiscEnv, SpecError};

impl Kind for Htb {
    type Spec = HtbSpec;
    const NAME: &'static str = "htb";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Htb(s) =>
        /// number of the class for all other packets: a text, hexadecimal as in tc, so that
        /// `"30"` is class 1:30; with `"0"` there is none
        "default": Form::Own; unset = Unset::Words("`\"0\"`"); wrong = "30",
        /// a class's quantum is its rate divided by this
        "r2q": Form::Number("a number from 1 on", 1, u32::MAX as u64) => s.r2q; wrong = "0",
        /// direct packets that may be queued
        "direct_qlen": Form::Number("a number of packets", 0, u32::MAX as u64)
            => s.direct_qlen; unset = Unset::Words("the port's `txqueuelen`"),
    };
    const CAN_CHANGE: bool = false;
    const HAS_FILTERS: bool = true;

    fn make(spec: &HtbSpec, handle: Handle, env: &QdiscEnv) -> Htb {
        let sharing = env.instance.clone().map(|instance| Sharing {
            instance,
            handle,
            unit: u64::from(env.mtu) + MAX_HEADER,
        });
        Htb {
            handle,
            default: spec.default,
            direct_limit: spec.direct_qlen.unwrap_or(env.txqueuelen),
            direct: Fifo::default(),
            direct_packets: 0,
            direct_drops: 0,
            xstats: Xstats::new(&[Xstat::DirectPackets, Xstat::DirectDrops]),
            filters: Filters::default(),
            scheduler: Scheduler::new(spec.r2q, sharing),
            classes: Children::none(),
        }
    }

    parts!(classes, filters);

    /// It is weighed as one.
    fn flows(&self) -> u64 {
        0
    }

    fn xstats(&self) -> Option<&Xstats> {
        Some(&self.xstats)
    }

    fn child_changed(&mut self, slot: usize, _: &mut Cx) {
        if self.is_empty(slot) {
            self.scheduler.deactivate(slot);
        } else {
            self.scheduler.activate(slot);
        }
    }
}

impl ClassKind for Htb {
    type Class = HtbClassSpec;
    const CLASSES: Classes = Classes {
        nested: true,
        filters: true,
        in_use: "HTB class in use",
        options: HtbClassSpec::OPTIONS,
        ..Classes::FLAT
    };

    fn check_class(class: &HtbClassSpec) -> Result<(), SpecError> {
        class.check()
    }

    fn add_class(
        &mut self,
        slot: usize,
        minor: u16,
        parent: Option<usize>,
        class: &HtbClassSpec,
        moved: &mut PacketList,
        cx: &mut Cx,
    ) {
        if let Some(child) = self.classes.get(slot) {
            let counters = child.counters().clone();
            self.scheduler
                .add(slot, minor, parent, class, counters, cx.now);
        }
        self.classes.purge(moved, cx);
    }

    fn change_class(&mut self, slot: usize, class: &HtbClassSpec, cx: &mut Cx) {
        self.scheduler.change(slot, class, cx.now);
    }

    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
        self.scheduler.remove(slot, cx.now);
        self.classes.purge(moved, cx);
    }
}
