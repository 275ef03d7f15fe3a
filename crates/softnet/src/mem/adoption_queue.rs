//! An [`OwnedList`] of packets, with lists of packets at its ends: what a transmit queue is built
//! on.

use std::ptr::NonNull;

use super::list::Chain;
use super::{Header, Packet, PacketList};
use crate::sync::{Linked, ListOwner, OwnedList, Pushed, Taken};

// SAFETY: both functions use `Header::next`, which only the list that holds the packet touches.
unsafe impl Linked for Header {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next = next }
    }
}

/// Packets that wait for the queue's owner, and what only the owner may touch: an [`OwnedList`] of
/// packets.
#[derive(Debug)]
pub struct AdoptionQueue<T> {
    list: OwnedList<Header, T>,
}

/// What became of a sender's packets; see [`AdoptionQueue::enter`].
#[derive(Debug)]
pub enum Entry<'a, T> {
    /// The caller owns the queue, and still has its packets. Others left these before, which go
    /// first.
    Acquired(QueueOwner<'a, T>, PacketList),
    /// They wait for the owner, behind so many others.
    Queued(usize),
    /// Too many wait. They are still in the caller's list.
    Full,
}

impl<T> AdoptionQueue<T> {
    /// Idle and empty, around `value`, made for up to `expected` packets that wait (see
    /// [`OwnedList::new`]).
    pub fn new(value: T, expected: usize) -> Self {
        AdoptionQueue {
            list: OwnedList::new(value, expected),
        }
    }

    /// As [`OwnedList::when_abandoned`].
    pub fn when_abandoned(mut self, abandoned: fn(&mut T)) -> Self {
        self.list.when_abandoned(abandoned);
        self
    }

    /// Becomes the owner if there is none, else pushes `packets`, in one atomic operation, to the
    /// owner, unless others wait and together they would be more than `limit` says. Never waits.
    #[inline(always)]
    pub fn enter(
        &self,
        packets: &mut PacketList,
        limit: impl FnOnce(&PacketList) -> usize + Copy,
    ) -> Entry<'_, T> {
        loop {
            if let Some((guard, left)) = self.list.try_begin() {
                return Entry::Acquired(QueueOwner { guard }, oldest_first(left));
            }
            match self.push_chain(packets, limit(packets), false) {
                Pushed::Queued(before) => return Entry::Queued(before),
                Pushed::Full => return Entry::Full,
                Pushed::Unowned => {}
            }
        }
    }

    /// Pushes `packets` without becoming the owner, also where there is none: the caller must tell
    /// somebody to become it. Returns how many waited before; none, and the packets still in the
    /// list, if others wait and together they would be more than `limit`.
    #[inline]
    pub fn push(&self, packets: &mut PacketList, limit: usize) -> Option<usize> {
        match self.push_chain(packets, limit, true) {
            Pushed::Queued(before) => Some(before),
            Pushed::Full | Pushed::Unowned => None,
        }
    }

    #[inline]
    fn push_chain(&self, packets: &mut PacketList, limit: usize, unowned: bool) -> Pushed {
        let Some(chain) = newest_first(packets) else {
            return Pushed::Queued(0);
        };
        // SAFETY: the chain is ours, linked from the newest (`head`) to the oldest (`tail`).
        let pushed = unsafe {
            self.list
                .push(chain.head, chain.tail, chain.len, limit, unowned)
        };
        if !matches!(pushed, Pushed::Queued(_)) {
            // SAFETY: not pushed, so still ours.
            unsafe { give_back(chain, packets) };
        }
        pushed
    }

    /// Becomes the owner with all that waits, or makes the owner go round once more. For events
    /// that are no packets.
    pub fn begin_or_miss(&self) -> Option<(QueueOwner<'_, T>, PacketList)> {
        let (guard, left) = self.list.begin_or_miss()?;
        Some((QueueOwner { guard }, oldest_first(left)))
    }

    /// Becomes the owner with all that waits, at least `overdue` packets, in the place of a claimer
    /// that stands still; see [`OwnedList::begin_overdue`].
    pub fn begin_overdue(&self, overdue: usize) -> Option<(QueueOwner<'_, T>, PacketList)> {
        let (guard, left) = self.list.begin_overdue(overdue)?;
        Some((QueueOwner { guard }, oldest_first(left)))
    }

    /// Claims the queue, as a thread of the control path that stands still then.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn claim(&self) {
        self.list.claim();
    }

    /// Becomes the owner, and leaves what waits where it is; see [`OwnedList::begin_slow`]. For
    /// the control path only, and never by the owner.
    pub fn begin_slow(&self) -> QueueOwner<'_, T> {
        let guard = self.list.begin_slow();
        QueueOwner { guard }
    }

    /// What the owner said last about what is due besides these packets; see
    /// [`OwnedList::backlog`].
    #[inline]
    pub fn backlog(&self) -> usize {
        self.list.backlog()
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether nothing waits and nobody is the owner.
    pub fn is_idle(&self) -> bool {
        self.list.is_idle()
    }
}

