//! The 64-byte header line of a packet: everything but the data. Written by the packet's owner
//! only.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::meta::RawGso;

/// Bits of [`Header::flags`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The frame continues in the segments of [`SharedInfo::frags`].
    pub(crate) const CHAINED: u8 = 1;
    /// The transport checksum is to be computed from `csum_start` and stored at `csum_start +
    /// csum_offset`.
    pub(crate) const NEEDS_CSUM: u8 = 2;
    /// The transport checksum was verified.
    pub(crate) const DATA_VALID: u8 = 4;
    /// `hash` holds the flow hash.
    pub(crate) const HASHED: u8 = 8;
    /// The data is, or was, shared with other packets: [`SharedInfo::holders`] and
    /// [`SharedInfo::origin`] are valid.
    pub(crate) const SHARED: u8 = 16;
    /// `tstamp` is when the packet is to depart.
    pub(crate) const DEPARTS: u8 = 32;
    /// Bits that describe the buffer rather than the frame.
    const OF_BUFFER: u8 = Self::CHAINED | Self::SHARED;

    /// True if any of `bits` is set.
    #[inline]
    pub(crate) fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, bit: u8, on: bool) {
        self.0 = self.0 & !bit | if on { bit } else { 0 };
    }
}

/// One packet buffer's header. `buf` is its own buffer, except while the packet shares another
/// one's data. All belongs to the packet's owner.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// Next in whatever list holds the packet.
    pub(crate) next: Option<NonNull<Header>>,
    /// Start of the buffer that holds the data.
    pub(crate) buf: NonNull<u8>,
    /// Nanoseconds; when the packet arrived at the stage that holds it, or is to depart.
    pub(crate) tstamp: u64,
    /// Bytes of the frame, all segments.
    pub(crate) total_len: u32,
    pub(crate) hash: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    /// Start of the data, from `buf`.
    pub(crate) off: u16,
    /// Bytes in this buffer. Invariant: `off + seg_len <= buffer size`, `off >= SHARED_INFO`.
    pub(crate) seg_len: u16,
    /// Number of the receive queue, plus 1; 0 if it was not recorded.
    pub(crate) queue: u16,
    /// Port of arrival.
    pub(crate) port: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
    pub(crate) gso: RawGso,
    /// Number of the thread cache that allocated the packet.
    pub(crate) owner: u16,
    pub(crate) flags: Flags,
    /// Times the packet went through a backlog by an action (the kernel's `tc_depth`), times it
    /// went through links without a device, and the place where it goes on from one.
    pub(crate) way: u8,
}

const _: () = assert!(size_of::<Header>() == 64);
// What `reset` and `is_plain_of` rely on.
const _: () = assert!(offset_of!(Header, buf) == 8 && offset_of!(Header, tstamp) == 16);
const _: () = assert!(offset_of!(Header, off) == 40 && offset_of!(Header, seg_len) == 42);
const _: () = assert!(offset_of!(Header, owner) == 60 && offset_of!(Header, flags) == 62);

impl Header {
    /// True if it is more than its own buffer: chained, or sharing data.
    #[inline(always)]
    pub(crate) fn has_parts(&self) -> bool {
        self.flags.has(Flags::OF_BUFFER)
    }

    /// True if it is no more than its own buffer and `owner` allocated it: one look at both.
    #[inline(always)]
    pub(crate) fn is_plain_of(&self, owner: u16) -> bool {
        const OF_BUFFER: u32 = u32::from_ne_bytes([0xff, 0xff, Flags::OF_BUFFER, 0]);
        let [low, high] = owner.to_ne_bytes();
        // SAFETY: the last four bytes of the line (asserted above), which is aligned to 64; any
        // bits are a number.
        let word = unsafe { std::ptr::from_ref(self).cast::<u32>().add(15).read() };
        word & OF_BUFFER == u32::from_ne_bytes([low, high, 0, 0])
    }

    /// Makes the line that of a fresh, empty packet (INV-BUF-2: nothing of the last user is
    /// left), followed by `next`. Written as pairs of words, four stores in all: many a CPU does
    /// one a cycle, and they are most of what an allocation takes.
    ///
    /// # Safety
    /// The caller owns the header, whose `buf` is valid.
    #[inline(always)]
    pub(crate) unsafe fn reset(
        header: NonNull<Header>,
        owner: u16,
        next: Option<NonNull<Header>>,
    ) {
        const EMPTY: u16 = super::short(super::SHARED_INFO + super::HEADROOM);
        let (off, owner) = (EMPTY.to_ne_bytes(), owner.to_ne_bytes());
        // `off`, and what follows up to `port`; the end of `gso`, `owner`, `flags`, `way`.
        let place = u64::from_ne_bytes([off[0], off[1], 0, 0, 0, 0, 0, 0]);
        let last = u64::from_ne_bytes([0, 0, 0, 0, owner[0], owner[1], 0, 0]);
        // SAFETY: by the caller's promise. The words cover all fields behind `buf` (asserted
        // above), for which all bits may be zero; the line is aligned to 64.
        unsafe {
            (*header.as_ptr()).next = next;
            let words = header.as_ptr().cast::<u64>();
            write_pair(words.add(2), 0, 0);
            write_pair(words.add(4), 0, place);
            write_pair(words.add(6), 0, last);
        }
    }

