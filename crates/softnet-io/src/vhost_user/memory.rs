//! Guest memory: files that the front end shares, mapped here.
//!
//! The guest writes this memory at any time, so no Rust reference to it ever exists. Packets are
//! copied in and out ([`GuestMemory::read_into`], [`GuestMemory::write_from`]); rings are read and
//! written a field at a time through a [`GuestArea`]. Every address is checked against the regions;
//! a copy goes on in the next region where that follows without a gap.
//!
//! The front end can truncate a file under our feet. Reads then yield zeroes, and
//! [`GuestMemory::is_lost`] tells, so that the port is closed.

#![allow(
    unsafe_code,
    reason = "maps memory, and reads and writes what others write"
)]

#[cfg(test)]
mod pointer_tests;
#[cfg(all(test, not(miri)))]
mod tests;

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, compiler_fence};

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use zerocopy::{FromBytes, IntoBytes};

use super::bus_error::{MAX_LEN, Watch};

/// The most regions that a guest may have.
pub const MAX_REGIONS: usize = 509;

/// Order of loads of indices and flags, here and in the models of the rings.
pub(super) const LOADED: Ordering = Ordering::Acquire;
/// Order of stores of indices and flags, here and in the models of the rings.
pub(super) const STORED: Ordering = Ordering::Release;

/// Where a region of guest memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// The region's first address in the guest.
    pub guest: u64,
    /// Bytes.
    pub len: u64,
    /// The region's first address in the front end's process.
    pub user: u64,
    /// Where it starts in its file.
    pub offset: u64,
}

/// Limits on the memory that a guest may share.
///
/// A page of it that is touched here for the first time is charged to this process, so who may
/// share much, sparsely, may have it use as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The most bytes of all regions together.
    pub bytes: u64,
    /// Huge pages of hugetlbfs alone: all of them are the front end's from the start, and no access
    /// to them waits for a disk.
    pub hugetlb: bool,
}

impl Default for MemoryLimits {
    /// 64 GiB of any kind.
    fn default() -> MemoryLimits {
        MemoryLimits {
            bytes: 64 << 30,
            hugetlb: false,
        }
    }
}

/// Why memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It is no file in memory: an access could wait for a disk or for another process.
    #[error("guest memory is not a file in tmpfs or hugetlbfs")]
    NotMemory,
    /// It is not made of huge pages, and has to be.
    #[error("guest memory is not a file in hugetlbfs, as memory_kind says")]
    NotHuge,
    /// It may not be written.
    #[error("guest memory is read-only")]
    ReadOnly,
    /// It is not where it is said to be.
    #[error("a region of {} bytes at {:#x} does not lie in its file of {file} bytes", .spec.len,
        .spec.offset)]
    BeyondFile {
        /// The region.
        spec: RegionSpec,
        /// Bytes of the file.
        file: u64,
    },
    /// A region whose addresses wrap, or that is empty or longer than 1 TiB.
    #[error("a region of {} bytes at guest address {:#x} is not possible", .0.len, .0.guest)]
    BadRegion(RegionSpec),
    /// Two regions have addresses in common.
    #[error("two regions of guest memory overlap at {0:#x}")]
    Overlap(u64),
    /// More than [`MAX_REGIONS`].
    #[error("more than {MAX_REGIONS} regions of guest memory")]
    TooManyRegions,
    /// All of it is longer than it may be.
    #[error("guest memory of {len} bytes; the port's key memory allows {limit}")]
    TooLong {
        /// Bytes of all regions.
        len: u64,
        /// [`MemoryLimits::bytes`].
        limit: u64,
    },
    /// A ring is not inside one region, or not aligned.
    #[error(
        "a ring of {len} bytes at the front end's address {user:#x} is outside of guest memory \
        or not aligned"
    )]
    BadRing {
        /// The region's first address in the front end's process.
        user: u64,
        /// Bytes.
        len: usize,
    },
    /// The system refuses to map it.
    #[error("cannot map guest memory")]
    Map(#[from] io::Error),
}

/// An address that is not in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address {0:#x} is outside of guest memory")]
pub struct OutOfRange(pub u64);

/// A part of guest memory that is contiguous in the guest, in the front end and here. Mapped as
/// long as this lives.
#[derive(Debug)]
pub struct Region {
    spec: RegionSpec,
    /// The byte at the first address. `spec.len` bytes from here on are mapped.
    start: NonNull<u8>,
    mapping: NonNull<c_void>,
    mapped: usize,
    watch: Option<Watch>,
}

