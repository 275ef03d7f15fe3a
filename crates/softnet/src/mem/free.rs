//! How packets come back: one by one on the fast path, lists in bulk, chains and shared data on the slow one.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::arena::Slab;
use super::cache::{Fate, prefetch};
use super::home::bump;
use super::session::{self, Session};
use super::{Flags, Header, PacketList, SharedInfo};
use super::{Inner, thread};

/// Frees a packet whose handle is being dropped. Here only the most frequent case, small enough to become part of the caller.
#[inline(always)]
pub(crate) fn free_one(header: NonNull<Header>) {
    // SAFETY: the handle owned the header, and with it this function does.
    let (flags, belongs, slab) = unsafe {
        (
            (*header.as_ptr()).flags,
            (*header.as_ptr()).home,
            Slab::of(header),
        )
    };
    if !flags.any(Flags::CHAINED | Flags::SHARED)
        && let Some(home) = thread::find(slab.id())
    {
        // SAFETY: the home that `find` found belongs to this thread and lives as long as it does not register with another.
        let home = unsafe { home.as_ref() };
        if belongs == home.index
            // SAFETY: as above; a packet is never dropped inside a home.
            && let Some(cache) = unsafe { home.enter() }
            && cache.push(header)
        {
            bump(&home.freed, 1);
            #[cfg(debug_assertions)]
            // SAFETY: the pool is not freed while we are in a home of it.
            unsafe { slab.pool().as_ref() }.note(header, None);
            return;
        }
    }
    // SAFETY: as above.
    unsafe { free_one_more(header) };
}

/// Frees a packet that another home allocated, or that is not plain, or does not fit.
///
/// # Safety
/// The caller owns the packet.
#[inline(never)]
unsafe fn free_one_more(header: NonNull<Header>) {
    // SAFETY: by the caller's promise.
    let (flags, belongs, slab) = unsafe {
        (
            (*header.as_ptr()).flags,
            (*header.as_ptr()).home,
            Slab::of(header),
        )
    };
    if !flags.any(Flags::CHAINED | Flags::SHARED)
        && let Some(home) = thread::find(slab.id())
    {
        // SAFETY: as in `free_one`.
        let home = unsafe { home.as_ref() };
        // SAFETY: as in `free_one`.
        if let Some(cache) = unsafe { home.enter() } {
            // SAFETY: the pool is not freed while we are in a home of it.
            let pool = unsafe { slab.pool().as_ref() };
            let limit = pool.park_limit();
            let done = if belongs == home.index || limit == 0 || cache.len() < cache.keep_below() {
                cache.push(header)
            } else {
                cache.park_more(header, belongs, limit)
            };
            if done {
                bump(&home.freed, 1);
                #[cfg(debug_assertions)]
                pool.note(header, None);
                return;
            }
        }
    }
    // SAFETY: as above, a chain of one.
    unsafe { free_linked(Some(header), false) };
}

/// Frees all packets of a list, in bulk. Small enough to become part of the caller, whose list then stays in registers.
#[inline(always)]
pub(crate) fn free_list(list: &mut PacketList) {
    if let Some(first) = list.take_head() {
        // SAFETY: the list owned its packets, linked from `head` on.
        unsafe { free_chain(first) };
    }
}

/// Packets linked by `next`; a link is read before its packet is handed out.
struct Links(Option<NonNull<Header>>);

impl Iterator for Links {
    type Item = NonNull<Header>;

    #[inline(always)]
    fn next(&mut self) -> Option<NonNull<Header>> {
        let header = self.0?;
        // SAFETY: whoever makes a `Links` owns the packets.
        self.0 = unsafe { (*header.as_ptr()).next };
        Some(header)
    }
}

/// # Safety
/// The caller owns the packets, linked from `first` on.
#[inline(never)]
unsafe fn free_chain(first: NonNull<Header>) {
    // SAFETY: by the caller's promise.
    unsafe {
        let rest = free_local(first);
        if rest.is_some() {
            free_linked(rest, true);
        }
    }
}

/// Frees the packets from `first` on that are plain, of one pool, and fit in the cache or an outbox that is in use. Returns the first that is not.
///
/// # Safety
/// The caller owns the packets, linked by `next`.
#[inline(always)]
unsafe fn free_local(first: NonNull<Header>) -> Option<NonNull<Header>> {
    // SAFETY: every header lies in a slab that lives as long as its pool, which outlives the packet.
    let slab = unsafe { Slab::of(first) };
    let Some(home) = thread::find(slab.id()) else {
        return Some(first);
    };
    // SAFETY: as in `free_one`.
    let home = unsafe { home.as_ref() };
    // SAFETY: as in `free_one`.
    let Some(cache) = (unsafe { home.enter() }) else {
        return Some(first);
    };
    // SAFETY: the pool is not freed while we are in a home of it.
    let pool = unsafe { slab.pool().as_ref() };
    let (limit, keep_below) = (pool.park_limit(), cache.keep_below());
    let (freed, rest) = cache.free_while(Links(Some(first)), limit, |header, len| {
        // SAFETY: the header is owned by the caller.
        let (flags, belongs, of) = unsafe {
            (
                (*header.as_ptr()).flags,
                (*header.as_ptr()).home,
                Slab::of(header),
            )
        };
        let same = std::ptr::eq(of, slab) || of.pool() == slab.pool();
        if flags.any(Flags::CHAINED | Flags::SHARED) || !same {
            return Fate::Stop;
        }
        #[cfg(debug_assertions)]
        pool.note(header, None);
        if belongs == home.index {
            Fate::Keep
        } else if len < keep_below || limit == 0 {
            // It will be written here soon.
            prefetch(header);
            Fate::Keep
        } else {
            Fate::Park(belongs)
        }
    });
    bump(&home.freed, freed as u64);
    rest
}

