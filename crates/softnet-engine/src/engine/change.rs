//! Changes that watchers are told of, and events of ports.

use std::collections::VecDeque;

use super::info::FdbEntry;
use super::mdb::MdbEntry;
use crate::link::LinkState;
use softnet_tc::TreeSpec;

/// Changes kept for those who watch.
pub(super) const KEPT: usize = 4096;

/// A change, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is new or has changed.
    Link(u32),
    /// A link is gone: its number, and its last name.
    LinkGone(u32, String),
    /// Options of a bridge at a port, or the VLANs of a port or bridge, are others.
    Bridge(u32),
    /// A port is not part of a bridge any more.
    Left {
        /// The port.
        port: u32,
        /// Name of the port.
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
        /// It was removed.
        gone: bool,
    },
    /// A member of a group came or has changed, or is gone.
    Mdb {
        /// The bridge.
        bridge: u32,
        /// The member.
        entry: Box<MdbEntry>,
        /// It is gone.
        gone: bool,
    },
    /// A multicast router is behind a port, or none any more.
    McastRouter {
        /// The bridge.
        bridge: u32,
        /// The port.
        port: u32,
        /// There is none.
        gone: bool,
    },
    /// The tree of a port was made another as a whole.
    Tree {
        /// The port.
        link: u32,
        /// The tree before.
        before: Box<TreeSpec>,
    },
}

/// Something that happened to a port by itself; the number is that of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The device is gone. Packets for it are dropped until
    /// [`Engine::replace`](super::Engine::replace).
    Gone(u32),
    /// The state of the driver's link changed.
    Link(u32, LinkState),
}

impl PortEvent {
    /// Number of the port's link.
    pub fn link(&self) -> u32 {
        match *self {
            PortEvent::Gone(index) | PortEvent::Link(index, _) => index,
        }
    }
}

/// Changes since watchers asked last.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) kept: VecDeque<Change>,
    /// Some were lost.
    pub(super) overrun: bool,
}

impl Changes {
    pub(super) fn note(&mut self, change: Change) {
        if self.kept.back() == Some(&change) {
            return;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.overrun = true;
        }
        self.kept.push_back(change);
    }

    /// Notes a tree once: watchers are told of what differs in the end.
    pub(super) fn note_tree(&mut self, link: u32, before: TreeSpec) {
        let noted = |change: &Change| match change {
            Change::Tree { link: known, .. } => *known == link,
            _ => false,
        };
        if !self.kept.iter().any(noted) {
            let before = Box::new(before);
            self.note(Change::Tree { link, before });
        }
    }
}
