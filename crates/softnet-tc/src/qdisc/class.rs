//! Classes that are added, changed and deleted one by one: what a kind with such classes has to
//! say, and the one list of them.
//!
//! The tree checks an operation and allocates what it needs ([`TreeSpec`](crate::TreeSpec),
//! [`Live`](crate::Live)). The owner of the queue applies it, which cannot fail and takes a time
//! that does not depend on how many classes there are, but for pointers that move when a table
//! grows. A class is a leaf with a queue until it gets classes below it, and again when it has
//! lost the last. [`Classes`] says what a kind's are like.

use softnet::mem::PacketList;
use softnet::qdisc::Cx;

use super::hfsc::{Hfsc, HfscClassSpec};
use super::htb::{Htb, HtbClassSpec};
use super::kind::{AnyQdisc, Kind, LinkDefaults, QdiscSpec};
use super::option::ClassOption;
use super::qfq::{Qfq, QfqClassSpec};
use super::rounds::{Drr, DrrClassSpec};
use super::spec::SpecError;
use crate::account::{Child, ClassCounters, OwnStats};
use crate::tree::TreeError;

#[cfg(test)]
use crate::testing::round_robin::{RoundRobin, Weight};

/// Description of the classes of a kind whose classes are added one by one.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// True if classes may be below classes. Else each is directly below the qdisc, whatever a
    /// request says.
    pub nested: bool,
    /// True if classes have filters of their own.
    pub filters: bool,
    /// True if the qdisc is itself a class, that above all others: its minor number is 0, and it
    /// has a queue as long as there are no others.
    pub root: bool,
    /// The kernel's text where one that is in use is to be deleted.
    pub in_use: &'static str,
    /// Options of a class.
    pub options: &'static [ClassOption],
    /// A class of which nothing is said.
    pub default: fn(&LinkDefaults) -> ClassSpec,
}

impl Classes {
    /// Values of the fields that a description leaves out: leaves alone, directly below the qdisc.
    pub(crate) const FLAT: Classes = Classes {
        nested: false,
        filters: false,
        root: false,
        in_use: "class in use",
        options: &[],
        default: |_| ClassSpec::Htb(HtbClassSpec::new(0)),
    };
}

/// A kind whose classes are added one by one. Its [`Children`](crate::account::Children) start as
/// [`none`](crate::account::Children::none), or with the class 0 if the qdisc is one itself.
pub(crate) trait ClassKind: Kind {
    /// Parameters of a class.
    type Class;
    /// Description of its classes.
    const CLASSES: Classes;
    /// The highest sum of the [`weight`](ClassKind::weight)s of a qdisc's classes.
    const MOST_WEIGHT: u64 = u64::MAX;

    /// Checks the parameters.
    fn check_class(class: &Self::Class) -> Result<(), SpecError>;

    /// Statistics that only its classes have, as they are published.
    fn own_stats(_: &ClassCounters) -> Option<OwnStats> {
        None
    }

    /// The part that a class has of a sum that is bounded.
    fn weight(_: &Self::Class) -> u64 {
        0
    }

    /// The class gets its first class below it.
    fn become_inner(_: &mut Self::Class) {}

    /// There is a class `minor` at `slot`, a leaf that is empty, below the class at `parent`, if it
    /// is not the qdisc's own. If that was a leaf, it is none any more; `moved` is what it held, to
    /// be enqueued again or dropped.
    fn add_class(
        &mut self,
        slot: usize,
        minor: u16,
        parent: Option<usize>,
        class: &Self::Class,
        moved: &mut PacketList,
        cx: &mut Cx,
    );

    /// The class takes other parameters, all at once. What is queued stays.
    fn change_class(&mut self, slot: usize, class: &Self::Class, cx: &mut Cx);

    /// The class at `slot`, which was a leaf, is no more, and cannot be found; `moved` is what it
    /// held, to be enqueued again or dropped. If it was the last of the class at `parent`, that one
    /// is a leaf again, and empty.
    fn delete_class(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx);
}

