//! Frames over a Unix stream socket, each behind its length in four bytes, big-endian: QEMU's
//! `-netdev stream`, passt, gvproxy and libkrun speak so.
//!
//! ```text
//! thread of the port           port                        workers
//!  accept or connect --------> connection <--------------- rx (deframe), tx
//!  eventfd <------------------ lost, with a reason
//! ```
//!
//! A port has one connection at a time; whoever comes while there is one waits. While there is
//! none the link is down. Nothing that comes from the other side is believed: a length that cannot
//! be ends the connection with a reason, and half a frame is kept for as long as the connection
//! lasts, in a buffer of fixed size. What a peer does not read waits in the port's qdisc.

mod deframe;
mod life;
mod port;
mod rx;
mod spec;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
mod tx;
mod uplink;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use softnet::tx::Features;

pub use deframe::{Deframer, TooLong};
pub use rx::StreamRx;
pub use spec::{StreamError, StreamSpec};
pub use tx::StreamTx;
pub use uplink::Uplink;

use self::life::{Life, Place};
use self::port::{Handed, Parts, Port};
use self::uplink::Starts;
use crate::listener::connect_unix;
use crate::{Buffers, Descriptors, SocketKind};

/// A port whose other end is a process with a socket.
#[derive(Debug)]
pub struct Stream {
    /// The only receive queue.
    pub rx: StreamRx,
    /// The only transmit queue.
    pub tx: StreamTx,
    /// Features of what may be sent: whole frames.
    pub features: Features,
}

impl Stream {
    /// Makes the socket, if it is ours, and waits for a peer from now on. `mtu`: longest IP packet
    /// in bytes.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn open(spec: &StreamSpec, mtu: u32, buffers: &Buffers) -> Result<Stream, StreamError> {
        Stream::resume(spec, mtu, buffers, Handed::default())
    }

    /// As [`open`](Stream::open), with what another process had of it.
    fn resume(
        spec: &StreamSpec,
        mtu: u32,
        buffers: &Buffers,
        handed: Handed,
    ) -> Result<Stream, StreamError> {
        let Handed {
            listener,
            connection,
            parts,
        } = handed;
        if spec.uplink == Some(Uplink::Passt) {
            let port = Port::new(None, Parts::default())?;
            return Stream::at(Place::Start(Starts::new(mtu)), port, None, mtu, buffers);
        }
        let socket = &spec.socket;
        if socket.server {
            let listener =
                socket.listener(listener, SocketKind::Stream, 1, Descriptors::Refused)?;
            let place = Place::Listen(listener.as_fd().try_clone_to_owned()?);
            let port = Port::new(Some(listener), parts)?;
            return Stream::at(place, port, connection, mtu, buffers);
        }
        let path = socket.path.clone();
        let bad_path = |error: Errno| StreamError::BadPath {
            path: path.clone(),
            source: error.into(),
        };
        SocketAddrUnix::new(path.as_path()).map_err(bad_path)?;
        let connect = move || connect_unix(&path, SocketKind::Stream).map_err(io::Error::other);
        let port = Port::new(None, parts)?;
        let place = Place::Make(Box::new(connect));
        Stream::at(place, port, connection, mtu, buffers)
    }

    /// A port with the connections that `make` makes: the next one when one is lost, again after a
    /// quarter of a second if that fails. Called by the port's own thread; its error is shown.
    ///
    /// # Errors
    /// [`StreamError::System`].
    pub fn with(
        make: impl FnMut() -> io::Result<OwnedFd> + Send + 'static,
        mtu: u32,
        buffers: &Buffers,
    ) -> Result<Stream, StreamError> {
        let port = Port::new(None, Parts::default())?;
        Stream::at(Place::Make(Box::new(make)), port, None, mtu, buffers)
    }

    fn at(
        place: Place,
        port: Port,
        connection: Option<OwnedFd>,
        mtu: u32,
        buffers: &Buffers,
    ) -> Result<Stream, StreamError> {
        let life = Arc::new(Life::start(Arc::new(port), place, connection)?);
        Ok(Stream {
            rx: StreamRx::new(life.clone(), buffers),
            tx: StreamTx::new(life),
            features: Features {
                scatter_gather: true,
                mtu,
                ..Features::default()
            },
        })
    }
}
