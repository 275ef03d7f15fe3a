//! Changes that watchers are told of, and what happens to ports by themselves.

use std::time::Duration;

use softnet::tx::Features;

use super::change::{Change, Changes, PortEvent};
use super::devices::Devices;
use super::life::Engine;
use super::state::State;
use crate::rx::Event;

/// Time after which a link's speed is asked for without a report. The kernel reports none where the
/// speed changes and the carrier does not: `ethtool -s` of a TAP or virtio interface, another speed
/// that the hypervisor gives to one, members that come to a bond or leave it.
const SPEEDS: Duration = Duration::from_secs(10);

impl<D: Devices> Engine<D> {
    /// Changes since the last call, in order, and whether there were changes before these that are
    /// lost: the last 4096 are kept.
    pub fn take_changes(&self) -> (Vec<Change>, bool) {
        let mut state = self.state();
        state.note_groups();
        let Changes { kept, overrun } = std::mem::take(&mut state.changes);
        (kept.into(), overrun)
    }

    /// There are changes for [`take_changes`](Engine::take_changes) to return.
    pub fn has_changes(&self) -> bool {
        let state = self.state();
        !state.changes.kept.is_empty() || state.groups_changed()
    }

    /// Events of ports since the last call. To be called every now and then: it is here that a
    /// changed MTU, or other features, take effect, for what is sent and for what is queued, and
    /// that rates which are shares of a link's speed follow it.
    pub fn take_events(&self) -> Vec<PortEvent> {
        let mut events = Vec::new();
        let Ok(mut guard) = self.control() else {
            return events;
        };
        let state = &mut *guard;
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
                        // Only drivers are refused, and this is none.
                        let _ = known.set_features(features);
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
        let now = state.clock.now();
        let all = state.speeds_due <= now;
        if all {
            state.speeds_due = now + SPEEDS;
        }
        let ports = state.ports.iter().flatten();
        let shares = ports.filter(|port| {
            port.tree.spec().has_shares() && (all || port.losses.may_have_another_speed())
        });
        for index in shares.map(|port| port.index).collect::<Vec<_>>() {
            state.follow_speed(index);
        }
        events
    }
}

impl<D: Devices> State<D> {
    /// Has the rates of a port that are shares of its link's speed follow it. They stay while it is
    /// not known, or where a qdisc cannot have such a rate.
    pub(super) fn follow_speed(&mut self, index: u32) {
        let clock = self.clock.clone();
        let Ok(port) = self.port_mut(index) else {
            return;
        };
        let speed = port.losses.speed();
        let Some(speed) = speed.filter(|&speed| port.tree.env().speed != Some(speed)) else {
            return;
        };
        let before = port.tree.spec().clone();
        let followed = port.tree.on((&*port.device, &clock)).set_speed(speed);
        if followed.is_ok() && *port.tree.spec() != before {
            self.changes.note_tree(index, before);
        }
    }
}
