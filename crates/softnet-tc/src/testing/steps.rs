//! Random changes of a tree, and packets that come and go meanwhile.

use proptest::prelude::*;

use super::specs::{Class, class, size_tables, specs};
use crate::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Lengths and priorities.
    Enqueue(Vec<(usize, u32)>),
    /// A budget, after so many nanoseconds.
    Dequeue(usize, u64),
    Add(prop::sample::Index, QdiscSpec),
    Replace(prop::sample::Index, QdiscSpec),
    Change(prop::sample::Index, QdiscSpec),
    Delete(prop::sample::Index),
    Filter(prop::sample::Index, u32),
    /// A class of this number, below a class or qdisc.
    AddClass(prop::sample::Index, u16, Class),
    ChangeClass(prop::sample::Index, Class),
    DeleteClass(prop::sample::Index),
    Stab(prop::sample::Index, Option<SizeTable>),
    /// All that is queued leaves at once.
    Drain,
}

impl Step {
    /// Changes a tree with these classes. What is no change of a tree does nothing.
    pub(crate) fn apply<Q: Queues>(
        self,
        tree: &mut Live<'_, Q>,
        classes: Vec<Handle>,
    ) -> Result<(), SpecError> {
        let handles: Vec<Handle> = tree.spec().nodes().map(|node| node.handle).collect();
        // That of a netem is not listed without a qdisc.
        let of_netem = |handle: &&Handle| {
            let node = tree.spec().node(**handle);
            node.is_some_and(|node| matches!(node.qdisc, QdiscSpec::Netem(_)))
        };
        let hidden = handles
            .iter()
            .filter(of_netem)
            .map(|handle| handle.class(1));
        let mut classes = classes;
        classes.extend(hidden.collect::<Vec<_>>());
        match self {
            Step::Add(at, qdisc) => {
                let added = tree.add(*at.get(&classes), Handle::NONE, qdisc);
                added.map(|_| ())
            }
            Step::Replace(at, qdisc) => {
                let replaced = tree.replace(*at.get(&classes), Handle::NONE, qdisc);
                replaced.map(|_| ())
            }
            Step::Change(at, qdisc) if !handles.is_empty() => {
                tree.change(*at.get(&handles), &qdisc)
            }
            Step::Delete(at) if !handles.is_empty() => tree.delete(*at.get(&handles)),
            Step::Filter(at, mark) => {
                let class = *at.get(&classes);
                let filter = FilterSpec {
                    prio: mark as u16,
                    handle: mark & 3,
                    ..FilterSpec::new(FilterKind::fw(3), class)
                };
                tree.put_filter(FilterOp::Add, filter).map(|_| ())
            }
            Step::AddClass(at, minor, class) => {
                let parents = [classes, handles].concat();
                let parent = *at.get(&parents);
                let spec = class.of(tree.spec(), parent.qdisc());
                tree.add_class(parent, parent.qdisc().class(minor), spec)
            }
            Step::ChangeClass(at, class) => {
                let at = *at.get(&classes);
                let class = class.of(tree.spec(), at.qdisc());
                tree.change_class(at, &class)
            }
            Step::Stab(at, table) if !handles.is_empty() => {
                tree.set_stab(*at.get(&handles), table)
            }
            Step::DeleteClass(at) => tree.delete_class(*at.get(&classes)),
            _ => Ok(()),
        }
    }
}

/// Lengths and priorities of packets.
pub(crate) fn lists() -> impl Strategy<Value = Vec<(usize, u32)>> {
    // Of the first qdiscs whose handles are chosen.
    let class = (0x8001..0x8006_u16, 0..6_u16);
    let class = class.prop_map(|(major, minor)| Handle::new(major, minor).raw());
    proptest::collection::vec(
        (60_usize..1_600, prop_oneof![0..16_u32, any::<u32>(), class]),
        1..12,
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => lists().prop_map(Step::Enqueue),
        6 => (0_usize..12, 0_u64..20_000_000)
            .prop_map(|(budget, wait)| Step::Dequeue(budget, wait)),
        6 => (index(), specs()).prop_map(|(at, spec)| Step::Add(at, spec)),
        2 => (index(), specs()).prop_map(|(at, spec)| Step::Replace(at, spec)),
        3 => (index(), specs()).prop_map(|(at, spec)| Step::Change(at, spec)),
        1 => index().prop_map(Step::Delete),
        1 => (index(), 0..4_u32).prop_map(|(at, mark)| Step::Filter(at, mark)),
        6 => (index(), 1..6_u16, class())
            .prop_map(|(at, minor, class)| Step::AddClass(at, minor, class)),
        1 => (index(), class()).prop_map(|(at, class)| Step::ChangeClass(at, class)),
        2 => index().prop_map(Step::DeleteClass),
        2 => (index(), prop::option::weighted(0.8, size_tables()))
            .prop_map(|(at, table)| Step::Stab(at, table)),
        1 => Just(Step::Drain),
    ]
}
