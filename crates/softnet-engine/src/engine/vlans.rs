//! VLANs of bridges and of their ports.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::publish::Publish;
use super::state::State;
use crate::forward::{FdbRow, FdbState, PortVlans, VLAN_IDS, VlanFlags};

/// A VLAN that can be.
pub(super) fn check_vlan(vlan: u16) -> Result<(), EngineError> {
    if VLAN_IDS.contains(&vlan) {
        Ok(())
    } else {
        Err(EngineError::BadVlan(vlan))
    }
}

impl<D: Devices> Engine<D> {
    /// Adds VLANs to a member of a bridge, or to a bridge itself (`bridge vlan … self`), or gives
    /// those that it has other flags. One that was the port's pvid without being flagged so now is
    /// none any more. When this returns, every worker forwards by them.
    ///
    /// # Errors
    /// If there is no such link, the port is part of no bridge, or no such VLAN can be.
    pub fn add_vlans(
        &self,
        index: u32,
        vlans: RangeInclusive<u16>,
        flags: VlanFlags,
    ) -> Result<(), EngineError> {
        self.change_vlans(index, vlans, |set, vlan| set.add(vlan, flags))
    }

    /// Removes VLANs from a member of a bridge, with what was learnt there, or from a bridge
    /// itself, whether they are there or not. When this returns, every worker forwards without
    /// them.
    ///
    /// # Errors
    /// As [`add_vlans`](Engine::add_vlans).
    pub fn remove_vlans(&self, index: u32, vlans: RangeInclusive<u16>) -> Result<(), EngineError> {
        self.change_vlans(index, vlans, PortVlans::remove)
    }

    fn change_vlans(
        &self,
        index: u32,
        vlans: RangeInclusive<u16>,
        change: impl Fn(&mut PortVlans, u16),
    ) -> Result<(), EngineError> {
        self.update(index, Change::Bridge, |state| {
            check_vlan(*vlans.start())?;
            check_vlan(*vlans.end())?;
            if let Some(bridge) = state.bridges.get_mut(&index) {
                vlans.for_each(|vlan| change(&mut bridge.vlans, vlan));
                return Ok(Publish::Nothing);
            }
            let (number, bridge, _) = state.member(index)?;
            let set = Arc::make_mut(&mut state.slot_mut(number).member.vlans);
            vlans.for_each(|vlan| change(set, vlan));
            Ok(Publish::Vlans(bridge))
        })
    }

    /// Makes the VLANs of a bridge, or of a port of it, others. None: the bridge's default pvid.
    pub(super) fn set_vlans(
        &self,
        index: u32,
        bridge: u32,
        known: &PortVlans,
        to: Option<&PortVlans>,
    ) -> Result<(), EngineError> {
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
}

impl<D: Devices> State<D> {
    /// Has a bridge forget what it learnt behind ports in VLANs that they no longer have.
    pub(super) fn forget_lost_vlans(&self, index: u32) {
        let Some(bridge) = self.bridges.get(&index) else {
            return;
        };
        let has = |port: u16, vlan| {
            let is_member = bridge.ports.contains(&port);
            is_member && self.slot(port).member.vlans.contains(vlan)
        };
        let lost = |row: &FdbRow| {
            let vlan = row.station.vlan;
            row.state == FdbState::Dynamic && vlan != 0 && !has(row.port, vlan)
        };
        bridge.bridge.fdb().flush(lost, self.clock.now());
    }
}
