//! Bridges of the control object: their options, those of their ports, VLANs and entries of the
//! forwarding database. The engine keeps them; here they go by links, and who watches is told.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Change, Control, ControlError, Devices};
use crate::engine::{
    BridgeId, BridgeInfo, BridgeOptions, BridgePort, FdbEntry, FdbSpec, PortId, VlanOwner,
};
use crate::forward::{BridgePortOptions, VlanFlags};
use softnet::wire::EthernetAddress;

/// Entries that are read at once.
const PAGE: usize = 256;

impl<D: Devices> Control<D> {
    /// A bridge with its options and VLANs.
    ///
    /// # Errors
    /// If there is no link of this number, or it is no bridge.
    pub fn bridge(&self, index: u32) -> Result<BridgeInfo, ControlError> {
        let id = self.master(index)?;
        let mut bridges = self.engine.bridges().into_iter();
        let known = bridges.find(|bridge| bridge.id == id);
        known.ok_or(ControlError::NoLink(index))
    }

    /// A port as a member of its bridge.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn bridge_port(&self, index: u32) -> Result<BridgePort, ControlError> {
        Ok(self.engine.bridge_port(self.port(index)?)?)
    }

    /// Gives a bridge other options.
    ///
    /// # Errors
    /// If there is no such bridge, or one of them is not valid. Nothing is changed then.
    pub fn set_bridge(&mut self, index: u32, options: BridgeOptions) -> Result<(), ControlError> {
        self.engine.set_bridge(self.master(index)?, options)?;
        self.note(Change::Link(index));
        Ok(())
    }

    /// Gives a member of a bridge other options.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn set_bridge_port(
        &mut self,
        index: u32,
        options: BridgePortOptions,
    ) -> Result<(), ControlError> {
        self.engine.set_bridge_port(self.port(index)?, options)?;
        self.note(Change::Bridge(index));
        Ok(())
    }

    /// Adds VLANs to a member of a bridge, or to a bridge itself, or gives those that it has other
    /// flags.
    ///
    /// # Errors
    /// If there is no such link, the port is part of no bridge, or no such VLAN can be.
    pub fn add_vlans(
        &mut self,
        index: u32,
        vlans: RangeInclusive<u16>,
        flags: VlanFlags,
    ) -> Result<(), ControlError> {
        let owner = self.vlan_owner(index)?;
        self.engine.add_vlans(owner, vlans, flags)?;
        self.note(Change::Bridge(index));
        Ok(())
    }

    /// Removes VLANs, whether they are there or not.
    ///
    /// # Errors
    /// As [`add_vlans`](Control::add_vlans).
    pub fn remove_vlans(
        &mut self,
        index: u32,
        vlans: RangeInclusive<u16>,
    ) -> Result<(), ControlError> {
        let owner = self.vlan_owner(index)?;
        self.engine.remove_vlans(owner, vlans)?;
        self.note(Change::Bridge(index));
        Ok(())
    }

    fn vlan_owner(&self, index: u32) -> Result<VlanOwner, ControlError> {
        let link = self.link(index)?;
        let bridge = link.bridge().map(VlanOwner::Bridge);
        match bridge {
            Some(bridge) => Ok(bridge),
            None => Ok(VlanOwner::Port(self.port(index)?)),
        }
    }

    /// Adds an entry for a station behind a port, or with `replace` puts it in place of the one
    /// that the station has.
    ///
    /// # Errors
    /// If the engine refuses ([`Engine::add_fdb`](crate::Engine::add_fdb)).
    pub fn add_fdb(
        &mut self,
        index: u32,
        spec: FdbSpec,
        replace: bool,
    ) -> Result<(), ControlError> {
        let port = self.port(index)?;
        self.engine.add_fdb(port, spec, replace)?;
        let vlans = self.engine.bridge_port(port)?.vlans;
        let vlans: Vec<_> = match spec.vlan {
            Some(vlan) => vec![Some(vlan)],
            None => [None]
                .into_iter()
                .chain(vlans.iter().map(|(vlan, _)| Some(vlan)))
                .collect(),
        };
        for vlan in vlans {
            let entry = FdbEntry {
                address: spec.address,
                vlan,
                port,
                state: spec.state,
                sticky: spec.sticky,
                used: Duration::ZERO,
                updated: Duration::ZERO,
            };
            self.note_fdb(index, entry, false);
        }
        Ok(())
    }

    /// Removes an entry for a station behind a port, learnt or added; without a VLAN the one of no
    /// VLAN and those of each VLAN of the port.
    ///
    /// # Errors
    /// If the engine refuses ([`Engine::remove_fdb`](crate::Engine::remove_fdb)).
    pub fn remove_fdb(
        &mut self,
        index: u32,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<(), ControlError> {
        let port = self.port(index)?;
        let bridge = self.engine.bridge_port(port)?.bridge;
        let mut removed = self.find_fdb(bridge, address)?;
        removed.retain(|entry| entry.port == port && (vlan.is_none() || entry.vlan == vlan));
        self.engine.remove_fdb(port, address, vlan)?;
        for entry in removed {
            self.note_fdb(index, entry, true);
        }
        Ok(())
    }

    /// Removes the entries of a bridge that `select` chooses.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn flush_fdb(
        &mut self,
        index: u32,
        select: impl Fn(&FdbEntry) -> bool,
    ) -> Result<(), ControlError> {
        let bridge = self.master(index)?;
        let removed = RefCell::new(Vec::new());
        self.engine.flush_fdb(bridge, |entry| {
            let selected = select(entry);
            if selected {
                removed.borrow_mut().push(*entry);
            }
            selected
        })?;
        for entry in removed.into_inner() {
            if let Some(port) = self.link_of(entry.port) {
                self.note_fdb(port, entry, true);
            }
        }
        Ok(())
    }

    /// At most `max` entries of a bridge, and where to go on for more; start `from` 0.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn fdb_entries(
        &self,
        index: u32,
        from: usize,
        max: usize,
    ) -> Result<(Vec<FdbEntry>, Option<usize>), ControlError> {
        Ok(self.engine.fdb_entries(self.master(index)?, from, max)?)
    }

    /// The entry of a bridge for a station in a VLAN, or in none.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn fdb_entry(
        &self,
        index: u32,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<Option<FdbEntry>, ControlError> {
        let found = self.find_fdb(self.master(index)?, address)?;
        Ok(found.into_iter().find(|entry| entry.vlan == vlan))
    }

    /// The entries of a bridge for a station.
    fn find_fdb(
        &self,
        bridge: BridgeId,
        address: EthernetAddress,
    ) -> Result<Vec<FdbEntry>, ControlError> {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let (entries, next) = self.engine.fdb_entries(bridge, place, PAGE)?;
            found.extend(entries.iter().filter(|entry| entry.address == address));
            from = next;
        }
        Ok(found)
    }

    /// The number of the link that is a port of the engine.
    pub fn link_of(&self, port: PortId) -> Option<u32> {
        let mut links = self.links.values();
        let link = links.find(|link| link.port() == Some(port))?;
        Some(link.index)
    }

    fn note_fdb(&mut self, port: u32, entry: FdbEntry, gone: bool) {
        let master = self.links.get(&port).and_then(|link| link.master);
        if let Some(bridge) = master {
            self.note(Change::Fdb {
                bridge,
                port,
                entry,
                gone,
            });
        }
    }
}
