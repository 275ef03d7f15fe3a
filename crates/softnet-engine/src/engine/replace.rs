//! The control path of devices that go and come back.

use std::sync::PoisonError;

use super::{Engine, EngineError, PortId};
use crate::rx::{Command, RxQueue};
use softnet::tx::TxRing;

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Ports whose device has gone since the last call. Packets for them are dropped until
    /// [`replace`](Engine::replace). What a queue reported that was replaced since is not among
    /// them.
    pub fn take_gone(&self) -> Vec<PortId> {
        let state = self.state();
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ports: Vec<u16> = gone
            .try_iter()
            .filter(|gone| {
                let port = state.ports.get(usize::from(gone.port));
                port.is_some_and(|port| port.generation == gone.generation)
            })
            .map(|gone| gone.port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(|port| self.port_id(port)).collect()
    }

    /// Gives a port new queues, in the place of those it has, which are closed; as many transmit
    /// queues as it has, or none: then the port is down until it is given some, and what is sent
    /// there is dropped. Statistics, discipline and bridge stay; the bridge forgets the stations
    /// behind the port. When this returns, no packet of the old device is in any backlog
    /// (INV-RX-8).
    ///
    /// # Errors
    /// If there is no such port, the number of queues differs (nothing is changed then), or a
    /// worker cannot wait for a receive queue: the port then has none.
    pub fn replace(&self, port: PortId, rx: Vec<Q>, tx: Vec<R>) -> Result<(), EngineError> {
        let index = self.index(port)?;
        let device = self.device(port)?;
        let (has, given) = (device.queues().len(), tx.len());
        if given != 0 && given != has {
            let port = device.name().to_owned();
            return Err(EngineError::QueueCount { port, has, given });
        }
        let mut state = self.state();
        let known = &mut state.ports[index];
        known.generation = known.generation.wrapping_add(1);
        for worker in &state.workers {
            worker.tell(Command::RemoveRx(port.index));
        }
        drop(state);
        if given == 0 {
            device.deactivate();
        }
        device.replace_rings(tx);
        if given != 0 {
            device.activate();
        }
        self.sync();
        self.sync();
        let mut state = self.state();
        if let Some(bridge) = state.bridge_of[index] {
            state.bridges[bridge].0.fdb().forget_port(port.index);
        }
        state.ports[index].losses.close();
        let polled = self.poll(&mut state, rx, &device, port.index);
        drop(state);
        self.sync();
        polled.map_err(|source| {
            let port = device.name().to_owned();
            EngineError::Watch { port, source }
        })
    }
}
