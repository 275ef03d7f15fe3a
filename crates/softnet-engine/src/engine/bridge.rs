//! Bridges: which ports they join.

use std::sync::Arc;

use super::state::{BridgeState, State};
use super::{BridgeId, Engine, EngineError, PortId};
use crate::forward::{AGEING, Bridge};
use crate::rx::RxQueue;
use softnet::tx::TxRing;

/// Addresses a bridge learns.
const FDB_SIZE: usize = 8192;

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
        if state.bridges.iter().flatten().any(|b| b.name == name) {
            return Err(EngineError::DuplicateBridge(name));
        }
        let ports = self.unbridged(state, ports)?;
        let serial = state.next_serial();
        let bridge = BridgeState {
            serial,
            name,
            bridge: Arc::new(Bridge::new(FDB_SIZE, AGEING)),
            ports: Vec::new(),
            up: true,
        };
        let free = state.bridges.iter().position(Option::is_none);
        let index = free.unwrap_or(state.bridges.len());
        if free.is_none() {
            state.bridges.push(None);
        }
        state.bridges[index] = Some(bridge);
        self.enlist(state, index, ports);
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
        let mut state = self.state();
        self.bridge(&state, bridge)?;
        let ports = self.unbridged(&state, ports)?;
        self.enlist(&mut state, bridge.index, ports);
        Ok(())
    }

    /// Takes a port out of its bridge, which forgets the addresses behind it. When this returns,
    /// no worker forwards to or from it.
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
            port.bridge = port.bridge.filter(|&index| index != bridge.index);
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
        self.bridge(&state, bridge)?;
        let name = name.into();
        let mut all = state.bridges.iter().enumerate();
        let taken = |(index, known): (usize, &Option<BridgeState>)| {
            index != bridge.index && known.as_ref().is_some_and(|known| known.name == name)
        };
        if all.any(taken) {
            return Err(EngineError::DuplicateBridge(name));
        }
        if let Some(known) = &mut state.bridges[bridge.index] {
            known.name = name;
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
        self.bridge(state, bridge)?;
        if let Some(known) = &mut state.bridges[bridge.index]
            && known.up != up
        {
            known.up = up;
            self.publish(state);
            state.sync();
        }
        Ok(())
    }

    fn bridge(&self, state: &State<Q, R>, bridge: BridgeId) -> Result<(), EngineError> {
        let known = state.bridges.get(bridge.index).and_then(Option::as_ref);
        match known {
            Some(known) if bridge.engine == self.id && known.serial == bridge.serial => Ok(()),
            _ => Err(EngineError::NoSuchBridge),
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

    fn enlist(&self, state: &mut State<Q, R>, bridge: usize, ports: Vec<u16>) {
        for &port in &ports {
            if let Some(port) = &mut state.ports[usize::from(port)] {
                port.bridge = Some(bridge);
            }
        }
        if let Some(bridge) = &mut state.bridges[bridge] {
            bridge.ports.extend(ports);
        }
        self.publish(state);
        state.sync();
    }
}

impl<Q, R> State<Q, R> {
    /// Takes a port out of its bridge, which is returned.
    pub(super) fn unlist(&mut self, port: u16) -> Option<Arc<Bridge>> {
        let index = self.ports[usize::from(port)].as_mut()?.bridge.take()?;
        let bridge = self.bridges[index].as_mut()?;
        bridge.ports.retain(|&p| p != port);
        Some(bridge.bridge.clone())
    }

    /// Has a port's bridge forget the addresses behind it.
    pub(super) fn forget_addresses(&self, port: u16) {
        let known = self.ports[usize::from(port)].as_ref();
        let bridge = known.and_then(|p| self.bridges[p.bridge?].as_ref());
        if let Some(bridge) = bridge {
            bridge.bridge.fdb().forget_port(port);
        }
    }
}
