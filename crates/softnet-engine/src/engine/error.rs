//! Why a control call is refused.

use std::io;

use super::state::MAX_PORTS;
use softnet::tx::QueueMapError;
use softnet::wire::EthernetAddress;
use softnet_tc::SpecError;

/// Why a control call was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The qdisc's parameters are wrong.
    #[error(transparent)]
    Qdisc(#[from] SpecError),
    /// The map does not fit the queues.
    #[error(transparent)]
    QueueMap(#[from] QueueMapError),
    /// The name is taken.
    #[error("there is already a port named `{0}`")]
    DuplicatePort(String),
    /// The name is taken.
    #[error("there is already a bridge named `{0}`")]
    DuplicateBridge(String),
    /// The port is part of a bridge, or named twice.
    #[error("port `{0}` is already part of a bridge")]
    InBridge(String),
    /// The port is part of no bridge.
    #[error("port `{0}` is part of no bridge")]
    NotInBridge(String),
    /// The port was removed, or belongs to another engine.
    #[error("there is no such port in this engine")]
    NoSuchPort,
    /// The bridge was removed, or belongs to another engine.
    #[error("there is no such bridge in this engine")]
    NoSuchBridge,
    /// VLANs have numbers from 1 to 4094.
    #[error("there is no VLAN {0}; VLANs are numbered from 1 to 4094")]
    BadVlan(u16),
    /// The port does not have the VLAN.
    #[error("port `{port}` is not part of VLAN {vlan}")]
    NoVlan {
        /// The port.
        port: String,
        /// The VLAN.
        vlan: u16,
    },
    /// Group addresses and zero are no station's.
    #[error("{0} is not the address of a station")]
    BadStation(EthernetAddress),
    /// Nothing moves a permanent entry anyway.
    #[error("a permanent entry cannot be sticky")]
    StickyPermanent,
    /// The station has an entry.
    #[error("the forwarding database has an entry for {0} already")]
    FdbEntryExists(EthernetAddress),
    /// Only static entries are where it would have its place.
    #[error("the forwarding database has no place left for {0}")]
    FdbFull(EthernetAddress),
    /// The station has no such entry.
    #[error("the forwarding database has no entry for {0} there")]
    NoFdbEntry(EthernetAddress),
    /// There are as many ports as there are numbers for them.
    #[error("an engine has at most {MAX_PORTS} ports")]
    TooManyPorts,
    /// A port without a transmit queue cannot send.
    #[error("port `{0}` has no transmit queue")]
    NoQueue(String),
    /// The port has receive queues.
    #[error("port `{0}` has receive queues already")]
    Receives(String),
    /// A worker cannot watch a queue's file.
    #[error("cannot watch a file of port `{port}`")]
    Watch {
        /// The port.
        port: String,
        /// What the system says.
        source: io::Error,
    },
    /// All events of the workers are in use.
    #[error(
        "the engine serves at most {0} transmit queues; use fewer ports or queues, or more workers"
    )]
    TooManyQueues(usize),
    /// Packets cannot be steered to a worker that does not exist.
    #[error("there is no worker {worker}; the engine has {workers}, numbered from 0")]
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// A worker thread could not be started.
    #[error("cannot start a worker thread")]
    Thread(#[source] io::Error),
    /// An engine without workers forwards nothing.
    #[error("an engine needs at least one worker")]
    NoWorker,
}
