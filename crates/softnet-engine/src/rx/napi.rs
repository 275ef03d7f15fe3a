//! One receive queue as its worker sees it: weight, budget, scheduling state.

use std::sync::Arc;

use super::steer::Steering;
use super::{COMMANDS, CountDrop, FlowTable, Gone, RxQueue, SteeringSpec};
use crate::Device;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::sync::{RunGuard, RunState};
use softnet::time::Time;
use softnet::tx::Notifier;
use softnet::tx::TxRing;

/// Wire packets of one poll (the kernel's `dev_weight`).
pub const WEIGHT: usize = 64;
/// Wire packets of one round over all queues (the kernel's `netdev_budget`).
pub const BUDGET: usize = 300;

/// What the holder of the claim uses.
#[derive(Debug)]
struct Polling<Q> {
    /// None once the queue is closed.
    queue: Option<Q>,
    /// None: every packet is processed by who polls.
    steering: Option<Steering>,
}

/// A receive queue and the device it belongs to.
///
/// INV-RX-10: whoever holds the claim polls, and forwards what it got before it lets go, so that packets of one queue stay in
/// order whichever worker polls it.
#[derive(Debug)]
pub struct Napi<Q, R> {
    queue: RunState<Polling<Q>>,
    device: Arc<Device<R>>,
    /// Index of the port.
    port: u16,
    /// Which of the port's devices the queue belongs to.
    generation: u32,
    /// Number of the worker that watches the queue.
    worker: usize,
    /// Its notifier.
    owner: Arc<Notifier>,
}

/// Notes the drops of one poll, to be counted at its end.
struct Drops<'a, R> {
    device: &'a Device<R>,
    packets: u64,
}

impl<R: TxRing> CountDrop for Drops<'_, R> {
    fn count_drop(&mut self, reason: DropReason, packets: u64) {
        self.device.drops().add(reason, packets);
        self.packets += packets;
    }
}

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Frames received, those dropped by the driver included.
    pub(super) frames: usize,
    /// The wire packets that they stand for: what budgets are charged.
    pub(super) packets: usize,
    pub(super) more: bool,
    pub(super) gone: bool,
}

impl<Q: RxQueue, R: TxRing> Napi<Q, R> {
    /// A queue of device number `generation` of port `port`, watched by worker number `worker`,
    /// whose notifier is `owner`.
    pub fn new(
        queue: Q,
        device: Arc<Device<R>>,
        port: u16,
        generation: u32,
        worker: usize,
        owner: Arc<Notifier>,
    ) -> Self {
        Napi {
            queue: RunState::new(Polling {
                queue: Some(queue),
                steering: None,
            }),
            device,
            port,
            generation,
            worker,
            owner,
        }
    }

    pub(super) fn owner(&self) -> &Arc<Notifier> {
        &self.owner
    }

    pub(crate) fn owner_index(&self) -> usize {
        self.worker
    }

    pub(super) fn device(&self) -> &Device<R> {
        &self.device
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// What is told when the device is gone.
    pub(super) fn gone(&self) -> Gone {
        Gone {
            port: self.port,
            generation: self.generation,
        }
    }

    /// The right to poll, for the owner. If another worker has it, that one looks once more before it lets go.
    pub(super) fn claim(&self) -> Option<Claim<'_, Q, R>> {
        Some(Claim {
            napi: self,
            queue: self.queue.begin_or_miss()?,
        })
    }

