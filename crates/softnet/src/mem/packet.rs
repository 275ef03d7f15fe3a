//! Packets as owned values: one header line of 64 bytes and, apart from it, the data.
//!
//! A packet is `Send`, may be dropped on any thread, and then goes back to its pool. A frame
//! longer than one buffer is a chain of segments.
//!
//! Data may be shared ([`Packet::share`]): several packets, each with metadata of its own, use
//! the same bytes. A shared packet is read-only: it has no headroom, no tailroom, and
//! [`data_mut`](Packet::data_mut) panics; [`make_unique`](Packet::make_unique) copies it first.
//! The last packet that uses the data may change it again. A packet that was never shared pays a
//! look at a flag in its header line.
//!
//! Layout of a buffer: `[64 bytes: chain link and share count | headroom | data … | tailroom]`.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Flags, Header, Pool, SharedInfo, buffer_size, free_one, own_buffer, short, word};
use crate::stats::DropReason;
use crate::wire::{self, EthernetAddress, Headers, Offload, VnetHeader};

/// Bytes at the start of each buffer that belong to the packet machinery, not to data.
pub const SHARED_INFO: usize = 64;
/// Free bytes in front of the data of a fresh packet, for encapsulation and driver headers.
pub const HEADROOM: usize = 192;

/// An owned packet. Dropping it frees the buffer (and those of its chained segments).
#[repr(transparent)]
pub struct Packet(pub(super) NonNull<Header>);

// SAFETY: a `Packet` is the only handle to its header line, buffer and chain (the pool gives each
// out once, and no method lets a second handle escape), so moving it moves all access with it.
// Hand-over between threads happens through channels, lists or locks that order memory
// themselves.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` only gives shared reads of plain fields and bytes; every mutation needs
// `&mut`.
unsafe impl Sync for Packet {}

impl Packet {
    /// Asks for the cache line with all but the data: the packet will be used soon.
    #[inline]
    pub fn prefetch(&self) {
        crate::sync::prefetch(self.0.as_ptr());
    }

    /// Takes ownership of a header line.
    ///
    /// # Safety
    /// `header` came out of a pool (or [`Packet::into_raw`]) and nothing else refers to it.
    pub(crate) unsafe fn from_raw(header: NonNull<Header>) -> Packet {
        Packet(header)
    }

    /// Gives up ownership without freeing.
    pub(crate) fn into_raw(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the handle is the only owner, and header lines live as long as a packet of
        // their pool does.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as in `header`; `&mut self` excludes every other reference.
        unsafe { self.0.as_mut() }
    }

    fn shared_info(&self) -> &SharedInfo {
        // SAFETY: `buf` points at the buffer's first 64 bytes, which are reserved for this
        // structure, aligned to 64 and zero-initialised by the arena (all fields may be zero).
        unsafe { self.header().buf.cast::<SharedInfo>().as_ref() }
    }

    /// The first bytes of the packet's own buffer, which may not be the one with its data.
    pub(super) fn own_info(&self) -> &SharedInfo {
        // SAFETY: as in `shared_info`. The header's own buffer is the packet's as long as the
        // header is. Others that use the data in it refer to this structure as we do: shared.
        unsafe { own_buffer(self.0).cast::<SharedInfo>().as_ref() }
    }

    fn shared_info_mut(&mut self) -> &mut SharedInfo {
        // SAFETY: as in `shared_info`; `&mut self` excludes every other reference.
        unsafe { self.header_mut().buf.cast::<SharedInfo>().as_mut() }
    }

    /// Length of the whole frame in bytes, all segments together.
    pub fn len(&self) -> usize {
        self.header().total_len as usize
    }

    /// True if the frame has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the first segment (all of the frame unless it
    /// [`is_chained`](Packet::is_chained)).
    #[inline]
    pub fn data(&self) -> &[u8] {
        let h = self.header();
        // SAFETY: `off + seg_len <= capacity` is kept by every method that changes them; the
        // arena zero-initialised the bytes, so they may be read; the packet owns the buffer.
        unsafe {
            std::slice::from_raw_parts(h.buf.as_ptr().add(h.off as usize), h.seg_len as usize)
        }
    }

