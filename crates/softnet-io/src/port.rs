//! All drivers behind one type each way, chosen by `match`: no indirect call on the packet path.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::Link;
use softnet_engine::rx::{CountDrop, Polled, RxQueue};

use crate::{NullRx, NullTx, TapRx, TapTx};

/// The receive queue of any driver.
#[derive(Debug)]
pub enum PortRx {
    /// A queue of a TAP device.
    Tap(TapRx),
    /// Never receives.
    Null(NullRx),
}

impl RxQueue for PortRx {
    fn poll(
        &mut self,
        budget: usize,
        now: Time,
        out: &mut PacketList,
        drops: &mut dyn CountDrop,
    ) -> Polled {
        match self {
            PortRx::Tap(queue) => queue.poll(budget, now, out, drops),
            PortRx::Null(queue) => queue.poll(budget, now, out, drops),
        }
    }

    fn pools(&self) -> Vec<&Pool> {
        match self {
            PortRx::Tap(queue) => queue.pools(),
            PortRx::Null(queue) => queue.pools(),
        }
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        match self {
            PortRx::Tap(queue) => queue.link(),
            PortRx::Null(queue) => queue.link(),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            PortRx::Tap(queue) => queue.fd(),
            PortRx::Null(queue) => queue.fd(),
        }
    }
}

impl From<TapRx> for PortRx {
    fn from(queue: TapRx) -> Self {
        PortRx::Tap(queue)
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
    /// Frees what it is given.
    Null(NullTx),
}

impl TxRing for PortTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        match self {
            PortTx::Tap(queue) => queue.xmit(packets, sent),
            PortTx::Null(queue) => queue.xmit(packets, sent),
        }
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        match self {
            PortTx::Tap(queue) => queue.available(now),
            PortTx::Null(queue) => queue.available(now),
        }
    }

    fn restart(&mut self, now: Time) {
        match self {
            PortTx::Tap(queue) => queue.restart(now),
            PortTx::Null(queue) => queue.restart(now),
        }
    }
}

impl From<TapTx> for PortTx {
    fn from(queue: TapTx) -> Self {
        PortTx::Tap(queue)
    }
}

impl From<NullTx> for PortTx {
    fn from(queue: NullTx) -> Self {
        PortTx::Null(queue)
    }
}
