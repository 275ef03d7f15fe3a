//! General allocators: each packet is one allocation of header line and data, made and freed by
//! calling the allocator directly.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::buffers::line::{Chain, Line, Owned};
use crate::buffers::pinned::Cpus;
use crate::buffers::source::{self, Source};
use crate::buffers::{Buffers, DATA};

/// Bytes of a packet. More alignment than any allocation has is not asked for: it would take some
/// allocators off their fast path.
const SIZE: usize = size_of::<Line>() + DATA;

const _: () = assert!(align_of::<Line>() <= 16);

/// An allocator's functions, at their best where the caller knows the size.
///
/// # Safety
/// `alloc` returns null or [`SIZE`] bytes at a multiple of 16 that nothing else uses until they
/// are freed, on any thread.
pub(crate) unsafe trait Allocator: 'static {
    fn alloc() -> *mut c_void;

    /// # Safety
    /// `memory` comes from `alloc` and is not used any more.
    unsafe fn free(memory: *mut c_void);
}

/// The C library's.
#[derive(Debug)]
pub(crate) struct Malloc;

// SAFETY: as the C standard promises.
unsafe impl Allocator for Malloc {
    fn alloc() -> *mut c_void {
        // SAFETY: any size will do. The compiler knows `malloc`, and must not leave it out.
        std::hint::black_box(unsafe { libc::malloc(SIZE) })
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: by the caller's promise.
        unsafe { libc::free(memory) };
    }
}

/// mimalloc.
#[cfg(feature = "allocators")]
#[derive(Debug)]
pub(crate) struct Mimalloc;

#[cfg(feature = "allocators")]
// SAFETY: as mimalloc promises.
unsafe impl Allocator for Mimalloc {
    fn alloc() -> *mut c_void {
        // SAFETY: any size will do.
        unsafe { libmimalloc_sys::mi_malloc(SIZE) }
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: by the caller's promise.
        unsafe { libmimalloc_sys::mi_free(memory) };
    }
}

/// jemalloc.
#[cfg(feature = "allocators")]
#[derive(Debug)]
pub(crate) struct Jemalloc;

#[cfg(feature = "allocators")]
// SAFETY: as jemalloc promises.
unsafe impl Allocator for Jemalloc {
    fn alloc() -> *mut c_void {
        // SAFETY: the size is not zero.
        unsafe { tikv_jemalloc_sys::mallocx(SIZE, 0) }
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: by the caller's promise, and allocated with this size and these flags.
        unsafe { tikv_jemalloc_sys::sdallocx(memory, SIZE, 0) };
    }
}

/// snmalloc.
#[cfg(feature = "allocators")]
#[derive(Debug)]
pub(crate) struct Snmalloc;

#[cfg(feature = "allocators")]
// SAFETY: as snmalloc promises.
unsafe impl Allocator for Snmalloc {
    fn alloc() -> *mut c_void {
        // SAFETY: the alignment is a power of two above zero.
        unsafe { snmalloc_sys::sn_rust_alloc(16, SIZE) }
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: by the caller's promise, and allocated with this size and alignment.
        unsafe { snmalloc_sys::sn_rust_dealloc(memory, 16, SIZE) };
    }
}

/// The allocators' names.
pub(crate) const NAMES: [&str; 4] = ["malloc", "jemalloc", "mimalloc", "snmalloc"];

/// The allocator of this name.
pub(crate) fn named(name: &str, cpus: Cpus) -> Rc<dyn Source> {
    match name {
        "malloc" => source::local(General::<Malloc>::new(), cpus),
        #[cfg(feature = "allocators")]
        "jemalloc" => source::local(General::<Jemalloc>::new(), cpus),
        #[cfg(feature = "allocators")]
        "mimalloc" => source::local(General::<Mimalloc>::new(), cpus),
        #[cfg(feature = "allocators")]
        _ => source::local(General::<Snmalloc>::new(), cpus),
        #[cfg(not(feature = "allocators"))]
        _ => Rc::new(source::NotBuilt),
    }
}

/// Packets from an allocator.
#[derive(Debug)]
pub(crate) struct General<A>(PhantomData<fn() -> A>);

impl<A> General<A> {
    pub(crate) fn new() -> General<A> {
        General(PhantomData)
    }
}

impl<A: Allocator> Buffers for General<A> {
    type Packet = Owned<A>;
    type Burst = Chain<A>;

    fn alloc(&self) -> Option<Owned<A>> {
        let line = NonNull::new(A::alloc())?.cast::<Line>();
        // SAFETY: the allocator promises memory for the line and the data behind it, aligned for
        // a line and ours alone.
        unsafe {
            line.write(Line::new(line.add(1).cast(), 0));
            Some(Owned::new(line))
        }
    }

    fn alloc_bulk(&self, n: usize, burst: &mut Chain<A>) -> usize {
        for got in 0..n {
            match self.alloc() {
                Some(packet) => burst.push(packet),
                None => return got,
            }
        }
        n
    }

    fn frame_len(&self, packet: &Owned<A>) -> usize {
        packet.frame_len()
    }

    fn push(&self, burst: &mut Chain<A>, packet: Owned<A>) {
        burst.push(packet);
    }

    fn pop(&self, burst: &mut Chain<A>) -> Option<Owned<A>> {
        burst.pop()
    }

    fn free(&self, packet: Owned<A>) {
        // SAFETY: packets of `A` are made by `alloc` only, and this was the only handle.
        unsafe { A::free(packet.into_raw().as_ptr().cast()) };
    }

    fn free_bulk(&self, mut burst: Chain<A>) {
        while let Some(packet) = burst.pop() {
            self.free(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::tests::everything_comes_back;

    #[test]
    fn every_allocator_works_as_a_pool() {
        everything_comes_back(&General::<Malloc>::new(), 1000);
        #[cfg(feature = "allocators")]
        {
            everything_comes_back(&General::<Mimalloc>::new(), 1000);
            everything_comes_back(&General::<Jemalloc>::new(), 1000);
            everything_comes_back(&General::<Snmalloc>::new(), 1000);
        }
    }
}
