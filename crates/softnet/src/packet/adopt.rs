//! Adoption lists of packets: [`AdoptionList`] and [`RunList`] with owned values at their ends.

use std::ptr::NonNull;

use super::list::RawList;
use super::{Header, PacketList};
use crate::sync::{AdoptionList, Linked, Pushed, RunList, RunnerGuard, Taken};

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

/// Many threads push lists of packets, one takes them all, in order of the pushes. Nobody waits.
#[derive(Debug, Default)]
pub struct PacketAdoption {
    list: AdoptionList<Header>,
}

impl PacketAdoption {
    /// An empty list, for short ones.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list, made for up to `expected` packets that wait (see [`AdoptionList::expecting`]).
    pub fn expecting(expected: usize) -> Self {
        PacketAdoption {
            list: AdoptionList::expecting(expected),
        }
    }

    /// Pushes all of `packets`, in one atomic operation.
    ///
    /// # Errors
    /// With the packets, if the list is not empty and would hold more than `limit` of them.
    pub fn push(&self, packets: PacketList, limit: usize) -> Result<(), PacketList> {
        let Some(raw) = packets.into_raw() else {
            return Ok(());
        };
        // The list's links run from newest to oldest.
        // SAFETY: the chain came out of a `PacketList` that owned it; turned around, it runs from `tail` to `head`.
        let pushed = unsafe {
            if raw.len > 1 {
                reverse(raw.head);
            }
            self.list.push(raw.tail, raw.head, raw.len, limit)
        };
        if pushed {
            return Ok(());
        }
        // SAFETY: still ours; reversing again restores the order, and the push may have left a link behind the oldest.
        unsafe {
            Header::set_next(raw.head, None);
            if raw.len > 1 {
                reverse(raw.tail);
            }
            Err(PacketList::from_raw(raw))
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Packets that wait to be taken.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes everything, oldest first.
    pub fn take(&self) -> PacketList {
        let mut turned = Turned::default();
        // SAFETY: `take` gives every node to us.
        self.list.take(|node| unsafe { turned.push_front(node) });
        turned.into_list()
    }
}

/// A chain that is being turned around, from newest first to oldest first.
#[derive(Default)]
struct Turned(Option<RawList>);

impl Turned {
    /// # Safety
    /// The caller owns `node`, and gives it up.
    #[inline]
    unsafe fn push_front(&mut self, node: NonNull<Header>) {
        // SAFETY: owned by the caller's promise, so its link is ours to change.
        let bytes = unsafe {
            Header::set_next(node, self.0.map(|r| r.head));
            u64::from((*node.as_ptr()).total_len)
        };
        self.0 = Some(match self.0 {
            None => RawList {
                head: node,
                tail: node,
                len: 1,
                bytes,
            },
            Some(r) => RawList {
                head: node,
                len: r.len + 1,
                bytes: r.bytes + bytes,
                ..r
            },
        });
    }

    fn into_list(self) -> PacketList {
        // SAFETY: linked from the oldest (`head`) to the newest (`tail`, whose link is `None`), and ours.
        self.0
            .map_or_else(PacketList::new, |raw| unsafe { PacketList::from_raw(raw) })
    }
}

/// Packets that wait for the thread which has the run, and what only that thread may touch: a [`RunList`] of packets.
#[derive(Debug)]
pub struct PacketRun<T> {
    list: RunList<Header, T>,
}

/// What became of a sender's packets; see [`PacketRun::enter`].
#[derive(Debug)]
pub enum Entry<'a, T> {
    /// The caller has the run. The packets in its list are those left by others before, which go first, and its own.
    Runs(PacketRunner<'a, T>),
    /// They wait for the thread that has the run.
    Left,
    /// Too many wait. They are still in the caller's list.
    Full,
}

impl<T> PacketRun<T> {
    /// Idle and empty, around `value`, made for up to `expected` packets that wait (see [`RunList::new`]).
    pub fn new(value: T, expected: usize) -> Self {
        PacketRun {
            list: RunList::new(value, expected),
        }
    }

    /// Takes the run if nobody has it, else leaves `packets`, in one atomic operation, to the thread that has it, unless others wait and together they
    /// would be more than `limit`. Never waits.
    #[inline]
    pub fn enter(&self, packets: &mut PacketList, limit: usize) -> Entry<'_, T> {
        loop {
            if let Some((guard, left)) = self.list.try_begin() {
                if !left.is_empty() {
                    let mut all = oldest_first(left);
                    all.append(packets);
                    *packets = all;
                }
                return Entry::Runs(PacketRunner(guard));
            }
            match self.push(packets, limit, false) {
                Pushed::Left => return Entry::Left,
                Pushed::Full => return Entry::Full,
                Pushed::Idle => {}
            }
        }
    }

    /// Leaves `packets` without taking the run, also where nobody has it: the caller must tell somebody to run. False, and the packets still in the list,
    /// if others wait and together they would be more than `limit`.
    #[inline]
    pub fn leave(&self, packets: &mut PacketList, limit: usize) -> bool {
        self.push(packets, limit, true) == Pushed::Left
    }

    #[inline]
    fn push(&self, packets: &mut PacketList, limit: usize, unattended: bool) -> Pushed {
        let Some(raw) = packets.take().into_raw() else {
            return Pushed::Left;
        };
        // The list's links run from newest to oldest.
        // SAFETY: the chain came out of a `PacketList` that owned it; turned around, it runs from `tail` to `head`.
        let pushed = unsafe {
            if raw.len > 1 {
                reverse(raw.head);
            }
            self.list
                .push(raw.tail, raw.head, raw.len, limit, unattended)
        };
        if pushed != Pushed::Left {
            // SAFETY: still ours; reversing again restores the order, and the push may have left a link behind the oldest.
            unsafe {
                Header::set_next(raw.head, None);
                if raw.len > 1 {
                    reverse(raw.tail);
                }
                *packets = PacketList::from_raw(raw);
            }
        }
        pushed
    }

    /// Takes the run with all that waits, if nobody has it.
    #[inline]
    pub fn try_begin(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        let (guard, left) = self.list.try_begin()?;
        Some((PacketRunner(guard), oldest_first(left)))
    }

    /// As [`begin_or_miss`](PacketRun::begin_or_miss), for senders that have put packets elsewhere; see [`RunList::begin_or_note`].
    #[inline]
    pub fn begin_or_note(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        let (guard, left) = self.list.begin_or_note()?;
        Some((PacketRunner(guard), oldest_first(left)))
    }

    /// Takes the run with all that waits, or makes the thread that has it go round once more. For events that are no packets.
    pub fn begin_or_miss(&self) -> Option<(PacketRunner<'_, T>, PacketList)> {
        let (guard, left) = self.list.begin_or_miss()?;
        Some((PacketRunner(guard), oldest_first(left)))
    }

    /// Takes the run with all that waits, yielding the CPU while another thread has it. For the control path only.
    pub fn begin_slow(&self) -> (PacketRunner<'_, T>, PacketList) {
        let (guard, left) = self.list.begin_slow();
        (PacketRunner(guard), oldest_first(left))
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether nothing waits and nobody runs.
    pub fn is_idle(&self) -> bool {
        self.list.is_idle()
    }
}

impl<T> Drop for PacketRun<T> {
    fn drop(&mut self) {
        drop(oldest_first(self.list.take_mut()));
    }
}

/// The run of a [`PacketRun`]: exclusive access to its value.
#[derive(Debug)]
pub struct PacketRunner<'a, T>(RunnerGuard<'a, Header, T>);

impl<'a, T> PacketRunner<'a, T> {
    /// Takes what waits, oldest first, and says whether anything but packets was missed, which is forgotten: the caller looks at everything after this.
    #[inline]
    pub fn take(&mut self) -> (PacketList, bool) {
        let taken = self.0.take();
        let missed = taken.missed();
        (oldest_first(taken), missed)
    }

