//! Feature `check`: holders of the packets, and a pattern in the buffers that nobody holds.
//!
//! A packet freed twice and a write to a buffer after its return (found when it is allocated next)
//! panic with the name of the last holder. `softnet-io/middleware` says who holds.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::arena::{Arena, Slab};
use super::super::{Header, Packet, Pool, SHARED_INFO};

/// The byte that returned buffers are filled with.
pub const POISON: u8 = 0xDB;

// Bits of a word of `Arena::ledger`; above them is the number of the last holder, from 1 on.
const OUT: u32 = 1;
const POISONED: u32 = 2;
const COUNTED: u32 = 4;

/// The name of each holder, and the packets that it holds.
static HOLDERS: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());

thread_local! {
    /// Holder of what this thread allocates, shifted.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// A driver, qdisc or thread that packets are charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u32);

impl Holder {
    /// A new holder, which panics call `name`.
    pub fn new(name: impl Into<String>) -> Holder {
        let mut holders = holders();
        holders.push((name.into(), 0));
        Holder(super::super::word(holders.len()) << 3)
    }

    /// Packets that are charged to it and not freed, chained segments included.
    pub fn held(self) -> usize {
        holders()[(self.0 >> 3) as usize - 1].1
    }

    /// Runs `f`; what this thread allocates meanwhile is charged to the holder.
    pub fn run<T>(self, f: impl FnOnce() -> T) -> T {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self.0));
        f()
    }
}

fn holders() -> MutexGuard<'static, Vec<(String, usize)>> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packet {
    /// Charges the packet to `holder`, or to nobody. The name of the last holder stays.
    pub fn set_holder(&self, holder: Option<Holder>) {
        let charge = holder.map(|holder| holder.0 | COUNTED);
        let change = |word| Some(charge.map_or(word & !COUNTED, |new| word & OUT | new));
        let before = word(self.0).fetch_update(SeqCst, SeqCst, change);
        count(before.unwrap_or(0), usize::wrapping_sub);
        count(charge.unwrap_or(0), usize::wrapping_add);
    }

    /// False: the packet was freed, and this handle is a forbidden copy.
    pub fn is_live(&self) -> bool {
        word(self.0).load(SeqCst) & OUT != 0
    }

    /// The number of the packet's buffer among those of all pools that exist.
    pub fn identity(&self) -> usize {
        self.0.addr().get()
    }
}

impl Pool {
    /// True: the packet's buffer is one of this pool.
    pub fn owns(&self, packet: &Packet) -> bool {
        // SAFETY: the header lies in a slab that lives as long as its packet.
        unsafe { Slab::of(packet.0) }.id == self.id
    }
}

fn arena<'a>(header: NonNull<Header>) -> &'a Arena {
    // SAFETY: a header's slab and pool outlive the packet, whose owner calls.
    unsafe { &Slab::of(header).pool.as_ref().arena }
}

fn word<'a>(header: NonNull<Header>) -> &'a AtomicU32 {
    let arena = arena(header);
    &arena.ledger[arena.index(header)]
}

/// Changes the count of the holder that `word` is charged to.
fn count(word: u32, change: fn(usize, usize) -> usize) {
    if word & COUNTED != 0 {
        let held = &mut holders()[(word >> 3) as usize - 1].1;
        *held = change(*held, 1);
    }
}

/// The bytes of a buffer that are poisoned: those that the pool does not use while it is free.
fn bytes<'a>(header: NonNull<Header>) -> &'a mut [u8] {
    let arena = arena(header);
    // SAFETY: inside the buffer, which is initialised and which the caller owns: it is about to
    // free it, or has just allocated it.
    unsafe {
        let start = arena.buffer(header).as_ptr().add(SHARED_INFO);
        std::slice::from_raw_parts_mut(start, arena.usable() - SHARED_INFO)
    }
}

/// False, where the thread panics already: the caller leaks what it was about to free.
fn blame(word: u32, deed: &str) -> bool {
    let number = (word >> 3) as usize;
    let name = number.checked_sub(1).map(|n| holders()[n].0.clone());
    let name = name.unwrap_or_else(|| "a holder that is not checked".into());
    assert!(std::thread::panicking(), "{name}: {deed}");
    false
}

/// A handle is about to be freed. False: do not, it is none.
pub(in crate::mem) fn returned(header: NonNull<Header>) -> bool {
    let before = word(header).fetch_and(!(OUT | COUNTED), SeqCst);
    if before & OUT == 0 {
        return blame(before, "freed a packet twice");
    }
    count(before, usize::wrapping_sub);
    // SAFETY: the caller owns the header.
    if !unsafe { header.as_ref() }.has_parts() {
        poison(header);
    }
    true
}

/// The last user of a buffer whose own handle is gone is about to free it.
pub(in crate::mem) fn regained(header: NonNull<Header>) {
    word(header).fetch_or(OUT, SeqCst);
}

/// A buffer is about to be free.
pub(in crate::mem) fn poison(header: NonNull<Header>) {
    bytes(header).fill(POISON);
    word(header).fetch_or(POISONED, SeqCst);
}

/// A packet was allocated.
pub(in crate::mem) fn allocated(packet: &Packet) {
    let holder = CURRENT.get();
    let charge = OUT | holder | if holder == 0 { 0 } else { COUNTED };
    let before = word(packet.0).swap(charge, SeqCst);
    count(charge, usize::wrapping_add);
    let changed = |bytes: &[u8]| bytes.iter().position(|&byte| byte != POISON);
    if before & POISONED != 0
        && let Some(at) = changed(bytes(packet.0))
    {
        let at = at + SHARED_INFO;
        blame(
            before,
            &format!("wrote byte {at} of a buffer after its return"),
        );
    }
}

/// Links the `n` buffers from `items` on, which become a magazine, through their headers: a write
/// to a buffer after its return changes no address.
///
/// # Safety
/// As for `Magazine::pack`.
pub(in crate::mem) unsafe fn link(items: *const NonNull<Header>, n: usize) {
    // SAFETY: by the caller's promise. A buffer's first bytes are no packet's data.
    unsafe {
        let second = (*(*items).as_ptr()).buf.cast::<Option<NonNull<Header>>>();
        second.write((n > 1).then(|| *items.add(1)));
        for i in 1..n {
            (*(*items.add(i)).as_ptr()).next = (i + 1 < n).then(|| *items.add(i + 1));
        }
    }
}

/// Writes the addresses of the headers behind `head` to `out`.
///
/// # Safety
/// As for `Magazine::unpack`.
pub(in crate::mem) unsafe fn unlink(head: NonNull<Header>, out: *mut NonNull<Header>) {
    // SAFETY: `link` wrote the links; `out` has space by the caller's promise.
    unsafe {
        let mut next = (*head.as_ptr())
            .buf
            .cast::<Option<NonNull<Header>>>()
            .read();
        let mut out = out;
        while let Some(header) = next {
            out.write(header);
            out = out.add(1);
            next = header.as_ref().next;
        }
    }
}
