//! A value with at most one owner, and no list: an [`OwnedList`] without nodes. A receive queue's.
//!
//! Writes of a thread before [`begin_or_miss`](RunState::begin_or_miss) are seen by an owner:
//! either the caller becomes it, or the present one is made to go round again.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::llist::{Chain, Linked, NodeList};
use super::owned_list::{ListOwner, OwnedList, pause};

/// Node of a list that has none. No value of this type is made.
#[repr(align(8))]
#[derive(Debug)]
struct NoNode;

// SAFETY: there is no node, so nothing is read or written.
unsafe impl Linked for NoNode {
    unsafe fn next(_: NonNull<Self>) -> Option<NonNull<Self>> {
        None
    }
    unsafe fn set_next(_: NonNull<Self>, _: Option<NonNull<Self>>) {}
}

/// No list.
#[derive(Debug, Default)]
struct NoList;

// SAFETY: there is no node.
unsafe impl NodeList for NoList {
    type Node = NoNode;
    fn take_nodes(&mut self) -> Option<Chain<NoNode>> {
        None
    }
    unsafe fn put_front(&mut self, _: Chain<NoNode>) {}
}

/// A value with at most one owner.
#[derive(Debug)]
pub struct RunState<T>(OwnedList<NoList, T>);

impl<T> RunState<T> {
    /// Around `value`, without an owner.
    pub fn new(value: T) -> Self {
        RunState(OwnedList::new(value, 0))
    }

    /// Becomes the owner, if there is none.
    pub fn try_begin(&self) -> Option<RunGuard<'_, T>> {
        self.0.try_begin().map(|(owner, _)| RunGuard(owner))
    }

    /// Becomes the owner, or makes the owner go round once more.
    pub fn begin_or_miss(&self) -> Option<RunGuard<'_, T>> {
        self.0.begin_or_miss().map(|(owner, _)| RunGuard(owner))
    }

    /// Becomes the owner, yielding the CPU while another thread is, and sleeping where that does
    /// not help. For the control path only.
    pub fn begin_slow(&self) -> RunGuard<'_, T> {
        let mut yields: u32 = 0;
        loop {
            if let Some(guard) = self.try_begin() {
                return guard;
            }
            pause(yields);
            yields = yields.saturating_add(1);
        }
    }
}

/// The ownership of a [`RunState`]: exclusive access to its value. Dropping it without
/// [`end`](RunGuard::end) (a panic) gives it up and forgets a missed event.
#[derive(Debug)]
pub struct RunGuard<'a, T>(ListOwner<'a, NoList, T>);

impl<'a, T> RunGuard<'a, T> {
    /// Gives the value up.
    ///
    /// # Errors
    /// With the ownership itself, if an event was missed meanwhile: go round again.
    pub fn end(self) -> Result<(), RunGuard<'a, T>> {
        self.0.end().map_err(|mut owner| {
            // Forgets the event, and acquires what was published before it.
            let _ = owner.take(usize::MAX);
            RunGuard(owner)
        })
    }
}

impl<T> Deref for RunGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RunGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