// SAFETY: a mapping may be used from any thread; all access is by copies and single fields that
// bear concurrent writers.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region of a file. Of the file only the size and the kind of its file system are
    /// trusted; it may shrink later.
    ///
    /// # Errors
    /// If the region is not possible, or does not lie in the file, or the file is no memory, or not
    /// of the kind that it has to be (`hugetlb`: huge pages).
    pub fn map(spec: RegionSpec, file: &OwnedFd, hugetlb: bool) -> Result<Region, MemoryError> {
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let RegionSpec {
            guest,
            len,
            user,
            offset,
        } = spec;
        let wraps = guest.checked_add(len).is_none() || user.checked_add(len).is_none();
        if len == 0 || wraps || len > MAX_LEN as u64 {
            return Err(MemoryError::BadRegion(spec));
        }
        let stat = fstat(file).map_err(io::Error::from)?;
        let system = fstatfs(file).map_err(io::Error::from)?.f_type as u64;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !matches!(system & 0xffff_ffff, TMPFS | HUGETLBFS) {
            return Err(MemoryError::NotMemory);
        }
        if hugetlb && system & 0xffff_ffff != HUGETLBFS {
            return Err(MemoryError::NotHuge);
        }
        let file_len = stat.st_size as u64;
        let end = offset.checked_add(len).filter(|end| *end <= file_len);
        let Some(end) = end else {
            let file = file_len;
            return Err(MemoryError::BeyondFile { spec, file });
        };
        // A mapping of huge pages begins and ends with one.
        let page = (stat.st_blksize as u64).max(4096);
        let first = offset - offset % page;
        let mapped = (end - first)
            .checked_next_multiple_of(page)
            .filter(|mapped| page.is_power_of_two() && *mapped <= MAX_LEN as u64)
            .ok_or(MemoryError::BadRegion(spec))? as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping where the system chooses. Nobody holds a Rust reference into it.
        let mapping = unsafe { mmap(std::ptr::null_mut(), mapped, access, flags, file, first) };
        let mapping = mapping.map_err(|errno| match errno {
            // EPERM: a seal.
            Errno::ACCESS | Errno::PERM => MemoryError::ReadOnly,
            errno => MemoryError::Map(errno.into()),
        })?;
        let mapping =
            NonNull::new(mapping).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: `offset - first` is less than a page, and at least that is mapped.
        let start = unsafe { mapping.cast::<u8>().add((offset - first) as usize) };
        let mut region = Region {
            spec,
            start,
            mapping,
            mapped,
            watch: None,
        };
        let _ = mapping.as_ptr().expose_provenance();
        // A core dump of ours is no place for a guest's secrets, nor for a TiB.
        // SAFETY: says so of the mapping, and changes nothing that is seen.
        unsafe { madvise(mapping.as_ptr(), mapped, Advice::LinuxDontDump) }
            .map_err(io::Error::from)?;
        // SAFETY: what is read from the region may be anything at any moment anyway, and it stays
        // mapped until the watch is gone.
        region.watch = Some(unsafe { Watch::new(mapping.as_ptr(), mapped) }?);
        Ok(region)
    }

    /// Where it is.
    pub fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    fn is_lost(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_lost)
    }

    /// The bytes from guest address `at` on, and how many there are; `None` if it lies elsewhere.
    #[inline]
    fn find(&self, at: u64) -> Option<(NonNull<u8>, usize)> {
        let into = at.checked_sub(self.spec.guest)?;
        let left = self.spec.len.checked_sub(into).filter(|left| *left > 0)?;
        // SAFETY: `into` is less than the region's length, and all of that is mapped.
        let start = unsafe { self.start.add(into as usize) };
        Some((start, left as usize))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.watch = None;
        // SAFETY: mapped in `map` with this length; every pointer into it is held together with
        // the region. An error would mean that it is not mapped.
        let _ = unsafe { munmap(self.mapping.as_ptr(), self.mapped) };
    }
}

/// The regions of a guest at one time. A change makes another one; this stays mapped as long as
/// it is used.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    /// In the order of their addresses.
    regions: Vec<Arc<Region>>,
}

