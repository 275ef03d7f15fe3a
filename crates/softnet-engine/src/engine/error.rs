//! Errors of control calls.

use std::error::Error;
use std::io;

use super::spec::{FDB_SIZES, Settings};
use crate::capture::CaptureError;
use crate::forward::Group;
use softnet::tx::ControlError;
use softnet::wire::EthernetAddress;
use softnet_tc::{QueueMapError, SpecError};

/// Ports of an engine at most: their numbers, plus 1, are 15 bits wide in the forwarding database.
pub(super) const MAX_PORTS: usize = i16::MAX as usize;

/// A control call was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A driver, a qdisc or an action called the engine, which might have waited for it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A driver called the engine on a worker, for which it might have waited.
    #[error("called by a worker, which would wait for itself")]
    CalledByWorker,
    /// The qdisc's parameters are wrong.
    #[error(transparent)]
    Qdisc(#[from] SpecError),
    /// The map does not fit the queues.
    #[error(transparent)]
    QueueMap(#[from] QueueMapError),
    /// The capture cannot start.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No link has this number.
    #[error("there is no link with the number {0}")]
    NoLink(u32),
    /// No link of this name.
    #[error("there is no link named `{0}`")]
    NoLinkNamed(String),
    /// The name is taken.
    #[error("there is already a link named `{0}`")]
    Exists(String),
    /// The kernel would not take this name either.
    #[error("`{0}` cannot be the name of a link: 1 to 15 bytes without `/`, `:`, `%` or spaces")]
    BadName(String),
    /// Not a unicast address.
    #[error("a link's address must be a unicast address")]
    BadAddress,
    /// Smaller than the device can have.
    #[error("mtu less than device minimum")]
    MtuTooSmall,
    /// Larger than the device can have.
    #[error("mtu greater than device maximum")]
    MtuTooLarge,
    /// Only a bridge has members.
    #[error("the link `{0}` is no bridge")]
    NoBridge(String),
    /// A bridge is no member of another, and has no queue.
    #[error("the link `{0}` is no port")]
    NoPort(String),
    /// No group of this name.
    #[error("there is no rate group named `{0}`")]
    NoGroup(String),
    /// It has ports.
    #[error("ports are in the rate group `{0}`")]
    GroupInUse(String),
    /// The device behind a port.
    #[error("the device of link `{name}` refuses")]
    Device {
        /// The link.
        name: String,
        /// The driver's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The interface was there before the port, which leaves it as it is.
    #[error(
        "the interface of `{0}` is not Softnet's to change: its MTU is followed and its address \
         stays; use `ip link set` where the interface is"
    )]
    Foreign(String),
    /// The port is part of no bridge.
    #[error("port `{0}` is part of no bridge")]
    NotInBridge(String),
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
    /// No table is made for so many addresses.
    #[error("a bridge knows 1 to {most} addresses, not {size}", most = FDB_SIZES.end())]
    BadFdbSize {
        /// The number asked for.
        size: u32,
    },
    /// The station has no such entry.
    #[error("the forwarding database has no entry for {0} there")]
    NoFdbEntry(EthernetAddress),
    /// No port can be a member of it.
    #[error("no port can be a member of {0}")]
    BadGroup(Group),
    /// The port is a member.
    #[error("the port is a member of {0} already")]
    MdbEntryExists(Group),
    /// The bridge knows as many groups as it may.
    #[error("the bridge's table of groups has no place left for {0}")]
    MdbFull(Group),
    /// The port is no member.
    #[error("the port is no such member of {0}")]
    NoMdbEntry(Group),
    /// The bridge does not look at membership.
    #[error("multicast snooping is off")]
    NoSnooping,
    /// `lo` has no VLANs.
    #[error("VLANs not supported on device")]
    NoVlans,
    /// The VLAN has a link.
    #[error("VLAN device already exists")]
    VlanExists,
    /// VLANs of VLANs.
    #[error("Device is already at maximum lower nest level")]
    TooDeep,
    /// `lo` is there for as long as the engine is.
    #[error("the link `{0}` cannot be deleted")]
    Stays(String),
    /// There are as many ports as there are numbers for them.
    #[error("an engine has at most {MAX_PORTS} ports")]
    TooManyPorts,
    /// A port without a transmit queue cannot send.
    #[error("port `{0}` has no transmit queue")]
    NoQueue(String),
    /// A worker cannot watch a queue's file.
    #[error("cannot watch a file of port `{port}`")]
    Watch {
        /// The port.
        port: String,
        /// The system's reason.
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
        /// Number of workers.
        workers: usize,
    },
    /// A worker thread could not be started.
    #[error("cannot start a worker thread")]
    Thread(#[source] io::Error),
    /// An engine without workers forwards nothing.
    #[error("an engine needs at least one worker")]
    NoWorker,
}

impl EngineError {
    /// The device behind a link refuses.
    pub(super) fn device(
        link: &Settings,
        source: impl Error + Send + Sync + 'static,
    ) -> EngineError {
        EngineError::Device {
            name: link.name.clone(),
            source: Box::new(source),
        }
    }
}
