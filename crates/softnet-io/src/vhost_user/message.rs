//! Messages of the front end: 12 bytes of header, a payload, and files.
//!
//! [`Request::parse`] checks everything that can be checked of one message by itself.

use std::os::fd::OwnedFd;

use zerocopy::byteorder::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::memory::RegionSpec;

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;
/// The longest payload: a memory table of 8 regions.
pub const MAX_PAYLOAD: usize = 8 + TABLE_REGIONS * REGION_LEN;
/// The most files that come with a message: one for each region of a memory table.
pub const MAX_FILES: usize = TABLE_REGIONS;
/// The most regions of a memory table.
const TABLE_REGIONS: usize = 8;
/// Bytes of a region in a payload.
const REGION_LEN: usize = 32;

/// The protocol's version, in [`Header::flags`].
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The request number of a message, its flags and the length of its payload.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    request: U32,
    flags: U32,
    size: U32,
}

/// Why a message is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not version 1, or a reply.
    #[error("a message with flags {0:#x}: not a request of version 1")]
    BadFlags(u32),
    /// Longer than any message.
    #[error("a message of {0} bytes")]
    TooLong(u32),
    /// Not one that was offered.
    #[error("request {0}, which was not offered")]
    Unknown(u32),
    /// The payload is not as long as it must be.
    #[error("request {request} with a payload of {len} bytes")]
    BadLen {
        /// The request's number.
        request: u32,
        /// Bytes.
        len: usize,
    },
    /// More or fewer files than the request takes.
    #[error("request {request} with {files} files")]
    BadFiles {
        /// The request's number.
        request: u32,
        /// Files.
        files: usize,
    },
    /// More regions of memory than a table can have, or another number than the length says.
    #[error("a memory table of {0} regions")]
    BadTable(u32),
    /// A number that does not fit.
    #[error("request {request} with the value {value:#x}")]
    BadValue {
        /// The request's number.
        request: u32,
        /// The number that does not fit.
        value: u64,
    },
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// If it is no request's, or announces more than any message has.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Header, MessageError> {
        let header: Header = zerocopy::transmute!(bytes);
        let flags = header.flags.get();
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(MessageError::BadFlags(flags));
        }
        if header.size.get() as usize > MAX_PAYLOAD {
            return Err(MessageError::TooLong(header.size.get()));
        }
        Ok(header)
    }

    /// Bytes of the payload.
    pub fn payload_len(&self) -> usize {
        self.size.get() as usize
    }

    /// True if the front end waits for an answer, if that was negotiated.
    pub fn needs_reply(&self) -> bool {
        self.flags.get() & NEED_REPLY != 0
    }

    /// The answer to this request.
    pub fn reply(&self, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            request: self.request,
            flags: U32::new(VERSION | REPLY),
            size: U32::new(payload.len() as u32),
        };
        [header.as_bytes(), payload].concat()
    }
}

/// `struct vhost_vring_state`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RingValue {
    /// Number of the ring.
    pub ring: U32,
    /// A size, a position, or whether it is enabled.
    pub value: U32,
}

/// `struct vhost_vring_addr`: addresses of the front end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RingAddresses {
    /// Number of the ring.
    pub ring: U32,
    /// For the log of dirty pages, which is not offered.
    flags: U32,
    /// The descriptors.
    pub descriptors: U64,
    /// The area that the device writes.
    pub device: U64,
    /// The area that the driver writes.
    pub driver: U64,
    log: U64,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RegionPayload {
    guest: U64,
    len: U64,
    user: U64,
    offset: U64,
}

impl RegionPayload {
    fn spec(self) -> RegionSpec {
        RegionSpec {
            guest: self.guest.get(),
            len: self.len.get(),
            user: self.user.get(),
            offset: self.offset.get(),
        }
    }
}

/// A request of the front end.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the specification")]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionSpec, OwnedFd)>),
    SetVringNum(RingValue),
    SetVringAddr(RingAddresses),
    SetVringBase(RingValue),
    GetVringBase(RingValue),
    SetVringKick(usize, Option<OwnedFd>),
    SetVringCall(usize, Option<OwnedFd>),
    SetVringErr(usize, Option<OwnedFd>),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable(RingValue),
    NetSetMtu(u64),
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(RegionSpec, OwnedFd),
    RemMemReg(RegionSpec),
    SetStatus(u64),
    GetStatus,
}

