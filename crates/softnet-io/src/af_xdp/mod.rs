//! An interface of the kernel as a port, by XDP sockets (AF_XDP): a NIC, or one end of a veth.
//!
//! Frames of the interface's receive queues come here before the kernel's stack sees them, and
//! leave past its qdiscs. The pool is the sockets' memory (UMEM), and its buffers are their chunks
//! (`docs/decisions/af-xdp-umem.md`): a frame is copied once, by the kernel, or not at all where
//! the interface's driver can do without; each side owns a buffer at a time (`lent`).
//!
//! The interface stays as it was. All that is added to it, a program of six instructions and the
//! membership by which it is promiscuous, belongs to files and goes with them, also after
//! `kill -9`. The program leads the frames of a queue to its socket, and to the kernel where there
//! is none.
//!
//! Each queue is a socket with four rings (`ring`), of which [`AfXdpRx`] has those to receive and
//! [`AfXdpTx`] those to send.

mod acquire;
mod device;
mod lent;
mod limit;
mod link;
mod ring;
mod rx;
mod spec;
mod sys;
mod tx;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::tx::Features;

pub use acquire::{AfXdpError, Attach, Open};
pub use link::AfXdpLink;
pub use rx::AfXdpRx;
pub use spec::AfXdpSpec;
pub use tx::AfXdpTx;

use self::acquire::{Attached, Opened, refused};
use self::device::{Device, RING};
use self::lent::Area;
use crate::Buffers;
use crate::interface::Interface;
use crate::link_events::LinkEvents;
use crate::rights::{self, AskError};

/// The most queues: sockets of a request to the helper.
pub const MAX_QUEUES: usize = 128;
/// Longest IP packet in bytes: what a buffer of 2,048 bytes holds behind the 256 that XDP leaves
/// free, with an Ethernet header and two VLAN tags.
pub const MAX_MTU: u32 = 2048 - 256 - 14 - 8;

/// An interface in use.
#[derive(Debug)]
pub struct AfXdp {
    /// The interface: whether it is up, and what its sockets dropped.
    pub link: Arc<AfXdpLink>,
    /// Features of what may be sent to it: wire packets with their checksums.
    pub features: Features,
    /// One per queue.
    pub rx: Vec<AfXdpRx>,
    /// One per queue.
    pub tx: Vec<AfXdpTx>,
}

impl AfXdp {
    /// Opens a socket for each of the interface's queues, which are `queues`, 1 to [`MAX_QUEUES`].
    /// `mtu`: longest IP packet in bytes that is sent there, until the link tells the interface's.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn open(
        spec: &AfXdpSpec,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
    ) -> Result<AfXdp, AskError<AfXdpError>> {
        let (interface, netns) = (&spec.interface, spec.netns.as_ref());
        let pool = &buffers.small;
        let area = Area::of(pool).ok_or(AskError::Own(AfXdpError::Memory))?;
        let open = Open {
            interface: interface.clone(),
            queues,
        };
        let (opened, files) = rights::ask(netns, open, &[])?;
        let missing = || AskError::Channel(io::ErrorKind::InvalidData.into());
        let mut files = files.into_iter();
        let events: LinkEvents = files.next().ok_or_else(missing)?.into();
        let promiscuous = files.next().ok_or_else(missing)?;
        let Opened {
            index,
            takes_tags_off,
        } = opened;
        let watched = Interface::new(index, events);
        let bound = Device::bind(interface, index, area, promiscuous, files.collect());
        let (device, rings) = bound.map_err(AskError::Own)?;
        let device = Arc::new(device);

        let (mut rx, mut send_rings) = (Vec::with_capacity(queues), Vec::with_capacity(queues));
        for (queue, rings) in rings.into_iter().enumerate() {
            let queue = AfXdpRx::new(rx::Parts {
                fill: rings.fill,
                rx: rings.rx,
                area,
                pool: pool.clone(),
                queue,
                queues,
                posted: posted(pool, queues),
                device: device.clone(),
            });
            if queue.posted() == 0 {
                return Err(AskError::Own(AfXdpError::NoBuffers));
            }
            rx.push(queue);
            send_rings.push((rings.tx, rings.completion));
        }
        let attach = Attach {
            interface: interface.clone(),
        };
        let sockets: Vec<_> = device.sockets().iter().map(AsFd::as_fd).collect();
        let (Attached { native }, program) = rights::ask(netns, attach, &sockets)?;
        device.set_link(program.into_iter().next().ok_or_else(missing)?);

        let status = status(device.zero_copy, native, takes_tags_off);
        let link = Arc::new(AfXdpLink::new(watched, Arc::downgrade(&device), status));
        if let Some(first) = rx.first_mut() {
            first.set_link(link.clone());
        }
        let mut tx = Vec::with_capacity(queues);
        for (queue, (ring, completion)) in send_rings.into_iter().enumerate() {
            let queue = AfXdpTx::new(tx::Parts {
                tx: ring,
                completion,
                area,
                pool: pool.clone(),
                queue,
                link: link.clone(),
                device: device.clone(),
            });
            let refused = refused(interface, "a file to watch a socket");
            tx.push(queue.map_err(|error| AskError::Own(refused(error)))?);
        }
        Ok(AfXdp {
            rx,
            tx,
            features: Features {
                mtu: mtu.min(MAX_MTU),
                ..Features::default()
            },
            link,
        })
    }
}

/// Buffers that wait in the fill ring of each queue: all together an eighth of the pool at most.
fn posted(pool: &Pool, queues: usize) -> usize {
    let buffers = pool.area().len() / pool.buffer_size();
    (buffers / 8 / queues).clamp(1, RING as usize)
}

/// A line for people.
fn status(zero_copy: bool, native: bool, takes_tags_off: bool) -> String {
    let copy = if zero_copy { "zero-copy" } else { "copy mode" };
    let program = if native { "native" } else { "generic" };
    let tags = if takes_tags_off {
        "; the interface takes VLAN tags off what it receives (`ethtool -K DEV rxvlan off`)"
    } else {
        ""
    };
    format!("{copy}, {program} XDP{tags}")
}
