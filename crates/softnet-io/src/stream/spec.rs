//! The driver `stream` in an engine.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use softnet_engine::{Opened, Settings};

use super::{Stream, StreamRx, StreamTx, Uplink};
use crate::driver::Driver;
use crate::hand_off::{Continued, HandOff};
use crate::rights::Subject;
use crate::vhost_user::SocketSpec;
use crate::{Buffers, ListenError};

/// A port whose other end is a process with a stream socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Socket to the peer, unless that is started.
    pub socket: SocketSpec,
    /// The peer, if it is a program that is started.
    pub uplink: Option<Uplink>,
}

/// Why a port cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A stream has one direction each way.
    #[error("a port of driver stream has 1 queue, not {0}")]
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
    #[error("cannot make a port of driver stream")]
    System(#[from] io::Error),
}

impl Driver for StreamSpec {
    type Rx = StreamRx;
    type Tx = StreamTx;
    type Error = StreamError;

    fn subjects(&self) -> Vec<Subject> {
        match self.socket.server || self.uplink.is_some() {
            true => Vec::new(),
            false => vec![Subject::Socket(self.socket.path.clone())],
        }
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<StreamRx, StreamTx>, StreamError> {
        self.resume(settings, queues, buffers, HandOff::default())
    }

    fn continued(&self, opened: &Opened<StreamRx, StreamTx>) -> Option<Weak<dyn Continued>> {
        if self.uplink.is_some() {
            // The program ends with the process that started it.
            return None;
        }
        let port: Arc<dyn Continued> = opened.rx.first()?.port().clone();
        Some(Arc::downgrade(&port))
    }

    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<StreamRx, StreamTx>, StreamError> {
        if queues != 1 {
            return Err(StreamError::BadQueues(queues));
        }
        let Stream { rx, tx, features } =
            Stream::resume(self, settings.mtu, buffers, handed.into())?;
        Ok(Opened {
            rx: vec![rx],
            tx: vec![tx],
            features,
        })
    }

    fn conflicts(&self, other: &StreamSpec) -> bool {
        let started = self.uplink.is_some() || other.uplink.is_some();
        !started && self.socket.path == other.socket.path
    }
}
