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
mod rx;
mod spec;
pub(crate) mod sys;
mod tx;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use softnet::tx::Features;
use softnet::wire::{EthernetAddress, MAX_FRAME, VNET_HDR_LEN};

pub use link::TapLink;
pub use rx::TapRx;
pub use spec::{TapError, TapSpec};
pub use tx::TapTx;

use crate::userns::tun_hint;
use crate::{Buffers, InterfaceAddress, LinkError, Links, Netns, NetnsError};

/// The kernel's limit of queues per device.
pub const MAX_QUEUES: usize = 256;

/// An Ethernet header with two VLAN tags.
const ETHERNET: usize = 22;

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
            netns: None,
            offload: true,
            tx_queue_len: 1000,
            up: true,
            carrier: true,
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
    /// To ask what it dropped.
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
        check(config, buffers)?;
        let longest = rx::longest_frame(buffers);
        let device = match &config.netns {
            Some(netns) => netns.run(|| Device::make(config, longest))??,
            None => Device::make(config, longest)?,
        };
        let link = Arc::new(device.link);
        let mut tap = Tap {
            name: device.name,
            index: device.index,
            link: link.clone(),
            features: device.features,
            rx: Vec::with_capacity(config.queues),
            tx: Vec::with_capacity(config.queues),
        };
        for (queue, fd) in (0u16..).zip(device.queues) {
            let fd = Arc::new(fd);
            let recorded = (config.queues > 1).then_some(queue);
            // Each device is counted once.
            let link = (queue == 0).then(|| link.clone());
            tap.rx
                .push(TapRx::new(fd.clone(), recorded, buffers.clone(), link));
            tap.tx.push(TapTx::new(fd, tap.link.clone()));
        }
        Ok(tap)
    }
}

fn check(config: &TapConfig, buffers: &Buffers) -> Result<(), OpenError> {
    let name = config.name.as_bytes();
    let forbidden = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'/' | b':' | 0);
    if name.is_empty()
        || name.len() > sys::NAME_MAX
        || name.iter().any(forbidden)
        || name == b"."
        || name == b".."
    {
        return Err(OpenError::BadName(config.name.clone()));
    }
    if !(1..=MAX_QUEUES).contains(&config.queues) {
        return Err(OpenError::BadQueues(config.queues));
    }
    let max = (rx::longest_frame(buffers) - ETHERNET) as u32;
    if config.mtu > max {
        return Err(OpenError::BadMtu {
            name: config.name.clone(),
            mtu: config.mtu,
            max,
        });
    }
    Ok(())
}

/// The kernel's end, made and configured.
struct Device {
    name: String,
    index: u32,
    link: TapLink,
    features: Features,
    queues: Vec<OwnedFd>,
}

/// The kernel's end while it is made.
struct Parts {
    name: String,
    features: Features,
    queues: Vec<OwnedFd>,
}

impl Device {
    /// In the calling thread's namespace.
    fn make(config: &TapConfig, longest_frame: usize) -> Result<Device, OpenError> {
        let mut parts = Parts {
            name: config.name.clone(),
            features: Features {
                scatter_gather: true,
                mtu: config.mtu,
                ..Features::default()
            },
            queues: Vec::with_capacity(config.queues),
        };
        for _ in 0..config.queues {
            parts.add_queue(config)?;
        }
        let link =
            parts
                .configure(config, longest_frame)
                .map_err(|source| OpenError::Configure {
                    name: parts.name.clone(),
                    source,
                })?;
        let Parts {
            name,
            features,
            queues,
        } = parts;
        Ok(Device {
            name,
            index: link.index(),
            link,
            features,
            queues,
        })
    }
}

impl Parts {
    fn add_queue(&mut self, config: &TapConfig) -> Result<(), OpenError> {
        let fd = sys::open().map_err(|source| {
            let hint = tun_hint(&source);
            OpenError::Control { source, hint }
        })?;
        let mut flags = sys::TAP | sys::NO_PI | sys::VNET_HDR;
        if config.queues > 1 {
            flags |= sys::MULTI_QUEUE;
        }
        if self.queues.is_empty() {
            flags |= sys::EXCL;
        }
        self.name = sys::set_iff(fd.as_fd(), &self.name, flags).map_err(|e| match e {
            Errno::BUSY | Errno::EXIST => OpenError::Exists(self.name.clone()),
            Errno::PERM | Errno::ACCESS => OpenError::NotAllowed(self.name.clone()),
            e => self.refused("a queue", e),
        })?;
        sys::set_vnet_header_len(fd.as_fd(), VNET_HDR_LEN)
            .map_err(|e| self.refused("the length of the virtio-net header", e))?;
        sys::set_vnet_little_endian(fd.as_fd())
            .map_err(|e| self.refused("the byte order of the virtio-net header", e))?;
        self.negotiate(&fd, config.offload)?;
        self.queues.push(fd);
        Ok(())
    }

    /// Asks for as much offload as the kernel has. It is a property of the device; saying it for
    /// each queue does no harm.
    fn negotiate(&mut self, fd: &OwnedFd, wanted: bool) -> Result<(), OpenError> {
        use sys::offload::{CSUM, TSO_ECN, TSO4, TSO6, USO};
        let tcp = CSUM | TSO4 | TSO6 | TSO_ECN;
        let offers: &[u32] = if wanted {
            &[tcp | USO, tcp, CSUM, 0]
        } else {
            &[0]
        };
        for &bits in offers {
            match sys::set_offload(fd.as_fd(), bits) {
                Ok(()) => {
                    self.features = Features {
                        checksum: bits & CSUM != 0,
                        tso4: bits & TSO4 != 0,
                        tso6: bits & TSO6 != 0,
                        ecn: bits & TSO_ECN != 0,
                        uso: bits & USO != 0,
                        ..self.features
                    };
                    return Ok(());
                }
                Err(Errno::INVAL) => {}
                Err(e) => return Err(self.refused("offload", e)),
            }
        }
        Err(self.refused("offload", Errno::INVAL))
    }

    /// The interface, configured.
    fn configure(&self, config: &TapConfig, longest_frame: usize) -> Result<TapLink, LinkError> {
        let mut links = Links::open()?;
        let index = links.index(&self.name)?;
        if let Some(mac) = config.mac {
            links.set_mac(index, mac.0)?;
        }
        links.set_mtu(index, config.mtu)?;
        links.set_tx_queue_len(index, config.tx_queue_len)?;
        if longest_frame < MAX_FRAME {
            links.set_gso_max_size(index, longest_frame as u32)?;
        }
        for &address in &config.addresses {
            links.add_address(index, address)?;
        }
        // The kernel switches it on with each queue.
        if !config.carrier {
            links.set_carrier(index, false)?;
        }
        if config.up {
            links.set_up(index, true)?;
        }
        TapLink::new(links, index)
    }

    fn refused(&self, what: &'static str, e: Errno) -> OpenError {
        OpenError::Refused {
            name: self.name.clone(),
            what,
            source: e.into(),
        }
    }
}
