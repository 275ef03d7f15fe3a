//! Frames over a Unix datagram socket, each a datagram: QEMU's `-netdev dgram`, vfkit and gvproxy
//! speak so.
//!
//! There is no connection. As a server the port answers whoever sent the latest datagram: before
//! the first one nobody can be reached. As a client it has an address of the kernel's choice,
//! sends to the path of the other side, and greets it with a datagram of four bytes ("VFKT", for
//! which gvproxy waits), so that a side that answers knows where to; it does so again when the
//! other side was away.
//!
//! A peer's queue holds few datagrams (`net.unix.max_dgram_qlen`), and no socket tells when it has
//! room: a full one is tried again after a time, which grows while it stays full.

mod rx;
mod spec;
mod tx;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::SocketAddrUnix;
use softnet::tx::Features;

pub use rx::DgramRx;
pub use spec::{DgramError, DgramSpec};
pub use tx::DgramTx;

use crate::hand_off::{Continued, HandOff};
use crate::listener::datagram_socket;
use crate::{Buffers, Descriptors, Listener, SocketKind};

/// A port whose other end is a process with a datagram socket.
#[derive(Debug)]
pub struct Dgram {
    /// The only receive queue.
    pub rx: DgramRx,
    /// The only transmit queue.
    pub tx: DgramTx,
    /// Features of what may be sent: whole frames.
    pub features: Features,
}

/// The socket of a port, and whom it sends to.
#[derive(Debug)]
struct Socket {
    file: File,
    /// The other side never changes.
    is_client: bool,
    peer: Mutex<Option<SocketAddrUnix>>,
    /// Counts changes of the peer, of which the transmit queue has a copy. Relaxed: the peer is
    /// read under its lock.
    serial: AtomicU64,
}

#[derive(Debug)]
enum File {
    /// Removes its path when it goes.
    Bound(Listener),
    Anonymous(OwnedFd),
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match &self.file {
            File::Bound(listener) => listener.as_fd(),
            File::Anonymous(socket) => socket.as_fd(),
        }
    }

    fn peer(&self) -> Option<SocketAddrUnix> {
        let peer = self.peer.lock();
        peer.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_peer(&self, address: SocketAddrUnix) {
        let mut peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        *peer = Some(address);
        self.serial.fetch_add(1, Ordering::Relaxed);
    }
}

impl Continued for Socket {
    fn hand_off(&self) -> io::Result<HandOff> {
        let peer = self.peer();
        let rest = peer.and_then(|peer| {
            let path = peer.path_bytes().map(|path| (PATH, path.to_owned()));
            let name = || peer.abstract_name().map(|name| (NAME, name.to_owned()));
            let (kind, bytes) = path.or_else(name)?;
            Some([&[kind][..], &bytes].concat())
        });
        Ok(HandOff {
            files: vec![self.fd().try_clone_to_owned()?],
            rest: rest.unwrap_or_default(),
        })
    }

    fn listener(&self) -> Option<&Listener> {
        match &self.file {
            File::Bound(listener) => Some(listener),
            File::Anonymous(_) => None,
        }
    }
}

/// Kinds of addresses that are handed off.
const PATH: u8 = 0;
const NAME: u8 = 1;

/// The address of a peer that was handed off.
fn address_of(rest: &[u8]) -> Option<SocketAddrUnix> {
    let (&kind, bytes) = rest.split_first()?;
    match kind {
        PATH => SocketAddrUnix::new(bytes).ok(),
        NAME => SocketAddrUnix::new_abstract_name(bytes).ok(),
        _ => None,
    }
}

impl Dgram {
    /// Makes the socket. `mtu`: longest IP packet in bytes.
    ///
    /// # Errors
    /// [`DgramError`].
    pub fn open(spec: &DgramSpec, mtu: u32, buffers: &Buffers) -> Result<Dgram, DgramError> {
        Dgram::resume(spec, mtu, buffers, HandOff::default())
    }

    /// As [`open`](Dgram::open), with the socket and the peer that another process had.
    fn resume(
        spec: &DgramSpec,
        mtu: u32,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Dgram, DgramError> {
        let had = handed.files.into_iter().next();
        let (file, peer) = if spec.socket.server {
            let kind = SocketKind::Datagram;
            let bound = spec.socket.listener(had, kind, 0, Descriptors::Refused)?;
            (File::Bound(bound), address_of(&handed.rest))
        } else {
            let path = spec.socket.path.clone();
            let address = SocketAddrUnix::new(path.as_path());
            let address = address.map_err(|error| DgramError::BadPath {
                path,
                source: error.into(),
            })?;
            let socket = match had {
                Some(socket) => socket,
                None => datagram_socket()?,
            };
            (File::Anonymous(socket), Some(address))
        };
        let socket = Arc::new(Socket {
            file,
            is_client: !spec.socket.server,
            peer: Mutex::new(peer),
            serial: AtomicU64::new(0),
        });
        Ok(Dgram {
            rx: DgramRx::new(socket.clone(), buffers),
            tx: DgramTx::new(socket)?,
            features: Features {
                scatter_gather: true,
                mtu,
                ..Features::default()
            },
        })
    }
}
