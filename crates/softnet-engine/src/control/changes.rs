//! What has changed, for those who watch.

use softnet_tc::TreeSpec;

use super::{Control, Devices};
use crate::engine::FdbEntry;

/// Changes kept for those who watch.
pub(super) const KEPT: usize = 4096;

/// What has changed, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is new or has changed.
    Link(u32),
    /// A link is gone: its number, and its last name.
    LinkGone(u32, String),
    /// What a bridge does at a port, or the VLANs of a port or bridge.
    Bridge(u32),
    /// A port is not part of a bridge any more.
    Left {
        /// The port.
        port: u32,
        /// Its name.
        name: String,
        /// The bridge.
        bridge: u32,
    },
    /// An entry of a forwarding database was made or changed, or is gone, by request.
    Fdb {
        /// The bridge.
        bridge: u32,
        /// The port that the station is behind.
        port: u32,
        /// The entry.
        entry: FdbEntry,
        /// Whether it was removed.
        gone: bool,
    },
    /// The tree of a port was made another as a whole.
    Tree {
        /// The port.
        link: u32,
        /// What the tree was.
        before: Box<TreeSpec>,
    },
}

impl<D: Devices> Control<D> {
    /// What has changed since the last call, in order, and whether there were changes before these
    /// that are lost: the last 4096 are kept.
    pub fn take_changes(&mut self) -> (Vec<Change>, bool) {
        let changes = std::mem::take(&mut self.changes);
        (changes.into(), std::mem::take(&mut self.overrun))
    }

    /// Whether [`take_changes`](Control::take_changes) would return any.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Those who watch are told of what differs in the end, so one note of a tree is enough.
    pub(super) fn note_tree(&mut self, index: u32, before: TreeSpec) {
        let is_noted =
            |change: &Change| matches!(change, Change::Tree { link, .. } if *link == index);
        if !self.changes.iter().any(is_noted) {
            let before = Box::new(before);
            self.note(Change::Tree {
                link: index,
                before,
            });
        }
    }

    pub(super) fn note(&mut self, change: Change) {
        if self.changes.back() == Some(&change) {
            return;
        }
        if self.changes.len() == KEPT {
            self.changes.pop_front();
            self.overrun = true;
        }
        self.changes.push_back(change);
    }
}
