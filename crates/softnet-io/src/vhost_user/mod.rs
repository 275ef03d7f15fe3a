//! vhost-user: a virtual machine's network device, whose rings lie in memory that the machine
//! shares with this process.
//!
//! ```text
//! front end (QEMU, ...)           thread of the port                 workers
//!  Unix socket -- messages --> connection -> message -> protocol
//!                                                          | apply
//!                                                          v
//!  guest -- rings in shared memory -----------------> port: rings <-- rx, tx
//!  eventfd -- kick ---------------------------------> kick (epoll) --> sleep
//!  eventfd <----------------------------------------------- call ---- rx, tx
//! ```
//!
//! `life` waits for a front end and loses it again; `protocol` notes what it says and makes the
//! rings so; `port` is what both sides share; [`ring`] is a virtqueue; [`memory`] is the guest's
//! memory.
//!
//! Nothing that comes from the other side is believed: a message, a ring or memory that cannot be
//! ends the connection with a reason, and nothing else.

mod budget;
mod bus_error;
mod call;
mod connection;
mod contended;
mod features;
mod kept;
mod kick;
mod life;
pub mod memory;
pub mod message;
mod port;
mod protocol;
pub mod ring;
mod running;
mod rx;
mod spec;
mod tx;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use softnet::tx::Features;
use softnet_engine::Link;

use self::kept::Handed;
use self::life::{Life, Place};
use crate::{Buffers, Descriptors, ListenError, SocketKind};

pub use port::Port;
pub use protocol::{Messages, Protocol, ProtocolError, ReplayError};
pub use rx::VhostUserRx;
pub use spec::{GuestSpec, SocketSpec, VhostUserSpec};
pub use tx::VhostUserTx;

/// The most queue pairs: a message names a ring by 8 bits.
pub const MAX_QUEUES: usize = 128;

/// Why a port cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum VhostUserError {
    /// Too few or too many.
    #[error("a vhost-user port has 1 to {MAX_QUEUES} queues, not {0}")]
    BadQueues(usize),
    /// The socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The path.
    #[error("{path}: not possible as the path of a socket")]
    BadPath {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Files or the thread.
    #[error("cannot make a vhost-user port")]
    System(#[from] io::Error),
}

/// A port whose other end is a virtual machine.
#[derive(Debug)]
pub struct VhostUser {
    /// One per queue pair.
    pub rx: Vec<VhostUserRx>,
    /// One per queue pair.
    pub tx: Vec<VhostUserTx>,
    /// Features of what may be sent before it is known what the guest takes.
    pub features: Features,
}

impl VhostUser {
    /// Makes the socket, if it is ours, and waits for a front end from now on. `queues`: queue
    /// pairs, 1 to [`MAX_QUEUES`], the most that a guest can use. `mtu`: longest IP packet in
    /// bytes, unless the front end says otherwise.
    ///
    /// # Errors
    /// [`VhostUserError`].
    pub fn open(
        spec: &VhostUserSpec,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
    ) -> Result<VhostUser, VhostUserError> {
        VhostUser::resume(spec, queues, mtu, buffers, Handed::default())
    }

    /// As [`open`](VhostUser::open), with what another process had of it.
    fn resume(
        spec: &VhostUserSpec,
        queues: usize,
        mtu: u32,
        buffers: &Buffers,
        handed: Handed,
    ) -> Result<VhostUser, VhostUserError> {
        if !(1..=MAX_QUEUES).contains(&queues) {
            return Err(VhostUserError::BadQueues(queues));
        }
        let Handed {
            listener,
            connection,
        } = handed;
        let VhostUserSpec { socket, guest } = spec;
        let path = socket.path.clone();
        let (listener, place) = if socket.server {
            let listener =
                socket.listener(listener, SocketKind::Stream, 1, Descriptors::Passed)?;
            let place = Place::Listen(listener.as_fd().try_clone_to_owned()?);
            (Some(listener), place)
        } else {
            let bad_path = |errno: Errno| VhostUserError::BadPath {
                path: path.clone(),
                source: errno.into(),
            };
            SocketAddrUnix::new(path.as_path()).map_err(bad_path)?;
            (None, Place::Connect)
        };
        call::prepare();
        let port = Port::new(queues, *guest)?;
        port.set_mtu(mtu);
        let life = Arc::new(Life::start(port, path, place, listener, connection)?);
        let rx = |pair| VhostUserRx::new(life.clone(), pair, buffers.clone());
        let tx = |pair| VhostUserTx::new(life.clone(), pair);
        Ok(VhostUser {
            rx: (0..queues).map(rx).collect(),
            tx: (0..queues).map(tx).collect(),
            features: Features {
                scatter_gather: true,
                mtu,
                ..Features::default()
            },
        })
    }
}
