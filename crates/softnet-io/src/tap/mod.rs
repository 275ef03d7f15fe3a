//! TAP devices: a kernel network interface whose other end is this process.
//!
//! Frames carry a virtio-net header both ways, so that large frames (TCP and UDP segmentation
//! offload) and missing checksums cross in one piece. A device has one or more queues; each is a
//! file, read by [`TapRx`] and written by [`TapTx`], one frame per system call. (Plain `read` and
//! `write`, not io_uring: see `docs/results/tap-io.md`.)
//!
//! The device exists as long as one of its queues does, unless it is removed from outside: then
//! [`Polled::gone`](softnet_engine::rx::Polled) tells. Only [`Tap::open`] may block, for the
//! kernel to configure the interface.

mod link;
mod make;
mod rx;
mod spec;
pub(crate) mod sys;
mod tx;

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use softnet::tx::Features;
use softnet::wire::EthernetAddress;

pub use link::TapLink;
pub use make::Make;
pub use rx::TapRx;
pub use spec::{TapError, TapFile, TapSpec};
pub use tx::TapTx;

use make::{Device, Files};

use crate::{Buffers, InterfaceAddress, InterfaceRoute, LinkError, Netns, NetnsError};

/// The kernel's limit of queues per device.
pub const MAX_QUEUES: usize = 256;

/// Parameters of a device to make.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// The interface's name, at most 15 bytes. It may end in `%d` for a number that the kernel
    /// chooses.
    pub name: String,
    /// Queues each way, 1 to [`MAX_QUEUES`].
    pub queues: usize,
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// The kernel's end's Ethernet address; random if `None`.
    pub mac: Option<EthernetAddress>,
    /// The kernel's end's IP addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Routes through the kernel's end, if it is up.
    pub routes: Vec<InterfaceRoute>,
    /// The namespace of the kernel's end; the calling thread's if `None`.
    pub netns: Option<Netns>,
    /// Large frames and frames with a missing checksum may cross.
    pub offload: bool,
    /// Packets that wait to be read, per queue; what comes on top is dropped by the kernel.
    pub tx_queue_len: u32,
    /// The interface is taken up.
    pub up: bool,
    /// The interface has a carrier: without one the kernel sends nothing to it.
    pub carrier: bool,
    /// Where the device comes from.
    pub source: TapSource,
}

/// Origin of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapSource {
    /// It is made. It must not be there yet, and goes with its last queue.
    #[default]
    Make,
    /// It is there, made by somebody else (`ip tuntap add`), and its interface is left as it is:
    /// address, MTU, state and addresses of the configuration are not used. If it is persistent it
    /// stays. Takes `CAP_NET_ADMIN`, or to be its owner.
    Attach,
    /// As [`Attach`](TapSource::Attach), by a file of this process that is one of its queues.
    File(i32),
    /// It is there, with all of its queues, whose files another process handed off.
    Handed {
        /// A port made it, so that its interface is as the port's link is.
        own: bool,
        /// It has the name that the configuration says.
        named: bool,
    },
}

impl TapConfig {
    /// A device of one queue with offload, MTU 1500 and a queue of 1000 packets, up, without an
    /// address, in the calling thread's namespace.
    pub fn new(name: impl Into<String>) -> TapConfig {
        TapConfig {
            name: name.into(),
            queues: 1,
            mtu: 1500,
            mac: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            netns: None,
            offload: true,
            tx_queue_len: 1000,
            up: true,
            carrier: true,
            source: TapSource::Make,
        }
    }
}

