//! Bridges of the control object: their options, those of their ports, VLANs and entries of the
//! forwarding database. The engine keeps them; here they go by links, and who watches is told.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{BridgeSpec, Change, Control, ControlError, Devices, Link, MemberSpec};
use crate::engine::{
    BridgeId, BridgeInfo, BridgeOptions, BridgePort, FdbEntry, FdbSpec, PortId, VlanOwner,
};
use crate::forward::{BridgePortOptions, FdbState, PortVlans, VlanFlags};
use softnet::wire::EthernetAddress;

/// Entries that are read at once.
const PAGE: usize = 256;

impl<D: Devices> Control<D> {
    /// The stations behind ports that were not learnt, by the number of the port, in order; but
    /// those of VLANs that their ports do not have, which nothing is sent to. Reads all addresses
    /// that bridges know.
    pub(super) fn stations(&self) -> Result<HashMap<u32, Vec<FdbSpec>>, ControlError> {
        let mut stations: HashMap<u32, Vec<FdbSpec>> = HashMap::new();
        for bridge in self.links.values().filter_map(Link::bridge) {
            for entry in self.find_fdb(bridge, |entry| entry.state != FdbState::Dynamic)? {
                let vlans = self.engine.bridge_port(entry.port)?.vlans;
                if let Some(port) = self.link_of(entry.port)
                    && entry.vlan.is_none_or(|vlan| vlans.contains(vlan))
                {
                    stations.entry(port).or_default().push(FdbSpec {
                        address: entry.address,
                        vlan: entry.vlan,
                        state: entry.state,
                        sticky: entry.sticky,
                    });
                }
            }
        }
        let all = stations.values_mut();
        all.for_each(|stations| stations.sort_unstable_by_key(|s| (s.vlan, s.address)));
        Ok(stations)
    }

    /// Changes what a bridge knows of a port that is part of it; of the stations those that differ
    /// from `known`.
    pub(super) fn set_member(
        &mut self,
        index: u32,
        to: &MemberSpec,
        known: &[FdbSpec],
    ) -> Result<(), ControlError> {
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
        let gone: Vec<_> = gone.map(|gone| (gone.address, gone.vlan)).collect();
        if !gone.is_empty() {
            let port = self.port(index)?;
            self.flush_fdb(bridge, |entry| {
                entry.port == port && gone.contains(&(entry.address, entry.vlan))
            })?;
        }
        for new in stations.iter().filter(|&new| !known.contains(new)) {
            let port = self.port(index)?;
            self.engine.add_station(port, *new)?;
            self.note_station(index, port, *new, new.vlan);
        }
        Ok(())
    }

    /// Makes the VLANs of a bridge, or of a port of it, others. None: the bridge's default pvid.
    fn set_vlans(
        &mut self,
        index: u32,
        bridge: u32,
        known: &PortVlans,
        to: Option<&PortVlans>,
    ) -> Result<(), ControlError> {
        let default = self.bridge(bridge)?.options.default_pvid;
        let to = to.map_or_else(|| PortVlans::with_default(default), PortVlans::clone);
        for (vlan, _) in known.iter().filter(|(vlan, _)| !to.contains(*vlan)) {
            self.remove_vlans(index, vlan..=vlan)?;
        }
        let known: HashMap<u16, VlanFlags> = known.iter().collect();
        for (vlans, flags) in to.ranges() {
            if vlans.clone().any(|vlan| known.get(&vlan) != Some(&flags)) {
                self.add_vlans(index, vlans, flags)?;
            }
        }
        Ok(())
    }

    /// Adds a bridge, or changes one that is there.
    pub(super) fn set_bridge_spec(
        &mut self,
        to: &BridgeSpec,
        link: Option<u32>,
    ) -> Result<(), ControlError> {
        let BridgeSpec {
            settings,
            options,
            vlans,
        } = to;
        let index = match link {
            Some(index) => self.change(index, settings).map(|()| index)?,
            None => self.add_bridge(settings.clone())?,
        };
        if self.bridge(index)?.options != *options {
            self.set_bridge(index, *options)?;
        }
        let known = self.bridge(index)?.vlans;
        self.set_vlans(index, index, &known, vlans.as_ref())
    }

    /// The VLANs, if they are not those that a bridge with these options gives.
    pub(super) fn vlans_beside(options: &BridgeOptions, vlans: &PortVlans) -> Option<PortVlans> {
        let default = PortVlans::with_default(options.default_pvid);
        (*vlans != default).then(|| vlans.clone())
    }

    /// A bridge with its options and VLANs.
    ///
    /// # Errors
    /// If there is no link of this number, or it is no bridge.
    pub fn bridge(&self, index: u32) -> Result<BridgeInfo, ControlError> {
        Ok(self.engine.bridge_info(self.master(index)?)?)
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
            self.note_station(index, port, spec, vlan);
        }
        Ok(())
    }

    fn note_station(&mut self, index: u32, port: PortId, spec: FdbSpec, vlan: Option<u16>) {
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
        let removed = self.find_fdb(bridge, |entry| {
            let is_in = vlan.is_none() || entry.vlan == vlan;
            entry.address == address && entry.port == port && is_in
        })?;
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
        let wanted = |entry: &FdbEntry| entry.address == address && entry.vlan == vlan;
        Ok(self.find_fdb(self.master(index)?, wanted)?.pop())
    }

    /// The entries of a bridge that `select` chooses.
    fn find_fdb(
        &self,
        bridge: BridgeId,
        select: impl Fn(&FdbEntry) -> bool,
    ) -> Result<Vec<FdbEntry>, ControlError> {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let (entries, next) = self.engine.fdb_entries(bridge, place, PAGE)?;
            found.extend(entries.into_iter().filter(&select));
            from = next;
        }
        Ok(found)
    }

    /// The number of the link that is a port of the engine.
    pub fn link_of(&self, port: PortId) -> Option<u32> {
        self.ports.get(&port).copied()
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
