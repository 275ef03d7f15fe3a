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

mod area;
#[cfg(test)]
mod pointer_tests;
mod region;
mod span;
#[cfg(all(test, not(miri)))]
mod tests;

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

pub use area::GuestArea;
pub use region::{Region, RegionSpec};
pub use span::{Span, Window};

/// The most regions that a guest may have.
pub const MAX_REGIONS: usize = 509;

/// Order of loads of indices and flags, here and in the models of the rings.
pub(super) const LOADED: Ordering = Ordering::Acquire;
/// Order of stores of indices and flags, here and in the models of the rings.
pub(super) const STORED: Ordering = Ordering::Release;

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
