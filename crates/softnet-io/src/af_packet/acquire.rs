//! The files of a port, whose opening takes `CAP_NET_RAW` (and `CAP_SYS_ADMIN` for another
//! namespace).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use super::{MAX_QUEUES, sys};
use crate::interface::{self, Found, InterfaceError, ToOpen};
use crate::link_events::LinkEvents;
use crate::rights::{self, AskError, Ledger, Performed, Privileged, Subject};
use crate::{Links, NetnsSpec};

/// Bytes that may wait in a socket's receive buffer, as the kernel counts them (a small frame
/// counts 768, a large one 70,000). It allows twice as many.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Opens the sockets of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub(super) interface: String,
    pub(super) queues: usize,
    /// The sockets are there: another process handed them off.
    pub(super) handed: bool,
}

/// An interface that was opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The interface's index in its namespace.
    index: u32,
    /// The kernel cuts large UDP frames.
    udp_segmentation: bool,
}

/// All that an open port has of the system.
#[derive(Debug)]
pub(crate) struct Files {
    /// A packet socket for each queue.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Tells of changes of the interface.
    pub(crate) events: LinkEvents,
    /// The interface's index in its namespace.
    pub(crate) index: u32,
    /// The kernel cuts large UDP frames.
    pub(crate) udp_segmentation: bool,
}

impl Privileged for Open {
    type Answer = Opened;
    type Error = AfPacketError;

    fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
        Some(interface::subject(place, &self.interface))
    }

    fn perform(self, handed: Vec<OwnedFd>, _: &Ledger) -> Performed<Opened, AfPacketError> {
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(AfPacketError::BadQueues(self.queues));
        }
        let Files {
            sockets,
            events,
            index,
            udp_segmentation,
        } = match self.handed {
            true => taken(&self, handed)?,
            false => here(&self)?,
        };
        let mut files = vec![OwnedFd::from(events)];
        files.extend(sockets);
        let opened = Opened {
            index,
            udp_segmentation,
        };
        Ok((opened, files))
    }
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AfPacketError {
    /// The interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Too few or too many.
    #[error("a port of driver af_packet has 1 to {MAX_QUEUES} queues, not {0}")]
    BadQueues(usize),
    /// Sockets that were handed off are others.
    #[error("the sockets that were handed off are not those of the interface '{0}'")]
    OtherSockets(String),
}

/// Opens the sockets of a port in a namespace (ours if `None`), or takes `handed` ones. They
/// receive from then on.
pub(crate) fn acquire(
    netns: Option<&NetnsSpec>,
    open: Open,
    handed: &[BorrowedFd<'_>],
) -> Result<Files, AskError<AfPacketError>> {
    let (
        Opened {
            index,
            udp_segmentation,
        },
        files,
    ) = rights::ask(netns, open, handed)?;
    let mut files = files.into_iter();
    let missing = || AskError::Channel(io::ErrorKind::InvalidData.into());
    Ok(Files {
        events: files.next().ok_or_else(missing)?.into(),
        sockets: files.collect(),
        index,
        udp_segmentation,
    })
}

/// Sockets that another process opened at the interface, which is in the calling thread's
/// namespace.
fn taken(request: &Open, sockets: Vec<OwnedFd>) -> Result<Files, AfPacketError> {
    let other = || AfPacketError::OtherSockets(request.interface.clone());
    let links = Links::open().map_err(InterfaceError::from)?;
    let index = links.index(&request.interface);
    let index = index.map_err(InterfaceError::from)?;
    let events = LinkEvents::open(index).map_err(InterfaceError::from)?;
    let mut udp_segmentation = false;
    for socket in &sockets {
        let bound = sys::bound_to(socket.as_fd()).map_err(|_| other())?;
        if bound != Some(index) {
            return Err(other());
        }
        udp_segmentation = sys::set_vnet_header(socket.as_fd()).map_err(|_| other())?;
    }
    if sockets.len() != request.queues {
        return Err(other());
    }
    Ok(Files {
        sockets,
        events,
        index,
        udp_segmentation,
    })
}

/// In the calling thread's namespace.
fn here(request: &Open) -> Result<Files, AfPacketError> {
    let interface = ToOpen {
        interface: &request.interface,
        needs: "packet sockets take CAP_NET_RAW in its network namespace",
    };
    let refused = |what| interface.refused(what);
    let Found { index, events, .. } = interface.find()?;
    let (mut sockets, mut udp_segmentation) = (Vec::with_capacity(request.queues), false);
    for queue in 0..request.queues {
        let socket = interface.packet_socket()?;
        let fd = socket.as_fd();
        udp_segmentation = sys::set_vnet_header(fd).map_err(refused("the virtio-net header"))?;
        sys::set_option(fd, sys::AUXDATA, 1).map_err(refused("auxiliary data"))?;
        sys::set_option(fd, sys::IGNORE_OUTGOING, 1)
            .map_err(refused("to receive incoming frames only"))?;
        // As much as the user may have.
        if sockopt::set_socket_recv_buffer_size_force(fd, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(fd, RECEIVE_BUFFER);
        }
        if queue == 0 {
            sys::be_promiscuous(fd, index).map_err(refused("promiscuous mode"))?;
        }
        if request.queues > 1 {
            // Until they are a group, each of them would receive every frame.
            sys::receive_nothing(fd).map_err(refused("a filter"))?;
        }
        sys::bind(fd, index).map_err(refused("to bind to it"))?;
        sockets.push(socket);
    }
    if let [first, rest @ ..] = &sockets[..]
        && !rest.is_empty()
    {
        let group = sys::make_fanout(first.as_fd()).map_err(refused("a fanout group"))?;
        for socket in rest {
            sys::join_fanout(socket.as_fd(), group).map_err(refused("the fanout group"))?;
        }
        for socket in &sockets {
            sys::receive_all(socket.as_fd()).map_err(refused("to remove a filter"))?;
        }
    }
    Ok(Files {
        sockets,
        events,
        index,
        udp_segmentation,
    })
}
