//! One receive queue as its worker sees it: weight, budget, scheduling state.

use std::sync::Arc;

use super::steer::Steering;
use super::{FlowTable, NextPoll, Receive, RxQueue, SteeringSpec};
use crate::Device;
use crate::forward::Pending;
use crate::link::LinkCell;
use softnet::mem::PacketList;
use softnet::stats::{DropReason, Tap};
use softnet::sync::{RunGuard, RunState};
use softnet::time::Time;
use softnet::tx::Notifier;
use softnet::tx::TxRing;
use softnet_tc::rate::Limit;

/// Wire packets of one poll (the kernel's `dev_weight`).
pub const WEIGHT: usize = 64;
/// Wire packets of one round over all queues (the kernel's `netdev_budget`).
pub const BUDGET: usize = 300;

/// State that the holder of the claim uses.
#[derive(Debug)]
struct Polling<Q> {
    /// None once the queue is closed.
    queue: Option<Q>,
    /// None: every packet is processed by who polls.
    steering: Option<Steering>,
    /// Limit of what may be received, together with others.
    limit: Option<Limit>,
    /// Who is shown what is received.
    tap: Option<Arc<dyn Tap>>,
    /// Received, and left for a later poll as too much would have been flooded.
    rest: Pending,
}

/// A receive queue and the device it belongs to.
///
/// INV-RX-10: the thread that holds the claim polls, and forwards what it got before it lets go,
/// so that packets of one queue stay in order whichever worker polls it.
///
/// Closing and steering wait for the claim. They are carried out by the worker that watches the
/// queue, between two of its own polls. Another worker claims the queue only while that one
/// sleeps, for one poll, so the wait is for the end of one such poll.
#[derive(Debug)]
pub(crate) struct Napi<Q, R> {
    queue: RunState<Polling<Q>>,
    place: NapiPlace<R>,
}

/// Port, opening and worker of a receive queue.
#[derive(Debug)]
pub(crate) struct NapiPlace<R> {
    pub(crate) device: Arc<Device<R>>,
    /// Number of the port.
    pub(crate) port: u16,
    /// Opening of the port that the queue belongs to.
    pub(crate) opened: u32,
    /// The worker that watches the queue.
    pub(crate) worker: usize,
    /// Notifier of that worker.
    pub(crate) notifier: Arc<Notifier>,
    /// State of the port's link, of this opening.
    pub(crate) link: Arc<LinkCell>,
    /// Record of the consumers of flows.
    pub(crate) flows: Arc<FlowTable>,
}

/// Result of one poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Frames received, those dropped by the driver included.
    pub(super) frames: usize,
    /// The wire packets that they stand for: what budgets are charged.
    pub(super) packets: usize,
    pub(super) more: bool,
    pub(super) gone: bool,
    pub(super) next: NextPoll,
    /// Nothing may be received before.
    pub(super) held: Option<Time>,
}

impl Work {
    /// Nothing was received: there are packets of the poll before.
    pub(super) fn rest() -> Work {
        Work {
            more: true,
            ..Work::default()
        }
    }
}

impl<Q: RxQueue, R: TxRing> Napi<Q, R> {
    pub(crate) fn new(queue: Q, place: NapiPlace<R>) -> Self {
        Napi {
            queue: RunState::new(Polling {
                queue: Some(queue),
                steering: None,
                limit: None,
                tap: place.device.drops().tap(),
                rest: Pending::default(),
            }),
            place,
        }
    }

    pub(super) fn notifier(&self) -> &Arc<Notifier> {
        &self.place.notifier
    }

    pub(crate) fn worker(&self) -> usize {
        self.place.worker
    }

    pub(super) fn device(&self) -> &Device<R> {
        &self.place.device
    }

    pub(super) fn port(&self) -> u16 {
        self.place.port
    }

    pub(super) fn link(&self) -> &Arc<LinkCell> {
        &self.place.link
    }

    pub(super) fn opened(&self) -> u32 {
        self.place.opened
    }

