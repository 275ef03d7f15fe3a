//! The driver `dgram` in an engine.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use softnet_engine::{Opened, Settings};

use super::{Dgram, DgramRx, DgramTx};
use crate::driver::Driver;
use crate::hand_off::{Continued, HandOff};
use crate::vhost_user::SocketSpec;
use crate::{Buffers, ListenError};

/// A port whose other end is a process with a datagram socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DgramSpec {
    /// Socket to the peer.
    pub socket: SocketSpec,
}

/// Why a port cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DgramError {
    /// A socket has one queue each way.
    #[error("a port of driver dgram has 1 queue, not {0}")]
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
    /// Files.
    #[error("cannot make a port of driver dgram")]
    System(#[from] io::Error),
}

impl Driver for DgramSpec {
    type Rx = DgramRx;
    type Tx = DgramTx;
    type Error = DgramError;

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<DgramRx, DgramTx>, DgramError> {
        self.resume(settings, queues, buffers, HandOff::default())
    }

    fn continued(&self, opened: &Opened<DgramRx, DgramTx>) -> Option<Weak<dyn Continued>> {
        let socket: Arc<dyn Continued> = opened.rx.first()?.socket().clone();
        Some(Arc::downgrade(&socket))
    }

    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<DgramRx, DgramTx>, DgramError> {
        if queues != 1 {
            return Err(DgramError::BadQueues(queues));
        }
        let Dgram { rx, tx, features } = Dgram::resume(self, settings.mtu, buffers, handed)?;
        Ok(Opened {
            rx: vec![rx],
            tx: vec![tx],
            features,
        })
    }

    fn conflicts(&self, other: &DgramSpec) -> bool {
        self.socket.path == other.socket.path
    }
}