    /// The bytes of the first segment, to change them.
    ///
    /// # Panics
    /// If the packet [`is_shared`](Packet::is_shared).
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        assert!(
            !self.is_shared(),
            "the data of a shared packet cannot be changed"
        );
        let h = self.header_mut();
        // SAFETY: as in `data`; `&mut self` makes the slice exclusive, as no other packet uses
        // the data.
        unsafe {
            std::slice::from_raw_parts_mut(h.buf.as_ptr().add(h.off as usize), h.seg_len as usize)
        }
    }

    /// True if other packets use the same data. Once false, it stays so until the next
    /// [`share`](Packet::share).
    #[inline]
    pub fn is_shared(&self) -> bool {
        // Acquire: pairs with the Release of another holder that lets go, whose reads are then
        // over.
        self.header().flags.has(Flags::SHARED)
            && self.shared_info().holders.load(Ordering::Acquire) > 1
    }

    /// Another packet with the same data and metadata of its own, starting as a copy of this
    /// one's. It takes a buffer of `pool` for its header, the rest of which is unused. `None` if
    /// the pool has none left.
    pub fn share(&mut self, pool: &Pool) -> Option<Packet> {
        let mut other = pool.alloc().ok()?;
        if self.header().flags.has(Flags::SHARED) {
            // Relaxed: the count cannot fall to zero while we hold.
            self.shared_info().holders.fetch_add(1, Ordering::Relaxed);
        } else {
            let origin = self.0;
            let info = self.shared_info_mut();
            info.origin = Some(origin);
            info.holders = AtomicU32::new(2);
            self.header_mut().flags.set(Flags::SHARED, true);
        }
        let (to, from) = (other.header_mut(), self.header());
        to.buf = from.buf;
        to.off = from.off;
        to.seg_len = from.seg_len;
        to.total_len = from.total_len;
        to.copy_metadata(from);
        to.flags = from.flags;
        Some(other)
    }

    /// Makes the packet one that may be changed: copies it, in buffers of `pool`, if its data
    /// [`is_shared`](Packet::is_shared). The copy counts as the packet did
    /// ([`accounted`](Packet::accounted)). False, and nothing changed, if the pool has none left.
    #[must_use = "if false, the packet is still shared"]
    pub fn make_unique(&mut self, pool: &Pool) -> bool {
        if self.is_shared() {
            let Some(mut copy) = self.copy(pool) else {
                return false;
            };
            copy.set_accounted(self.accounted());
            *self = copy;
        }
        true
    }

    /// End of the memory that this packet may use, from the start of the buffer; at most
    /// `u16::MAX`, and never before the end of the data.
    fn capacity(&self) -> usize {
        let h = self.header();
        if !h.flags.has(Flags::SHARED) {
            buffer_size(self.0)
        } else if self.is_shared() {
            h.off as usize + h.seg_len as usize
        } else {
            buffer_size(self.shared_info().origin.unwrap_or(self.0))
        }
    }

    /// Free bytes in front of the data. None if it is shared.
    pub fn headroom(&self) -> usize {
        if self.is_shared() { 0 } else { self.offset() }
    }

    /// Position of the data behind the first 64 bytes.
    pub(super) fn offset(&self) -> usize {
        self.header().off as usize - SHARED_INFO
    }

    /// The free bytes behind the first segment's data, for a driver to receive into; make them
    /// part of the packet with [`extend`](Packet::extend). They hold leftovers of earlier
    /// packets.
    pub fn tailroom_mut(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        let h = self.header_mut();
        let end = h.off as usize + h.seg_len as usize;
        // SAFETY: `end <= capacity` (invariant of `off` and `seg_len`); initialised and owned as
        // in `data`.
        unsafe { std::slice::from_raw_parts_mut(h.buf.as_ptr().add(end), capacity - end) }
    }

    /// Makes the next `n` bytes behind the first segment's data part of it.
    ///
    /// # Panics
    /// If the tailroom is shorter than `n`.
    pub fn extend(&mut self, n: usize) {
        let capacity = self.capacity();
        let h = self.header_mut();
        let end = h.off as usize + h.seg_len as usize;
        assert!(n <= capacity - end, "extend beyond the buffer");
        // The end is at most `capacity`, so the sums fit.
        h.seg_len += short(n);
        h.total_len += word(n);
    }

    /// Makes the next bytes behind the first segment's data part of it, up to `n`, as many as the
    /// tailroom has, once `fill` has written them. Returns how many. (One look at the buffer's
    /// size, where [`tailroom_mut`](Packet::tailroom_mut) and [`extend`](Packet::extend) take
    /// two.)
    #[inline]
    pub fn extend_with(&mut self, n: usize, fill: impl FnOnce(&mut [u8])) -> usize {
        let tailroom = self.tailroom_mut();
        let n = n.min(tailroom.len());
        fill(&mut tailroom[..n]);
        let h = self.header_mut();
        // The end is at most the buffer's, so the sums fit.
        h.seg_len += short(n);
        h.total_len += word(n);
        n
    }

    /// Appends a copy of `bytes` to the first segment. False, and nothing changed, if the
    /// tailroom is too short.
    #[must_use = "if false, nothing was appended"]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let tail = self.tailroom_mut();
        if tail.len() < bytes.len() {
            return false;
        }
        tail[..bytes.len()].copy_from_slice(bytes);
        self.extend(bytes.len());
        true
    }

    /// Adds `n` bytes in front of the data and returns them, to be filled in.
    /// `None`, and nothing changed, if the headroom is too short.
    pub fn push_front(&mut self, n: usize) -> Option<&mut [u8]> {
        if self.headroom() < n || self.is_shared() {
            return None;
        }
        let h = self.header_mut();
        h.off -= short(n);
        h.seg_len += short(n);
        h.total_len += word(n);
        Some(&mut self.data_mut()[..n])
    }

    /// Removes `n` bytes from the front of the first segment.
    ///
    /// # Panics
    /// If the first segment is shorter than `n`.
    pub fn pull_front(&mut self, n: usize) {
        let h = self.header_mut();
        assert!(n <= h.seg_len as usize, "pull beyond the segment");
        h.off += short(n);
        h.seg_len -= short(n);
        h.total_len -= word(n);
    }

    /// Moves the start of an empty packet's data, to have `headroom` free bytes in front of it.
    ///
    /// # Panics
    /// If the packet is not empty or the buffer is too small.
    pub fn reserve(&mut self, headroom: usize) {
        let capacity = self.capacity();
        assert!(
            self.is_empty() && headroom <= capacity - SHARED_INFO,
            "reserve on a used packet or beyond the buffer"
        );
        self.header_mut().off = short(SHARED_INFO + headroom);
    }

    /// Bytes of the buffers besides its own that a chained or shared packet uses.
    #[cold]
    pub(crate) fn other_memory(&self) -> u64 {
        let mut bytes = 0;
        if self.header().flags.has(Flags::SHARED)
            && let Some(origin) = self.shared_info().origin.filter(|&origin| origin != self.0)
        {
            bytes += buffer_size(origin) as u64;
        }
        // SAFETY: the segments belong to this packet and those that share its data, none of which
        // changes the chain while there are several.
        let segments = std::iter::successors(self.frags(), |raw| unsafe { raw.as_ref() }.next);
        bytes + segments.map(|raw| buffer_size(raw) as u64).sum::<u64>()
    }

    /// The first of the further segments. (The buffer's first line is only looked at where there
    /// are some: of most packets nothing else needs it.)
    fn frags(&self) -> Option<NonNull<Header>> {
        if self.is_chained() {
            self.shared_info().frags
        } else {
            None
        }
    }

    /// True if the frame continues in further segments.
    pub fn is_chained(&self) -> bool {
        self.header().flags.has(Flags::CHAINED)
    }

    /// Appends `segment` (its data only; its metadata is ignored) to the end of the frame.
    ///
    /// # Panics
    /// If the packet [`is_shared`](Packet::is_shared) (the segment may be), if the segment is a
    /// chain itself, or if the frame would reach 4 GiB.
    pub fn append_segment(&mut self, segment: Packet) {
        assert!(!self.is_shared(), "a shared packet cannot grow");
        assert!(!segment.is_chained(), "a segment is not a chain itself");
        let total_len = self
            .header()
            .total_len
            .checked_add(segment.header().total_len);
        let total_len = total_len.expect("a frame is shorter than 4 GiB");
        let raw = segment.into_raw();
        // SAFETY: `raw` was just given up by its only owner, so this is the only access to it.
        unsafe { (*raw.as_ptr()).next = None };
        if self.is_chained() {
            let last = self.shared_info().last_frag;
            let last = last.expect("a chained packet has a last segment");
            // SAFETY: segments of the chain belong to this packet alone.
            unsafe { (*last.as_ptr()).next = Some(raw) };
        } else {
            self.shared_info_mut().frags = Some(raw);
            self.header_mut().flags.set(Flags::CHAINED, true);
        }
        self.shared_info_mut().last_frag = Some(raw);
        self.header_mut().total_len = total_len;
    }

    /// The frame's bytes, segment by segment.
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            first: Some(self),
            next: self.frags(),
        }
    }
}

