//! A driver that loses packets and stalls, by a seeded random generator.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{RingWaker, Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::{pass_on_rx, pass_on_tx};

/// The state of a [`FaultInjector`].
#[derive(Debug, Default)]
pub struct Faults {
    stalled: AtomicBool,
    refused: AtomicU64,
    waker: Mutex<Option<RingWaker>>,
}

impl Faults {
    /// True while the driver is stalled.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    /// Ends a stall, and wakes the transmit queue.
    pub fn resume(&self) {
        self.stalled.store(false, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*waker {
            waker.wake();
        }
    }

    /// Frames lost so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A driver that loses frames ([`DropReason::DriverRefused`]) and stalls now and then.
///
/// ```
/// use softnet::mem::{PacketList, Pool, PoolConfig};
/// use softnet::tx::{Sent, TxRing, Xmit};
/// use softnet_io::Null;
/// use softnet_io::middleware::FaultInjector;
///
/// let null = Null::open(1, 1500)?.tx.remove(0);
/// let (mut ring, faults) = FaultInjector::new(null, 1);
/// ring.refuse_one_in = 10;
/// ring.stall_one_in = 50;
///
/// let pool = Pool::new(PoolConfig { buffers: 200, buffer_size: 2048 })?;
/// let mut packets = PacketList::new();
/// pool.alloc_bulk(200, &mut packets);
/// let mut sent = Sent::default();
/// while ring.xmit(&mut packets, &mut sent) == Xmit::Busy {
///     assert!(faults.is_stalled());
///     faults.resume();
/// }
/// assert!(faults.refused() > 0);
/// assert_eq!(sent.packets + faults.refused(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FaultInjector<D> {
    driver: D,
    /// One frame in so many is lost. 0: none.
    pub refuse_one_in: u32,
    /// One frame in so many stalls the driver, until [`Faults::resume`] or a restart. 0: none.
    pub stall_one_in: u32,
    random: u32,
    faults: Arc<Faults>,
}

impl<D> FaultInjector<D> {
    /// A driver without faults yet, and its state. The same seed makes the same faults.
    pub fn new(driver: D, seed: u32) -> (Self, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        let injector = FaultInjector {
            driver,
            refuse_one_in: 0,
            stall_one_in: 0,
            random: seed.max(1),
            faults: faults.clone(),
        };
        (injector, faults)
    }

    /// True with probability 1/`n`; never for 0.
    fn strikes(&mut self, n: u32) -> bool {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        n != 0 && self.random.is_multiple_of(n)
    }

    fn refuses(&mut self) -> bool {
        let refuses = self.strikes(self.refuse_one_in);
        self.faults
            .refused
            .fetch_add(refuses.into(), Ordering::Relaxed);
        refuses
    }

    fn stalls(&mut self) -> bool {
        let stalls = self.strikes(self.stall_one_in);
        if stalls {
            self.faults.stalled.store(true, Ordering::SeqCst);
        }
        stalls
    }
}

impl<D: TxRing> TxRing for FaultInjector<D> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if self.faults.is_stalled() {
            return Xmit::Busy;
        }
        let mut passed = PacketList::new();
        while let Some(packet) = packets.pop_front() {
            if self.refuses() {
                sent.drop(DropReason::DriverRefused, &packet);
            } else {
                passed.push_back(packet);
            }
            if self.stalls() {
                break;
            }
        }
        let xmit = self.driver.xmit(&mut passed, sent);
        passed.append(packets);
        *packets = passed;
        if packets.is_empty() { xmit } else { Xmit::Busy }
    }

    fn restart(&mut self, now: Time) {
        self.faults.stalled.store(false, Ordering::SeqCst);
        self.driver.restart(now);
    }

    fn bind(&mut self, waker: RingWaker) {
        let mut bound = self
            .faults
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *bound = Some(waker.clone());
        drop(bound);
        self.driver.bind(waker);
    }

    pass_on_tx!(available connect file);
}

impl<D: RxQueue> RxQueue for FaultInjector<D> {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let polled = self.driver.poll(rx);
        rx.retain(DropReason::DriverRefused, |_| !self.refuses());
        polled
    }

    pass_on_rx!();
}
