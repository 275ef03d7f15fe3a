//! Freeing of packets: into the thread's own cache, or a magazine in it, as long as there is
//! space; the rest on the slow path.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::arena::Slab;
use super::header::{Flags, Header, SharedInfo};
use super::slow::{self, SlowPath};
use super::stats::{Event, bump};
use super::thread_cache::UNOWNED;
use super::{Packet, PacketList, thread};

/// Frees a packet whose handle is being dropped. Here only the most frequent case, small enough to
/// become part of the caller.
#[inline(always)]
pub(super) fn free_one(header: NonNull<Header>) {
    #[cfg(feature = "check")]
    if !super::check::returned(header) {
        return;
    }
    // SAFETY: the handle owned the header, and with it this function does. What `find` finds
    // belongs to this thread, which is not in it: a packet is never dropped inside a cache.
    unsafe {
        let packet = &mut *header.as_ptr();
        if let Some(thread) = thread::find(Slab::of(header).id)
            && packet.is_plain_of(thread.index)
            && let Some(cache) = thread.lock.enter()
            && cache.push(header)
        {
            bump(&thread.freed, 1);
            return;
        }
        // No needless write: another CPU, the owner, will write the line next.
        if packet.next.is_some() {
            packet.next = None;
        }
        free_chain(header, 1);
    }
}

/// Frees all packets of a list, in bulk. Small enough to become part of the caller, whose list
/// then stays in registers.
#[inline(always)]
pub(super) fn free_list(list: &mut PacketList) {
    if let Some(chain) = list.take_chain() {
        #[cfg(feature = "check")]
        // SAFETY: the list owned its packets, linked from the head.
        if !std::iter::successors(Some(chain.head), |packet| unsafe { packet.as_ref() }.next)
            .all(super::check::returned)
        {
            return;
        }
        // SAFETY: the list owned its packets.
        unsafe { free_chain(chain.head, chain.len) };
    }
}

/// Frees packets that follow each other.
///
/// # Safety
/// The caller owns the packets, `n` that are linked from `first` on, which are not inside anything
/// else.
#[inline(never)]
unsafe fn free_chain(first: NonNull<Header>, n: usize) {
    let mut rest = Some(first);
    // SAFETY: by the caller's promise. The pool is not freed while we are in a cache of it.
    unsafe {
        // This thread's own packets of its first pool, as long as that takes no more than to put
        // them into its cache.
        if let Some(thread) = thread::find_first(Slab::of(first).id)
            && let Some(cache) = thread.lock.enter()
        {
            let freed;
            (freed, rest) = cache.free_while_own(first, n, thread.index);
            bump(&thread.freed, freed as u64);
        }
        if let Some(rest) = rest {
            free_others(rest);
        }
    }
}

/// Frees what is left then. Apart from [`free_chain`], which needs few registers and saves none.
///
/// # Safety
/// As for [`free_chain`].
#[inline(never)]
unsafe fn free_others(first: NonNull<Header>) {
    // SAFETY: by the caller's promise.
    unsafe {
        if let Some(rest) = free_easily(first) {
            free_rest(rest);
        }
    }
}

/// Frees packets of one pool as long as that is easy, and returns the first that is left.
///
/// # Safety
/// As for [`free_chain`].
#[inline(always)]
unsafe fn free_easily(first: NonNull<Header>) -> Option<NonNull<Header>> {
    // SAFETY: by the caller's promise. The pool is not freed while we are in a cache of it.
    unsafe {
        let slab = Slab::of(first);
        let Some((thread, cache)) = thread::enter(slab.id) else {
            return Some(first);
        };
        let limit = slab.pool.as_ref().defer_limit();
        let (freed, rest) = cache.free_while_easy(first, thread.index, limit);
        bump(&thread.freed, freed as u64);
        rest
    }
}

/// Frees packets, the first of which is not easy. Apart from [`free_others`], which mostly ends
/// without it.
///
/// # Safety
/// As for [`free_chain`].
#[inline(never)]
unsafe fn free_rest(first: NonNull<Header>) {
    let mut next = Some(first);
    while let Some(first) = next {
        // SAFETY: by the caller's promise.
        next = unsafe { free_slow(first).and_then(|next| free_easily(next)) };
    }
}

/// Frees packets of one pool on the slow path, linked from `first` on: up to the first plain one,
/// after which the cache has space again or its magazine is another's; or, where the thread is not
/// in a cache of its own, all that follow each other. Returns the first that is left.
///
/// # Safety
/// As for [`free_chain`].
#[inline(never)]
unsafe fn free_slow(first: NonNull<Header>) -> Option<NonNull<Header>> {
    // SAFETY: every header lies in a slab that lives as long as its pool, which outlives the
    // packet.
    let (pool, id) = unsafe { (Slab::of(first).pool, Slab::of(first).id) };
    // Packets of other pools that turn up meanwhile (segments, shared data): freed at the end, when
    // we have left this one.
    let mut elsewhere = PacketList::new();
    // SAFETY: `first` keeps the pool alive until it is freed inside.
    unsafe {
        slow::enter(pool, |slow| {
            let mut next = Some(first);
            while let Some(header) = next
                && Slab::of(header).id == id
            {
                next = header.as_ref().next;
                if header.as_ref().has_parts() {
                    slow.release(header, &mut elsewhere);
                } else {
                    let owned = header.as_ref().owner != UNOWNED;
                    slow.free(header);
                    // A packet of nobody stays in the cache; the next would be back here at once.
                    if slow.thread.is_some() && owned {
                        break;
                    }
                }
            }
            next
        })
    }
}

