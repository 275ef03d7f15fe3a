//! Bridges: which ports they join, and what they and their ports are told to do.

use std::sync::Arc;
use std::time::Duration;

use super::bridge_vlans::check_vlan;
use super::state::{BridgeState, Membership, Port, State};
use super::{BridgeId, Engine, EngineError, PortId};
use crate::forward::{AGEING, Bridge, BridgePortOptions, Guard, Member, PortSecurity, PortVlans};
use crate::rx::RxQueue;
use softnet::tx::TxRing;

/// Addresses a bridge learns.
const FDB_SIZE: usize = 8192;

/// Options of a bridge (`ip link set … type bridge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// How long an address that was learnt is known. It counts in seconds, rounded up. Zero:
    /// nothing is learnt.
    pub ageing_time: Duration,
    /// Whether frames pass only between ports of their VLAN.
    pub vlan_filtering: bool,
    /// The VLAN that is added to a port that joins, as its pvid and untagged; also to the bridge.
    pub default_pvid: Option<u16>,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        BridgeOptions {
            ageing_time: AGEING,
            vlan_filtering: false,
            default_pvid: Some(1),
        }
    }
}

/// A bridge as it is.
#[derive(Clone, Debug)]
pub struct BridgeInfo {
    /// Its identity.
    pub id: BridgeId,
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: BridgeOptions,
    /// Its members, in the order in which they joined.
    pub ports: Vec<PortId>,
    /// Its own VLANs. They say nothing about what passes between ports: behind a bridge of
    /// Softnet there is no host.
    pub vlans: PortVlans,
}

