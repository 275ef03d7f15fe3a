//! A request: one message of a datagram.

use zerocopy::FromBytes;

use super::headers::NlMsgHdr;
use super::{AttrIter, Attrs, Error, NLM_F_DUMP, NLMSG_HDRLEN, Policy, Validation, align};

/// One message, header and payload.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The type.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// The sequence number, which the answer repeats.
    pub seq: u32,
    /// The port id that the client wrote.
    pub pid: u32,
    /// The whole message; offsets in errors are offsets into it.
    message: &'a [u8],
}

impl<'a> Request<'a> {
    /// The message at the front of `datagram`; none if its length is not that of a message there.
    pub fn read(datagram: &'a [u8]) -> Option<Request<'a>> {
        let (header, _) = NlMsgHdr::read_from_prefix(datagram).ok()?;
        let message = datagram.get(..usize::try_from(header.length).ok()?)?;
        let NlMsgHdr {
            kind,
            flags,
            seq,
            pid,
            ..
        } = header;
        (message.len() >= NLMSG_HDRLEN).then_some(Request {
            kind,
            flags,
            seq,
            pid,
            message,
        })
    }

    /// Header and payload.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// The bytes behind the header.
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(NLMSG_HDRLEN..).unwrap_or_default()
    }

    /// True if all of `flags` are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// True if a request of a `GET` type asks for all objects: either bit of `NLM_F_DUMP` does.
    pub fn is_dump(&self) -> bool {
        self.flags & NLM_F_DUMP != 0
    }

    /// The family, the first byte of every payload; 0 without one.
    pub fn family(&self) -> u8 {
        self.payload().first().copied().unwrap_or(0)
    }

    /// The header at the front of the payload.
    pub fn header<T: FromBytes>(&self) -> Result<T, Error> {
        match T::read_from_prefix(self.payload()) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Error::invalid("Invalid header length")),
        }
    }

    /// The attributes behind a header of type `T` (`nlmsg_parse_deprecated` with
    /// [`Validation::Liberal`]).
    pub fn attrs<T>(&self, policy: &Policy, validation: Validation) -> Result<Attrs<'a>, Error> {
        Attrs::parse(self.attr_iter::<T>()?, policy, validation)
    }

    /// The same, unchecked and one after the other.
    pub fn attr_iter<T>(&self) -> Result<AttrIter<'a>, Error> {
        let start = NLMSG_HDRLEN + align(size_of::<T>());
        if self.payload().len() < size_of::<T>() {
            return Err(Error::invalid("Invalid header length"));
        }
        Ok(AttrIter::new(
            self.message.get(start..).unwrap_or_default(),
            start,
        ))
    }
}

/// The messages of a datagram, up to the first whose length is wrong (`netlink_rcv_skb`).
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    rest: &'a [u8],
}

impl<'a> Requests<'a> {
    /// The requests of a datagram.
    pub fn new(datagram: &'a [u8]) -> Requests<'a> {
        Requests { rest: datagram }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let request = Request::read(self.rest)?;
        self.rest = self
            .rest
            .get(align(request.message.len())..)
            .unwrap_or_default();
        Some(request)
    }
}
