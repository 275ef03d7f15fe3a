//! Static tracepoints (USDT, provider `softnet`), at which a tracer may attach to a running
//! program: bpftrace, gdb, perf. While none does, each is one `nop`. Arguments are what the caller
//! has at hand, so that a probe computes nothing; that they are in place costs some instructions.
//! `docs/tracing.md` describes them for users.
//!
//! A queue is told by its address, a thread by what the tracer knows of it.

#[cfg(not(miri))]
use probe::probe;

use crate::stats::DropReason;
use crate::time::Time;

/// Miri runs no assembly.
#[cfg(miri)]
macro_rules! probe {
    ($provider:ident, $name:ident $(, $argument:expr)*) => {{ $(let _ = $argument;)* }};
}

/// Wire packets were dropped; the reason is its place in [`DropReason::ALL`].
#[inline(always)]
pub(crate) fn packet_drop(reason: DropReason, packets: u64) {
    probe!(softnet, packet_drop, reason as u8, packets);
}

/// The thread has become the owner of a queue.
#[inline(always)]
pub(crate) fn queue_run<Q>(queue: &Q) {
    probe!(softnet, queue_run, std::ptr::from_ref(queue));
}

/// The owner has adopted frames of others, or none, and sends them before its own.
#[inline(always)]
pub(crate) fn queue_adopt<Q>(queue: &Q, frames: usize) {
    probe!(softnet, queue_adopt, std::ptr::from_ref(queue), frames);
}

/// The thread has given the queue up.
#[inline(always)]
pub(crate) fn queue_run_end<Q>(queue: &Q) {
    probe!(softnet, queue_run_end, std::ptr::from_ref(queue));
}

/// The thread gives its CPU away for the owner of a queue, which may have lost its own, or waits
/// for the owner to change the queue; so many frames wait for adoption.
#[inline(always)]
pub(crate) fn owner_wait<Q>(queue: &Q, frames: usize) {
    probe!(softnet, owner_wait, std::ptr::from_ref(queue), frames);
}

/// The thread goes on after [`owner_wait`].
#[inline(always)]
pub(crate) fn owner_waited<Q>(queue: &Q) {
    probe!(softnet, owner_waited, std::ptr::from_ref(queue));
}

/// A worker goes to sleep until something happens, or `until` (-1: something has to happen).
#[inline(always)]
pub fn worker_sleep(until: Option<Time>) {
    probe!(softnet, worker_sleep, until.unwrap_or(Time::MAX).nanos());
}

/// A worker is awake again.
#[inline(always)]
pub fn worker_wake() {
    probe!(softnet, worker_wake);
}
