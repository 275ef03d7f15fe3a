//! Story of one packet: which filters looked at it, where it waited, for what and behind whom. All
//! of it is told from the numbers of classes and filters before and after: whatever carries packets
//! does nothing for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::time::Time;

use super::instances::Instances;
use crate::filter::FilterSpec;
use crate::handle::Handle;

/// Bytes of a frame that are kept.
const SNAP: usize = 256;

/// A filter that looked at a packet.
#[derive(Clone, Debug)]
pub struct Look {
    /// The filter.
    pub filter: Arc<FilterSpec>,
    /// It matched.
    pub matched: bool,
}

/// End of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the tree; at the end it was segmented, or sent elsewhere. What passed it and what
    /// it waited for is not known then.
    Waits,
    /// It left the tree.
    Left(Time),
    /// It was dropped, for one of these reasons.
    Dropped(Time, Vec<DropReason>),
}

/// Story of a packet.
#[derive(Clone, Debug)]
pub struct Story {
    /// Place among all arrivals, from 1.
    pub number: u64,
    /// First bytes of the frame as it came.
    pub start: Vec<u8>,
    /// Length of the frame.
    pub len: usize,
    /// When it came.
    pub arrived: Time,
    /// Filters that looked at it, in their order.
    pub looks: Vec<Look>,
    /// The class in which it was queued or dropped, if one did.
    pub class: Option<Handle>,
    /// Frames that were in that class, and in the tree, as it came.
    pub ahead: (u64, u64),
    /// Frames and bytes of each class that left while it waited.
    pub passed: BTreeMap<Handle, (u64, u64)>,
    /// Nanoseconds for which it waited while the link was sending.
    pub link: u64,
    /// Nanoseconds for which it waited because the tree let nothing leave.
    pub held: u64,
    /// End of it.
    pub fate: Fate,
}

/// Numbers before a packet comes.
#[derive(Debug)]
pub(super) struct Before {
    matched: Vec<u64>,
    /// Frames queued and dropped of each class.
    classes: BTreeMap<Handle, (u64, u64)>,
}

impl Before {
    /// The numbers as they are; `filters` are those of the tree, which are kept up to date.
    pub(super) fn of(tree: &Instances, filters: &mut Vec<Arc<FilterSpec>>) -> Before {
        let mut matched = Vec::with_capacity(filters.len());
        for (place, (filter, stats)) in tree.tree().filters().enumerate() {
            if filters.get(place).is_none_or(|known| **known != *filter) {
                filters.truncate(place);
                filters.push(Arc::new(filter.clone()));
            }
            matched.push(stats.matched);
        }
        filters.truncate(matched.len());
        let classes = tree.classes().into_iter();
        Before {
            matched,
            classes: classes
                .map(|of| (of.class, (of.stats.qlen, of.stats.drops)))
                .collect(),
        }
    }
}

impl Story {
    pub(super) fn new(packet: &Packet, number: u64, now: Time) -> Story {
        let data = packet.data();
        Story {
            number,
            start: data[..data.len().min(SNAP)].to_vec(),
            len: packet.len(),
            arrived: now,
            looks: Vec::new(),
            class: None,
            ahead: (0, 0),
            passed: BTreeMap::new(),
            link: 0,
            held: 0,
            fate: Fate::Waits,
        }
    }

    /// The packet is enqueued; it may have been dropped. `filters` are those of the tree.
    pub(super) fn enqueued(
        &mut self,
        tree: &Instances,
        before: &Before,
        filters: &[Arc<FilterSpec>],
    ) {
        let was = |class: Handle| before.classes.get(&class).copied().unwrap_or_default();
        // Each class comes before those below it.
        for of in tree.classes() {
            let (queued, drops) = was(of.class);
            if of.stats.qlen > queued || of.stats.drops > drops {
                self.class = Some(of.class);
                self.ahead = (queued, was(Handle::ROOT).0);
            }
        }
        let mut above = self.class;
        let mut asked = vec![tree.tree().spec().root().map(|root| root.handle)];
        while let Some(class) = above.filter(|&class| class != Handle::ROOT) {
            asked.push(Some(class.qdisc()));
            asked.push(Some(class));
            let added = tree.tree().spec().class_node(class).map(|node| node.parent);
            let is_class = |&parent: &Handle| parent.minor() != 0;
            let qdisc = tree
                .tree()
                .spec()
                .node(class.qdisc())
                .map(|node| node.parent);
            above = added.filter(is_class).or(qdisc);
        }
        // Where one has matched, those behind it are not asked any more.
        let mut decided = Vec::new();
        let counted = tree.tree().filters().map(|(_, stats)| stats.matched);
        for ((filter, count), before) in filters.iter().zip(counted).zip(&before.matched) {
            let matched = count > *before;
            let list = (filter.parent, filter.chain);
            let is_asked = filter.chain == 0 && asked.contains(&Some(filter.parent));
            if matched || (is_asked && !decided.contains(&list)) {
                let filter = filter.clone();
                self.looks.push(Look { filter, matched });
            }
            if matched {
                decided.push(list);
            }
        }
    }
}