/// Why a TAP device could not be made. The device does not exist then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel does not allow such a name.
    #[error(
        "'{0}' cannot be the name of an interface: 1 to {max} bytes without '/', ':' or spaces",
        max = sys::NAME_MAX
    )]
    BadName(String),
    /// Too few or too many.
    #[error("a TAP device has 1 to {MAX_QUEUES} queues, not {0}")]
    BadQueues(usize),
    /// A packet of that size would not fit.
    #[error(
        "the MTU of the TAP device '{name}' can be at most {max} with these packet buffers, \
         not {mtu}"
    )]
    BadMtu {
        /// The device.
        name: String,
        /// The MTU asked for.
        mtu: u32,
        /// The longest packet that fits the buffers.
        max: u32,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The control device does not open.
    #[error("cannot open /dev/net/tun; {hint}")]
    Control {
        /// The system's reason.
        source: io::Error,
        /// A way to help it.
        hint: &'static str,
    },
    /// The device that is to be used is not there.
    #[error(
        "there is no TAP device '{0}' in this network namespace; make it with `ip tuntap add`"
    )]
    Missing(String),
    /// The device that is to be used has another one at its queues.
    #[error("the TAP device '{0}' is in use, or has fewer queues than are asked for")]
    InUse(String),
    /// The device that is to be used is of another kind.
    #[error(
        "'{0}' cannot be used: it is no TAP device, or has not as many queues as are asked for \
         (`ip tuntap add mode tap multi_queue` makes one that has several)"
    )]
    OtherKind(String),
    /// The file that is to be used is no queue of a TAP device with virtio-net headers.
    #[error(
        "file {0} of this process is no queue of a TAP device that was opened with IFF_TAP, \
         IFF_NO_PI and IFF_VNET_HDR"
    )]
    BadFile(i32),
    /// The file that is to be used is not there.
    #[error(
        "this process was not started with a file named {0:?} (systemd: `FileDescriptorName=`, \
         `OpenFile=`)"
    )]
    NoFile(String),
    /// Files that were handed off are other devices' queues, or not all of the device's.
    #[error("the files that were handed off are not the queues of the TAP device '{0}'")]
    OtherFiles(String),
    /// An interface of that name exists in the namespace.
    #[error("an interface named '{0}' exists already in this network namespace")]
    Exists(String),
    /// The user may not make devices there.
    #[error(
        "not allowed to make a TAP device '{0}': it takes CAP_NET_ADMIN in the network namespace; \
         be root, or have namespaces of your own, as `unshare -Urn` makes them"
    )]
    NotAllowed(String),
    /// The kernel refused a step.
    #[error("cannot make the TAP device '{name}': {what} was refused")]
    Refused {
        /// The device.
        name: String,
        /// The step.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The device was made but could not be configured.
    #[error("cannot configure the TAP device '{name}'")]
    Configure {
        /// The device.
        name: String,
        /// Which request failed.
        source: LinkError,
    },
}

/// An open TAP device.
#[derive(Debug)]
pub struct Tap {
    /// The interface's name.
    pub name: String,
    /// Index in its namespace.
    pub index: u32,
    /// To ask what it dropped. The device is there as long as this, too.
    pub link: Arc<TapLink>,
    /// Features of what may be written to it.
    pub features: Features,
    /// One per queue.
    pub rx: Vec<TapRx>,
    /// One per queue.
    pub tx: Vec<TapTx>,
}

impl Tap {
    /// Makes the device, configures it and takes it up.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &TapConfig, buffers: &Buffers) -> Result<Tap, OpenError> {
        let make = Make::new(config, rx::longest_frame(buffers));
        let files = match config.source {
            TapSource::File(number) => vec![make::own_file(number)?],
            _ => Vec::new(),
        };
        let device = match &config.netns {
            Some(netns) => netns.run(|| make.device(files))??,
            None => make.device(files)?,
        };
        Ok(Tap::of(device, buffers))
    }

    /// A device that was made.
    fn of(device: Device, buffers: &Buffers) -> Tap {
        let Device { made, files } = device;
        let Files {
            links,
            events,
            queues,
        } = files;
        let queues: Vec<_> = queues.into_iter().map(Arc::new).collect();
        let sockets = (links, events);
        let link = Arc::new(TapLink::new(sockets, made.index, made.up, queues.clone()));
        let mut tap = Tap {
            features: made.features(),
            name: made.name,
            index: made.index,
            link: link.clone(),
            rx: Vec::with_capacity(queues.len()),
            tx: Vec::with_capacity(queues.len()),
        };
        let several = queues.len() > 1;
        for (queue, fd) in (0u16..).zip(queues) {
            let recorded = several.then_some(queue);
            // Each device is counted once.
            let link = (queue == 0).then(|| link.clone());
            tap.rx
                .push(TapRx::new(fd.clone(), recorded, buffers.clone(), link));
            tap.tx.push(TapTx::new(fd, tap.link.clone()));
        }
        tap
    }
}
