//! A device without an engine, for programs that embed the transmit path: many threads send, one
//! helper thread (or the program's own loop) serves what their bounded runs leave.

use std::sync::{Arc, OnceLock};
use std::task;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::notifier::Notifier;
use super::runner::{Runner, STOP};
use super::{Device, DeviceConfig, Features, Qdiscs, TxPolicy, TxRing, XmitResult};
use crate::mem::{Exhausted, Packet, PacketList, Pool, PoolConfig, PoolError};
use crate::qdisc::{PfifoFast, Qdisc};
use crate::sync::is_owner_here;
use crate::time::Clock;

/// Frames that a sender's qdisc holds unless it is given another (Linux's `txqueuelen`).
const TXQUEUELEN: u32 = 1000;

/// A device without an engine: any number of threads send through one shared reference to it.
///
/// The rest that bounded runs leave (a quota, a rate limit, a driver that was full) is served by a
/// helper thread, which also restarts a driver that has taken nothing for
/// [`WATCHDOG_TIMEO`](super::WATCHDOG_TIMEO). It sleeps while there is nothing to do, but for a look
/// at the driver every second. [`drive`](SenderBuilder::drive) leaves that to a loop of the program
/// instead. A driver or a qdisc that panics there takes its own queue out of use, and is counted
/// ([`DeviceStats::panics`](super::DeviceStats)); the helper serves the others. Dropping a sender
/// ends the helper at once: what waits stays in the device and is freed with it; see
/// [`stop`](Sender::stop) for an orderly end.
#[derive(Debug)]
pub struct Sender<R, Q = PfifoFast> {
    device: Arc<Device<R, Q>>,
    clock: Clock,
    /// Ends with the sender.
    _helper: Option<Helper>,
}

/// A sender in the making; each part has a default. See [`Sender::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `start`"]
pub struct SenderBuilder<Q = PfifoFast> {
    config: DeviceConfig,
    qdiscs: Qdiscs<Q>,
    pool: Option<Pool>,
    clock: Clock,
}

/// Causes for which there is no sender.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The helper thread could not be started.
    #[error("cannot start the helper thread")]
    Thread(#[source] std::io::Error),
    /// There is not one qdisc for each ring, or neither one of them nor all are in use.
    #[error("{active} of {qdiscs} qdiscs in use for {rings} rings: make one for each ring")]
    Qdiscs {
        /// Rings given.
        rings: usize,
        /// Qdiscs given.
        qdiscs: usize,
        /// Qdiscs in use.
        active: usize,
    },
    /// The pool of its own could not be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl Sender<()> {
    /// A sender with defaults: a `pfifo_fast` of 1,000 frames, no offloads, MTU 1500, the default
    /// [`TxPolicy`] and [`PoolConfig`], the monotonic clock.
    pub fn builder() -> SenderBuilder {
        SenderBuilder {
            config: DeviceConfig {
                name: "out".into(),
                features: Features::default(),
                policy: TxPolicy::default(),
            },
            qdiscs: Qdiscs::per_queue(vec![PfifoFast::new(TXQUEUELEN)]),
            pool: None,
            clock: Clock::monotonic(),
        }
    }
}

