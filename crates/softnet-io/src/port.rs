//! All drivers behind one type each way, chosen by `match`: no indirect call on the packet path.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet::tx::{RingFile, RingWaker, Sent, TxRing, Xmit};
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};

use crate::{NullRx, NullTx, TapRx, TapTx, VhostUserRx, VhostUserTx};

// A method of the traits that is missing here would silently be the trait's own.

/// Does the same with the queue of any driver.
macro_rules! with {
    ($port:ident, $any:expr, $queue:ident => $body:expr) => {
        match $any {
            $port::Tap($queue) => $body,
            $port::VhostUser($queue) => $body,
            $port::Null($queue) => $body,
        }
    };
}

/// The receive queue of any driver.
#[derive(Debug)]
pub enum PortRx {
    /// A queue of a TAP device.
    Tap(TapRx),
    /// A queue of a virtual machine.
    VhostUser(VhostUserRx),
    /// Never receives.
    Null(NullRx),
}

impl RxQueue for PortRx {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        with!(PortRx, self, queue => queue.poll(rx))
    }

    fn arm(&mut self) -> bool {
        with!(PortRx, self, queue => queue.arm())
    }

    fn peek(&mut self) -> bool {
        with!(PortRx, self, queue => queue.peek())
    }

    fn pools(&self) -> Vec<&Pool> {
        with!(PortRx, self, queue => queue.pools())
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        with!(PortRx, self, queue => queue.link())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        with!(PortRx, self, queue => queue.fd())
    }
}

impl From<TapRx> for PortRx {
    fn from(queue: TapRx) -> Self {
        PortRx::Tap(queue)
    }
}

impl From<VhostUserRx> for PortRx {
    fn from(queue: VhostUserRx) -> Self {
        PortRx::VhostUser(queue)
    }
}

impl From<NullRx> for PortRx {
    fn from(queue: NullRx) -> Self {
        PortRx::Null(queue)
    }
}

/// The transmit queue of any driver.
#[derive(Debug)]
pub enum PortTx {
    /// A queue of a TAP device.
    Tap(TapTx),
    /// A queue of a virtual machine.
    VhostUser(VhostUserTx),
    /// Frees what it is given.
    Null(NullTx),
}

impl TxRing for PortTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        with!(PortTx, self, queue => queue.xmit(packets, sent))
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        with!(PortTx, self, queue => queue.available(now))
    }

    fn restart(&mut self, now: Time) {
        with!(PortTx, self, queue => queue.restart(now));
    }

    fn bind(&mut self, waker: RingWaker) {
        with!(PortTx, self, queue => queue.bind(waker));
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        with!(PortTx, self, queue => queue.file())
    }
}

impl From<TapTx> for PortTx {
    fn from(queue: TapTx) -> Self {
        PortTx::Tap(queue)
    }
}

impl From<VhostUserTx> for PortTx {
    fn from(queue: VhostUserTx) -> Self {
        PortTx::VhostUser(queue)
    }
}

impl From<NullTx> for PortTx {
    fn from(queue: NullTx) -> Self {
        PortTx::Null(queue)
    }
}
