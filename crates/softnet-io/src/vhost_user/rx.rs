//! What a guest sends.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet_engine::Link;
use softnet_engine::rx::{CountDrop, Polled, RxQueue};

use super::contended::Taken;
use super::life::Life;
use super::port::enabled;
use crate::Buffers;

/// One receive queue of a vhost-user port.
#[derive(Debug)]
pub struct VhostUserRx {
    life: Arc<Life>,
    /// Its number.
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

    /// Its number, if the port has several.
    fn number(&self) -> Option<u16> {
        (self.life.port.pairs.len() > 1).then_some(self.pair as u16)
    }
}

impl RxQueue for VhostUserRx {
    fn poll(
        &mut self,
        budget: usize,
        _now: Time,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Polled {
        let port = &self.life.port;
        let pair = &port.pairs[self.pair];
        let Ok(mut ring) = pair.from_guest.try_lock() else {
            // It is just set up: soon it will be there.
            return Polled {
                more: true,
                gone: false,
            };
        };
        let running = enabled(&mut ring);
        if !running.as_ref().is_some_and(|it| it.queue.peek()) {
            // Called for nothing: the guest's kick was late. A worker that looks for events before
            // it arms would find this one for ever. What comes after this is seen below.
            pair.sent.drain();
        }
        let Some(running) = running else {
            return Polled::default();
        };
        let received = running.queue.receive(
            &running.memory,
            &self.buffers,
            self.number(),
            budget,
            out,
            drops,
        );
        running.notify();
        if received.is_err() || running.memory.is_lost() {
            port.fail();
        }
        Polled {
            more: received.unwrap_or(false),
            gone: false,
        }
    }

    fn arm(&mut self) -> bool {
        let port = &self.life.port;
        let pair = &port.pairs[self.pair];
        pair.sent.drain();
        let Ok(mut ring) = pair.from_guest.try_lock() else {
            return false;
        };
        let Some(running) = enabled(&mut ring) else {
            return true;
        };
        let armed = running.queue.arm();
        // The kick that was taken may have been for this.
        if running.memory.is_lost() {
            port.fail();
        }
        armed
    }

    fn disarm(&mut self) {
        let pair = &self.life.port.pairs[self.pair];
        if let Ok(mut ring) = pair.from_guest.try_lock()
            && let Some(running) = enabled(&mut ring)
        {
            running.queue.disarm();
        }
    }

    fn peek(&mut self) -> Option<bool> {
        let pair = &self.life.port.pairs[self.pair];
        Some(match pair.from_guest.try_lock() {
            Ok(mut ring) => enabled(&mut ring).is_some_and(|running| running.queue.peek()),
            Err(Taken) => true,
        })
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