/// Headers and virtio-net header of packets, which [`wire`] reads from bytes.
impl Packet {
    /// Reads the headers, which must lie in the first segment.
    ///
    /// # Errors
    /// Those of [`wire::parse`].
    #[inline]
    pub fn parse(&self) -> Result<Headers, DropReason> {
        Ok(wire::parse(self.data(), self.len())?)
    }

    /// Destination and source MAC address.
    ///
    /// # Errors
    /// [`DropReason::Runt`] if the first segment is shorter than an Ethernet header.
    #[inline]
    pub fn ethernet(&self) -> Result<(EthernetAddress, EthernetAddress), DropReason> {
        Ok(wire::ethernet(self.data())?)
    }

    /// The virtio-net header for a driver that leaves checksum and segmentation to its other side.
    #[inline]
    pub fn vnet_header(&self) -> VnetHeader {
        VnetHeader::new(&Offload {
            checksum: self.checksum(),
            checksum_verified: self.checksum_verified(),
            gso: self.gso(),
        })
    }

    /// Notes what `header` says about the packet, a frame just received with it. What is
    /// accepted, [`segment`](crate::offload::segment()) and
    /// [`fill_checksum`](crate::offload::fill_checksum) can finish in software.
    ///
    /// # Errors
    /// Those of [`VnetHeader::offload`]; the packet is unchanged then.
    #[inline]
    pub fn apply(&mut self, header: &VnetHeader) -> Result<(), DropReason> {
        if header.is_plain() {
            return Ok(());
        }
        self.apply_offload(header)
    }

    fn apply_offload(&mut self, header: &VnetHeader) -> Result<(), DropReason> {
        let len = self.len();
        let offload = header.offload(self.data_mut(), len)?;
        self.set_checksum(offload.checksum);
        self.set_checksum_verified(offload.checksum_verified);
        self.set_gso(offload.gso);
        Ok(())
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        free_one(self.0);
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("len", &self.len())
            .field("segments", &self.segments().count())
            .field("gso", &self.gso())
            .finish_non_exhaustive()
    }
}

/// Iterator over the segments of a frame; see [`Packet::segments`].
#[derive(Debug)]
pub struct Segments<'a> {
    first: Option<&'a Packet>,
    next: Option<NonNull<Header>>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first.data());
        }
        let raw = self.next?;
        // SAFETY: the segment belongs to the packet borrowed for 'a, so it lives and is not
        // changed that long; its `off` and `seg_len` keep the invariant of `Packet::data`.
        unsafe {
            let h = &*raw.as_ptr();
            self.next = h.next;
            Some(std::slice::from_raw_parts(
                h.buf.as_ptr().add(h.off as usize),
                h.seg_len as usize,
            ))
        }
    }
}
