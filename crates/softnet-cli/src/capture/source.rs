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

/// A capture that the daemon sends. It ends when this is dropped.
pub(crate) struct Source {
    /// Name of the port.
    pub(crate) port: Arc<str>,
    /// Nanoseconds since 1970 at which times of records start.
    pub(super) base: u64,
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
            socket,
            bytes: Vec::new(),
            stats: CaptureStats::default(),
        })
    }

    /// Gives `each` the packets that come next. Blocks for as long as the socket does. False: the
    /// daemon or the port is gone, or nothing came in time.
    pub(crate) fn receive(
        &mut self,
        part: &mut [u8],
        mut each: impl FnMut(Record, &[u8]),
    ) -> io::Result<bool> {
        let length = match self.socket.read(part) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::Interrupted => Ok(true),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionReset => Ok(false),
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
                Item::Packet(record, frame) => each(record, frame),
            }
        }
        self.bytes = rest.to_vec();
        Ok(true)
    }
}