    /// Gives the run up, if nothing waits and nothing was missed.
    ///
    /// # Errors
    /// With the run itself: [`take`](PacketRunner::take) and go round again.
    #[inline]
    pub fn end(self) -> Result<(), PacketRunner<'a, T>> {
        self.0.end().map_err(PacketRunner)
    }

    /// Gives the run up, whatever waits. Returns true if anything does, or was missed: somebody must then be told to run.
    #[must_use = "what waits is stuck unless somebody is told"]
    pub fn leave(self) -> bool {
        self.0.leave()
    }
}

impl<T> std::ops::Deref for PacketRunner<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for PacketRunner<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// As a list of packets.
#[inline]
fn oldest_first(taken: Taken<'_, Header>) -> PacketList {
    let mut turned = Turned::default();
    // SAFETY: `taken` owns the nodes.
    taken.visit(|node| unsafe { turned.push_front(node) });
    turned.into_list()
}

/// Turns a chain around.
///
/// # Safety
/// The caller owns the chain.
unsafe fn reverse(first: NonNull<Header>) {
    let (mut previous, mut next) = (None, Some(first));
    while let Some(node) = next {
        // SAFETY: owned by the caller's promise.
        unsafe {
            next = Header::next(node);
            Header::set_next(node, previous);
        }
        previous = Some(node);
    }
}

impl Drop for PacketAdoption {
    fn drop(&mut self) {
        drop(self.take());
    }
}
