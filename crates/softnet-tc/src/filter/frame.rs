//! A packet as filters look at it: read once, and only where a filter asks.

use std::cell::{Cell, Ref, RefCell};
use std::net::IpAddr;

use softnet::mem::Packet;
use softnet::wire::{self, Headers, Network};

/// Bytes of the two MAC addresses.
const ADDRESSES: usize = 12;
/// EtherTypes of VLAN tags.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Bytes in which the headers of a frame in several segments are looked for, if its first segment
/// does not have them.
const MAX_HEADERS: usize = 512;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: i64 = 14;

/// A packet that is being classified.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) packet: &'a Packet,
    read: &'a Read,
}

/// Parts of a packet that were read so far.
pub(super) struct Read {
    /// Written in their place, and read there: see [`wire::dissect_into`].
    headers: RefCell<Headers>,
    /// True if those are the packet's, false if it has none; `None`: nobody has asked yet.
    found: Cell<Option<bool>>,
    /// True if the packet arrives: its length begins behind the Ethernet header.
    arriving: bool,
}

impl Read {
    /// Nothing yet.
    #[inline]
    pub(super) fn new(arriving: bool) -> Read {
        Read {
            headers: RefCell::new(Headers::NONE),
            found: Cell::new(None),
            arriving,
        }
    }

    /// The packet may have changed since it was read.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.found.set(None);
    }
}

impl<'a> Frame<'a> {
    pub(super) fn new(packet: &'a Packet, read: &'a Read) -> Frame<'a> {
        Frame { packet, read }
    }

    /// As far as they are readable: no packet escapes a filter because something behind is bad.
    /// `None` if what is in front of the network header is.
    #[inline]
    pub(super) fn headers(&self) -> Option<Ref<'a, Headers>> {
        let found = match self.read.found.get() {
            Some(found) => found,
            None => self.read_headers(),
        };
        match found {
            true => Some(self.read.headers.borrow()),
            false => None,
        }
    }

    /// True if there are headers.
    #[inline(never)]
    fn read_headers(&self) -> bool {
        let (packet, mut headers) = (self.packet, self.read.headers.borrow_mut());
        let found = match packet.is_chained() {
            false => wire::dissect_into(&mut headers, packet.data(), packet.len()).is_ok(),
            true => match packet.parse().ok().or_else(|| self.dissect()) {
                Some(read) => {
                    *headers = read;
                    true
                }
                None => false,
            },
        };
        self.read.found.set(Some(found));
        found
    }

    /// Reads the headers of a packet in several segments.
    #[cold]
    fn dissect(&self) -> Option<Headers> {
        let (first, len) = (self.packet.data(), self.packet.len());
        if first.len() >= MAX_HEADERS {
            return wire::dissect(first, len).ok();
        }
        let mut bytes = [0; MAX_HEADERS];
        let found = self.copy(0, &mut bytes);
        wire::dissect(&bytes[..found], len).ok()
    }

    /// Source and destination address of an IP packet.
    pub(super) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let headers = self.headers()?;
        let at = usize::from(headers.network_offset);
        Some(match headers.network {
            Network::V4 => (
                self.bytes::<4>(at + 12)?.into(),
                self.bytes::<4>(at + 16)?.into(),
            ),
            Network::V6 => (
                self.bytes::<16>(at + 8)?.into(),
                self.bytes::<16>(at + 24)?.into(),
            ),
            Network::Other => return None,
        })
    }

    /// The EtherType behind the addresses, which may be that of a tag.
    pub(super) fn ethertype(&self) -> Option<u16> {
        self.bytes(ADDRESSES).map(u16::from_be_bytes)
    }

    /// Contents of the first VLAN tag, and the EtherType behind it.
    pub(super) fn tag(&self) -> Option<(u16, u16)> {
        let tagged = TAGS.contains(&self.ethertype()?);
        let [a, b, c, d] = self.bytes(ADDRESSES + 2).filter(|_| tagged)?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Bytes of the frame without its first tag, which the kernel keeps beside the packet until
    /// it is sent. Those in front of it are zeros.
    #[inline]
    pub(super) fn untagged<const N: usize>(&self, at: i64) -> Option<[u8; N]> {
        let tagged = TAGS.contains(&self.ethertype()?);
        let skip = if tagged { TAG } else { 0 };
        match usize::try_from(at) {
            Ok(at) if at >= ADDRESSES => self.bytes(at + skip),
            _ => {
                let mut bytes = [0; N];
                for (at, byte) in (at..).zip(&mut bytes) {
                    [*byte] = match usize::try_from(at) {
                        Ok(at) if at >= ADDRESSES => self.bytes(at + skip)?,
                        Ok(at) => self.bytes(at)?,
                        Err(_) => [0],
                    };
                }
                Some(bytes)
            }
        }
    }

    /// True if the frame has a byte there, counted without its first tag.
    pub(super) fn reaches(&self, at: i64) -> bool {
        let tag = if self.tag().is_some() { TAG } else { 0 };
        i64::try_from(self.packet.len() - tag).is_ok_and(|len| at < len)
    }

    /// Bytes of the packet as the kernel has it (`skb->len`): without the first tag, and without
    /// the Ethernet header where it arrives.
    pub(super) fn len(&self) -> Option<u32> {
        let tag = if self.tag().is_some() { TAG } else { 0 };
        let header = if self.read.arriving { ETHERNET } else { 0 };
        let len = self.packet.len().checked_sub(tag + header as usize)?;
        u32::try_from(len).ok()
    }

    /// So many bytes of the frame; `None` if it is shorter.
    #[inline]
    pub(super) fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let first = self.packet.data();
        match first.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Some(*bytes),
            None if self.packet.is_chained() => self.chained_bytes(at),
            None => None,
        }
    }

    #[cold]
    fn chained_bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.copy(at, &mut bytes) == N).then_some(bytes)
    }

    /// Copies bytes from all segments. Returns how many there were.
    fn copy(&self, at: usize, bytes: &mut [u8]) -> usize {
        let (mut skip, mut found) = (at, 0);
        for segment in self.packet.segments() {
            let part = segment.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(segment.len());
            let n = part.len().min(bytes.len() - found);
            bytes[found..found + n].copy_from_slice(&part[..n]);
            found += n;
        }
        found
    }
}
