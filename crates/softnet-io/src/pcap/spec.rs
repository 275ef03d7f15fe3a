//! The driver `pcap` in an engine.

use std::io;
use std::path::PathBuf;

use softnet_engine::{Opened, Settings};

use super::{FileError, Pcap, PcapRx, PcapTx};
use crate::Buffers;
use crate::driver::Driver;
use crate::rights::Subject;

/// The times at which packets of a file are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As far apart as they were captured.
    #[default]
    Captured,
    /// As fast as the worker takes them.
    Fast,
}

/// A port made of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapSpec {
    /// The file that is received; `-` is standard input. Nothing is received without one.
    pub read: Option<PathBuf>,
    /// The file that is written, in the place of one that is there. Without one what is sent is
    /// discarded.
    pub write: Option<PathBuf>,
    /// When packets are received.
    pub pace: Pace,
}

/// Why a port cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// A file has one order.
    #[error("a port of driver pcap has 1 queue, not {0}")]
    BadQueues(usize),
    /// The file cannot be opened.
    #[error("{path}: cannot be {what}")]
    Open {
        /// The file.
        path: PathBuf,
        /// For what.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has no packets.
    #[error("{path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: FileError,
    },
    /// Files or threads.
    #[error("cannot make a port of driver pcap")]
    System(#[from] io::Error),
}

impl Driver for PcapSpec {
    type Rx = PcapRx;
    type Tx = PcapTx;
    type Error = PcapError;

    fn subjects(&self) -> Vec<Subject> {
        let files = [&self.read, &self.write].into_iter().flatten();
        files.cloned().map(Subject::File).collect()
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<PcapRx, PcapTx>, PcapError> {
        if queues != 1 {
            return Err(PcapError::BadQueues(queues));
        }
        let Pcap { rx, tx, features } = Pcap::open(self, settings.mtu, buffers)?;
        Ok(Opened {
            rx: vec![rx],
            tx: vec![tx],
            features,
        })
    }

    fn conflicts(&self, other: &PcapSpec) -> bool {
        self.write.is_some() && self.write == other.write
    }
}
