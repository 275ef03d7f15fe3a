//! Adoption lists of packets: [`AdoptionList`] with owned values at its ends, and how a list of packets becomes a chain for it and back.

use std::ptr::NonNull;

use super::list::RawList;
use super::{Header, PacketList};
use crate::sync::{AdoptionList, Linked, Taken};

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

    /// Pushes all of `packets`, in one atomic operation. Returns how many waited before them.
    ///
    /// # Errors
    /// With the packets, if the list is not empty and would hold more than `limit` of them.
    pub fn push(&self, mut packets: PacketList, limit: usize) -> Result<usize, PacketList> {
        let Some(chain) = turn(&mut packets) else {
            return Ok(self.len());
        };
        // SAFETY: `turn` made the chain, linked from `tail` to `head`, and gave it to us.
        let pushed = unsafe { self.list.push(chain.tail, chain.head, chain.len, limit) };
        if let Some(waiting) = pushed {
            return Ok(waiting);
        }
        // SAFETY: not pushed, so still ours.
        unsafe { turn_back(chain, &mut packets) };
        Err(packets)
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
        if self.is_empty() {
            return PacketList::new();
        }
        self.take_now()
    }

    /// As [`take`](PacketAdoption::take) without looking whether there is anything: cheaper where there is as a rule.
    pub fn take_now(&self) -> PacketList {
        let mut turned = Turned::default();
        // SAFETY: `take_now` gives every node to us.
        self.list
            .take_now(|node| unsafe { turned.push_front(node) });
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

/// Takes the packets out of a list, as a chain whose links run from the newest (`tail`) to the oldest (`head`).
#[inline]
pub(super) fn turn(packets: &mut PacketList) -> Option<RawList> {
    let raw = packets.take().into_raw()?;
    if raw.len > 1 {
        // SAFETY: the chain came out of a `PacketList` that owned it.
        unsafe { reverse(raw.head) };
    }
    Some(raw)
}

/// Undoes [`turn`].
///
/// # Safety
/// The caller owns the chain, and gives it up. (The link behind the oldest may be anything.)
#[inline]
pub(super) unsafe fn turn_back(raw: RawList, packets: &mut PacketList) {
    // SAFETY: the caller's promise; reversing again restores the order.
    unsafe {
        Header::set_next(raw.head, None);
        if raw.len > 1 {
            reverse(raw.tail);
        }
        *packets = PacketList::from_raw(raw);
    }
}

/// As a list of packets.
#[inline]
pub(super) fn oldest_first(taken: Taken<'_, Header>) -> PacketList {
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
