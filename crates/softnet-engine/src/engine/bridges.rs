//! Bridges: which ports they join, and what they and their ports are told to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::info::LinkKind;
use super::info::{BridgeInfo, BridgePort};
use super::life::Engine;
use super::publish::Publish;
use super::spec::{BridgeOptions, BridgeSpec, FDB_SIZES, FdbSpec, MemberSpec, Settings};
use super::state::{BridgeState, State};
use super::vlans::check_vlan;
use crate::forward::{Bridge, BridgePortOptions, Member, PortVlans};

impl<D: Devices> Engine<D> {
    /// Adds a learning switch without ports.
    ///
    /// # Errors
    /// If the name is not valid or is taken.
    pub fn add_bridge(&self, settings: Settings) -> Result<u32, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        self.check(state, &settings, None, None)?;
        let index = state.insert(settings, LinkKind::Bridge, (0, 1), true);
        let options = BridgeOptions::default();
        let bridge = BridgeState {
            bridge: Arc::new(Bridge::new(
                options.fdb_max_learned as usize,
                options.ageing_time,
            )),
            ports: Vec::new(),
            options,
            vlans: PortVlans::with_default(options.default_pvid),
            local_addresses: false,
        };
        state.bridges.insert(index, bridge);
        Ok(index)
    }

    /// Adds a bridge, or changes one that is there.
    pub(super) fn set_bridge_spec(
        &self,
        to: &BridgeSpec,
        link: Option<u32>,
    ) -> Result<(), EngineError> {
        let BridgeSpec {
            settings,
            options,
            vlans,
        } = to;
        let index = match link {
            Some(index) => {
                let change = |known: &mut Settings| known.clone_from(settings);
                self.change(index, change).map(|()| index)?
            }
            None => self.add_bridge(settings.clone())?,
        };
        if self.bridge(index)?.options != *options {
            self.set_bridge(index, *options)?;
        }
        let known = self.bridge(index)?.vlans;
        self.set_vlans(index, index, &known, vlans.as_ref())
    }

    /// A bridge with its options and VLANs.
    ///
    /// # Errors
    /// If there is no link of this number, or it is no bridge.
    pub fn bridge(&self, index: u32) -> Result<BridgeInfo, EngineError> {
        let state = self.state();
        let bridge = state.bridge(index)?;
        let ports = bridge.ports.iter();
        Ok(BridgeInfo {
            options: bridge.options,
            ports: ports.map(|&number| state.slot(number).index).collect(),
            vlans: bridge.vlans.clone(),
        })
    }

    /// Gives a bridge other options. When this returns, every worker forwards by them. Another
    /// default pvid takes the place of the one before at those ports, and at the bridge, where
    /// that one is as it was added, and where the new one is not a VLAN already. A table of another
    /// size takes over what is known; no worker waits for that.
    ///
    /// # Errors
    /// If there is no such bridge, no such VLAN or size can be, or a static entry has no place in a
    /// smaller table. Nothing is changed then.
    pub fn set_bridge(&self, index: u32, options: BridgeOptions) -> Result<(), EngineError> {
        self.update(index, Change::Link, |state| {
            let known = state.bridge_mut(index)?;
            if let Some(vlan) = options.default_pvid {
                check_vlan(vlan)?;
            }
            let size = options.fdb_max_learned;
            if !FDB_SIZES.contains(&size) {
                return Err(EngineError::BadFdbSize { size });
            }
            if known.options.fdb_max_learned != size {
                state.resize_fdb(index, size)?;
            }
            let known = state.bridge_mut(index)?;
            let (old, new) = (known.options.default_pvid, options.default_pvid);
            known.options = options;
            known.bridge.fdb().set_ageing(options.ageing_time);
            known.vlans.change_default(old, new);
            for port in known.ports.clone() {
                let vlans = &mut state.slot_mut(port).member.vlans;
                Arc::make_mut(vlans).change_default(old, new);
            }
            // What was learnt in a VLAN that a port no longer has is forgotten.
            Ok(match old == new {
                true => Publish::Soon,
                false => Publish::Vlans(index),
            })
        })
    }

    /// A port as a member of its bridge, with options and VLANs.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn bridge_port(&self, index: u32) -> Result<BridgePort, EngineError> {
        let state = self.state();
        let (number, bridge, of) = state.member(index)?;
        let Member { options, vlans } = state.slot(number).member.clone();
        let groups = of.bridge.snooping().groups_of(number, state.clock.now());
        Ok(BridgePort {
            bridge,
            options,
            vlans,
            groups,
        })
    }

    /// Gives a member of a bridge other options. When this returns, every worker forwards by them.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn set_bridge_port(
        &self,
        index: u32,
        options: BridgePortOptions,
    ) -> Result<(), EngineError> {
        self.update(index, Change::Bridge, |state| {
            let (number, ..) = state.member(index)?;
            state.slot_mut(number).member.options = options;
            Ok(Publish::Soon)
        })
    }

    /// Makes a port part of a bridge, of another one, or of none. When this returns, every worker
    /// forwards by it. A bridge that the port leaves forgets the addresses behind it, static ones
    /// included, and the port's options and VLANs.
    ///
    /// # Errors
    /// If there are no such links, or they are of the wrong kind. Nothing is changed then.
    pub fn set_master(&self, index: u32, master: Option<u32>) -> Result<(), EngineError> {
        self.set_master_as(index, master, BridgePortOptions::default())
    }

    /// As [`set_master`](Engine::set_master); a bridge that it was no part of has these options
    /// for it from the first frame on.
    ///
    /// # Errors
    /// As there.
    pub fn set_master_as(
        &self,
        index: u32,
        master: Option<u32>,
        options: BridgePortOptions,
    ) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let link = state.link(index)?.clone();
        let bridge = master.map(|master| state.bridge(master)).transpose()?;
        let default = bridge.map(|bridge| bridge.options.default_pvid);
        if link.master == master {
            return Ok(());
        }
        let number = state.number(index)?;
        if let Some(bridge) = link.master {
            let left = state.unlist(number);
            state.publish();
            // From here on nothing is learnt behind the port.
            state.sync();
            if let Some(bridge) = left {
                bridge.fdb().forget_port(number);
            }
            let (port, name) = (index, link.settings.name.clone());
            state.changes.note(Change::Left { port, name, bridge });
        }
        if let (Some(bridge), Some(pvid)) = (master, default) {
            state.slot_mut(number).member = Member {
                options,
                vlans: Arc::new(PortVlans::with_default(pvid)),
            };
            let port_number = state.free_port_number(bridge);
            state.bridge_mut(bridge)?.ports.push(number);
            let link = state.known_mut(index);
            link.master = master;
            link.port_number = port_number;
            state.publish_soon();
        }
        state.changes.note(Change::Link(index));
        if master.is_some() {
            state.changes.note(Change::Bridge(index));
        }
        Ok(())
    }

    /// Changes what a bridge knows of a port that is part of it; of the stations those that differ
    /// from `known`.
    pub(super) fn set_member(
        &self,
        index: u32,
        to: &MemberSpec,
        known: &[FdbSpec],
    ) -> Result<(), EngineError> {
        let Some(bridge) = self.link(index)?.master else {
            return Ok(());
        };
        let MemberSpec {
            options,
            vlans,
            stations,
        } = to;
        let member = self.bridge_port(index)?;
        if member.options != *options {
            self.set_bridge_port(index, *options)?;
        }
        self.set_vlans(index, bridge, &member.vlans, vlans.as_ref())?;
        let gone = known.iter().filter(|known| !stations.contains(known));
        let gone: BTreeSet<_> = gone.map(|gone| (gone.address, gone.vlan)).collect();
        if !gone.is_empty() {
            self.flush_fdb(bridge, |entry| {
                entry.port == index && gone.contains(&(entry.address, entry.vlan))
            })?;
        }
        for new in stations.iter().filter(|&new| !known.contains(new)) {
            self.add_station(index, *new)?;
        }
        Ok(())
    }
}

