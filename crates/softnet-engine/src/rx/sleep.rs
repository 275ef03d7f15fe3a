//! Sleep and wake-up of a worker. The library makes no system call to wait: `softnet-io` does.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use softnet::time::Time;
use softnet::tx::{RingFile, Wake};

/// A worker's place to sleep.
pub trait Sleep: Send {
    /// Called once, by the worker's thread, before its first round: what concerns the thread.
    fn start(&mut self) {}

    /// Makes `sleep` return when `fd` is readable (level-triggered), reporting `token`.
    ///
    /// # Errors
    /// If the system cannot watch this file.
    fn watch(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()>;

    /// Makes `sleep` return when a transmit ring's file becomes ready (edge-triggered: once each
    /// time), reporting `token`.
    ///
    /// # Errors
    /// If the system cannot watch this file.
    fn watch_ring(&mut self, file: &RingFile, token: usize) -> io::Result<()>;

    /// Stops watching `fd`. Without effect if it is not watched.
    fn unwatch(&mut self, fd: BorrowedFd<'_>);

    /// Sleeps until a watched file is ready, a [`Wake`] was used, or `until`
    /// (`Some(Time::ZERO)`: only look). Appends the tokens of ready files to `ready`. `now` is
    /// the time at the call, on the clock that `until` is measured by.
    fn sleep(&mut self, now: Time, until: Option<Time>, ready: &mut Vec<usize>);

    /// Gives the thread its raised scheduling class, ahead of programs, as the kernel's softirq is.
    /// A worker calls it before it sleeps, so that it is there at once when it is woken.
    fn raise(&mut self) {}

    /// Gives the thread the normal class, beside programs, as ksoftirqd is: it has worked for long.
    fn lower(&mut self) {}

    /// As [`lower`](Sleep::lower), for another thread to call when the worker hangs in a driver.
    fn lower_from_elsewhere(&self) -> Box<dyn Fn() + Send + Sync> {
        Box::new(|| {})
    }

    /// Yields the CPU to threads that wait for it, one of which may be a worker that has what this
    /// one waits for.
    fn yield_cpu(&mut self) {}

    /// A waker of this sleeper.
    fn waker(&self) -> Arc<dyn Wake>;
}
