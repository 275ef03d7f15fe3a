//! Memory for packet buffers that can be shared with a driver: a memory file, on huge pages where
//! the system has some free.
//!
//! Huge pages need no setup here: without them (`vm.nr_hugepages` is 0 on most systems) the same
//! file is made of ordinary pages.

#![allow(unsafe_code, reason = "maps memory")]

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use softnet::mem::Memory;

/// Size of a huge page, to which lengths are rounded up.
const HUGE: usize = 2 << 20;

/// A memory file that is mapped as long as this lives. Give it to
/// [`Pool::with_memory`](softnet::mem::Pool::with_memory).
pub struct SharedMemory {
    file: OwnedFd,
    bytes: NonNull<[u8]>,
    huge: bool,
}

// SAFETY: a mapping may be used from any thread; this only gives out its address.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps a new file of at least `len` bytes, all zero; on huge pages if there are enough.
    ///
    /// # Errors
    /// If the system has not that much memory or does not let the process map it.
    pub fn new(len: usize) -> io::Result<SharedMemory> {
        let len = len
            .max(1)
            .checked_next_multiple_of(HUGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // Huge pages are reserved by the mapping (not by the file), so a mapping that succeeds
        // will not fault later.
        Self::map(len, true).or_else(|_| Self::map(len, false))
    }

    fn map(len: usize, huge: bool) -> io::Result<SharedMemory> {
        let flags = if huge {
            MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB
        } else {
            MemfdFlags::empty()
        };
        let file = memfd_create("softnet", flags | MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping where the system chooses; of a file that no other process has or
        // can shrink.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, shared, &file, 0)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory {
            file,
            bytes: NonNull::slice_from_raw_parts(start, len),
            huge,
        })
    }

    /// True if it lies on huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }
}

impl AsFd for SharedMemory {
    /// The file, to be passed to a driver that is trusted with the buffers. Shrinking it would
    /// make the process fault.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

// SAFETY: the mapping stays until drop, is page-aligned, zero-filled and private to this process
// unless the file is passed on.
unsafe impl Memory for SharedMemory {
    fn bytes(&self) -> NonNull<[u8]> {
        self.bytes
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("len", &self.bytes.len())
            .field("huge", &self.huge)
            .finish()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; its users are gone (`Memory`). An error would
        // mean that it is not mapped.
        let _ = unsafe { munmap(self.bytes.as_ptr().cast::<c_void>(), self.bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::{PacketList, Pool, PoolConfig};

    use super::*;

    #[test]
    fn packets_lie_in_the_file() {
        let config = PoolConfig {
            buffers: 64,
            buffer_size: 2048,
        };
        let memory = SharedMemory::new(config.buffers * config.buffer_size).unwrap();
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        let pool = Pool::with_memory(config, Box::new(memory)).unwrap();
        let mut packets = PacketList::new();
        assert_eq!(pool.alloc_bulk(64, &mut packets), 64);
        packets.for_each_mut(|packet| assert!(packet.append(b"softnet was here")));
        let mut content = vec![0; config.buffers * config.buffer_size];
        let mut at = 0;
        while at < content.len() {
            at += rustix::io::pread(&file, &mut content[at..], at as u64).unwrap();
        }
        assert_eq!(
            content
                .windows(16)
                .filter(|w| w == b"softnet was here")
                .count(),
            64
        );
        drop(pool);
        drop(packets);
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        assert!(SharedMemory::new(usize::MAX).is_err());
        assert!(SharedMemory::new(1 << 60).is_err());
    }
}
