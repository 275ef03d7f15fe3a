//! SIGBUS: what happens when shared memory that is mapped here is taken away.
//!
//! The front end owns the file behind a region of guest memory. It may truncate it, or the system
//! may run out of huge pages for it; the next access here then raises SIGBUS. The handler puts
//! anonymous memory in the place of the whole region and notes that the region is lost, so that
//! the access goes on, and the port that uses the region can be closed. Other faults go to the
//! handler that was there before.

#![allow(unsafe_code, reason = "a signal handler, which maps memory")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Regions mapped at the same time, by all ports together: so many that some guests with as many as
/// a guest may have do not keep the others from theirs.
const REGIONS: usize = 131_072;
/// The unit of what [`Slot::range`] holds.
const PAGE: usize = 4096;
/// Bits of a range that are its number of pages; the others are the number of its first page.
const LEN_BITS: u32 = 28;
/// The longest range: 1 TiB.
pub(super) const MAX_LEN: usize = ((1 << LEN_BITS) - 1) * PAGE;

/// A range of addresses to watch.
///
/// The range is one word, so that the handler never sees half of a change. A thread that faults
/// in a range holds the [`Watch`], so this slot is its own and does not change meanwhile; whatever
/// the handler reads in the others is a range that does not hold the address, as mappings do not
/// overlap. What the thread needs to see (range set, `lost` reset) was written before the watch
/// came to it, so Relaxed access will do.
struct Slot {
    /// 0: free.
    range: AtomicU64,
    lost: AtomicBool,
}

static SLOTS: [Slot; REGIONS] = [const {
    Slot {
        range: AtomicU64::new(0),
        lost: AtomicBool::new(false),
    }
}; REGIONS];

/// The handler that was there before; set before the handler is installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping whose loss is noted as long as this lives.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches a mapping that is in use by nobody yet. It must stay mapped, at its place, as long
    /// as the watch lives, and hold nothing but shared memory.
    ///
    /// # Safety
    /// Every access to the mapping must bear that it is replaced by zeroes at any moment.
    ///
    /// # Errors
    /// If it is too long, or too many are watched.
    pub(super) unsafe fn new(start: *mut c_void, len: usize) -> io::Result<Watch> {
        let (first, pages) = (start.addr() / PAGE, len / PAGE);
        let whole = start.addr().is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && pages > 0;
        if !whole || len > MAX_LEN || first >= 1 << (u64::BITS - LEN_BITS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        install()?;
        let range = (first as u64) << LEN_BITS | pages as u64;
        for (index, slot) in SLOTS.iter().enumerate() {
            // Taken by addresses that no process has. Acquire pairs with the release in `drop`:
            // what the last user read of `lost` is done.
            let free =
                slot.range
                    .compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed);
            if free.is_ok() {
                slot.lost.store(false, Ordering::Relaxed);
                slot.range.store(range, Ordering::Relaxed);
                return Ok(Watch(index));
            }
        }
        Err(io::Error::other("too many regions of memory are shared"))
    }

    /// True if the memory was taken away.
    pub(super) fn is_lost(&self) -> bool {
        SLOTS[self.0].lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SLOTS[self.0].range.store(0, Ordering::Release);
    }
}

/// Installs the handler, once in the life of the process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        let code = || Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: with no new action, the kernel writes the present one to `previous`.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) } != 0 {
            return code();
        }
        // SAFETY: written, and any bytes are valid in its fields.
        let previous = unsafe { previous.assume_init() };
        PREVIOUS.get_or_init(|| previous);
        let mut action = previous;
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and calls nothing that
        // may not be called in a handler.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
            return code();
        }
        Ok(())
    });
    result.map_err(io::Error::from_raw_os_error)
}

/// Only loads and stores of atomics and plain system calls, so it may run at any point.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`.
    let code = unsafe { (*info).si_code };
    // SAFETY: as above; SIGBUS of the kernel (a positive code) has an address.
    let address = unsafe { (*info).si_addr() };
    // An error that the hardware found where nobody has read is not one of this thread's.
    let fault = code > 0 && code != libc::BUS_MCEERR_AO;
    if fault && replace(address.addr()) {
        return;
    }
    let previous = PREVIOUS.get();
    match previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction) {
        libc::SIG_IGN if !fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: resets the action; the access is then repeated, and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if !fault {
                // SAFETY: may be called in a handler, after which the signal is delivered.
                unsafe { libc::raise(signal) };
            }
        }
        handler if previous.is_some_and(|p| p.sa_flags & libc::SA_SIGINFO != 0) => {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: installed with SA_SIGINFO, so it has this signature.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: installed without SA_SIGINFO, so it has this signature.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
            handler(signal);
        }
    }
}

/// Puts zeroes in the place of the range that holds an address. False: there is none.
fn replace(address: usize) -> bool {
    let page = (address / PAGE) as u64;
    for slot in &SLOTS {
        let range = slot.range.load(Ordering::Relaxed);
        let (first, pages) = (range >> LEN_BITS, range & ((1 << LEN_BITS) - 1));
        if page < first || page - first >= pages {
            continue;
        }
        slot.lost.store(true, Ordering::Relaxed);
        let start = std::ptr::with_exposed_provenance_mut(first as usize * PAGE);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: who made the watch allows the replacement, and the thread that faulted holds
        // the watch, so that the range is still that mapping. (All of it: parts of a mapping of
        // huge pages cannot be replaced.)
        let mapped = unsafe { mmap_anonymous(start, pages as usize * PAGE, access, flags) };
        return mapped.is_ok();
    }
    false
}
