//! Nodes with a number, and a list of them, for tests and models.

use std::ptr::NonNull;

use super::primitive::UnsafeCell;
use super::{Chain, Linked, NodeList};

/// loom fails if two threads use the link at once.
pub(super) struct Node {
    next: UnsafeCell<Option<NonNull<Node>>>,
    value: usize,
}

// SAFETY: both functions use `next`, which the tests touch in no other way; a node is a number and
// a link.
unsafe impl Linked for Node {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: owned by the caller's promise.
        unsafe { node.as_ref().next.with_mut(|next| *next) }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: owned by the caller's promise.
        unsafe { node.as_ref().next.with_mut(|link| *link = next) }
    }
}

/// A node on the heap, which the caller owns.
pub(super) fn leaked(value: usize, next: Option<NonNull<Node>>) -> NonNull<Node> {
    let next = UnsafeCell::new(next);
    NonNull::from(Box::leak(Box::new(Node { next, value })))
}

/// Frees a node, and returns its number.
///
/// # Safety
/// The caller owns the node, which is [`leaked`].
pub(super) unsafe fn free(node: NonNull<Node>) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { Box::from_raw(node.as_ptr()) }.value
}

/// Numbers, the oldest first, which are nodes while they are in a list of threads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Values(pub(super) Vec<usize>);

impl Values {
    pub(super) fn one(value: usize) -> Values {
        Values(vec![value])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// SAFETY: the nodes of the chain are made for it.
unsafe impl NodeList for Values {
    type Node = Node;

    fn take_nodes(&mut self) -> Option<Chain<Node>> {
        let mut values = std::mem::take(&mut self.0).into_iter().rev();
        let tail = leaked(values.next()?, None);
        let len = values.len() + 1;
        let head = values.fold(tail, |next, value| leaked(value, Some(next)));
        Some(Chain {
            head,
            tail,
            len,
            bytes: 0,
        })
    }

    unsafe fn put_front(&mut self, chain: Chain<Node>) {
        let mut next = Some(chain.head);
        for place in 0..chain.len {
            let node = next.expect("as many as it says");
            // SAFETY: by the caller's promise, as made by `take_nodes`.
            unsafe {
                next = Node::next(node);
                self.0.insert(place, free(node));
            }
        }
    }
}
