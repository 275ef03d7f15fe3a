//! The steps that take rights: sockets (`CAP_NET_RAW`), and the program that leads frames to them
//! (`CAP_NET_ADMIN` and `CAP_BPF`, of the system and not of a user namespace).
//!
//! Between the two the caller, whose memory it is, registers it and binds the sockets, which takes
//! none. So frames are led to sockets that take them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use super::sys::Mode;
use super::{MAX_MTU, MAX_QUEUES, sys};
use crate::interface::{self, Found, InterfaceError, ToOpen};
use crate::link_events::{InterfaceState, Seen};
use crate::rights::{Ledger, Performed, Privileged, Subject};
use crate::{Links, NetnsSpec};

/// Bytes that may be on their way to the interface in copy mode, as the kernel counts them (a frame
/// counts up to 2,300). It allows twice as many.
const SEND_BUFFER: i32 = 2 << 20;

/// Opens the sockets of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub(super) interface: String,
    pub(super) queues: usize,
}

/// Leads frames of an interface to sockets, one for each receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    pub(super) interface: String,
}

/// An interface that was opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The interface's index in its namespace.
    pub(super) index: u32,
    /// It takes VLAN tags off what it receives.
    pub(super) takes_tags_off: bool,
}

/// A program that was attached.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attached {
    /// It runs in the driver.
    pub(super) native: bool,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// The interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Too few or too many.
    #[error("a port of driver af_xdp has 1 to {MAX_QUEUES} queues, not {0}")]
    BadQueues(usize),
    /// Another number than the interface has: frames at other queues would pass the port by.
    #[error(
        "the interface '{interface}' has {has} receive queues, and the port {queues}: write \
         `queues = {has}`, or `ethtool -L {interface} combined {queues}`"
    )]
    OtherQueues {
        /// The interface.
        interface: String,
        /// Receive queues of the interface.
        has: u32,
        /// Queues of the port.
        queues: usize,
    },
    /// Frames that do not fit in a buffer.
    #[error(
        "the interface '{interface}' has an MTU of {mtu}, and driver af_xdp takes up to {MAX_MTU}; \
         lower it, or use af_packet"
    )]
    LongMtu {
        /// The interface.
        interface: String,
        /// The interface's longest IP packet in bytes.
        mtu: u32,
    },
    /// The interface has an XDP program.
    #[error("the interface '{0}' has an XDP program already (`ip link set {0} xdp off`)")]
    HasProgram(String),
    /// Another socket has the queue.
    #[error("another program uses queue {queue} of the interface '{interface}' by XDP")]
    InUse {
        /// The interface.
        interface: String,
        /// The queue.
        queue: usize,
    },
    /// The pool cannot be a socket's memory.
    #[error("driver af_xdp takes pools of buffers of 2048 or 4096 bytes, at pages")]
    Memory,
    /// The pool has no buffer for a queue.
    #[error("no buffers are left to receive into")]
    NoBuffers,
    /// The memory may not be locked.
    #[error(
        "not allowed to lock the {bytes} bytes of the pool, which count once for each af_xdp port: \
         raise the limit of locked memory (`ulimit -l`, `LimitMEMLOCK=`), or give the pool fewer \
         buffers"
    )]
    Locked {
        /// Bytes of the pool.
        bytes: u64,
    },
}

/// An interface to open.
fn to_open(interface: &str) -> ToOpen<'_> {
    ToOpen {
        interface,
        needs: "XDP takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, which a user namespace does not \
                give",
    }
}

/// A step on an interface that was refused.
pub(super) fn refused(interface: &str, what: &'static str) -> impl Fn(Errno) -> AfXdpError {
    let refused = to_open(interface).refused(what);
    move |error| refused(error).into()
}

impl Privileged for Open {
    type Answer = Opened;
    type Error = AfXdpError;

    fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
        Some(interface::subject(place, &self.interface))
    }

    /// Files: events of the interface, a socket by which it is promiscuous, and an XDP socket for
    /// each queue.
    fn perform(self, _: Vec<OwnedFd>, _: &Ledger) -> Performed<Opened, AfXdpError> {
        let Open { interface, queues } = self;
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(AfXdpError::BadQueues(queues));
        }
        let refused = |what| refused(&interface, what);
        let found = to_open(&interface).find()?;
        let Found {
            index,
            name,
            events,
        } = found;
        if let Seen::Is(InterfaceState { mtu: Some(mtu), .. }) = events.state(index)
            && mtu > MAX_MTU
        {
            return Err(AfXdpError::LongMtu { interface, mtu });
        }
        let has = sys::receive_queues(events.fd(), &name);
        if let Some(has) = has.filter(|&has| has as usize != queues) {
            return Err(AfXdpError::OtherQueues {
                interface,
                has,
                queues,
            });
        }
        let takes_tags_off = sys::takes_tags_off(events.fd(), &name);
        let promiscuous = to_open(&interface).packet_socket()?;
        crate::af_packet::be_promiscuous(promiscuous.as_fd(), index)
            .map_err(refused("promiscuous mode"))?;
        let mut files = vec![OwnedFd::from(events), promiscuous];
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..queues {
            let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
                .map_err(refused("an XDP socket"))?;
            // As much as the user may have.
            let _ = sys::set_send_buffer(socket.as_fd(), SEND_BUFFER);
            files.push(socket);
        }
        let opened = Opened {
            index,
            takes_tags_off,
        };
        Ok((opened, files))
    }
}

impl Privileged for Attach {
    type Answer = Attached;
    type Error = AfXdpError;

    fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
        Some(interface::subject(place, &self.interface))
    }

    /// Takes the sockets, bound, in the order of the queues. The file keeps the program attached.
    fn perform(self, sockets: Vec<OwnedFd>, _: &Ledger) -> Performed<Attached, AfXdpError> {
        let Attach { interface } = self;
        if !(1..=MAX_QUEUES).contains(&sockets.len()) {
            return Err(AfXdpError::BadQueues(sockets.len()));
        }
        let refused = |what| refused(&interface, what);
        let links = Links::open().map_err(InterfaceError::from)?;
        let index = links.index(&interface).map_err(InterfaceError::from)?;
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        let map = sys::socket_map(&sockets).map_err(refused("a map of XDP sockets"))?;
        let program = sys::program(map.as_fd()).map_err(refused("an XDP program"))?;
        let attach = |mode| sys::attach(program.as_fd(), index, mode);
        let (link, native) = match attach(Mode::Native) {
            Ok(link) => (link, true),
            Err(Errno::BUSY | Errno::EXIST) => return Err(AfXdpError::HasProgram(interface)),
            Err(error @ Errno::PERM) => {
                return Err(refused("to attach an XDP program")(error));
            }
            // The driver knows no XDP, or not with its settings.
            Err(_) => match attach(Mode::Generic) {
                Ok(link) => (link, false),
                Err(Errno::BUSY | Errno::EXIST) => return Err(AfXdpError::HasProgram(interface)),
                Err(error) => return Err(refused("to attach an XDP program")(error)),
            },
        };
        Ok((Attached { native }, vec![link]))
    }
}
