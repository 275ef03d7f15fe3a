//! The control path of receive queues: which worker polls them, and which pools they bring along.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::{Engine, EngineError, PortId, State};
use crate::Device;
use crate::rx::{Command, Napi, RxQueue};
use softnet::mem::Pool;
use softnet::tx::TxRing;

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Starts polling the receive queues of a port that was added without any: when the bridge
    /// that it belongs to is there, so that what hosts send first is not dropped for want of one
    /// (the question for an address, which they repeat only after a second). Waits for the
    /// workers' rounds.
    ///
    /// # Errors
    /// If there is no such port, it receives already, or a worker cannot wait for one of the
    /// queues. The port has none then, or those that it had.
    pub fn receive(&self, port: PortId, rx: Vec<Q>) -> Result<(), EngineError> {
        let index = self.index(port)?;
        let device = self.device(port)?;
        let mut state = self.state();
        let name = || device.name().to_owned();
        if state
            .napis
            .get(index)
            .is_some_and(|napis| !napis.is_empty())
        {
            return Err(EngineError::Receives(name()));
        }
        self.poll(&mut state, rx, &device, port.index)
            .map_err(|source| EngineError::Watch {
                port: name(),
                source,
            })
    }

    /// Spreads receive queues over the workers, from the port's first one on. Waits for their
    /// rounds.
    ///
    /// If a worker cannot wait for one of them, all are closed.
    pub(super) fn poll(
        &self,
        state: &mut State<Q, R>,
        rx: Vec<Q>,
        device: &Arc<Device<R>>,
        port: u16,
    ) -> io::Result<()> {
        let index = usize::from(port);
        let known = &mut state.ports[index];
        let (first, generation) = (known.first, known.generation);
        known.losses.open(rx.iter().find_map(Q::counters));
        known.pools = rx.iter().flat_map(Q::pools).cloned().collect();
        let pools: Arc<[Pool]> = self.pools(state).into();
        share_out_buffers(state, &pools);
        let mut napis = Vec::new();
        for (number, queue) in rx.into_iter().enumerate() {
            let owner = (first + number) % state.workers.len();
            let bell = state.workers[owner].shared.notifier.clone();
            let napi = Arc::new(Napi::new(
                queue,
                device.clone(),
                port,
                generation,
                owner,
                bell,
            ));
            napi.set_steering(&state.ports[index].steering, &self.flows);
            napis.push(napi);
        }
        state.napis[index] = napis;
        let peers = Arc::new(state.napis.clone());
        for worker in &state.workers {
            worker.tell(Command::Pools(pools.clone()));
            worker.tell(Command::Peers(peers.clone()));
        }
        let (watched, results) = channel();
        for napi in &state.napis[index] {
            let add = Command::AddRx(napi.clone(), watched.clone());
            state.workers[napi.owner_index()].tell(add);
        }
        drop(watched);
        // Ends early if a worker has died, which its thread reports when joined.
        let result = results.iter().collect::<io::Result<()>>();
        if result.is_err() {
            for worker in &state.workers {
                worker.tell(Command::RemoveRx(port));
            }
            // Takes back all that was told.
            self.poll(state, Vec::new(), device, port)?;
        }
        result
    }

    /// The pools that packets come from, each once, the engine's first.
    pub(super) fn pools(&self, state: &State<Q, R>) -> Vec<Pool> {
        let mut pools = vec![self.pool.clone()];
        for pool in state.ports.iter().flat_map(|port| &port.pools) {
            if !pools.iter().any(|known| known.is_same(pool)) {
                pools.push(pool.clone());
            }
        }
        pools
    }
}

/// Gives each port's queues the same share of the buffers. All together they get half of the smaller pool: the other half is for what waits to be enqueued, and for
/// what is on its way.
fn share_out_buffers<Q, R: TxRing>(state: &State<Q, R>, pools: &[Pool]) {
    let devices = || state.devices.iter().flatten();
    let smaller = pools.iter().map(Pool::memory).min().unwrap_or(0);
    let share = smaller / 2 / devices().count().max(1) as u64;
    devices().for_each(|device| device.set_buffer_quota(share));
}