impl Request {
    /// Reads a message's payload, and takes its files.
    ///
    /// # Errors
    /// If it is not what the header says. The files are closed then.
    pub fn parse(
        header: &Header,
        payload: &[u8],
        mut files: Vec<OwnedFd>,
    ) -> Result<Request, MessageError> {
        let request = header.request.get();
        let bad_files = MessageError::BadFiles {
            request,
            files: files.len(),
        };
        let parsed = match request {
            5 => table(payload, &mut files)?,
            12..=14 => ring_file(request, payload, files.pop())?,
            37 => {
                let file = files.pop().ok_or(bad_files)?;
                Request::AddMemReg(added(request, payload)?, file)
            }
            38 => {
                // Some front ends send one along.
                files.clear();
                Request::RemMemReg(added(request, payload)?)
            }
            _ => plain(request, payload)?,
        };
        if files.is_empty() {
            Ok(parsed)
        } else {
            Err(bad_files)
        }
    }
}

/// A request without files.
fn plain(request: u32, payload: &[u8]) -> Result<Request, MessageError> {
    let number = || Ok(fixed::<U64>(request, payload)?.get());
    let ring = || fixed::<RingValue>(request, payload);
    Ok(match request {
        // What these carry is not looked at: some front ends send zeroes along.
        1 => Request::GetFeatures,
        3 => Request::SetOwner,
        4 => Request::ResetOwner,
        15 => Request::GetProtocolFeatures,
        17 => Request::GetQueueNum,
        34 => Request::ResetDevice,
        36 => Request::GetMaxMemSlots,
        40 => Request::GetStatus,
        2 => Request::SetFeatures(number()?),
        8 => Request::SetVringNum(ring()?),
        9 => Request::SetVringAddr(fixed(request, payload)?),
        10 => Request::SetVringBase(ring()?),
        11 => Request::GetVringBase(ring()?),
        16 => Request::SetProtocolFeatures(number()?),
        18 => Request::SetVringEnable(ring()?),
        20 => Request::NetSetMtu(number()?),
        39 => Request::SetStatus(number()?),
        _ => return Err(MessageError::Unknown(request)),
    })
}

fn fixed<T: FromBytes>(request: u32, payload: &[u8]) -> Result<T, MessageError> {
    T::read_from_bytes(payload).map_err(|_| MessageError::BadLen {
        request,
        len: payload.len(),
    })
}

/// A region to add or remove; in front of it is padding.
fn added(request: u32, payload: &[u8]) -> Result<RegionSpec, MessageError> {
    let (_padding, region) = fixed::<(U64, RegionPayload)>(request, payload)?;
    Ok(region.spec())
}

fn table(payload: &[u8], files: &mut Vec<OwnedFd>) -> Result<Request, MessageError> {
    let request = 5;
    let len = payload.len();
    let (count, rest) =
        U32::read_from_prefix(payload).map_err(|_| MessageError::BadLen { request, len })?;
    let count = count.get();
    let regions = rest.get(4..).unwrap_or_default();
    let (regions, odd) = regions.as_chunks::<REGION_LEN>();
    if count as usize > TABLE_REGIONS || regions.len() != count as usize || !odd.is_empty() {
        return Err(MessageError::BadTable(count));
    }
    if files.len() != regions.len() {
        let files = files.len();
        return Err(MessageError::BadFiles { request, files });
    }
    let spec = |region: &[u8; REGION_LEN]| {
        let region: RegionPayload = zerocopy::transmute!(*region);
        region.spec()
    };
    let specs = regions.iter().map(spec);
    Ok(Request::SetMemTable(specs.zip(files.drain(..)).collect()))
}

/// A file of a ring. A bit says that there is none.
fn ring_file(
    request: u32,
    payload: &[u8],
    file: Option<OwnedFd>,
) -> Result<Request, MessageError> {
    const NO_FILE: u64 = 1 << 8;
    let value = fixed::<U64>(request, payload)?.get();
    let ring = (value & 0xff) as usize;
    if value & !(NO_FILE | 0xff) != 0 {
        return Err(MessageError::BadValue { request, value });
    }
    if (value & NO_FILE == 0) != file.is_some() {
        let files = usize::from(file.is_some());
        return Err(MessageError::BadFiles { request, files });
    }
    Ok(match request {
        12 => Request::SetVringKick(ring, file),
        13 => Request::SetVringCall(ring, file),
        _ => Request::SetVringErr(ring, file),
    })
}