impl GuestMemory {
    /// The memory that is made of these regions, of `limit` bytes at most.
    ///
    /// # Errors
    /// If there are too many, or they are too long, or overlap in the guest or in the front end.
    pub fn new(mut regions: Vec<Arc<Region>>, limit: u64) -> Result<GuestMemory, MemoryError> {
        if regions.len() > MAX_REGIONS {
            return Err(MemoryError::TooManyRegions);
        }
        // At most `MAX_REGIONS` of `MAX_LEN` each.
        let len = regions.iter().map(|region| region.spec.len).sum();
        if len > limit {
            return Err(MemoryError::TooLong { len, limit });
        }
        for address in [
            |spec: &RegionSpec| spec.user,
            |spec: &RegionSpec| spec.guest,
        ] {
            regions.sort_by_key(|region| address(&region.spec));
            for pair in regions.windows(2) {
                let next = address(&pair[1].spec);
                if next - address(&pair[0].spec) < pair[0].spec.len {
                    return Err(MemoryError::Overlap(next));
                }
            }
        }
        Ok(GuestMemory { regions })
    }

    /// The regions of the memory.
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// True if a part of it was taken away. Reads of that part give zeros.
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost())
    }

    /// The bytes from `at` on that are contiguous here, at most `len`.
    #[inline]
    fn part(&self, at: u64, len: usize) -> Result<(NonNull<u8>, usize), OutOfRange> {
        let (start, left) = self.find(at, &mut 0)?;
        Ok((start, left.min(len)))
    }

    /// Copies from guest address `at` on.
    ///
    /// # Errors
    /// If a part of the bytes is not in guest memory. Those before it were copied.
    #[inline]
    pub fn read_into(&self, mut at: u64, mut to: &mut [u8]) -> Result<(), OutOfRange> {
        while !to.is_empty() {
            let (start, n) = self.part(at, to.len())?;
            let (now, rest) = to.split_at_mut(n);
            // SAFETY: `n` bytes are mapped from `start` on as long as `self` lives, and `now` has
            // as many. They do not overlap: no Rust object lies in guest memory. That the guest
            // writes meanwhile makes the bytes arbitrary, which they are anyway.
            unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), now.as_mut_ptr(), n) };
            // The copy is what is looked at from here on, not guest memory once more.
            compiler_fence(Ordering::SeqCst);
            to = rest;
            // It wraps at the end of the last possible region only, where nothing is found.
            at = at.wrapping_add(n as u64);
        }
        Ok(())
    }

    /// Copies to guest address `at` and those after it.
    ///
    /// # Errors
    /// If a part of the bytes is not in guest memory. Those before it were copied.
    #[inline]
    pub fn write_from(&self, mut at: u64, mut from: &[u8]) -> Result<(), OutOfRange> {
        while !from.is_empty() {
            let (start, n) = self.part(at, from.len())?;
            let (now, rest) = from.split_at(n);
            // SAFETY: as in `read_into`, the other way round.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start.as_ptr(), n) };
            compiler_fence(Ordering::SeqCst);
            from = rest;
            at = at.wrapping_add(n as u64);
        }
        Ok(())
    }

    /// Region number `number`, to look many addresses up in; without bytes if there is none.
    #[inline]
    pub fn window(&self, number: usize) -> Window<'_> {
        let region = self.regions.get(number);
        Window {
            guest: region.map_or(0, |region| region.spec.guest),
            len: region.map_or(0, |region| region.spec.len),
            start: region.map_or(NonNull::dangling(), |region| region.start),
            memory: PhantomData,
        }
    }

    /// The bytes from `at` on that lie together here, at most `len`. `last` is the number of the
    /// region that was found last, which is tried first.
    ///
    /// # Errors
    /// If the first byte is not in guest memory.
    #[inline]
    pub fn span(&self, at: u64, len: usize, last: &mut usize) -> Result<Span<'_>, OutOfRange> {
        let recent = self.regions.get(*last).and_then(|region| region.find(at));
        let (start, left) = match recent {
            Some(found) => found,
            None => self.find(at, last)?,
        };
        Ok(Span {
            start,
            len: left.min(len),
            memory: PhantomData,
        })
    }

    /// Searches all regions; the number of the one that has the byte goes to `last`. The guest
    /// chooses how often it is called, and the front end how many there are.
    fn find(&self, at: u64, last: &mut usize) -> Result<(NonNull<u8>, usize), OutOfRange> {
        let behind = self
            .regions
            .partition_point(|region| region.spec.guest <= at);
        let number = behind.checked_sub(1).ok_or(OutOfRange(at))?;
        let found = self.regions[number].find(at).ok_or(OutOfRange(at))?;
        *last = number;
        Ok(found)
    }

    /// The memory of a ring: `len` bytes from an address of the front end on, which must lie in
    /// one region and be a multiple of `align` (a power of two) here.
    ///
    /// # Errors
    /// If they do not, or are not.
    pub fn area(&self, user: u64, len: usize, align: usize) -> Result<GuestArea, MemoryError> {
        let found = self.regions.iter().find_map(|region| {
            let into = user.checked_sub(region.spec.user)?;
            let left = region.spec.len.checked_sub(into)?;
            (len > 0 && len as u64 <= left).then_some((region, into as usize))
        });
        let area = found.map(|(region, into)| GuestArea {
            // SAFETY: inside of the region, as just found.
            start: unsafe { region.start.add(into) },
            len,
            region: region.clone(),
        });
        area.filter(|area| area.start.addr().get().is_multiple_of(align))
            .ok_or(MemoryError::BadRing { user, len })
    }
}