impl SlowPath<'_> {
    /// Takes a buffer back.
    ///
    /// # Safety
    /// The buffer is of this pool, the caller owns it and gives it up; it is no part of a chain,
    /// not shared, and in its own memory.
    unsafe fn free(&self, header: NonNull<Header>) {
        // SAFETY: by the caller's promise.
        let owner = unsafe { header.as_ref().owner };
        let (pool, cache) = (self.pool, self.cache);
        let limit = pool.defer_limit();
        let mut defer = false;
        if let Some(thread) = self.thread {
            bump(&thread.freed, 1);
            let foreign = owner != thread.index && owner != UNOWNED;
            defer = foreign && cache.len() >= cache.keep_below();
        } else {
            self.count(Event::Freed, 1);
        }
        if defer {
            let outgoing = cache.outgoing_for(owner);
            if outgoing.owner() != owner {
                self.deliver(outgoing);
                let thread = pool.threads.get(owner);
                outgoing.turn_to(
                    owner,
                    thread.map_or(std::ptr::null(), |t| &raw const *t.remote),
                );
            }
            let len = outgoing.len();
            // SAFETY: ours to give up. It is emptied below before it holds more than `limit`,
            // which is at most `MAGAZINE`.
            unsafe { outgoing.put(header, len) };
            outgoing.set_len(len + 1);
            if len + 1 >= limit {
                cache.decide(pool.batch);
                self.deliver(outgoing);
            }
        } else if !cache.push(header) {
            // Half goes, half stays (INV-BUF-3).
            self.spill(cache.len().saturating_sub(pool.cache_capacity() / 2));
            cache.push(header);
        }
    }

    /// Lets go of a packet that is chained or shares its data. Its own buffer is freed unless
    /// others still use it; the segments, and the buffer whose data it used, if it was the last
    /// holder (INV-BUF-8). What belongs to another pool is put on `elsewhere`.
    ///
    /// # Safety
    /// The caller owns the packet, which belongs to this pool, and gives it up.
    #[cold]
    unsafe fn release(&self, header: NonNull<Header>, elsewhere: &mut PacketList) {
        // SAFETY: a header of this pool, which we own. The data's first 64 bytes are its
        // `SharedInfo`; they stay while it is counted for us.
        unsafe {
            let own = header.as_ptr();
            let info = (*own).buf.cast::<SharedInfo>().as_ptr();
            let shared = (*own).flags.has(Flags::SHARED);
            let chained = (*own).flags.has(Flags::CHAINED);
            let origin = if shared { (*info).origin } else { None };
            let origin = origin.unwrap_or(header);
            // Release: our reads of the data are over; Acquire: so are all others', if we are the
            // last.
            let last = !shared || (*info).holders.fetch_sub(1, Ordering::AcqRel) == 1;
            if last {
                let mut next = if chained { (*info).frags.take() } else { None };
                while let Some(segment) = next {
                    next = segment.as_ref().next;
                    self.release_part(segment, elsewhere);
                }
                if origin != header {
                    (*origin.as_ptr()).flags = Flags::default();
                    #[cfg(feature = "check")]
                    super::check::regained(origin);
                    self.release_part(origin, elsewhere);
                }
            }
            if origin != header {
                (*own).buf = self.pool.arena.buffer(header);
            } else if !last {
                // The buffer stays in use; the last holder frees it.
                return;
            }
            (*own).flags = Flags::default();
            #[cfg(feature = "check")]
            super::check::poison(header);
            self.free(header);
        }
    }

    /// Frees a buffer that belonged to a packet, here if it can be.
    ///
    /// # Safety
    /// The caller owns it and gives it up.
    unsafe fn release_part(&self, header: NonNull<Header>, elsewhere: &mut PacketList) {
        // SAFETY: by the caller's promise.
        unsafe {
            if !header.as_ref().has_parts() && Slab::of(header).id == self.pool.id {
                #[cfg(feature = "check")]
                if !super::check::returned(header) {
                    return;
                }
                self.free(header);
            } else {
                elsewhere.push_back(Packet::from_raw(header));
            }
        }
    }
}

/// The slab of a packet's header.
#[inline(always)]
fn slab<'a>(header: NonNull<Header>) -> &'a Slab {
    // SAFETY: every header line lies in a slab that lives as long as its pool, which outlives the
    // packet.
    unsafe { Slab::of(header) }
}

/// Usable bytes of the buffer that belongs to `header`.
#[inline(always)]
pub(super) fn buffer_size(header: NonNull<Header>) -> usize {
    slab(header).usable
}

/// Start of the buffer that belongs to `header`.
pub(super) fn own_buffer(header: NonNull<Header>) -> NonNull<u8> {
    // SAFETY: as for its slab.
    unsafe { slab(header).pool.as_ref() }.arena.buffer(header)
}