impl<D: Devices> State<D> {
    /// Removes a bridge and its link. When this returns, no worker forwards by it.
    pub(super) fn remove_bridge(&mut self, index: u32) {
        let ports = self.bridges.remove(&index);
        let ports = ports.map_or_else(Vec::new, |bridge| bridge.ports);
        self.strike(index);
        let mut left: Vec<_> = ports
            .iter()
            .map(|&number| self.slot(number).index)
            .collect();
        left.sort_unstable();
        for &port in &left {
            let link = self.known_mut(port);
            link.master = None;
            link.port_number = 0;
        }
        self.publish();
        self.sync();
        for port in left {
            let name = self.known_mut(port).settings.name.clone();
            let bridge = index;
            self.changes.note(Change::Left { port, name, bridge });
            self.changes.note(Change::Link(port));
        }
    }

    /// Gives a bridge a table of another size, which knows what the one before did. When this
    /// returns, every worker uses it.
    fn resize_fdb(&mut self, index: u32, size: u32) -> Result<(), EngineError> {
        let now = self.clock.now();
        let known = self.bridge_mut(index)?;
        let resized = known
            .bridge
            .resized(size as usize, known.options.ageing_time, now);
        let resized = Arc::new(resized.map_err(EngineError::FdbFull)?);
        let before = std::mem::replace(&mut known.bridge, resized.clone());
        self.publish();
        self.sync();
        // What workers learnt meanwhile; all that is static is there.
        let _ = resized.fdb().take_over(before.fdb(), now);
        Ok(())
    }

    /// Takes a port out of its bridge, which is returned.
    pub(super) fn unlist(&mut self, number: u16) -> Option<Arc<Bridge>> {
        let index = self.slot(number).index;
        let link = self.known_mut(index);
        link.port_number = 0;
        let master = link.master.take()?;
        let bridge = self.bridges.get_mut(&master)?;
        bridge.ports.retain(|&port| port != number);
        Some(bridge.bridge.clone())
    }

    /// Has a port's bridge forget what it learnt behind it.
    pub(super) fn forget_learnt(&self, number: u16) {
        let master = self.link_at(number).and_then(|link| link.master);
        if let Some(bridge) = master.and_then(|master| self.bridges.get(&master)) {
            bridge.bridge.fdb().forget_learnt(number);
        }
        let guard = self.slot(number).guard.iter();
        guard.for_each(|guard| guard.forget());
    }

    /// The smallest number that no port of a bridge has (`find_portno`).
    fn free_port_number(&self, bridge: u32) -> u16 {
        let ports = self
            .bridges
            .get(&bridge)
            .map_or(&[][..], |bridge| &bridge.ports);
        let links = ports.iter().filter_map(|&number| self.link_at(number));
        let taken: BTreeSet<u16> = links.map(|link| link.port_number).collect();
        // There are fewer ports than numbers.
        (1..=u16::MAX).find(|n| !taken.contains(n)).unwrap_or(0)
    }
}
