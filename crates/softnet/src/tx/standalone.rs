//! A device without an engine, for programs that embed the transmit path: many threads send, one
//! helper thread serves what their bounded runs leave (quotas, rate limits, a driver that was
//! full), and restarts a driver that is stuck. The helper sleeps while there is nothing to do,
//! but for a look at the driver every second: a sender's run that ends because the driver is full
//! wakes nobody, and if the driver never answers, nobody else will.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::down::WATCHDOG_PERIOD;
use super::notifier::{Notifier, Wake};
use super::policy::HELPER_QUOTA;
use super::{Device, DeviceConfig, Qdiscs, TxRing};
use crate::mem::Pool;
use crate::qdisc::Qdisc;
use crate::time::{Clock, Time};

/// Bell of the thread itself; queue `n` has bell `n + 1`.
const STOP: usize = 0;

/// Wakes the helper.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// A device without an engine: any number of threads send, one helper thread serves what their
/// bounded runs leave, restarts a driver that has taken nothing for
/// [`WATCHDOG_TIMEO`](super::WATCHDOG_TIMEO) (see [`Device::watchdog`]), and sleeps when there is
/// nothing to do. Dropping it ends the helper at once: what waits stays in the device and is
/// freed with it; see [`stop`](Standalone::stop) for an orderly end.
#[derive(Debug)]
pub struct Standalone<R, Q> {
    device: Arc<Device<R, Q>>,
    notifier: Arc<Notifier>,
    stop: Arc<AtomicBool>,
    helper: Option<JoinHandle<()>>,
}

/// Why a standalone device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// The helper thread could not be started.
    #[error("cannot start the helper thread")]
    Thread(#[source] std::io::Error),
}

impl<R: TxRing + 'static, Q: Qdisc + 'static> Standalone<R, Q> {
    /// Makes a device with one transmit queue for each ring, and starts its helper thread.
    /// `clock` is the one by which senders pass `now`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        config: DeviceConfig,
        rings: Vec<R>,
        qdiscs: Qdiscs<Q>,
        pool: &Pool,
        clock: Clock,
    ) -> Result<Self, StandaloneError> {
        let (send, receive) = std::sync::mpsc::channel::<(Arc<Device<R, Q>>, Arc<Notifier>)>();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let helper = std::thread::Builder::new()
            .name(format!("tx/{}", config.name))
            .spawn(move || {
                if let Ok((device, notifier)) = receive.recv() {
                    serve(&device, &notifier, &stopped, &clock);
                }
            })
            .map_err(StandaloneError::Thread)?;
        // From here on, an early return drops `send`, which ends the helper.
        let wake = Arc::new(Unpark(helper.thread().clone()));
        let notifier = Arc::new(Notifier::new(rings.len() + 1, wake));
        let workers: Vec<_> = (0..rings.len())
            .map(|queue| (notifier.clone(), queue + 1))
            .collect();
        let device = Arc::new(Device::new(config, rings, qdiscs, pool, &workers));
        // The helper waits for just this message, so it is there to take it.
        let _ = send.send((device.clone(), notifier.clone()));
        Ok(Standalone {
            device,
            notifier,
            stop,
            helper: Some(helper),
        })
    }

    /// The device, for any number of threads to send through.
    pub fn device(&self) -> &Arc<Device<R, Q>> {
        &self.device
    }
}

/// Times that the helper gives the CPU away, with nothing to do, before it sleeps: to wake it
/// costs a sender more than all its own work.
const GIVE_WAY: u32 = 4;

/// Runs queues whose bell rang or whose time has come, and looks after the driver.
fn serve<R: TxRing, Q: Qdisc>(
    device: &Device<R, Q>,
    notifier: &Notifier,
    stop: &AtomicBool,
    clock: &Clock,
) {
    let mut timers = vec![Time::MAX; device.queues().len()];
    let mut due = Vec::new();
    let mut idle = 0;
    let mut look = clock.now() + WATCHDOG_PERIOD;
    while !stop.load(Ordering::Relaxed) {
        notifier.take(|bell| due.extend(bell.checked_sub(STOP + 1)));
        let now = clock.now();
        if look <= now {
            device.watchdog(now);
            look = now + WATCHDOG_PERIOD;
        }
        due.extend((0..timers.len()).filter(|&queue| timers[queue] <= now));
        if !due.is_empty() {
            idle = 0;
        } else if idle < GIVE_WAY {
            idle += 1;
            std::thread::yield_now();
        } else {
            idle = 0;
            let next = timers.iter().fold(look, |next, &timer| next.min(timer));
            let on = || !stop.load(Ordering::Relaxed);
            notifier.sleep_if(on, || std::thread::park_timeout(next.since(clock.now())));
        }
        for queue in due.drain(..) {
            timers[queue] = device
                .run_from_worker(queue, HELPER_QUOTA, now)
                .unwrap_or(Time::MAX);
        }
    }
}

impl<R: TxRing + 'static, Q: Qdisc + 'static> Standalone<R, Q> {
    /// Lets the queues run dry for at most `drain`, drops (and counts) what is left, and ends the
    /// helper. Threads that go on sending lose their packets as
    /// [`DeviceDown`](crate::stats::DropReason::DeviceDown). Blocks for at most about `drain`.
    pub fn stop(self, drain: Duration) {
        let start = Instant::now();
        let queues = self.device.queues();
        while start.elapsed() < drain && !queues.iter().all(|queue| queue.is_empty()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.device.deactivate();
    }
}

impl<R, Q> Drop for Standalone<R, Q> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.notifier.notify(STOP);
        if let Some(Err(panic)) = self.helper.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}
