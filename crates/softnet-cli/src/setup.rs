//! The engine that `run` and `demo` build on: buffers, and the drivers of `softnet-io`.

use std::io;

use rustix::thread::CpuSet;
use softnet::mem::{Pool, PoolConfig, PoolError};
use softnet::time::Clock;
use softnet_engine::{EngineConfig, EngineError};
use softnet_io::{Allowed, Buffers, Poller, PortDevices};

/// An engine over every driver.
pub(crate) type Engine = softnet_engine::Engine<PortDevices>;

/// Bytes of a buffer: an Ethernet frame of 1,792 bytes fits in one.
const SMALL: usize = 2048;
/// Bytes of a buffer for large frames: fits what a TAP device delivers at once.
const LARGE: usize = 65_536;
/// One large buffer for so many small ones: half of the memory each, when all of it is in use.
const LARGE_SHARE: usize = 32;
/// Large buffers at most: more large frames than that queue up only where the queue is too long
/// anyway.
const LARGE_MAX: usize = 4096;

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// No buffers.
    #[error("cannot make the packet pool")]
    Pool(#[from] PoolError),
    /// No place to sleep.
    #[error("cannot make a worker's epoll instance")]
    Poller(#[source] io::Error),
    /// A worker's CPU.
    #[error("worker {worker} cannot run on CPU {cpu}: it may be any of {allowed}")]
    Cpu {
        /// The worker.
        worker: usize,
        /// The CPU it was to run on.
        cpu: usize,
        /// CPUs that the system lets this process have.
        allowed: String,
    },
    /// No workers.
    #[error("cannot start the engine")]
    Engine(#[from] EngineError),
}

/// Starts an engine without ports, and makes the buffers that its ports receive into. `cpus` names
/// the CPU of each worker, or is empty; `scheduling` is a class that they may have.
pub(crate) fn start(
    workers: usize,
    cpus: &[usize],
    scheduling: Allowed,
    buffers: usize,
    settings: EngineConfig,
) -> Result<Engine, SetupError> {
    let small = Pool::new(PoolConfig {
        buffers,
        buffer_size: SMALL,
    })?;
    let large = (buffers / LARGE_SHARE).clamp(8, LARGE_MAX);
    let large = Pool::new(PoolConfig {
        buffers: large,
        buffer_size: LARGE,
    })?;
    check_cpus(cpus)?;
    let poller = |worker| {
        let poller = Poller::new()?.scheduled(scheduling);
        Ok(match cpus.get(worker) {
            Some(&cpu) => poller.on_cpu(cpu),
            None => poller,
        })
    };
    let pollers: Vec<Poller> = (0..workers)
        .map(poller)
        .collect::<io::Result<_>>()
        .map_err(SetupError::Poller)?;
    let pool = small.clone();
    let buffers = Buffers {
        small,
        large: Some(large),
    };
    let devices = PortDevices::new(buffers);
    let engine = Engine::with_config(pollers, pool, Clock::monotonic(), settings, devices);
    Ok(engine?)
}

/// Refuses CPUs on which the workers may not run.
fn check_cpus(cpus: &[usize]) -> Result<(), SetupError> {
    // If the system does not tell, it will not tie the workers either.
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Ok(());
    };
    let may = |cpu| cpu < CpuSet::MAX_CPU && set.is_set(cpu);
    match cpus.iter().position(|&cpu| !may(cpu)) {
        None => Ok(()),
        Some(worker) => {
            let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| may(cpu));
            let allowed: Vec<String> = allowed.map(|cpu| cpu.to_string()).collect();
            Err(SetupError::Cpu {
                worker,
                cpu: cpus[worker],
                allowed: allowed.join(", "),
            })
        }
    }
}
