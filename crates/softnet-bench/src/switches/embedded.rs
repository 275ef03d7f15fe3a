//! Softnet's engine inside this program, so that its counters can be read around what is
//! measured: what `softnet run` builds from a configuration of TAP ports and a bridge, buffers
//! and workers as there.

use std::time::Duration;

use softnet::mem::{Pool, PoolStats};
use softnet::time::Clock;
use softnet_engine::{Engine, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::{Buffers, InterfaceAddress, Poller, Tap, TapConfig, TapRx, TapTx};

use super::{Switch, Wiring};
use crate::buffers;
use crate::error::{BenchError, failed};
use crate::hosts::{Host, Topology};
use crate::in_process::{Counters, InProcess, conserved};

/// Time in which queued packets may still leave at the end.
pub(super) const DRAIN: Duration = Duration::from_millis(100);

/// The engine at work. Ends with the value.
struct Embedded {
    engine: Engine<OwnQueues<TapRx, TapTx>>,
    buffers: Buffers,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

/// Counters of both pools.
pub(super) fn pool_counters(sum: impl Fn(fn(&PoolStats) -> u64) -> u64) -> Counters {
    Counters {
        allocated: sum(|p| p.allocated),
        depot_ops: sum(|p| p.depot_ops),
        remote_freed: sum(|p| p.remote_freed),
        exhausted: sum(|p| p.exhausted),
        kicks: sum(|p| p.kicks),
        bypassed: sum(|p| p.bypassed),
        ..Counters::default()
    }
}

impl InProcess for Embedded {
    fn counters(&self) -> Result<Counters, BenchError> {
        let stats = self.engine.stats();
        let conservation = stats.conservation();
        let large = self.buffers.large.as_ref().map(Pool::stats);
        let pools = |of: fn(&PoolStats) -> u64| of(&stats.pool) + large.as_ref().map_or(0, of);
        let workers =
            |of: fn(&softnet_engine::rx::WorkerStats) -> u64| stats.workers.iter().map(of).sum();
        Ok(Counters {
            frames: workers(|w| w.processed),
            packets: conservation.tx,
            drops: conservation.dropped,
            handed_over: workers(|w| w.handed_over),
            wakes: workers(|w| w.wakes),
            sleeps: workers(|w| w.sleeps),
            cpu_s: crate::cpu::of_threads("softnet/")?,
            ..pool_counters(pools)
        })
    }

    fn stop(self: Box<Self>) -> Result<(), BenchError> {
        conserved(&self.engine.stop(DRAIN))
    }
}

/// Joins hosts by an [`Embedded`].
#[derive(Debug)]
pub(crate) struct EmbeddedSoftnet;

impl Switch for EmbeddedSoftnet {
    fn name(&self) -> &'static str {
        crate::report::OURS
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let buffers = self::buffers()?;
        let small = buffers.small.clone();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let pollers = (0..workers)
            .map(|_| Poller::new().map_err(|e| BenchError::io("making a worker's poller", e)))
            .collect::<Result<Vec<_>, _>>()?;
        let devices = OwnQueues::default();
        let engine = Engine::start(pollers, small, Clock::monotonic(), devices).map_err(failed)?;
        engine.add_bridge(Settings::new("br0")).map_err(failed)?;
        let mut ports = Vec::new();
        for host in &topology.hosts {
            let tap = Tap::open(&device(host, wiring)?, &buffers).map_err(failed)?;
            let setup = PortSpec {
                master: Some("br0".into()),
                ..PortSpec::new(tap.name)
            };
            let device = Opened {
                rx: tap.rx,
                tx: tap.tx,
                features: tap.features,
            };
            ports.push((setup, Some(device)));
        }
        // They receive when all are in the bridge.
        engine
            .add_opened(ports)
            .map_err(|(_, error)| failed(error))?;
        topology.engine = Some(Box::new(Embedded { engine, buffers }));
        Ok(())
    }
}

/// The buffers that `softnet run` has by default.
pub(crate) fn buffers() -> Result<Buffers, BenchError> {
    Ok(Buffers {
        small: buffers::pool(65_536, 2048)?,
        large: Some(buffers::pool(2048, 65_536)?),
    })
}

pub(super) fn device(host: &Host, wiring: Wiring) -> Result<TapConfig, BenchError> {
    let address: InterfaceAddress = host
        .prefix()
        .parse()
        .map_err(|e: softnet_io::BadAddress| BenchError::Measure(e.to_string()))?;
    Ok(TapConfig {
        queues: wiring.queues,
        addresses: vec![address],
        netns: Some(host.netns.handle().clone()),
        ..TapConfig::new(&host.interface)
    })
}
