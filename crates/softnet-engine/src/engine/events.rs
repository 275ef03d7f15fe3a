//! Changes that watchers are told of, and what happens to ports by themselves.

use std::collections::VecDeque;

use softnet::tx::Features;
use softnet_tc::TreeSpec;

use super::Engine;
use super::devices::Devices;
use super::fdb::FdbEntry;
use crate::link::LinkState;
use crate::rx::Event;

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
        /// It was removed.
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
    /// The device is gone. Packets for it are dropped until [`Engine::replace`].
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
    kept: VecDeque<Change>,
    /// Some were lost.
    overrun: bool,
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

    /// Those who watch are told of what differs in the end, so one note of a tree is enough.
    pub(super) fn note_tree(&mut self, link: u32, before: TreeSpec) {
        let is_noted =
            |change: &Change| matches!(change, Change::Tree { link: known, .. } if *known == link);
        if !self.kept.iter().any(is_noted) {
            let before = Box::new(before);
            self.note(Change::Tree { link, before });
        }
    }
}

impl<D: Devices> Engine<D> {
    /// Changes since the last call, in order, and whether there were changes before these that are
    /// lost: the last 4096 are kept.
    pub fn take_changes(&self) -> (Vec<Change>, bool) {
        let Changes { kept, overrun } = std::mem::take(&mut self.state().changes);
        (kept.into(), overrun)
    }

    /// There are changes for [`take_changes`](Engine::take_changes) to return.
    pub fn has_changes(&self) -> bool {
        !self.state().changes.kept.is_empty()
    }

    /// Events of ports since the last call. To be called every now and then: it is here that a
    /// changed MTU, or other features, take effect, for what is sent and for what is queued.
    pub fn take_events(&self) -> Vec<PortEvent> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut events = Vec::new();
        while let Ok(event) = state.reports.try_recv() {
            let (Event::Gone { port, .. } | Event::Link { port }) = event;
            let Some(known) = state.ports.get_mut(usize::from(port)) else {
                continue;
            };
            let Some(known) = known.as_mut() else {
                continue;
            };
            let index = known.index;
            let event = match event {
                Event::Gone { opened, .. } if opened != known.opened => continue,
                Event::Gone { .. } => PortEvent::Gone(index),
                Event::Link { .. } => {
                    let link = known.link.get();
                    let features = Features {
                        mtu: link.mtu.unwrap_or(known.features.mtu),
                        ..link.features.unwrap_or(known.features)
                    };
                    if features != known.features {
                        known.set_features(features);
                    }
                    if let Some(mtu) = link.mtu {
                        state.known_mut(index).settings.mtu = mtu;
                    }
                    PortEvent::Link(index, link)
                }
            };
            if !events.contains(&event) {
                events.push(event);
                state.changes.note(Change::Link(index));
            }
        }
        events
    }
}
