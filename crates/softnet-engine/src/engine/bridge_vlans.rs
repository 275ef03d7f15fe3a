//! VLANs of bridges and of their ports.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::state::State;
use super::{BridgeId, Engine, EngineError, PortId};
use crate::forward::{FdbState, PortVlans, VLAN_IDS, VlanFlags};
use crate::rx::RxQueue;
use softnet::tx::TxRing;

/// Who has VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanOwner {
    /// A member of a bridge.
    Port(PortId),
    /// The bridge itself (`bridge vlan … self`).
    Bridge(BridgeId),
}

/// A VLAN that can be.
pub(super) fn check_vlan(vlan: u16) -> Result<(), EngineError> {
    if VLAN_IDS.contains(&vlan) {
        Ok(())
    } else {
        Err(EngineError::BadVlan(vlan))
    }
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Adds VLANs to a port, or gives those that it has other flags. One that was the port's pvid
    /// without being flagged so now is none any more. When this returns, every worker forwards by
    /// them.
    ///
    /// # Errors
    /// If there is no such port or bridge, the port is part of no bridge, or no such VLAN can be.
    pub fn add_vlans(
        &self,
        owner: VlanOwner,
        vlans: RangeInclusive<u16>,
        flags: VlanFlags,
    ) -> Result<(), EngineError> {
        self.change_vlans(owner, vlans, |set, vlan| set.add(vlan, flags))
    }

    /// Removes VLANs from a port, with what was learnt there, whether it has them or not. When this
    /// returns, every worker forwards without them.
    ///
    /// # Errors
    /// As [`add_vlans`](Engine::add_vlans).
    pub fn remove_vlans(
        &self,
        owner: VlanOwner,
        vlans: RangeInclusive<u16>,
    ) -> Result<(), EngineError> {
        self.change_vlans(owner, vlans, PortVlans::remove)
    }

    fn change_vlans(
        &self,
        owner: VlanOwner,
        vlans: RangeInclusive<u16>,
        change: impl Fn(&mut PortVlans, u16),
    ) -> Result<(), EngineError> {
        check_vlan(*vlans.start())?;
        check_vlan(*vlans.end())?;
        let mut guard = self.state();
        let state = &mut *guard;
        let port = match owner {
            VlanOwner::Port(port) => port,
            VlanOwner::Bridge(bridge) => {
                let set = &mut self.bridge_mut(state, bridge)?.vlans;
                vlans.for_each(|vlan| change(set, vlan));
                return Ok(());
            }
        };
        let set = Arc::make_mut(&mut self.member_mut(state, port)?.vlans);
        vlans.for_each(|vlan| change(set, vlan));
        let (bridge, _) = self.bridge_of(state, port)?;
        self.publish_vlans(state, bridge);
        Ok(())
    }

    /// Has a bridge forget what it learnt behind ports in VLANs that they no longer have.
    pub(super) fn forget_lost_vlans(&self, state: &State<Q, R>, bridge: usize) {
        let Some(bridge) = state.bridges[bridge].as_ref() else {
            return;
        };
        let member = |port: u16| {
            let membership = state
                .ports
                .get(usize::from(port))?
                .as_ref()?
                .bridge
                .as_ref();
            Some(&membership?.member)
        };
        let now = self.clock.now();
        let lost = |row: &crate::forward::FdbRow| {
            let vlan = row.station.vlan;
            let has = |port| member(port).is_some_and(|member| member.vlans.contains(vlan));
            row.state == FdbState::Dynamic && vlan != 0 && !has(row.port)
        };
        bridge.bridge.fdb().flush(lost, now);
    }
}