/// Frees packets, linked by `next` if `linked`, else one: enters each pool once for a run of packets that belong to it.
///
/// # Safety
/// The caller owns the packets, which are not inside anything else.
#[inline(never)]
unsafe fn free_linked(first: Option<NonNull<Header>>, linked: bool) {
    let mut next = first;
    while let Some(header) = next {
        let (pool, id) = {
            // SAFETY: every header lies in a slab that lives as long as its pool, which outlives the packet.
            let slab = unsafe { Slab::of(header) };
            (slab.pool(), slab.id())
        };
        // Packets of other pools that turn up meanwhile (segments, shared data): freed when we have left this one.
        let mut elsewhere = None;
        // SAFETY: `header` keeps the pool alive until it is freed inside.
        next = unsafe {
            session::enter(pool, |session| {
                let mut next = Some(header);
                while let Some(header) = next {
                    if Slab::of(header).id() != id {
                        break;
                    }
                    next = if linked {
                        (*header.as_ptr()).next
                    } else {
                        None
                    };
                    if (*header.as_ptr()).flags.any(Flags::CHAINED | Flags::SHARED) {
                        release(session, header, &mut elsewhere);
                    } else {
                        give(session, header);
                    }
                }
                next
            })
        };
        if elsewhere.is_some() {
            // SAFETY: `release` collected packets that were ours and are linked.
            unsafe { free_linked(elsewhere, true) };
        }
    }
}

/// # Safety
/// As for [`Session::free`].
#[inline(always)]
unsafe fn give(session: &Session<'_>, header: NonNull<Header>) {
    #[cfg(debug_assertions)]
    session.pool().note(header, None);
    // SAFETY: by the caller's promise.
    unsafe { session.free(header) };
}

/// Lets go of a packet that is chained or shares its data. Its own buffer is freed unless others still use it; the segments, and the buffer whose data
/// it used, if it was the last holder (INV-BUF-8). What belongs to another pool is put on `elsewhere`.
///
/// # Safety
/// The caller owns the packet, which belongs to the session's pool, and gives it up.
#[cold]
unsafe fn release(
    session: &Session<'_>,
    header: NonNull<Header>,
    elsewhere: &mut Option<NonNull<Header>>,
) {
    let pool = session.pool();
    // SAFETY: a header of this pool, which we own. The data's first 64 bytes are its `SharedInfo`; they stay while it is counted for us.
    unsafe {
        let own = header.as_ptr();
        let info = (*own).buf.cast::<SharedInfo>().as_ptr();
        let shared = (*own).flags.has(Flags::SHARED);
        let chained = (*own).flags.has(Flags::CHAINED);
        let owner = if shared {
            (*info).owner.unwrap_or(header)
        } else {
            header
        };
        // Release: our reads of the data are over; Acquire: so are all others', if we are the last.
        let last = !shared || (*info).holders.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            let mut next = if chained { (*info).frags.take() } else { None };
            while let Some(segment) = next {
                next = (*segment.as_ptr()).next;
                part(session, segment, elsewhere);
            }
            if owner != header {
                (*owner.as_ptr()).flags = Flags::default();
                part(session, owner, elsewhere);
            }
        }
        if owner != header {
            (*own).buf = pool.arena.buffer(header);
        } else if !last {
            // The buffer stays in use; the last holder frees it.
            return;
        }
        (*own).flags = Flags::default();
        give(session, header);
    }
}

/// Frees a buffer that belonged to a packet, here if it can be.
///
/// # Safety
/// The caller owns it and gives it up.
unsafe fn part(
    session: &Session<'_>,
    header: NonNull<Header>,
    elsewhere: &mut Option<NonNull<Header>>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let plain = !(*header.as_ptr()).flags.any(Flags::CHAINED | Flags::SHARED);
        if plain && Slab::of(header).id() == session.pool().id {
            give(session, header);
        } else {
            (*header.as_ptr()).next = *elsewhere;
            *elsewhere = Some(header);
        }
    }
}

/// Usable bytes of the buffer that belongs to `header`.
pub(crate) fn buffer_size(header: NonNull<Header>) -> usize {
    // SAFETY: every header line lies in a slab, whose pool outlives the packet.
    unsafe { pool_of(header).as_ref() }.arena.usable()
}

fn pool_of(header: NonNull<Header>) -> NonNull<Inner> {
    // SAFETY: every header line lies in a slab that lives as long as its pool, which outlives the packet.
    unsafe { Slab::of(header) }.pool()
}