/// A region of guest memory: where it is, read once for many look-ups.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    guest: u64,
    len: u64,
    start: NonNull<u8>,
    /// Keeps it mapped.
    memory: PhantomData<&'a GuestMemory>,
}

impl<'a> Window<'a> {
    /// All of the `len` bytes from `at` on, if they lie in it.
    #[inline(always)]
    pub fn span(&self, at: u64, len: usize) -> Option<Span<'a>> {
        // Below the region it wraps: what is left of the addresses is no less than its length, as
        // the region's end does not wrap.
        let into = at.wrapping_sub(self.guest);
        if into >= self.len || len as u64 > self.len - into {
            return None;
        }
        Some(Span {
            // SAFETY: `into` is less than the region's length, and all of that is mapped.
            start: unsafe { self.start.add(into as usize) },
            len,
            memory: PhantomData,
        })
    }
}

/// Bytes of guest memory that lie together here, to be copied.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    start: NonNull<u8>,
    len: usize,
    /// Keeps them mapped.
    memory: PhantomData<&'a GuestMemory>,
}

// SAFETY: as the regions that it points into, which any thread may use while they are borrowed.
unsafe impl Send for Span<'_> {}
// SAFETY: as above.
unsafe impl Sync for Span<'_> {}

impl Span<'_> {
    /// No bytes.
    pub const EMPTY: Span<'static> = Span {
        start: NonNull::dangling(),
        len: 0,
        memory: PhantomData,
    };

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes, as many as both have, and takes them off. Returns how many.
    #[inline]
    pub fn read_into(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len);
        // SAFETY: as in `GuestMemory::read_into`: `n` bytes are mapped from `start` on.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), to.as_mut_ptr(), n) };
        compiler_fence(Ordering::SeqCst);
        self.skip(n);
        n
    }

    /// Copies the first `N` bytes, if there are as many, and takes them off.
    #[inline]
    pub fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut to = [0; N];
        if self.len < N {
            return None;
        }
        self.read_into(&mut to);
        Some(to)
    }

    /// Makes the first 12 bytes these, if there are as many, and takes them off. False: there are
    /// not. What they are already is not written: a cache line that neither side changes stays in
    /// both sides' caches. (The values come in registers: a load of bytes that were just stored in
    /// smaller parts would wait for all stores before it.)
    #[inline]
    pub fn update(&mut self, first: u64, second: u32) -> bool {
        if self.len < 12 {
            return false;
        }
        let (at, behind) = (
            self.start.cast::<u64>(),
            self.start.as_ptr().wrapping_add(8),
        );
        let behind = behind.cast::<u32>();
        // SAFETY: 12 bytes are mapped from `start` on. That the guest writes meanwhile makes what
        // is read arbitrary, and spoils its own bytes.
        unsafe {
            if at.read_unaligned() != first || behind.read_unaligned() != second {
                at.write_unaligned(first);
                behind.write_unaligned(second);
            }
        }
        compiler_fence(Ordering::SeqCst);
        self.skip(12);
        true
    }

    /// Copies to the first bytes, as many as both have, and takes them off. Returns how many.
    #[inline]
    pub fn write_from(&mut self, from: &[u8]) -> usize {
        let n = from.len().min(self.len);
        // SAFETY: as above, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr(), n) };
        compiler_fence(Ordering::SeqCst);
        self.skip(n);
        n
    }

    /// `n` is at most the length.
    #[inline]
    fn skip(&mut self, n: usize) {
        // SAFETY: at most the end of the mapped bytes.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }

    /// Asks for the first cache lines, which will be read.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.start.as_ptr().cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }

    /// Asks for the first cache lines. Those behind `header` bytes the guest has, and they will be
    /// written: each comes once, not to be read first and then for the write. One that has but the
    /// header is mostly not changed ([`update`](Span::update)).
    #[inline]
    pub fn prefetch_for_write(&self, header: usize) {
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        let _ = header;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above. CPUs without the instruction pass it over.
        unsafe {
            std::arch::asm!(
                "prefetchw byte ptr [{at} + {header}]",
                "prefetchw byte ptr [{at} + 64]",
                "prefetcht0 byte ptr [{at}]",
                at = in(reg) self.start.addr().get(),
                header = in(reg) header,
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}

/// A part of a ring in guest memory, read and written a field at a time. Each access is one that
/// the compiler neither repeats nor leaves out.
///
/// Offsets are in bytes. They are the ring's own, bounded by its size, so an offset outside of the
/// area is a bug and panics.
#[derive(Debug)]
pub struct GuestArea {
    start: NonNull<u8>,
    len: usize,
    /// Keeps it mapped.
    region: Arc<Region>,
}

// SAFETY: as the region that it points into.
unsafe impl Send for GuestArea {}
// SAFETY: as above.
unsafe impl Sync for GuestArea {}

impl GuestArea {
    /// True if the memory was taken away.
    pub fn is_lost(&self) -> bool {
        self.region.is_lost()
    }

    /// Where a field of type `T` is.
    #[inline]
    fn field<T>(&self, at: usize) -> *mut T {
        let end = at.checked_add(size_of::<T>());
        let fits = end.is_some_and(|end| end <= self.len);
        assert!(fits, "a field at {at} of {} bytes", self.len);
        // SAFETY: inside of the area, as just checked.
        let field = unsafe { self.start.add(at) }.cast::<T>().as_ptr();
        assert!(field.is_aligned(), "a field at {at} is not aligned");
        field
    }

    /// An index or a flag that says what the driver has written: what it wrote before is seen
    /// after.
    #[inline]
    pub fn load_u16(&self, at: usize) -> u16 {
        let field = self.field::<u16>(at);
        // SAFETY: mapped and aligned; a reference to an atomic bears other writers, and ends here.
        let field = unsafe { AtomicU16::from_ptr(field) };
        u16::from_le(field.load(LOADED))
    }

    /// As [`load_u16`](GuestArea::load_u16), of the flags of four descriptors of a packed ring: the
    /// last two of each 16 bytes from `at` on.
    #[inline]
    pub fn load_flags(&self, at: usize) -> [u16; 4] {
        let line = self.field::<[[u16; 8]; 4]>(at).cast::<u16>();
        std::array::from_fn(|n| {
            // SAFETY: as in `load_u16`: all of the line is inside of the area and aligned.
            let field = unsafe { AtomicU16::from_ptr(line.wrapping_add(8 * n + 7)) };
            u16::from_le(field.load(LOADED))
        })
    }

    /// An index or a flag that says what was written: the driver that sees it sees what was
    /// written before.
    #[inline]
    pub fn store_u16(&self, at: usize, value: u16) {
        let field = self.field::<u16>(at);
        // SAFETY: as in `load_u16`.
        let field = unsafe { AtomicU16::from_ptr(field) };
        field.store(value.to_le(), STORED);
    }

    /// As [`store_u16`](GuestArea::store_u16), of several fields at once.
    #[inline]
    pub fn store_u64(&self, at: usize, value: u64) {
        let field = self.field::<u64>(at);
        // SAFETY: as in `load_u16`.
        let field = unsafe { AtomicU64::from_ptr(field) };
        field.store(value.to_le(), STORED);
    }

    /// A descriptor or another field, read once, in no order to others.
    #[inline]
    pub fn read<T: FromBytes>(&self, at: usize) -> T {
        let field = self.field::<T>(at);
        // SAFETY: mapped and aligned, and any bytes are a valid T.
        unsafe { field.read_volatile() }
    }

    /// A descriptor or another field, written once, in no order to others.
    #[inline]
    pub fn write<T: IntoBytes>(&self, at: usize, value: T) {
        let field = self.field::<T>(at);
        // SAFETY: mapped and aligned.
        unsafe { field.write_volatile(value) }
    }
}