/// A port as a member of its bridge.
#[derive(Clone, Debug)]
pub struct BridgePort {
    /// The bridge.
    pub bridge: BridgeId,
    /// The port's options.
    pub options: BridgePortOptions,
    /// Its VLANs.
    pub vlans: Arc<PortVlans>,
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Joins ports by a learning switch. When this returns, every worker forwards by it.
    ///
    /// # Errors
    /// If the name is taken, or one of the ports is part of a bridge already, or named twice.
    /// Nothing is changed then.
    pub fn add_bridge(
        &self,
        name: impl Into<String>,
        ports: &[PortId],
    ) -> Result<BridgeId, EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let name = name.into();
        state.check_bridge_name(&name)?;
        let ports = self.unbridged(state, ports)?;
        let serial = state.next_serial();
        let options = BridgeOptions::default();
        let bridge = BridgeState {
            serial,
            name,
            bridge: Arc::new(Bridge::new(FDB_SIZE, options.ageing_time)),
            ports: Vec::new(),
            up: true,
            options,
            vlans: PortVlans::with_default(options.default_pvid),
            local_addresses: false,
        };
        let free = state.bridges.iter().position(Option::is_none);
        let index = free.unwrap_or(state.bridges.len());
        if free.is_none() {
            state.bridges.push(None);
        }
        state.bridges[index] = Some(bridge);
        self.enlist(state, index, ports, BridgePortOptions::default());
        Ok(BridgeId {
            engine: self.id,
            index,
            serial,
        })
    }

    /// Makes ports members of a bridge. When this returns, every worker forwards by it.
    ///
    /// # Errors
    /// If there is no such bridge, or one of the ports is part of one already, or named twice.
    /// Nothing is changed then.
    pub fn join(&self, bridge: BridgeId, ports: &[PortId]) -> Result<(), EngineError> {
        self.join_as(bridge, ports, BridgePortOptions::default())
    }

    /// As [`join`](Engine::join), with options of these ports.
    ///
    /// # Errors
    /// As there.
    pub fn join_as(
        &self,
        bridge: BridgeId,
        ports: &[PortId],
        options: BridgePortOptions,
    ) -> Result<(), EngineError> {
        let mut state = self.state();
        self.bridge(&state, bridge)?;
        let ports = self.unbridged(&state, ports)?;
        self.enlist(&mut state, bridge.index, ports, options);
        Ok(())
    }

    /// Takes a port out of its bridge, which forgets the addresses behind it, static ones included,
    /// and the port's options and VLANs. When this returns, no worker forwards to or from it.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn leave(&self, port: PortId) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port(state, port)?;
        if known.bridge.is_none() {
            return Err(EngineError::NotInBridge(known.device.name().to_string()));
        }
        let left = state.unlist(port.index);
        self.publish(state);
        // From here on nothing is learnt behind the port.
        state.sync();
        if let Some(bridge) = left {
            bridge.fdb().forget_port(port.index);
        }
        Ok(())
    }

    /// Removes a bridge. Its ports stay; what they receive is dropped. When this returns, no
    /// worker forwards by it.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn remove_bridge(&self, bridge: BridgeId) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        self.bridge(state, bridge)?;
        state.bridges[bridge.index] = None;
        for port in state.ports.iter_mut().flatten() {
            port.bridge.take_if(|m| m.bridge == bridge.index);
        }
        self.publish(state);
        state.sync();
        Ok(())
    }

    /// Gives a bridge another name.
    ///
    /// # Errors
    /// If there is no such bridge, or the name is taken.
    pub fn rename_bridge(
        &self,
        bridge: BridgeId,
        name: impl Into<String>,
    ) -> Result<(), EngineError> {
        let mut state = self.state();
        let name = name.into();
        if self.bridge(&state, bridge)?.name != name {
            state.check_bridge_name(&name)?;
            self.bridge_mut(&mut state, bridge)?.name = name;
        }
        Ok(())
    }

    /// Takes a bridge up or down: one that is down forwards nothing. When this returns, every
    /// worker knows.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn set_bridge_up(&self, bridge: BridgeId, up: bool) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.bridge_mut(state, bridge)?;
        if known.up != up {
            known.up = up;
            self.publish_soon(state);
        }
        Ok(())
    }

    /// Gives a bridge other options. When this returns, every worker forwards by them. Another
    /// default pvid takes the place of the one before at those ports, and at the bridge, where
    /// that one is as it was added, and where the new one is not a VLAN already.
    ///
    /// # Errors
    /// If there is no such bridge, or no such VLAN can be.
    pub fn set_bridge(&self, bridge: BridgeId, options: BridgeOptions) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.bridge_mut(state, bridge)?;
        if let Some(vlan) = options.default_pvid {
            check_vlan(vlan)?;
        }
        let (old, new) = (known.options.default_pvid, options.default_pvid);
        known.options = options;
        known.bridge.fdb().set_ageing(options.ageing_time);
        known.vlans.change_default(old, new);
        for port in known.ports.clone() {
            if let Some(membership) = state.membership_mut(port) {
                Arc::make_mut(&mut membership.member.vlans).change_default(old, new);
            }
        }
        // What was learnt in a VLAN that a port no longer has is forgotten.
        match old == new {
            true => self.publish_soon(state),
            false => self.publish_vlans(state, bridge.index),
        }
        Ok(())
    }

    /// Gives a member of a bridge other options. When this returns, every worker forwards by them.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn set_bridge_port(
        &self,
        port: PortId,
        options: BridgePortOptions,
    ) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        self.member_mut(state, port)?.options = options;
        self.publish_soon(state);
        Ok(())
    }

    /// Limits what a port may send into its bridge, this one or a later one. When this returns,
    /// every worker checks it. Limits of rates, and of source addresses at a time, start anew.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_security(&self, port: PortId, security: &PortSecurity) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port_mut(state, port)?;
        let before = std::mem::replace(&mut known.guard, Guard::new(security).map(Arc::new));
        if before.is_some() || known.guard.is_some() {
            self.publish_soon(state);
        }
        Ok(())
    }

    /// A port as a member of its bridge, with options and VLANs.
    ///
    /// # Errors
    /// If there is no such port, or it is part of no bridge.
    pub fn bridge_port(&self, port: PortId) -> Result<BridgePort, EngineError> {
        let state = self.state();
        let (index, bridge) = self.bridge_of(&state, port)?;
        let known = self.port(&state, port)?;
        let member = known.bridge.as_ref().map(|m| m.member.clone());
        let Member { options, vlans } = member.unwrap_or_default();
        Ok(BridgePort {
            bridge: self.bridge_id(index, bridge),
            options,
            vlans,
        })
    }

    /// All bridges.
    pub fn bridges(&self) -> Vec<BridgeInfo> {
        let state = self.state();
        let bridges = state.bridges.iter().enumerate();
        let bridges = bridges.filter_map(|(index, bridge)| Some((index, bridge.as_ref()?)));
        bridges
            .map(|(index, bridge)| self.info(&state, self.bridge_id(index, bridge), bridge))
            .collect()
    }

    /// A bridge.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn bridge_info(&self, bridge: BridgeId) -> Result<BridgeInfo, EngineError> {
        let state = self.state();
        Ok(self.info(&state, bridge, self.bridge(&state, bridge)?))
    }

    fn info(&self, state: &State<Q, R>, id: BridgeId, bridge: &BridgeState) -> BridgeInfo {
        let port = |&index: &u16| {
            let port = state.ports.get(usize::from(index))?.as_ref()?;
            Some(self.port_id(index, port.serial))
        };
        BridgeInfo {
            id,
            name: bridge.name.clone(),
            options: bridge.options,
            ports: bridge.ports.iter().filter_map(port).collect(),
            vlans: bridge.vlans.clone(),
        }
    }

    pub(super) fn bridge_id(&self, index: usize, bridge: &BridgeState) -> BridgeId {
        BridgeId {
            engine: self.id,
            index,
            serial: bridge.serial,
        }
    }

    pub(super) fn bridge<'a>(
        &self,
        state: &'a State<Q, R>,
        bridge: BridgeId,
    ) -> Result<&'a BridgeState, EngineError> {
        let known = state.bridges.get(bridge.index).and_then(Option::as_ref);
        known
            .filter(|known| bridge.engine == self.id && known.serial == bridge.serial)
            .ok_or(EngineError::NoSuchBridge)
    }

    pub(super) fn bridge_mut<'a>(
        &self,
        state: &'a mut State<Q, R>,
        bridge: BridgeId,
    ) -> Result<&'a mut BridgeState, EngineError> {
        self.bridge(state, bridge)?;
        let known = state.bridges[bridge.index].as_mut();
        known.ok_or(EngineError::NoSuchBridge)
    }

    /// A port's bridge, and its number.
    pub(super) fn bridge_of<'a>(
        &self,
        state: &'a State<Q, R>,
        port: PortId,
    ) -> Result<(usize, &'a BridgeState), EngineError> {
        let known = self.port(state, port)?;
        let bridge = state.bridge_of(known);
        bridge.ok_or_else(|| EngineError::NotInBridge(known.device.name().to_string()))
    }

    pub(super) fn member_mut<'a>(
        &self,
        state: &'a mut State<Q, R>,
        port: PortId,
    ) -> Result<&'a mut Member, EngineError> {
        let known = self.port_mut(state, port)?;
        match &mut known.bridge {
            Some(membership) => Ok(&mut membership.member),
            None => Err(EngineError::NotInBridge(known.device.name().to_string())),
        }
    }

    /// The numbers of ports, none of which is part of a bridge or named twice.
    fn unbridged(&self, state: &State<Q, R>, ports: &[PortId]) -> Result<Vec<u16>, EngineError> {
        let mut numbers = Vec::new();
        for &port in ports {
            let known = self.port(state, port)?;
            if known.bridge.is_some() || numbers.contains(&port.index) {
                return Err(EngineError::InBridge(known.device.name().to_string()));
            }
            numbers.push(port.index);
        }
        Ok(numbers)
    }

    fn enlist(
        &self,
        state: &mut State<Q, R>,
        index: usize,
        ports: Vec<u16>,
        options: BridgePortOptions,
    ) {
        if let Some(bridge) = &mut state.bridges[index] {
            for &port in &ports {
                if let Some(port) = &mut state.ports[usize::from(port)] {
                    let vlans = PortVlans::with_default(bridge.options.default_pvid);
                    let member = Member {
                        options,
                        vlans: Arc::new(vlans),
                    };
                    port.bridge = Some(Membership {
                        bridge: index,
                        member,
                    });
                }
            }
            bridge.ports.extend(ports);
        }
        self.publish_soon(state);
    }
}

