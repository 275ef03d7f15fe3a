//! The network of the demo: two hosts, two TAP ports, one switch.
//!
//! ```text
//! host A (10.9.0.1) ── eth0 ══ port "a" ─┐
//!                                        ├─ switch "br0"
//! host B (10.9.0.2) ── eth0 ══ port "b" ─┘
//! ```
//!
//! Traffic goes from A to B, so that it is port b's qdisc that shapes it.

use std::net::Ipv4Addr;
use std::time::Duration;

use softnet::tx::DeviceStats;
use softnet_engine::{
    EngineConfig, EngineError, EngineStats, OpenPort, Opened, PortSpec, Settings,
};
use softnet_io::tap::OpenError;
use softnet_io::{
    Buffers, InterfaceAddress, Netns, NetnsError, PortDevices, PortRx, PortTx, Scheduling, Tap,
    TapConfig,
};
use softnet_tc::QdiscSpec;

use super::host::Host;
use crate::setup::{self, Engine, SetupError};

/// One worker for each processor, and no more than ports.
const WORKERS_MAX: usize = 2;
const BUFFERS: usize = 32_768;
/// Time in which queued packets may still leave at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// The network.
#[derive(Debug)]
pub(super) struct Topology {
    /// Sends.
    pub a: Host,
    /// Receives.
    pub b: Host,
    /// Worker threads.
    pub workers: usize,
    engine: Engine,
    to_b: u32,
}

/// Why it could not be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum TopologyError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Tap(#[from] OpenError),
    #[error("cannot set up the switch")]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Address(#[from] softnet_io::BadAddress),
}

impl Topology {
    /// Builds it; packets are forwarded when this returns.
    pub(super) fn build() -> Result<Topology, TopologyError> {
        let workers = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(WORKERS_MAX);
        let engine = setup::start(
            workers,
            &[],
            Scheduling::best(None).0,
            BUFFERS,
            EngineConfig::default(),
        )?;
        let buffers = &engine.devices().buffers;
        let (a, port_a) = host(buffers, "a", Ipv4Addr::new(10, 9, 0, 1))?;
        let (b, port_b) = host(buffers, "b", Ipv4Addr::new(10, 9, 0, 2))?;
        engine.add_bridge(Settings::new("br0"))?;
        let added = engine.add_opened(vec![port_a, port_b]);
        added.map_err(|(_, error)| error)?;
        let to_b = engine.link_named("b")?.index;
        Ok(Topology {
            a,
            b,
            workers,
            engine,
            to_b,
        })
    }

    /// Changes how what goes to host B is queued.
    pub(super) fn shape(&self, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        self.engine.set_qdisc(self.to_b, qdisc)
    }

    /// Wire bytes that went to host B so far.
    pub(super) fn bytes_to_b(&self) -> u64 {
        let stats = self.engine.stats();
        stats
            .ports
            .iter()
            .find(|port| port.name == "b")
            .map_or(0, |port| port.device.tx_bytes)
    }

    /// Waits, for at most `limit`, until no packet is queued.
    pub(super) fn settle(&self, limit: Duration) {
        let end = std::time::Instant::now() + limit;
        let queued = |device: &DeviceStats| device.queued != 0;
        while self
            .engine
            .stats()
            .ports
            .iter()
            .any(|port| queued(&port.device))
            && std::time::Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops everything: the devices are gone when this returns, and the counters final.
    pub(super) fn close(self) -> EngineStats {
        self.engine.stop(DRAIN)
    }
}

/// A namespace with an interface, and the port on its other side.
fn host(
    buffers: &Buffers,
    name: &str,
    address: Ipv4Addr,
) -> Result<(Host, OpenPort<PortDevices>), TopologyError> {
    let netns = Netns::anonymous()?;
    let config = TapConfig {
        addresses: vec![InterfaceAddress::new(address.into(), 24)?],
        netns: Some(netns.clone()),
        ..TapConfig::new("eth0")
    };
    let tap = Tap::open(&config, buffers)?;
    let device = Opened {
        rx: tap.rx.into_iter().map(PortRx::from).collect(),
        tx: tap.tx.into_iter().map(PortTx::from).collect(),
        features: tap.features,
    };
    let port = PortSpec {
        master: Some("br0".into()),
        ..PortSpec::new(name)
    };
    Ok((Host { netns, address }, (port, Some(device))))
}
