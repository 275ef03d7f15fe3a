//! The control path of receive queues: which worker polls them, and which pools they bring along.

use std::sync::Arc;

use super::{Engine, State};
use crate::pool::Pool;
use crate::rx::{Command, Napi, RxQueue};
use crate::tx::{Device, TxRing};

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Spreads receive queues over the workers, from worker `first` on.
    pub(super) fn poll(
        &self,
        state: &mut State<Q, R>,
        rx: Vec<Q>,
        device: &Arc<Device<R>>,
        port: u16,
        first: usize,
    ) {
        let index = usize::from(port);
        state.pools[index] = rx.iter().flat_map(Q::pools).cloned().collect();
        let pools: Arc<[Pool]> = self.pools(state).into();
        let mut napis = Vec::new();
        for (number, queue) in rx.into_iter().enumerate() {
            let owner = (first + number) % state.workers.len();
            let bell = state.workers[owner].shared.doorbell.clone();
            let napi = Arc::new(Napi::new(queue, device.clone(), port, owner, bell));
            napi.set_steering(&state.steering[index], &self.flows);
            napis.push(napi);
        }
        state.napis[index] = napis;
        let peers = Arc::new(state.napis.clone());
        for worker in &state.workers {
            worker.tell(Command::Pools(pools.clone()));
            worker.tell(Command::Peers(peers.clone()));
        }
        for napi in &state.napis[index] {
            state.workers[napi.owner_index()].tell(Command::AddRx(napi.clone()));
        }
    }

    /// The pools that packets come from, each once, the engine's first.
    pub(super) fn pools(&self, state: &State<Q, R>) -> Vec<Pool> {
        let mut pools = vec![self.pool.clone()];
        for pool in state.pools.iter().flatten() {
            if !pools.iter().any(|known| known.is_same(pool)) {
                pools.push(pool.clone());
            }
        }
        pools
    }
}
