//! Files of packets as a port: one is read, at the times at which its packets were captured or as
//! fast as the port's worker takes them, and one is written with what is sent there.
//!
//! Read are pcap and pcapng, also compressed by gzip, of Ethernet, Linux cooked captures (SLL and
//! SLL2) and raw IP; what has no Ethernet header gets one. Reading and writing may wait for a disk
//! or a pipe, so each has a thread of its own, and workers never do.
//!
//! A file is not believed: what contradicts itself ends the reading with a reason, which the
//! port's status shows, and what a packet or a block may have in memory is bounded.

mod ethernet;
mod file;
mod open;
mod read;
mod spec;
mod write;

use std::sync::Arc;

use softnet::tx::Features;

pub use file::{FileError, Frame, PacketFile};
pub use open::OpenFile;
pub use read::PcapRx;
pub use spec::{Pace, PcapError, PcapSpec};
pub use write::PcapTx;

use self::read::Reader;
use self::write::Writer;
use crate::Buffers;

/// A port made of files.
#[derive(Debug)]
pub struct Pcap {
    /// The only receive queue.
    pub rx: PcapRx,
    /// The only transmit queue.
    pub tx: PcapTx,
    /// Features of what may be written: whole packets.
    pub features: Features,
}

impl Pcap {
    /// Opens the files, and reads from now on. `mtu`: longest IP packet in bytes that is written.
    ///
    /// # Errors
    /// [`PcapError`].
    pub fn open(spec: &PcapSpec, mtu: u32, buffers: &Buffers) -> Result<Pcap, PcapError> {
        // First what does not change anything.
        let reader = match &spec.read {
            Some(path) => Some(Reader::start(path, spec.pace, buffers)?),
            None => None,
        };
        let writer = spec.write.as_deref().map(Writer::start).transpose()?;
        Ok(Pcap {
            rx: PcapRx::new(reader.map(Arc::new), writer.is_some(), buffers)?,
            tx: PcapTx::new(writer),
            features: Features {
                scatter_gather: true,
                mtu,
                ..Features::default()
            },
        })
    }
}
