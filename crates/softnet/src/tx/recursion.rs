//! Depth of this thread inside devices without a queue (the kernel's `dev_xmit_recursion`).
//!
//! A device with a qdisc cannot be entered twice by one thread: one that sends while it
//! runs the queue leaves the packets to itself. Without a queue there is nothing that holds the
//! packets back, so a stack of such devices, or one whose driver sends through itself, would go
//! on for ever. What goes deeper than [`XMIT_RECURSION_LIMIT`], or enters a device that the
//! thread is in already, is dropped. Per thread: another thread's packets are never taken for a
//! loop (INV-TX-16).

use std::cell::Cell;

/// Devices without a queue that a thread may be inside of beyond the first
/// (`XMIT_RECURSION_LIMIT`).
pub const XMIT_RECURSION_LIMIT: usize = 8;

thread_local! {
    static INSIDE: [Cell<usize>; XMIT_RECURSION_LIMIT + 1] =
        const { [const { Cell::new(0) }; XMIT_RECURSION_LIMIT + 1] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// This thread is inside a device until this is dropped, on the thread that made it.
#[derive(Debug)]
pub(super) struct Inside(std::marker::PhantomData<*const ()>);

impl Inside {
    /// Enters `device` (any number that no other has). None if that would be too deep, or a loop.
    pub(super) fn enter(device: usize) -> Option<Inside> {
        let depth = DEPTH.get();
        let free = INSIDE.with(|inside| {
            let free = depth < inside.len() && inside[..depth].iter().all(|d| d.get() != device);
            if free {
                inside[depth].set(device);
            }
            free
        });
        free.then(|| {
            DEPTH.set(depth + 1);
            Inside(std::marker::PhantomData)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_devices_nest_and_none_twice() {
        let mut held: Vec<Inside> = (1..=9).map(|d| Inside::enter(d).expect("fits")).collect();
        assert!(Inside::enter(10).is_none(), "the tenth");
        held.pop();
        assert!(Inside::enter(5).is_none(), "a loop");
        assert!(Inside::enter(10).is_some());
        // Another thread has a depth of its own.
        std::thread::spawn(|| assert!(Inside::enter(5).is_some()))
            .join()
            .unwrap();
        drop(held);
        assert!(Inside::enter(5).is_some());
    }
}