impl<Q: Qdisc + 'static> SenderBuilder<Q> {
    /// Name of the device, and of the helper thread.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Longest IP packet in bytes ([`Features::mtu`]); what is longer is dropped.
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.config.features.mtu = bytes;
        self
    }

    /// Offloads of the driver. Sets the MTU, too.
    pub fn features(mut self, features: Features) -> Self {
        self.config.features = features;
        self
    }

    /// Who serves the queues, and what a sender does where much is waiting.
    pub fn policy(mut self, policy: TxPolicy) -> Self {
        self.config.policy = policy;
        self
    }

    /// Qdisc for a sender of one ring.
    pub fn qdisc<P: Qdisc>(self, qdisc: P) -> SenderBuilder<P> {
        self.qdiscs(Qdiscs::per_queue(vec![qdisc]))
    }

    /// Qdiscs for a sender of as many rings.
    pub fn qdiscs<P: Qdisc>(self, qdiscs: Qdiscs<P>) -> SenderBuilder<P> {
        SenderBuilder {
            config: self.config,
            qdiscs,
            pool: self.pool,
            clock: self.clock,
        }
    }

    /// Buffers for copies and segments, and for [`Sender::packet`].
    pub fn pool(mut self, pool: &Pool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Clock of the sender, for rates and for departure times.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the sender, and starts its helper thread.
    ///
    /// # Errors
    /// [`SenderError`], where no thread or pool can be had, or the qdiscs are not one.
    pub fn start<R: TxRing + 'static>(self, ring: R) -> Result<Sender<R, Q>, SenderError> {
        self.start_all(vec![ring])
    }

    /// As [`start`](SenderBuilder::start), with one transmit queue for each ring.
    ///
    /// # Errors
    /// [`SenderError`], where no thread or pool can be had, or the qdiscs do not fit the rings.
    pub fn start_all<R: TxRing + 'static>(
        self,
        rings: Vec<R>,
    ) -> Result<Sender<R, Q>, SenderError> {
        let unpark = Arc::new(Unpark::default());
        let name = format!("tx/{}", self.config.name);
        let (mut sender, mut runner) = self.drive(rings, unpark.clone().into())?;
        let notifier = runner.notifier.clone();
        let clock = sender.clock.clone();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                // Nobody wakes this thread before it sleeps.
                let _ = unpark.0.set(std::thread::current());
                runner.serve(&clock);
            })
            .map_err(SenderError::Thread)?;
        sender._helper = Some(Helper {
            notifier,
            thread: Some(thread),
        });
        Ok(sender)
    }

    /// Makes a sender without a helper thread: the program calls [`Runner::run`], where a loop of
    /// its own is idle or `waker` was called.
    ///
    /// # Errors
    /// [`SenderError`], where no pool can be had, or the qdiscs do not fit the rings.
    #[expect(
        clippy::type_complexity,
        reason = "a pair, each with the same parameters"
    )]
    pub fn drive<R: TxRing>(
        self,
        rings: Vec<R>,
        waker: task::Waker,
    ) -> Result<(Sender<R, Q>, Runner<R, Q>), SenderError> {
        let (qdiscs, active) = (self.qdiscs.instances.len(), self.qdiscs.active);
        if rings.len() != qdiscs || !self.qdiscs.fits() {
            return Err(SenderError::Qdiscs {
                rings: rings.len(),
                qdiscs,
                active,
            });
        }
        let pool = match self.pool {
            Some(pool) => pool,
            None => Pool::new(PoolConfig::default())?,
        };
        let notifier = Arc::new(Notifier::new(qdiscs + 1, Arc::new(waker)));
        let workers: Vec<_> = (0..qdiscs)
            .map(|queue| (notifier.clone(), queue + STOP + 1))
            .collect();
        let device = Device::new(self.config, rings, self.qdiscs, &pool, &workers);
        let device = Arc::new(device);
        let runner = Runner::new(device.clone(), notifier, self.clock.now());
        let sender = Sender {
            device,
            clock: self.clock,
            _helper: None,
        };
        Ok((sender, runner))
    }
}

impl<R: TxRing, Q: Qdisc> Sender<R, Q> {
    /// A packet with these bytes; see [`Pool::packet`].
    ///
    /// # Errors
    /// [`Exhausted`], if the pool has not enough buffers.
    ///
    /// # Panics
    /// If there are 4 GiB of bytes or more.
    pub fn packet(&self, bytes: &[u8]) -> Result<Packet, Exhausted> {
        self.device.pool().packet(bytes)
    }

    /// Sends packets; see [`Device::transmit`]. Never blocks. (A program that knows the time passes
    /// it to that itself.)
    pub fn transmit(&self, packets: impl Into<PacketList>) -> XmitResult {
        self.device.transmit(packets.into(), self.clock.now())
    }

    /// The device: its queues, capacity and statistics, and what can be changed while packets flow.
    pub fn device(&self) -> &Arc<Device<R, Q>> {
        &self.device
    }

    /// The clock that the sender goes by: for the times of [`Device::transmit`] and of changes.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Lets the queues run dry for at most `drain`, drops (and counts) what is left, and ends the
    /// helper. Threads that go on sending lose their packets as
    /// [`DeviceDown`](crate::stats::DropReason::DeviceDown). Blocks for at most about `drain`. (A
    /// sender without a helper is [run](Runner::run) dry before this.)
    pub fn stop(self, drain: Duration) {
        let start = Instant::now();
        // Inside a driver or a qdisc of its own it would wait for itself.
        while !is_owner_here() && start.elapsed() < drain && !self.device.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Refused where a driver stops its own sender; the device ends with its last user then.
        let _ = self.device.deactivate();
    }
}

/// Wakes the helper.
#[derive(Default)]
struct Unpark(OnceLock<Thread>);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// The helper thread. Dropping this ends it, and waits for that, except on the thread itself and
/// inside a driver or a qdisc, for which the thread may wait.
#[derive(Debug)]
struct Helper {
    notifier: Arc<Notifier>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.notifier.notify(STOP);
        let own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        let thread = self
            .thread
            .take()
            .filter(|thread| !own(thread) && !is_owner_here());
        if let Some(Err(panic)) = thread.map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