    /// The right to poll, for another worker than the owner.
    pub(super) fn try_claim(&self) -> Option<Claim<'_, Q, R>> {
        Some(Claim {
            napi: self,
            queue: self.queue.try_begin()?,
        })
    }

    /// Calls `f` while nobody polls, and calls the owner if it came by meanwhile. Waits while the
    /// queue is polled: control path only.
    fn with<T>(&self, f: impl FnOnce(&mut Polling<Q>) -> T) -> T {
        let mut polling = self.queue.begin_slow();
        let result = f(&mut polling);
        let mut missed = false;
        while let Err(again) = polling.end() {
            polling = again;
            missed = true;
        }
        if missed {
            self.owner.notify(COMMANDS);
        }
        result
    }

    /// Calls `look` with the queue, unless it is closed. Control path only, as
    /// [`with`](Napi::with).
    pub(super) fn with_queue<T>(&self, look: impl FnOnce(&Q) -> T) -> Option<T> {
        self.with(|polling| polling.queue.as_ref().map(look))
    }

    /// Closes the queue. Control path only, as [`with`](Napi::with).
    pub(super) fn close(&self) -> Option<Q> {
        self.with(|polling| polling.queue.take())
    }

    /// Steers by `spec` from now on; packets of a flow stay in order. `table` knows consumers.
    /// Control path only, as [`with`](Napi::with).
    pub(crate) fn set_steering(&self, spec: &SteeringSpec, table: &Arc<FlowTable>) {
        self.with(|polling| {
            if polling.steering.is_none() && *spec == SteeringSpec::default() {
                return;
            }
            // Kept once it is there, for flows that are still elsewhere.
            polling
                .steering
                .get_or_insert_with(|| Steering::new(self.worker as u16, table.clone()))
                .set(spec);
        });
    }
}

/// The right to poll a queue.
#[derive(Debug)]
pub(super) struct Claim<'a, Q, R> {
    napi: &'a Napi<Q, R>,
    queue: RunGuard<'a, Polling<Q>>,
}

impl<Q: RxQueue, R: TxRing> Claim<'_, Q, R> {
    /// Receives up to `budget` wire packets (and what the last frame has beyond that) into `out`, counts and stamps them.
    pub(super) fn poll(&mut self, budget: usize, now: Time, out: &mut PacketList) -> Work {
        let napi = self.napi;
        let Some(queue) = &mut self.queue.queue else {
            return Work::default();
        };
        let mut drops = Drops {
            device: &napi.device,
            packets: 0,
        };
        let polled = queue.poll(budget, now, out, &mut drops);
        let (mut wire_packets, mut wire_bytes) = (drops.packets, 0);
        let dropped = drops.packets as usize;
        out.for_each_mut(|packet| {
            wire_packets += packet.wire_packets();
            wire_bytes += packet.wire_len();
            packet.set_port(napi.port);
            packet.set_timestamp(now);
        });
        if wire_packets != 0 {
            napi.device.count_received(wire_packets, wire_bytes);
        }
        Work {
            frames: out.len() + dropped,
            packets: wire_packets as usize,
            more: polled.more,
            gone: polled.gone,
        }
    }

    /// How packets are shared out to workers, if they are.
    pub(super) fn steering(&mut self) -> Option<&mut Steering> {
        self.queue.steering.as_mut()
    }

    /// Lets go. True: the queue was to be polled meanwhile, so it must be polled again.
    #[must_use = "if true, poll again"]
    pub(super) fn end(self) -> bool {
        self.queue.end().is_err()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::testing::FedQueue;
    use softnet::testing::{NoWake, ScriptedRing, pool};
    use softnet::tx::{DeviceConfig, Features, TxPolicy};
    use softnet_tc::QdiscSpec;

    /// An owner that comes by while the control path has the queue is turned away, and called
    /// again.
    #[test]
    fn an_owner_turned_away_by_the_control_path_is_called() {
        let config = DeviceConfig {
            name: "a".into(),
            features: Features::default(),
            policy: TxPolicy::default(),
        };
        let bell = Arc::new(Notifier::new(64, Arc::new(NoWake)));
        let homes = [(bell.clone(), 1)];
        let ring = ScriptedRing::new().0;
        let pool = pool(8);
        let qdiscs = QdiscSpec::default().instances(1, &pool).unwrap();
        let device = Device::new(config, vec![ring], qdiscs, &pool, &homes);
        let napi = Napi::new(FedQueue::default(), Arc::new(device), 0, 0, 0, bell.clone());
        assert_eq!(napi.with_queue(|_| 7), Some(7));
        assert!(bell.is_quiet(), "nobody came by");
        let turned_away = napi.with_queue(|_| napi.claim().is_none());
        assert_eq!(turned_away, Some(true));
        let mut rung = Vec::new();
        bell.take(|bell| rung.push(bell));
        assert_eq!(rung, [COMMANDS]);
        let claim = napi.claim().expect("nobody polls");
        assert!(
            !claim.end(),
            "what was missed is forgotten when it was told"
        );
    }
}