impl<Q, R> State<Q, R> {
    fn check_bridge_name(&self, name: &str) -> Result<(), EngineError> {
        if self.bridges.iter().flatten().any(|b| b.name == name) {
            return Err(EngineError::DuplicateBridge(name.to_owned()));
        }
        Ok(())
    }

    /// A port's bridge, and its number.
    fn bridge_of(&self, port: &Port<Q, R>) -> Option<(usize, &BridgeState)> {
        let index = port.bridge.as_ref()?.bridge;
        Some((index, self.bridges.get(index)?.as_ref()?))
    }

    pub(super) fn membership_mut(&mut self, port: u16) -> Option<&mut Membership> {
        self.ports
            .get_mut(usize::from(port))?
            .as_mut()?
            .bridge
            .as_mut()
    }

    /// Takes a port out of its bridge, which is returned.
    pub(super) fn unlist(&mut self, port: u16) -> Option<Arc<Bridge>> {
        let membership = self.ports[usize::from(port)].as_mut()?.bridge.take()?;
        let bridge = self.bridges[membership.bridge].as_mut()?;
        bridge.ports.retain(|&p| p != port);
        Some(bridge.bridge.clone())
    }

    /// Has a port's bridge forget what it learnt behind it.
    pub(super) fn forget_learnt(&self, port: u16) {
        let known = self.ports[usize::from(port)].as_ref();
        let bridge = known.and_then(|port| self.bridge_of(port));
        if let Some((_, bridge)) = bridge {
            bridge.bridge.fdb().forget_learnt(port);
        }
        let guard = known.and_then(|port| port.guard.as_ref());
        guard.into_iter().for_each(|guard| guard.forget());
    }
}