    /// The right to poll, for the owner. If another worker has it, that one notifies the owner
    /// when it lets go.
    pub(super) fn claim(&self) -> Option<Claim<'_, Q, R>> {
        Some(Claim {
            napi: self,
            queue: self.queue.begin_or_miss()?,
            by_owner: true,
        })
    }

    /// The right to poll, for another worker than the owner.
    pub(super) fn try_claim(&self) -> Option<Claim<'_, Q, R>> {
        Some(Claim {
            napi: self,
            queue: self.queue.try_begin()?,
            by_owner: false,
        })
    }

    /// Calls `f` while no other thread polls.
    fn with<T>(&self, f: impl FnOnce(&mut Polling<Q>) -> T) -> T {
        let mut polling = self.queue.begin_slow();
        let result = f(&mut polling);
        // An event missed here can only be the caller's own, and it polls next.
        while let Err(again) = polling.end() {
            polling = again;
        }
        result
    }

    /// Calls `look` with the queue, unless it is closed.
    pub(super) fn with_queue<T>(&self, look: impl FnOnce(&Q) -> T) -> Option<T> {
        self.with(|polling| polling.queue.as_ref().map(look))
    }

    /// Closes the queue, and drops what it received and was not forwarded.
    pub(crate) fn close(&self) -> Option<Q> {
        let (queue, rest) =
            self.with(|polling| (polling.queue.take(), std::mem::take(&mut polling.rest)));
        let drops = self.place.device.drops();
        drops.lose(DropReason::NoForward, &rest.packets);
        queue
    }

    /// Shows `tap` what is received from now on.
    pub(crate) fn set_tap(&self, tap: Option<Arc<dyn Tap>>) {
        let old = self.with(|polling| std::mem::replace(&mut polling.tap, tap));
        drop(old);
    }

    /// Steers by `spec` from now on; packets of a flow stay in order.
    pub(crate) fn set_steering(&self, spec: &SteeringSpec) {
        self.with(|polling| {
            if polling.steering.is_none() && *spec == SteeringSpec::default() {
                return;
            }
            // Kept once it is there, for flows that are still elsewhere.
            polling
                .steering
                .get_or_insert_with(|| {
                    Steering::new(self.place.worker as u16, self.place.flows.clone())
                })
                .set(spec);
        });
    }
}

impl<Q: RxQueue, R: TxRing> Napi<Q, R> {
    /// Receives no more than `limit` allows from now on. What is not received waits where the
    /// driver has it.
    pub(crate) fn set_limit(&self, limit: Option<Limit>) {
        let old = self.with(|polling| std::mem::replace(&mut polling.limit, limit));
        drop(old);
    }
}

/// The right to poll a queue.
#[derive(Debug)]
pub(super) struct Claim<'a, Q, R> {
    napi: &'a Napi<Q, R>,
    queue: RunGuard<'a, Polling<Q>>,
    /// The owner arms the queue before it sleeps; nobody else knows whether it is asleep.
    by_owner: bool,
}

impl<Q: RxQueue, R: TxRing> Claim<'_, Q, R> {
    /// Packets of the poll before that are to be forwarded before others.
    pub(super) fn rest(&mut self) -> &mut Pending {
        &mut self.queue.rest
    }

    /// Receives up to `budget` wire packets (and what the last frame has beyond that) into `out`,
    /// counts and stamps them.
    pub(super) fn poll(&mut self, budget: usize, now: Time, out: &mut PacketList) -> Work {
        let napi = self.napi;
        let Polling {
            queue, limit, tap, ..
        } = &mut *self.queue;
        let Some(queue) = queue else {
            return Work {
                next: NextPoll::At(Time::MAX),
                ..Work::default()
            };
        };
        let mut budget = budget;
        if let Some(limit) = limit {
            match limit.allowed(|| 1, now) {
                Ok(packets) => budget = budget.min(packets as usize),
                Err(time) => {
                    limit.announce(time);
                    return Work {
                        held: Some(time),
                        ..Work::default()
                    };
                }
            }
        }
        let before = out.len();
        let mut rx =
            Receive::new(budget, now, out, napi.place.device.drops()).at_port(napi.place.port);
        rx.by_owner = self.by_owner;
        let polled = queue.poll(&mut rx);
        let (wire_packets, wire_bytes, dropped) = rx.sums();
        if let Some(tap) = tap {
            tap.received(&mut out.iter().skip(before), now);
        }
        if wire_packets != 0 {
            napi.place.device.count_received(wire_packets, wire_bytes);
        }
        if let Some(limit) = limit {
            limit.charge(wire_bytes, wire_packets, || 1, now);
            match polled.more {
                true => limit.announce(now),
                false => limit.leave(),
            }
        }
        Work {
            frames: out.len() + dropped as usize,
            packets: wire_packets as usize,
            more: polled.more,
            gone: polled.gone,
            next: polled.next,
            held: None,
        }
    }

    /// See [`RxQueue::peek`]. A closed queue has no packets.
    pub(super) fn peek(&mut self) -> bool {
        self.queue.queue.as_mut().is_some_and(RxQueue::peek)
    }

    /// See [`RxQueue::arm`].
    pub(super) fn arm(&mut self) -> bool {
        self.queue.queue.as_mut().is_none_or(RxQueue::arm)
    }

    /// Steering of packets to workers, if they are steered.
    pub(super) fn steering(&mut self) -> Option<&mut Steering> {
        self.queue.steering.as_mut()
    }

    /// Lets go. True: the queue was to be polled meanwhile, so it must be polled again.
    #[must_use = "if true, poll again"]
    pub(super) fn end(self) -> bool {
        self.queue.end().is_err()
    }
}
