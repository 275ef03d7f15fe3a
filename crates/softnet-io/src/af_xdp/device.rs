//! The sockets of a port, bound to the queues of an interface, with the pool as their memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};

use super::acquire::{AfXdpError, refused};
use super::lent::{Area, Lent};
use super::ring::{Consumer, Producer, Ring};

/// Entries of each ring. A completion ring has as many as a transmit ring, so that there is always
/// room for what was sent.
pub(super) const RING: u32 = 1024;

/// All that an open port has of the kernel.
#[derive(Debug)]
pub(super) struct Device {
    /// Keeps the program attached.
    link: OnceLock<OwnedFd>,
    /// Keeps the interface promiscuous.
    _promiscuous: OwnedFd,
    sockets: Vec<OwnedFd>,
    /// The interface reads and writes the pool itself.
    pub(super) zero_copy: bool,
    /// Packets that the kernel had when their queues were dropped.
    left: Mutex<Vec<Lent>>,
}

/// The four rings of a queue.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) rx: Consumer<XdpDesc>,
    pub(super) tx: Producer<XdpDesc>,
    pub(super) completion: Consumer<u64>,
}

impl Device {
    /// Registers the memory, makes the rings and binds each socket to its queue.
    pub(super) fn bind(
        interface: &str,
        index: u32,
        area: Area,
        promiscuous: OwnedFd,
        sockets: Vec<OwnedFd>,
    ) -> Result<(Device, Vec<Rings>), AfXdpError> {
        let refused = |what| refused(interface, what);
        let mut rings = Vec::with_capacity(sockets.len());
        let mut first: Option<BorrowedFd<'_>> = None;
        for (queue, socket) in sockets.iter().enumerate() {
            if first.is_none() {
                register(interface, socket.as_fd(), area)?;
            }
            rings.push(map(interface, socket.as_fd())?);
            let bind = || bind_queue(socket.as_fd(), index, queue as u32, first);
            retry_while_busy(bind).map_err(|error| match error {
                Errno::BUSY => AfXdpError::InUse {
                    interface: interface.to_owned(),
                    queue,
                },
                error => refused("to bind to a queue")(error),
            })?;
            first = first.or_else(|| Some(socket.as_fd()));
        }
        // Those that share its memory are bound as the first is.
        let options = first.map(sockopt::xdp_options).transpose();
        let options = options.map_err(refused("the kind of copy"))?;
        let zero_copy = options.is_some_and(|o| o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        let device = Device {
            link: OnceLock::new(),
            _promiscuous: promiscuous,
            sockets,
            zero_copy,
            left: Mutex::default(),
        };
        Ok((device, rings))
    }

    /// The program is attached from now on, as long as the device is.
    pub(super) fn set_link(&self, link: OwnedFd) {
        // It is set once.
        let _ = self.link.set(link);
    }

    pub(super) fn sockets(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// The socket of a queue.
    pub(super) fn socket(&self, queue: usize) -> BorrowedFd<'_> {
        self.sockets[queue].as_fd()
    }

    /// Keeps packets that the kernel may still use, until it does no more.
    pub(super) fn keep(&self, lent: Lent) {
        let left = self.left.lock();
        left.unwrap_or_else(PoisonError::into_inner).push(lent);
    }
}

impl Drop for Device {
    /// Nobody leads frames to the sockets any more, then nobody uses their memory; what the kernel
    /// had is freed after that.
    fn drop(&mut self) {
        /// A moment in which the kernel, after the last file was closed, has the interface let go
        /// of the memory. The program is gone by then, without which interfaces that are known use
        /// it no more; of the rest nobody tells.
        const MOMENT: Duration = Duration::from_millis(100);
        drop(self.link.take());
        self.sockets.clear();
        if self.zero_copy {
            std::thread::sleep(MOMENT);
        }
    }
}

/// Registers the pool as memory of a socket. Its pages are locked from then on.
fn register(interface: &str, socket: BorrowedFd<'_>, area: Area) -> Result<(), AfXdpError> {
    let memory = XdpUmemReg {
        addr: area.start,
        len: area.len,
        chunk_size: area.buffer as u32,
        // The kernel itself leaves 256 bytes, as many as a packet has in front of its data.
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, memory).map_err(|error| match error {
        Errno::NOBUFS | Errno::PERM => AfXdpError::Locked { bytes: area.len },
        error => refused(interface, "the pool as memory of a socket")(error),
    })
}

/// Makes and maps the rings of a socket.
fn map(interface: &str, socket: BorrowedFd<'_>) -> Result<Rings, AfXdpError> {
    let refused = refused(interface, "the rings of a socket");
    let set = || -> Result<_, Errno> {
        sockopt::set_xdp_umem_fill_ring_size(socket, RING)?;
        sockopt::set_xdp_umem_completion_ring_size(socket, RING)?;
        sockopt::set_xdp_rx_ring_size(socket, RING)?;
        sockopt::set_xdp_tx_ring_size(socket, RING)?;
        sockopt::xdp_mmap_offsets(socket)
    };
    let places = set().map_err(&refused)?;
    let wrong = |error| refused(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    let fill = Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, &places.fr, RING);
    let completion = Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &places.cr, RING);
    let rx = Ring::map(socket, XDP_PGOFF_RX_RING, &places.rx, RING);
    let tx = Ring::map(socket, XDP_PGOFF_TX_RING, &places.tx, RING);
    Ok(Rings {
        fill: Producer::new(fill.map_err(wrong)?),
        rx: Consumer::new(rx.map_err(wrong)?),
        tx: Producer::new(tx.map_err(wrong)?),
        completion: Consumer::new(completion.map_err(wrong)?),
    })
}

/// Binds a socket to a queue: with the memory and in the way of another, or with its own, without
/// a copy if the interface can.
fn bind_queue(
    socket: BorrowedFd<'_>,
    index: u32,
    queue: u32,
    first: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    match first {
        None => {
            let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            bind(socket, &SocketAddrXdp::new(flags, index, queue))
        }
        Some(first) => {
            let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
            let address = SocketAddrXdpWithSharedUmem {
                addr: SocketAddrXdp::new(flags, index, queue),
                shared_umem_fd: first,
            };
            bind(socket, &address)
        }
    }
}

/// The kernel lets go of a queue some time after the socket that had it was closed.
fn retry_while_busy(bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    const TIMES: usize = 50;
    for _ in 0..TIMES {
        match bind() {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
            bound => return bound,
        }
    }
    bind()
}
