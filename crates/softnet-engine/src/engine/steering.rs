//! The control path of receive steering.

use std::sync::Arc;

use super::{Engine, EngineError, PortId};
use crate::rx::{FlowTable, RxQueue, SteeringSpec};
use softnet::tx::TxRing;

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Shares what a port receives out to workers by `spec`, from now on, while packets flow: those of one flow stay in order. Waits for the workers' rounds.
    ///
    /// # Errors
    /// If there is no such port, or `spec` names a worker that does not exist; nothing is changed
    /// then.
    pub fn set_steering(&self, port: PortId, spec: &SteeringSpec) -> Result<(), EngineError> {
        let index = self.index(port)?;
        let workers = self.state().workers.len();
        if let Some(&worker) = spec.rps.iter().find(|&&worker| worker >= workers) {
            return Err(EngineError::NoSuchWorker { worker, workers });
        }
        // Whoever is handed packets must know the port first.
        self.sync();
        let mut guard = self.state();
        let state = &mut *guard;
        if let (Some(port), Some(napis)) = (state.ports.get_mut(index), state.napis.get(index)) {
            port.steering.clone_from(spec);
            napis
                .iter()
                .for_each(|napi| napi.set_steering(spec, &self.flows));
        }
        Ok(())
    }

    /// Where consumers of flows are recorded, for ports that [follow](crate::rx::Rfs::Follow) them. A program whose own threads consume packets records here on
    /// which worker's CPU they run.
    pub fn flows(&self) -> &Arc<FlowTable> {
        &self.flows
    }
}
