//! The receive queues of a port: frames that a guest sends.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::stats::DropReason;
use softnet_engine::Link;
use softnet_engine::rx::{NextPoll, Polled, Receive, RxQueue};

use super::contended::Taken;
use super::kept::Kept;
use super::life::Life;
use super::running::receivable;
use crate::Buffers;

/// One receive queue of a vhost-user port.
#[derive(Debug)]
pub struct VhostUserRx {
    life: Arc<Life>,
    /// The number of its queue pair.
    pair: usize,
    buffers: Buffers,
}

impl VhostUserRx {
    pub(super) fn new(life: Arc<Life>, pair: usize, buffers: Buffers) -> VhostUserRx {
        VhostUserRx {
            life,
            pair,
            buffers,
        }
    }

    pub(super) fn kept(&self) -> &Arc<Kept> {
        &self.life.kept
    }

    /// The queue's number, if the port has several.
    fn number(&self) -> Option<u16> {
        (self.life.port.pairs.len() > 1).then_some(self.pair as u16)
    }
}

impl RxQueue for VhostUserRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let nothing = Polled {
            next: NextPoll::Unarmed,
            ..Polled::default()
        };
        let port = &self.life.port;
        let pair = &port.pairs[self.pair];
        let Ok(mut ring) = pair.from_guest.try_lock_or_want() else {
            // It is just set up: the thread reports an event when it is there.
            return nothing;
        };
        let mut running = receivable(&mut ring);
        if rx.by_owner {
            let has_packets = running.as_mut().is_some_and(|running| {
                // An owner that never looks comes here.
                running.notify();
                running.queue.disarm();
                running.queue.peek()
            });
            if !has_packets {
                // Called for nothing: the guest's kick was late. A worker that looks for events
                // before it arms would find this one for ever. What came before it is seen below.
                pair.sent.drain();
            }
        }
        let Some(running) = running else {
            return nothing;
        };
        running.queue.set_mtu(port.mtu());
        let number = self.number();
        let received = running
            .queue
            .receive(&running.memory, &self.buffers, number, rx);
        if !running.enabled {
            // vhost-user, "Ring states": the buffers of a disabled ring come back all the same.
            rx.retain(DropReason::DeviceDown, |_| false);
        }
        let more = received.unwrap_or(false);
        // Else the owner looks next, when the packets are on their way: a guest that waits for
        // them comes before the one that is told of its buffers.
        if more || !rx.by_owner {
            running.notify();
        }
        if received.is_err() || running.is_broken() {
            port.fail();
        }
        Polled { more, ..nothing }
    }

    fn arm(&mut self) -> bool {
        let port = &self.life.port;
        let pair = &port.pairs[self.pair];
        pair.sent.drain();
        let Ok(mut ring) = pair.from_guest.try_lock_or_want() else {
            // As in `poll`.
            return true;
        };
        let Some(running) = receivable(&mut ring) else {
            return true;
        };
        running.notify();
        let armed = running.queue.arm();
        // The kick that was taken may have been for this.
        if running.is_broken() {
            port.fail();
        }
        armed
    }

    fn peek(&mut self) -> bool {
        let port = &self.life.port;
        let pair = &port.pairs[self.pair];
        match pair.from_guest.try_lock() {
            Ok(mut ring) => receivable(&mut ring).is_some_and(|running| {
                running.notify();
                if running.blocked {
                    port.fail();
                }
                running.queue.peek()
            }),
            // Asked again, or armed.
            Err(Taken) => false,
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        let Buffers { small, large } = &self.buffers;
        std::iter::once(small).chain(large).collect()
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        (self.pair == 0).then(|| self.life.port.clone() as Arc<dyn Link>)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.life.port.pairs[self.pair].sent.fd())
    }
}
