//! Receive queues of ports: spread over the workers, watched, and closed.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::devices::Devices;
use super::error::EngineError;
use super::state::State;
use crate::Device;
use crate::link::{Link, LinkCell};
use crate::rx::{Command, Napi, NapiPlace, RxQueue};
use softnet::mem::Pool;

/// Receive queues of a port, and what goes with them: made before workers know them, or kept from
/// before.
pub(super) struct Receiving<D: Devices> {
    /// The port.
    number: u16,
    napis: Vec<Arc<Napi<D::Rx, D::Tx>>>,
    pools: Vec<Pool>,
    opened: u32,
    cell: Arc<LinkCell>,
    /// The link of the new queues.
    link: Option<Arc<dyn Link>>,
}

impl<D: Devices> State<D> {
    /// Spreads receive queues over the workers, from the port's first one on, in place of those
    /// that the port has; who calls this closes those. They count at `device`, else at the port's.
    /// Waits for the workers' rounds. If a worker cannot watch one of them, all are closed, and the
    /// port has those that it had.
    pub(super) fn open(
        &mut self,
        number: u16,
        device: Option<&Arc<Device<D::Tx>>>,
        rx: Vec<D::Rx>,
    ) -> Result<(), EngineError> {
        let receiving = self.receiving(number, device, rx)?;
        self.receive(vec![receiving]).map_err(|(_, error)| error)
    }

    /// As [`open`](State::open), for many ports at once: no worker receives from one of them before
    /// all workers know them all. The number is that of the port whose queue cannot be watched.
    pub(super) fn open_all(
        &mut self,
        ports: Vec<(u16, Vec<D::Rx>)>,
    ) -> Result<(), (u16, EngineError)> {
        let receiving = ports.into_iter().map(|(number, rx)| {
            let receiving = self.receiving(number, None, rx);
            receiving.map_err(|error| (number, error))
        });
        let receiving = receiving.collect::<Result<_, _>>()?;
        self.receive(receiving)
    }

    /// Receive queues for a port, which no worker knows yet.
    pub(super) fn receiving(
        &mut self,
        number: u16,
        device: Option<&Arc<Device<D::Tx>>>,
        rx: Vec<D::Rx>,
    ) -> Result<Receiving<D>, EngineError> {
        let opened = self.next_serial();
        let known = self.slot(number);
        let device = device.unwrap_or(&known.device).clone();
        let link = rx.iter().find_map(RxQueue::link);
        let pools: Vec<Pool> = rx.iter().flat_map(RxQueue::pools).cloned().collect();
        let cell = Arc::new(LinkCell::new());
        let options = self.link_at(number).and_then(|link| link.options());
        let group = options.and_then(|options| options.rate_group.as_deref());
        let group = self.limits(group)?;
        let mut napis = Vec::with_capacity(rx.len());
        for (queue, place) in rx.into_iter().zip(known.first..) {
            let worker = place % self.workers.len();
            let place = NapiPlace {
                device: device.clone(),
                port: number,
                opened,
                worker,
                notifier: self.workers[worker].shared.notifier.clone(),
                link: cell.clone(),
                flows: self.flows.clone(),
            };
            let napi = Napi::new(queue, place);
            if let Some(options) = options {
                napi.set_steering(&options.steering);
            }
            napi.set_limit(group.map(|group| group.from.join()));
            napis.push(Arc::new(napi));
        }
        Ok(Receiving {
            number,
            napis,
            pools,
            opened,
            cell,
            link,
        })
    }

    /// Has workers receive by these in place of what the ports had: all or none.
    pub(super) fn receive(
        &mut self,
        mut ports: Vec<Receiving<D>>,
    ) -> Result<(), (u16, EngineError)> {
        let quiet = |state: &Self, to: &Receiving<D>| {
            to.napis.is_empty() && state.slot(to.number).napis.is_empty()
        };
        // Workers need not know of ports that neither receive nor did.
        let are_quiet = ports.iter().all(|to| quiet(self, to));
        let numbers: Vec<u16> = ports.iter().map(|to| to.number).collect();
        let mut exchange = |state: &mut State<D>| {
            for to in &mut ports {
                let known = state.slot_mut(to.number);
                std::mem::swap(&mut known.napis, &mut to.napis);
                std::mem::swap(&mut known.pools, &mut to.pools);
                std::mem::swap(&mut known.opened, &mut to.opened);
                std::mem::swap(&mut known.link, &mut to.cell);
            }
            if are_quiet && state.held.depth > 0 {
                state.held.stale = true;
            } else {
                state.publish();
            }
        };
        exchange(self);
        match self.watch(&numbers) {
            Ok(()) => {
                for to in ports {
                    self.slot_mut(to.number).losses.open(to.link);
                }
                Ok(())
            }
            Err((number, source)) => {
                let refused = numbers.iter().map(|&number| self.slot(number).opened);
                let refused: Vec<u32> = refused.collect();
                exchange(self);
                self.close(&refused);
                let port = self.slot(number).device.name().to_string();
                Err((number, EngineError::Watch { port, source }))
            }
        }
    }

    /// Has the workers watch the receive queues of ports: each worker all of its own at once.
    fn watch(&self, ports: &[u16]) -> Result<(), (u16, io::Error)> {
        let (watched, results) = channel();
        let mut lists: Vec<Vec<_>> = self.workers.iter().map(|_| Vec::new()).collect();
        for napi in ports.iter().flat_map(|&number| &self.slot(number).napis) {
            lists[napi.worker()].push(napi.clone());
        }
        for (worker, napis) in self.workers.iter().zip(lists) {
            if !napis.is_empty() {
                worker.tell(Command::AddRx(napis, watched.clone()));
            }
        }
        drop(watched);
        // Ends early if a worker has died, which its thread reports when joined.
        results.iter().collect()
    }

    /// Tells the workers of a port's receive queues something of each, and waits until they know.
    pub(super) fn tell_napis(
        &self,
        number: u16,
        command: impl Fn(Arc<Napi<D::Rx, D::Tx>>) -> Command<D::Rx, D::Tx>,
    ) {
        for napi in &self.slot(number).napis {
            self.workers[napi.worker()].tell(command(napi.clone()));
        }
        self.sync();
    }

    /// Closes receive queues of these openings. When this returns, nothing that they received is in
    /// any backlog.
    pub(super) fn close(&self, opened: &[u32]) {
        let mut opened = opened.to_vec();
        opened.sort_unstable();
        let opened: Arc<[u32]> = opened.into();
        self.tell_all(|| Command::RemoveRx(opened.clone()));
        // Twice: when nobody receives any more, what was steered last is still to be processed.
        self.sync();
        self.sync();
    }
}
