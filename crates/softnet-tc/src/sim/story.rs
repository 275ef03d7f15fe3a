//! Story of one packet: which filters looked at it, where it waited, for what and behind whom. All
//! of it is told from the numbers of classes and filters before and after: whatever carries packets
//! does nothing for it.

use std::collections::BTreeMap;

use softnet::mem::Packet;
use softnet::stats::{DropReason, Dropped};
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
    pub filter: FilterSpec,
    /// It matched.
    pub matched: bool,
}

/// End of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the tree; at the end it was segmented, or sent elsewhere.
    Waits,
    /// It left the tree.
    Left(Time),
    /// It was dropped, for one of these reasons.
    Dropped(Time, Vec<DropReason>),
}

/// Story of a packet.
#[derive(Clone, Debug)]
pub struct Story {
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
    /// Place of its data while it waits.
    address: usize,
}

/// Numbers before a packet comes.
#[derive(Debug)]
pub(super) struct Before {
    matched: Vec<u64>,
    /// Frames queued and dropped of each class.
    classes: BTreeMap<Handle, (u64, u64)>,
}

impl Before {
    pub(super) fn of(tree: &Instances) -> Before {
        let classes = tree.classes().into_iter();
        Before {
            matched: tree
                .tree()
                .filters()
                .map(|(_, stats)| stats.matched)
                .collect(),
            classes: classes
                .map(|of| (of.class, (of.stats.qlen, of.stats.drops)))
                .collect(),
        }
    }
}

impl Story {
    pub(super) fn new(packet: &Packet, now: Time) -> Story {
        let data = packet.data();
        Story {
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
            address: data.as_ptr().addr(),
        }
    }

    /// The packet is enqueued; it may have been dropped.
    pub(super) fn enqueued(&mut self, tree: &Instances, before: &Before) {
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
        for ((filter, stats), before) in tree.tree().filters().zip(&before.matched) {
            let matched = stats.matched > *before;
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

    fn is(&self, packet: &Packet) -> bool {
        packet.data().as_ptr().addr() == self.address
    }

    /// A packet of a class leaves.
    pub(super) fn left(&mut self, packet: &Packet, class: Handle, now: Time) {
        if self.fate != Fate::Waits {
            return;
        }
        if self.is(packet) {
            self.fate = Fate::Left(now);
            return;
        }
        let (frames, bytes) = self.passed.entry(class).or_default();
        *frames += 1;
        *bytes += packet.wire_len();
    }

    /// Packets are dropped.
    pub(super) fn dropped(&mut self, dropped: &Dropped, now: Time) {
        if self.fate == Fate::Waits && dropped.packets().iter().any(|packet| self.is(packet)) {
            let counts = DropReason::ALL.iter().zip(dropped.counts());
            let reasons = counts.filter(|(_, n)| **n != 0).map(|(&reason, _)| reason);
            self.fate = Fate::Dropped(now, reasons.collect());
        }
    }

    /// Time passes in which nothing leaves.
    pub(super) fn waited(&mut self, nanos: u64, is_link: bool) {
        if self.fate == Fate::Waits {
            match is_link {
                true => self.link += nanos,
                false => self.held += nanos,
            }
        }
    }
}
