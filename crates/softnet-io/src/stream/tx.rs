//! Sending frames to a stream: many of them in one call.
//!
//! A frame that the socket took a part of is sent: what is left of it is copied, and goes first
//! when the socket takes more. A peer that does not read has the port's queue wait.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use softnet::mem::{Packet, PacketList};
use softnet::time::Time;
use softnet::tx::{Interest, RingFile, RingWaker, Sent, TxRing, Xmit};

use super::deframe::LENGTH;
use super::life::Life;
use super::port::Seen;
use crate::driver::down;

/// Frames of a call.
const FRAMES: usize = 32;
/// Pieces of a call: a length for each frame, and its segments.
const PIECES: usize = 128;

/// The transmit queue of a port.
#[derive(Debug)]
pub struct StreamTx {
    life: Arc<Life>,
    seen: Seen,
    /// The end of a frame of which the socket took the start, from `at` on.
    rest: Vec<u8>,
    at: usize,
}

impl StreamTx {
    pub(super) fn new(life: Arc<Life>) -> StreamTx {
        StreamTx {
            life,
            seen: Seen::default(),
            rest: Vec::new(),
            at: 0,
        }
    }

    /// Looks whether the connection is another one, of which a frame's end may have come along.
    fn follow(&mut self) {
        if self.life.port.follow(&mut self.seen) {
            self.forget();
            self.rest = std::mem::take(&mut self.life.port.parts().unsent);
        }
    }

    /// The connection, if there is one.
    fn connection(&mut self) -> Option<Arc<OwnedFd>> {
        self.follow();
        self.seen.connection.clone()
    }

    fn forget(&mut self) {
        self.rest.clear();
        self.at = 0;
    }

    fn lose(&mut self, connection: &Arc<OwnedFd>, error: Errno) {
        let error = io::Error::from(error);
        self.seen.connection = None;
        self.forget();
        self.life
            .port
            .lose(connection, format!("not connected: {error}"));
    }

    /// Sends what is left of a frame. `AGAIN`: the socket does not take all of it yet.
    fn flush(&mut self, connection: &OwnedFd) -> Result<(), Errno> {
        while self.at < self.rest.len() {
            self.at += send(connection, &[IoSlice::new(&self.rest[self.at..])])?;
        }
        self.forget();
        Ok(())
    }

    /// Sends frames from the front. Returns how many bytes the socket took.
    fn send_some(&mut self, connection: &OwnedFd, packets: &PacketList) -> Result<usize, Errno> {
        let mut lengths = [[0; LENGTH]; FRAMES];
        for (length, packet) in lengths.iter_mut().zip(packets) {
            *length = (packet.len() as u32).to_be_bytes();
        }
        let (mut pieces, mut used) = ([IoSlice::new(&[]); PIECES], 0);
        for (length, packet) in lengths.iter().zip(packets) {
            let segments = packet.segments().count();
            if used + 1 + segments > PIECES {
                break;
            }
            pieces[used] = IoSlice::new(length);
            for (piece, segment) in pieces[used + 1..].iter_mut().zip(packet.segments()) {
                *piece = IoSlice::new(segment);
            }
            used += 1 + segments;
        }
        send(connection, &pieces[..used])
    }

    /// Copies a frame from byte `at` on, its length included.
    fn keep(&mut self, packet: &Packet, at: usize) {
        self.forget();
        self.rest.extend((packet.len() as u32).to_be_bytes());
        self.rest.extend(packet.segments().flatten());
        self.at = at;
    }
}

impl Drop for StreamTx {
    fn drop(&mut self) {
        // For who goes on with the connection.
        let port = &self.life.port;
        if port.has(&self.seen) {
            port.parts().unsent = self.rest.split_off(self.at.min(self.rest.len()));
        }
    }
}

fn send(connection: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let sent = sendmsg(
            connection,
            pieces,
            &mut SendAncillaryBuffer::default(),
            flags,
        );
        if sent != Err(Errno::INTR) {
            return sent;
        }
    }
}

impl TxRing for StreamTx {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let Some(connection) = self.connection() else {
            return down(packets, sent);
        };
        // Freed together.
        let mut done = PacketList::new();
        let result = loop {
            if let Err(error) = self.flush(&connection) {
                break error;
            }
            let Some(first) = packets.front() else {
                return Xmit::Complete;
            };
            let first_pieces = 1 + first.segments().count();
            let mut bytes = if first_pieces > PIECES {
                // In more pieces than a call takes: copied first.
                0
            } else {
                match self.send_some(&connection, packets) {
                    Ok(bytes) => bytes,
                    Err(error) => break error,
                }
            };
            let mut next = true;
            while next && (bytes > 0 || first_pieces > PIECES) {
                let Some(packet) = packets.pop_front() else {
                    break;
                };
                let length = LENGTH + packet.len();
                if bytes < length {
                    self.keep(&packet, bytes);
                    next = false;
                }
                bytes = bytes.saturating_sub(length);
                sent.count(&packet);
                done.push_back(packet);
            }
        };
        match result {
            Errno::AGAIN if packets.is_empty() => Xmit::Complete,
            Errno::AGAIN => Xmit::Busy,
            error => {
                self.lose(&connection, error);
                down(packets, sent)
            }
        }
    }

    /// Nothing while the end of a frame waits, which is sent from here where no other comes.
    fn available(&mut self, _: Time) -> Option<u64> {
        self.follow();
        if self.rest.is_empty() {
            return None;
        }
        let connection = self.seen.connection.clone()?;
        match self.flush(&connection) {
            Ok(()) => Some(u64::MAX),
            Err(Errno::AGAIN) => Some(0),
            Err(error) => {
                self.lose(&connection, error);
                Some(u64::MAX)
            }
        }
    }

    fn bind(&mut self, waker: RingWaker) {
        let _ = self.life.port.waker.set(waker);
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        Ok(Some(RingFile {
            fd: self.life.port.writable.try_clone()?,
            interest: Interest::Readable,
        }))
    }
}
