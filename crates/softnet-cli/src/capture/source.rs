//! A capture as the daemon sends it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use softnet_engine::capture::{CaptureStats, Record};

use super::stream::{self, Item};
use super::{Request, start};
use crate::client::Reach;
use crate::failure::Failure;
use crate::selection::Part;

/// The outcome of a look at what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Some,
    /// Nothing, as a signal came.
    Interrupted,
    /// Nothing in time.
    Late,
    /// The daemon or the port is gone.
    End,
}

/// A capture that the daemon sends. It ends when this is dropped.
pub(crate) struct Source {
    /// Name of the port.
    pub(crate) port: Arc<str>,
    /// Nanoseconds since 1970 at which times of records start.
    pub(super) base: u64,
    /// Bytes of a frame that come at most.
    pub(super) snap: u32,
    pub(crate) socket: UnixStream,
    /// Received, and not read: an item that is not whole.
    bytes: Vec<u8>,
    pub(crate) stats: CaptureStats,
}

impl Source {
    /// Has the daemon capture what `filter` matches: what is `dropped`, or all else.
    pub(crate) fn start(
        daemon: &Reach,
        of: &Part,
        dropped: bool,
        filter: &str,
    ) -> Result<Source, Failure> {
        let request = Request {
            port: of.port.clone(),
            class: of.class.map(|class| class.to_string()),
            dropped,
            filter: filter.to_owned(),
        };
        let (started, socket) = start(daemon, &request)?;
        Ok(Source {
            port: started.port.into(),
            base: started.base,
            snap: started.snap,
            socket,
            bytes: Vec::new(),
            stats: CaptureStats::default(),
        })
    }

    /// Gives `each` the packets that come next, and the numbers so far. Blocks for as long as the
    /// socket does.
    pub(crate) fn receive(
        &mut self,
        part: &mut [u8],
        mut each: impl FnMut(&CaptureStats, Record, &[u8]) -> io::Result<()>,
    ) -> io::Result<Received> {
        let length = match self.socket.read(part) {
            Ok(0) => return Ok(Received::End),
            Ok(length) => length,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::Interrupted => Ok(Received::Interrupted),
                    io::ErrorKind::WouldBlock => Ok(Received::Late),
                    io::ErrorKind::ConnectionReset => Ok(Received::End),
                    _ => Err(error),
                };
            }
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.extend_from_slice(&part[..length]);
        let mut rest = &*bytes;
        while let Some((item, after)) = stream::read(rest)? {
            rest = after;
            match item {
                Item::Stats(stats) => self.stats = stats,
                Item::Packet(record, frame) => each(&self.stats, record, frame)?,
            }
        }
        self.bytes = rest.to_vec();
        Ok(Received::Some)
    }
}
