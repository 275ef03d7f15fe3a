//! Writing messages.

use zerocopy::{Immutable, IntoBytes};

use super::headers::NlMsgHdr;
use super::{NLA_HDRLEN, NLMSG_HDRLEN, align};

/// The header of a message without its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The type.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// That of the request.
    pub seq: u32,
    /// Port id of the client.
    pub pid: u32,
}

/// A message did not fit; the buffer is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Whole messages, one after the other, as they go into one datagram.
#[derive(Clone, Debug)]
pub struct Messages {
    buffer: Vec<u8>,
}

impl Messages {
    /// Bytes that a datagram holds, unless its only message is larger. A client that reads with a
    /// buffer of this length loses nothing.
    pub const SIZE: usize = 32 * 1024;
    /// Bytes that a message may hold: less than a Unix socket takes at once
    /// (`net.core.wmem_default`).
    pub const MESSAGE: usize = 192 * 1024;

    /// None yet.
    pub fn new() -> Messages {
        Messages { buffer: Vec::new() }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The bytes, to keep.
    pub fn into_bytes(self) -> Vec<u8> {
        self.buffer
    }

    /// Appends a message: header, `fixed`, and the attributes that `body` puts. Either all of it
    /// fits, or nothing is appended.
    pub fn message<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        head: Head,
        fixed: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) -> Result<(), Full> {
        let start = self.buffer.len();
        let limit = if start == 0 {
            Self::MESSAGE
        } else {
            Self::SIZE
        };
        let mut message = Message {
            buffer: &mut self.buffer,
            limit,
            full: false,
        };
        message.append(&[0; NLMSG_HDRLEN]);
        message.append(fixed.as_bytes());
        body(&mut message);
        if message.full {
            self.buffer.truncate(start);
            return Err(Full);
        }
        let Head {
            kind,
            flags,
            seq,
            pid,
        } = head;
        // At most `MESSAGE`.
        let length = (self.buffer.len() - start) as u32;
        let header = NlMsgHdr {
            length,
            kind,
            flags,
            seq,
            pid,
        };
        self.buffer[start..start + NLMSG_HDRLEN].copy_from_slice(header.as_bytes());
        Ok(())
    }

    /// Sets flags in every message.
    pub fn set_flags(&mut self, flags: u16) {
        let mut at = 0;
        while let Some(header) = self.buffer.get_mut(at..at + NLMSG_HDRLEN) {
            let set = u16::from_ne_bytes([header[6], header[7]]) | flags;
            header[6..8].copy_from_slice(&set.to_ne_bytes());
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            at += align(length as usize);
        }
    }
}

impl Default for Messages {
    fn default() -> Messages {
        Messages::new()
    }
}

/// A message that is being written. What does not fit is left out, and the whole message with it
/// ([`Messages::message`]), so nothing need be checked on the way.
#[derive(Debug)]
pub struct Message<'a> {
    buffer: &'a mut Vec<u8>,
    limit: usize,
    full: bool,
}

impl Message<'_> {
    /// Appends and pads.
    fn append(&mut self, bytes: &[u8]) {
        let end = self.buffer.len() + align(bytes.len());
        if self.full || end > self.limit {
            self.full = true;
            return;
        }
        self.buffer.extend_from_slice(bytes);
        self.buffer.resize(end, 0);
    }

    /// Puts an attribute.
    pub fn put_bytes(&mut self, kind: u16, value: &[u8]) {
        let Ok(length) = u16::try_from(NLA_HDRLEN + value.len()) else {
            self.full = true;
            return;
        };
        let [l0, l1] = length.to_ne_bytes();
        let [k0, k1] = kind.to_ne_bytes();
        let start = self.buffer.len();
        self.append(&[l0, l1, k0, k1]);
        self.append(value);
        if self.full {
            self.buffer.truncate(start);
        }
    }

    /// Puts a structure or integer. (The kernel puts `*_PAD` attributes in front of 64-bit ones
    /// only on machines that cannot read them unaligned; x86-64 and arm64 can.)
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, kind: u16, value: &T) {
        self.put_bytes(kind, value.as_bytes());
    }

    /// Puts an integer.
    pub fn put_u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &value);
    }

    /// Puts an integer.
    pub fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value);
    }

    /// Puts an integer.
    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value);
    }

    /// Puts an integer.
    pub fn put_u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value);
    }

    /// Puts an integer.
    pub fn put_i32(&mut self, kind: u16, value: i32) {
        self.put(kind, &value);
    }

    /// Puts an integer in network byte order.
    pub fn put_be16(&mut self, kind: u16, value: u16) {
        self.put_bytes(kind, &value.to_be_bytes());
    }

    /// Puts an integer in network byte order.
    pub fn put_be32(&mut self, kind: u16, value: u32) {
        self.put_bytes(kind, &value.to_be_bytes());
    }

    /// Puts a string and its NUL.
    pub fn put_str(&mut self, kind: u16, value: &str) {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.put_bytes(kind, &bytes);
    }

    /// Puts a nest of what `body` puts. `kind` is the type as it is written: most of rtnetlink
    /// leaves `NLA_F_NESTED` out (`nla_nest_start_noflag`).
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.nest_with(kind, &[0_u8; 0], body);
    }

    /// The same with a structure in front of the attributes.
    pub fn nest_with<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        kind: u16,
        front: &T,
        body: impl FnOnce(&mut Self),
    ) {
        let start = self.buffer.len();
        self.put(kind, front);
        body(self);
        if self.full {
            return;
        }
        match u16::try_from(self.buffer.len() - start) {
            Ok(length) => self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => self.full = true,
        }
    }

    /// Puts a nest if `body` puts anything.
    pub fn nest_unless_empty(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.nest(kind, body);
        if self.buffer.len() == start + NLA_HDRLEN {
            self.buffer.truncate(start);
        }
    }
}
