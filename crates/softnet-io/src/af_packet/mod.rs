//! An interface of the kernel as a port, by packet sockets (packet(7)): a NIC, one end of a veth,
//! any interface with Ethernet frames.
//!
//! The interface stays the kernel's and as it was: its addresses, its state, its offloads. All
//! that is added to it belongs to the sockets and goes with them, also after `kill -9`: the
//! membership by which it is promiscuous, and the fanout group. The host's own stack goes on to
//! receive what arrives there; what the host sends there by itself is not received here
//! (`PACKET_IGNORE_OUTGOING`).
//!
//! Frames carry a virtio-net header both ways (`PACKET_VNET_HDR`), so that large frames and
//! missing checksums cross in one piece, and VLAN tags that the kernel took off are put back
//! (`PACKET_AUXDATA`). Each queue is a socket, read by [`AfPacketRx`] and written by
//! [`AfPacketTx`], many frames per system call (`docs/decisions/af-packet-io.md`); with several,
//! the kernel shares out flows among them by their hash (`PACKET_FANOUT`).

mod acquire;
mod link;
mod rx;
mod spec;
mod sys;
mod tx;

use std::os::fd::AsFd;
use std::sync::Arc;

use softnet::tx::Features;

pub use acquire::{AfPacketError, Open};
pub use link::AfPacketLink;
pub use rx::AfPacketRx;
pub use spec::AfPacketSpec;
pub(crate) use sys::be_promiscuous;
pub use tx::AfPacketTx;

use self::acquire::{Files, acquire};
use crate::rights::AskError;
use crate::{Buffers, HandOff};

/// The most queues: members of a fanout group.
pub const MAX_QUEUES: usize = 256;

/// An interface in use.
#[derive(Debug)]
pub struct AfPacket {
    /// The interface: whether it is up, and what its sockets dropped.
    pub link: Arc<AfPacketLink>,
    /// Features of what may be sent to it; large frames are cut by the kernel if the hardware does
    /// not.
    pub features: Features,
    /// One per queue.
    pub rx: Vec<AfPacketRx>,
    /// One per queue.
    pub tx: Vec<AfPacketTx>,
}

impl AfPacket {
    /// Opens `queues` sockets, 1 to [`MAX_QUEUES`]. `mtu`: longest IP packet in bytes that is sent
    /// there, until the link tells the interface's.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn open(
        spec: &AfPacketSpec,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
    ) -> Result<AfPacket, AskError<AfPacketError>> {
        AfPacket::with(spec, queues, mtu, buffers, &HandOff::default())
    }

    /// As [`open`](AfPacket::open), by the sockets of another process if it has handed off some.
    pub(crate) fn with(
        spec: &AfPacketSpec,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
        handed: &HandOff,
    ) -> Result<AfPacket, AskError<AfPacketError>> {
        let open = Open {
            interface: spec.interface.clone(),
            queues,
            handed: !handed.files.is_empty(),
        };
        let sockets: Vec<_> = handed.files.iter().map(AsFd::as_fd).collect();
        let files = acquire(spec.netns.as_ref(), open, &sockets)?;
        Ok(AfPacket::from_files(files, mtu, buffers))
    }

    /// The rest of [`open`](AfPacket::open), which takes no rights.
    fn from_files(files: Files, mtu: u32, buffers: &Buffers) -> AfPacket {
        let Files {
            sockets,
            events,
            index,
            udp_segmentation,
        } = files;
        let sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
        let link = Arc::new(AfPacketLink::new(index, events, sockets.clone()));
        let several = sockets.len() > 1;
        let rx = (0_u16..).zip(&sockets).map(|(queue, socket)| {
            // Each interface is counted once.
            let link = (queue == 0).then(|| link.clone());
            AfPacketRx::new(socket.clone(), several.then_some(queue), buffers, link)
        });
        let tx = |socket| AfPacketTx::new(socket, link.clone());
        AfPacket {
            rx: rx.collect(),
            features: Features {
                checksum: true,
                tso4: true,
                tso6: true,
                ecn: true,
                uso: udp_segmentation,
                scatter_gather: true,
                mtu,
            },
            tx: sockets.into_iter().map(tx).collect(),
            link,
        }
    }
}