impl<T> Drop for AdoptionQueue<T> {
    fn drop(&mut self) {
        drop(oldest_first(self.list.take_mut()));
    }
}

/// The ownership of a [`AdoptionQueue`]: exclusive access to its value. It may be shared between
/// threads where the value may, as a `MutexGuard`:
/// ```
/// fn shared<T: Sync>() {}
/// shared::<softnet::mem::QueueOwner<'static, u32>>();
/// ```
/// and not where the value may only be sent:
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<softnet::mem::QueueOwner<'static, std::cell::Cell<u32>>>();
/// ```
#[derive(Debug)]
pub struct QueueOwner<'a, T> {
    guard: ListOwner<'a, Header, T>,
}

impl<'a, T> QueueOwner<'a, T> {
    /// Takes what waits, oldest first, unless it is more than `limit` packets, and says whether
    /// anything but packets was missed, which is forgotten: the caller looks at everything after
    /// this.
    #[inline]
    pub fn take(&mut self, limit: usize) -> Option<(PacketList, bool)> {
        let taken = self.guard.take(limit)?;
        let missed = taken.missed();
        Some((oldest_first(taken), missed))
    }

    /// Takes all that waits, oldest first.
    pub fn take_all(&mut self) -> PacketList {
        oldest_first(self.guard.take_all())
    }

    /// As [`ListOwner::set_backlog`].
    #[inline]
    pub fn set_backlog(&self, due: u32) {
        self.guard.set_backlog(due);
    }

    /// Gives the queue up, if nothing waits and nothing was missed.
    ///
    /// # Errors
    /// With the ownership itself: [`take`](QueueOwner::take) and go round again.
    #[inline]
    pub fn end(self) -> Result<(), QueueOwner<'a, T>> {
        self.guard.end().map_err(|guard| QueueOwner { guard })
    }

    /// Gives the queue up, whatever waits. Returns true if anything does, or was missed: somebody
    /// must then be told to become the owner.
    #[must_use = "what waits is stuck unless somebody is told"]
    pub fn leave(self) -> bool {
        self.guard.leave()
    }
}

impl<T> std::ops::Deref for QueueOwner<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> std::ops::DerefMut for QueueOwner<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Takes the packets out of a list, as a chain that runs from the newest to the oldest.
#[inline]
pub(super) fn newest_first(packets: &mut PacketList) -> Option<Chain> {
    if packets.len() > 1 {
        packets.reverse();
    }
    packets.take_chain()
}

/// Undoes [`newest_first`].
///
/// # Safety
/// The caller owns the chain, and gives it up. (The link behind the oldest may be anything.)
#[inline]
pub(super) unsafe fn give_back(chain: Chain, packets: &mut PacketList) {
    // SAFETY: by the caller's promise.
    unsafe {
        Header::set_next(chain.tail, None);
        packets.append_chain(chain);
    }
    if chain.len > 1 {
        packets.reverse();
    }
}

/// As a list of packets.
#[inline]
fn oldest_first(taken: Taken<'_, Header>) -> PacketList {
    let mut packets = PacketList::new();
    // SAFETY: `taken` owns the nodes.
    taken.visit(|node| packets.push_front(unsafe { Packet::from_raw(node) }));
    packets
}