    /// Takes over everything that describes the frame rather than the buffer.
    pub(crate) fn copy_metadata(&mut self, from: &Header) {
        self.tstamp = from.tstamp;
        self.hash = from.hash;
        self.mark = from.mark;
        self.priority = from.priority;
        self.queue = from.queue;
        self.port = from.port;
        self.csum_start = from.csum_start;
        self.csum_offset = from.csum_offset;
        self.gso = from.gso.as_on_wire();
        self.way = from.way;
        self.flags = Flags((self.flags.0 & Flags::OF_BUFFER) | (from.flags.0 & !Flags::OF_BUFFER));
    }
}

/// Writes two words, in one store where the architecture has one.
///
/// # Safety
/// 16 bytes may be written at `at`, which is aligned to 16.
#[inline(always)]
unsafe fn write_pair(at: *mut u64, low: u64, high: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the caller's promise; every CPU of this architecture has the instructions.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_store_si128};
        let pair = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
        _mm_store_si128(at.cast::<__m128i>(), pair);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller's promise.
    unsafe {
        at.write(low);
        at.add(1).write(high);
    }
}

/// The first 64 bytes of a buffer: what few packets need, so that the header line stays one line.
/// Valid only while the header says so. All but `accounted` belongs to the data in the buffer.
#[repr(C, align(64))]
pub(crate) struct SharedInfo {
    /// First chained segment.
    pub(crate) frags: Option<NonNull<Header>>,
    /// Last chained segment.
    pub(crate) last_frag: Option<NonNull<Header>>,
    /// The header whose buffer this is.
    pub(crate) origin: Option<NonNull<Header>>,
    /// Packets that use the data.
    pub(crate) holders: AtomicU32,
    /// Lengths that the wire packets count as, of the packet whose own buffer this is. Atomic
    /// because others may use the data meanwhile.
    pub(crate) accounted: AtomicU64,
}

const _: () = assert!(size_of::<SharedInfo>() == super::SHARED_INFO);

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(buf: NonNull<u8>) -> Header {
        let mut line = std::mem::MaybeUninit::<Header>::zeroed();
        // SAFETY: as in `Arena::first_use`.
        unsafe {
            (&raw mut (*line.as_mut_ptr()).buf).write(buf);
            line.assume_init()
        }
    }

    /// INV-BUF-2: whatever was in the line, after a reset it is that of a fresh packet.
    #[test]
    fn inv_buf_2_a_reset_leaves_nothing() {
        let mut buffer = [0_u8; 512];
        let buf = NonNull::from(&mut buffer).cast();
        let mut other = fresh(buf);
        let next = Some(NonNull::from(&mut other));
        let mut line = Header {
            next,
            tstamp: 1,
            total_len: 2,
            hash: 3,
            mark: 4,
            priority: 5,
            off: 6,
            seg_len: 7,
            owner: 8,
            queue: 9,
            port: 10,
            csum_start: 11,
            csum_offset: 12,
            flags: Flags(0xff),
            way: 13,
            ..fresh(buf)
        };
        for next in [next, None] {
            // SAFETY: our own line; any bits are a number.
            unsafe { std::ptr::from_mut(&mut line.gso).write_bytes(0xff, 1) };
            // SAFETY: our own line.
            unsafe { Header::reset(NonNull::from(&mut line), 0x1234, next) };
            assert_eq!((line.next, line.buf), (next, buf));
            assert_eq!((line.off, line.seg_len, line.total_len), (256, 0, 0));
            assert_eq!((line.owner, line.queue, line.port), (0x1234, 0, 0));
            assert_eq!((line.tstamp, line.hash), (0, 0));
            assert_eq!((line.mark, line.priority), (0, 0));
            assert_eq!((line.csum_start, line.csum_offset), (0, 0));
            assert!(!line.flags.has(0xff));
            assert_eq!(line.way, 0);
            assert_eq!(
                format!("{:?}", line.gso),
                format!("{:?}", RawGso::default())
            );
        }
    }
}
