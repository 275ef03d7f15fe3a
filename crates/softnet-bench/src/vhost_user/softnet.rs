//! Softnet's back ends: the driver alone, and the switch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use softnet::mem::PacketList;
use softnet::stats::DropCounters;
use softnet::time::Clock;
use softnet::tx::{Sent, TxRing as _};
use softnet_engine::rx::{Receive, RxQueue as _, WEIGHT};
use softnet_engine::{Engine, EngineStats, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::vhost_user::{SocketSpec, VhostUser};
use softnet_io::{Buffers, Poller, VhostUserRx, VhostUserTx};

use super::BackEnd;
use crate::buffers::pinned;
use crate::cpu;
use crate::error::{BenchError, failed};
use crate::in_process::conserved;
use crate::switches::buffers;

/// Time in which queued packets may still leave at the end.
const DRAIN: Duration = Duration::from_millis(100);
/// Longest IP packet.
const MTU: u32 = 1500;

/// The back end of the socket `path`, which it makes, with `queues` queue pairs.
pub(super) fn open(
    path: &Path,
    queues: usize,
    buffers: &Buffers,
) -> Result<VhostUser, BenchError> {
    let socket = SocketSpec {
        path: path.to_owned(),
        server: true,
        mode: 0o600,
        group: None,
    };
    VhostUser::open(&socket.into(), queues, MTU, buffers).map_err(failed)
}

/// A thread that sends back what it receives, with the addresses exchanged.
#[derive(Debug)]
pub(super) struct Reflector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), BenchError>>>,
}

impl Reflector {
    /// Starts it on `cpu`.
    pub(super) fn start(path: &Path, cpu: usize) -> Result<Reflector, BenchError> {
        let mut port = open(path, 1, &buffers()?)?;
        let (Some(rx), Some(tx)) = (port.rx.pop(), port.tx.pop()) else {
            return Err(BenchError::Measure("the port has no queues".to_owned()));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("reflect".to_owned())
            .spawn(move || {
                pinned::pin(cpu)?;
                reflect(rx, tx, &stopped);
                Ok(())
            })
            .map_err(|e| BenchError::io("starting a thread", e))?;
        Ok(Reflector {
            stop,
            thread: Some(thread),
        })
    }

    fn end(&mut self) -> Result<(), BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let ended = thread.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl BackEnd for Reflector {
    fn stop(mut self: Box<Self>) -> Result<(), BenchError> {
        self.end()
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        // Reported where it was asked for.
        let _ = self.end();
    }
}

/// Sends back what it receives; packets that it cannot send yet it tries again, before it receives
/// more.
fn reflect(mut rx: VhostUserRx, mut tx: VhostUserTx, stop: &AtomicBool) {
    let clock = Clock::monotonic();
    // Drops are no part of what is measured here.
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    while !stop.load(Ordering::Relaxed) {
        if packets.is_empty() {
            rx.poll(&mut Receive::new(WEIGHT, clock.now(), &mut packets, &drops));
            packets.for_each_mut(|packet| {
                if let Some(addresses) = packet.data_mut().get_mut(..12) {
                    addresses.rotate_left(6);
                }
            });
        }
        if !packets.is_empty() {
            tx.xmit(&mut packets, &mut Sent::default());
        }
    }
}

/// The settings of a [`Switch`].
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// Queues of each port.
    pub(super) queues: usize,
    /// The CPU of each worker.
    pub(super) cpus: Vec<usize>,
    /// Buffers return to the worker that allocated them.
    pub(super) defer: bool,
    /// The workers that the flows of each port are shared out over (RPS).
    pub(super) rps: Vec<usize>,
}

impl Setup {
    /// One worker, on `cpu`, and one queue pair a port.
    pub(super) fn on(cpu: usize) -> Setup {
        Setup {
            queues: 1,
            cpus: vec![cpu],
            defer: true,
            rps: Vec::new(),
        }
    }
}

/// The engine with a port for each socket, all on one bridge.
pub(super) struct Switch {
    engine: Engine<OwnQueues<VhostUserRx, VhostUserTx>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").finish_non_exhaustive()
    }
}

impl Switch {
    pub(super) fn start(sockets: &[PathBuf], setup: &Setup) -> Result<Switch, BenchError> {
        let buffers = buffers()?;
        let pools = [Some(&buffers.small), buffers.large.as_ref()];
        for pool in pools.into_iter().flatten().filter(|_| !setup.defer) {
            pool.set_defer_max(0);
        }
        let poller = |&cpu: &usize| {
            let poller = Poller::new().map_err(|e| BenchError::io("making a poller", e))?;
            Ok::<_, BenchError>(poller.on_cpu(cpu))
        };
        let pollers = setup.cpus.iter().map(poller).collect::<Result<_, _>>()?;
        let (pool, clock) = (buffers.small.clone(), Clock::monotonic());
        let engine = Engine::start(pollers, pool, clock, OwnQueues::default());
        let engine = engine.map_err(failed)?;
        engine.add_bridge(Settings::new("br0")).map_err(failed)?;
        for (number, socket) in sockets.iter().enumerate() {
            let opened = open(socket, setup.queues, &buffers)?;
            let mut port = PortSpec {
                master: Some("br0".into()),
                ..PortSpec::new(format!("vm{number}"))
            };
            let device = Opened {
                rx: opened.rx,
                tx: opened.tx,
                features: opened.features,
            };
            port.options.steering.rps = setup.rps.clone();
            engine.add_port_with(port, device).map_err(failed)?;
        }
        Ok(Switch { engine })
    }

    /// The switch's statistics.
    pub(super) fn stats(&self) -> EngineStats {
        self.engine.stats()
    }
}

impl BackEnd for Switch {
    fn drops(&self) -> Option<u64> {
        Some(self.engine.stats().conservation().dropped)
    }

    fn cpu_s(&self) -> Option<f64> {
        cpu::of_threads("softnet/").ok()
    }

    fn stop(self: Box<Self>) -> Result<(), BenchError> {
        conserved(&self.engine.stop(DRAIN))
    }
}
