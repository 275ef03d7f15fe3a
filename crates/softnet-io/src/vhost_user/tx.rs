//! The transmit queues of a port: frames that a guest receives.

use std::io;
use std::sync::Arc;

use softnet::mem::PacketList;
use softnet::time::Time;
use softnet::tx::{Interest, RingFile, RingWaker, Sent, TxRing, Xmit};

use super::life::Life;
use super::ring::WORK;
use super::running::{Running, enabled};
use crate::driver::down;

/// Times that a guest is found to offer more before others have their turn. An index that goes to
/// and fro does so for ever.
const TRIES: usize = 64;

/// One transmit queue of a vhost-user port.
#[derive(Debug)]
pub struct VhostUserTx {
    life: Arc<Life>,
    /// The number of its queue pair.
    pair: usize,
}

impl VhostUserTx {
    pub(super) fn new(life: Arc<Life>, pair: usize) -> VhostUserTx {
        VhostUserTx { life, pair }
    }

    /// Copies packets into the guest's buffers. Busy: the guest will notify when it has more of
    /// them.
    fn send(&self, running: &mut Running, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let (mut tried, mut work) = (0, WORK);
        loop {
            tried += 1;
            let result = running
                .queue
                .transmit(&running.memory, packets, sent, &mut work);
            match result {
                Ok(Xmit::Complete) => return Xmit::Complete,
                Ok(Xmit::Busy) if work == 0 => {
                    // There may be buffers; others have their turn first.
                    self.life.port.wake(self.pair);
                    return Xmit::Busy;
                }
                Ok(Xmit::Busy) if !running.queue.arm() && tried < TRIES => {}
                Ok(Xmit::Busy) => {
                    running.armed = true;
                    if tried == TRIES {
                        self.life.port.wake(self.pair);
                    }
                    return Xmit::Busy;
                }
                Err(_) => {
                    self.life.port.fail();
                    return down(packets, sent);
                }
            }
        }
    }
}

impl TxRing for VhostUserTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let port = &self.life.port;
        let route = port.route(self.pair);
        let Some(pair) = port.pairs.get(route) else {
            return down(packets, sent);
        };
        let Ok(mut ring) = pair.to_guest.try_lock_or_want() else {
            return Xmit::Busy;
        };
        let mut unheard = false;
        let result = match enabled(&mut ring) {
            Some(running) => {
                let waited = std::mem::take(&mut running.armed);
                if waited {
                    running.queue.disarm();
                }
                let result = self.send(running, packets, sent);
                running.notify();
                if running.is_broken() {
                    port.fail();
                }
                // Others may wait for a notification that the guest was not asked for meanwhile.
                unheard = waited && !running.armed;
                result
            }
            None => down(packets, sent),
        };
        drop(ring);
        port.wake_senders(route, unheard);
        result
    }

    fn restart(&mut self, _now: Time) {
        // The guest may have missed that its buffers came back.
        let port = &self.life.port;
        let route = port.route(self.pair);
        let Some(pair) = port.pairs.get(route) else {
            return;
        };
        if let Ok(mut ring) = pair.to_guest.try_lock_or_want() {
            if let Some(running) = &mut *ring {
                running.call();
                if running.is_broken() {
                    port.fail();
                }
            }
            drop(ring);
            port.wake_senders(route, false);
        }
    }

    fn bind(&mut self, waker: RingWaker) {
        self.life.port.bind(self.pair, waker);
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        let fd = self.life.port.pairs[self.pair].offered.fd();
        Ok(Some(RingFile {
            fd: fd.try_clone_to_owned()?,
            interest: Interest::Readable,
        }))
    }
}