/// From a line for each kind with classes of their own: their parameters, and the way to the
/// [`ClassKind`].
macro_rules! class_kinds {
    ($($(#[$doc:meta])* $name:ident($class:ident: $struct:ty) $(, only $cfg:meta)?;)*) => {
        /// The parameters of a class that is added to a qdisc.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ClassSpec {
            $($(#[cfg($cfg)])? $(#[$doc])* $name($struct),)*
        }

        impl QdiscSpec {
            /// Description of its classes, if they are added one by one.
            pub fn added_classes(&self) -> Option<&'static Classes> {
                match self {
                    $($(#[cfg($cfg)])? QdiscSpec::$name { .. } => {
                        Some(const { &<$name as ClassKind>::CLASSES })
                    })*
                    _ => None,
                }
            }

            /// Statistics that only its classes have, as they are published.
            pub(crate) fn own_stats(&self, counters: &ClassCounters) -> Option<OwnStats> {
                match self {
                    $($(#[cfg($cfg)])? QdiscSpec::$name { .. } => {
                        <$name as ClassKind>::own_stats(counters)
                    })*
                    _ => None,
                }
            }

            /// True if its classes are added one by one.
            pub fn adds_classes(&self) -> bool {
                self.added_classes().is_some()
            }
        }

        impl ClassSpec {
            /// Part of a sum that is bounded, and the bound.
            pub(crate) fn weight(&self) -> (u64, u64) {
                match self {
                    $($(#[cfg($cfg)])? ClassSpec::$name($class) => {
                        (<$name as ClassKind>::weight($class), <$name as ClassKind>::MOST_WEIGHT)
                    })*
                }
            }

            /// The class gets its first class below it.
            pub(crate) fn become_inner(&mut self) {
                match self {
                    $($(#[cfg($cfg)])? ClassSpec::$name($class) => {
                        <$name as ClassKind>::become_inner($class);
                    })*
                }
            }

            /// Checks the parameters, and that a class of `qdisc` has such.
            pub(crate) fn check_for(&self, qdisc: &QdiscSpec) -> Result<(), SpecError> {
                match (self, qdisc) {
                    $($(#[cfg($cfg)])? (ClassSpec::$name($class), QdiscSpec::$name { .. }) => {
                        <$name as ClassKind>::check_class($class)
                    })*
                    _ => Err(TreeError::NoClasses(qdisc.kind()).into()),
                }
            }
        }

        impl AnyQdisc {
            fn class_added(
                &mut self,
                slot: usize,
                minor: u16,
                parent: Option<usize>,
                class: &ClassSpec,
                moved: &mut PacketList,
                cx: &mut Cx,
            ) {
                match (self, class) {
                    $($(#[cfg($cfg)])? (AnyQdisc::$name(q), ClassSpec::$name($class)) => {
                        q.add_class(slot, minor, parent, $class, moved, cx);
                    })*
                    _ => {}
                }
            }

            fn class_changed(&mut self, slot: usize, class: &ClassSpec, cx: &mut Cx) {
                match (self, class) {
                    $($(#[cfg($cfg)])? (AnyQdisc::$name(q), ClassSpec::$name($class)) => {
                        q.change_class(slot, $class, cx);
                    })*
                    _ => {}
                }
            }

            fn class_deleted(&mut self, slot: usize, moved: &mut PacketList, cx: &mut Cx) {
                match self {
                    $($(#[cfg($cfg)])? AnyQdisc::$name(q) => q.delete_class(slot, moved, cx),)*
                    _ => {}
                }
            }
        }
    };
}

class_kinds! {
    /// Rates, bursts and a priority.
    Htb(class: HtbClassSpec);
    /// A quantum.
    Drr(class: DrrClassSpec);
    /// A weight.
    Qfq(class: QfqClassSpec);
    /// Service curves.
    Hfsc(class: HfscClassSpec);
    /// For tests.
    RoundRobin(class: Weight), only test;
}

/// Remains of an operation, to be freed when the queue has been given up.
pub(crate) type Left = (Option<Box<Child>>, Option<AnyQdisc>);

impl AnyQdisc {
    /// Adds class `minor` with a qdisc of its own, below class `parent` or, if that is 0, the
    /// qdisc. Everything has been checked.
    pub(crate) fn add_class(
        &mut self,
        minor: u16,
        parent: u16,
        class: &ClassSpec,
        child: Box<Child>,
        cx: &mut Cx,
    ) -> Option<Left> {
        let mut moved = PacketList::new();
        let children = self.children_mut()?;
        let parent = children.find(parent);
        let mut closed = None;
        if let Some(parent) = parent
            && children
                .get(parent)
                .is_some_and(|parent| !parent.is_inner())
        {
            closed = Some(children.close(parent, &mut moved));
        }
        let (slot, old) = children.insert(minor, child);
        self.class_added(slot, minor, parent, class, &mut moved, cx);
        Some((old, closed))
    }

    /// Gives class `minor` other parameters.
    pub(crate) fn change_class(&mut self, minor: u16, class: &ClassSpec, cx: &mut Cx) {
        if let Some(slot) = self.children().and_then(|children| children.find(minor)) {
            self.class_changed(slot, class, cx);
        }
    }

    /// Deletes class `minor`. `parent` is the class that has no classes any more then, with its
    /// new queue.
    pub(crate) fn delete_class(
        &mut self,
        minor: u16,
        parent: Option<(u16, AnyQdisc)>,
        cx: &mut Cx,
    ) -> Option<Left> {
        let mut moved = PacketList::new();
        let children = self.children_mut()?;
        let slot = children.find(minor)?;
        let old = children.remove(minor, &mut moved);
        if let Some((parent, qdisc)) = parent
            && let Some(parent) = children.find(parent)
        {
            children.graft(parent, qdisc, true, cx);
        }
        self.class_deleted(slot, &mut moved, cx);
        Some((None, old))
    }
}
