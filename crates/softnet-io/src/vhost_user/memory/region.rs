//! A region of guest memory: a part of a file, mapped here as long as it is used.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::MemoryError;
use crate::vhost_user::bus_error::{MAX_LEN, Watch};

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

/// A part of guest memory that is contiguous in the guest, in the front end and here. Mapped as
/// long as this lives.
#[derive(Debug)]
pub struct Region {
    pub(super) spec: RegionSpec,
    /// The byte at the first address. `spec.len` bytes from here on are mapped.
    pub(super) start: NonNull<u8>,
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

    pub(super) fn is_lost(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_lost)
    }

    /// The bytes from guest address `at` on, and how many there are; `None` if it lies elsewhere.
    #[inline]
    pub(super) fn find(&self, at: u64) -> Option<(NonNull<u8>, usize)> {
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

#[cfg(test)]
impl Region {
    /// A region in the middle of memory without a file, three times as long.
    pub(super) fn without_file(spec: RegionSpec) -> Region {
        use rustix::mm::mmap_anonymous;

        let access = ProtFlags::READ | ProtFlags::WRITE;
        let len = spec.len as usize;
        let mapped = 3 * len;
        // SAFETY: a new mapping.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, access, MapFlags::PRIVATE) };
        let mapping = NonNull::new(mapping.expect("memory")).expect("not at 0");
        Region {
            spec,
            // SAFETY: inside of the mapping.
            start: unsafe { mapping.cast::<u8>().add(len) },
            mapping,
            mapped,
            watch: None,
        }
    }

    /// Where the mapping is that it lies in.
    #[cfg(not(miri))]
    pub(super) fn mapping(&self) -> NonNull<c_void> {
        self.mapping
    }
}
