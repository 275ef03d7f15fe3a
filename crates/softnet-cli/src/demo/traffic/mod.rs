//! The demo's traffic: ordinary sockets that were opened in the hosts' namespaces. Each file is
//! one kind of traffic; all of them end at an [`Until`], and none blocks longer than [`TICK`] past
//! it.

pub(crate) mod ping;
pub(crate) mod tcp;
pub(crate) mod trace;
pub(crate) mod udp;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// The longest that a socket call blocks.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// When traffic ends: at a time, or when somebody asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Until {
    deadline: Instant,
    stop: Arc<AtomicBool>,
}

impl Until {
    /// `length` from now, or when `stop` becomes true.
    pub(crate) fn after(length: Duration, stop: &Arc<AtomicBool>) -> Until {
        Until {
            deadline: Instant::now() + length,
            stop: Arc::clone(stop),
        }
    }

    /// The same, `length` later: for a receiver that waits for the last packets.
    pub(crate) fn plus(&self, length: Duration) -> Until {
        Until {
            deadline: self.deadline + length,
            stop: Arc::clone(&self.stop),
        }
    }

    /// Time left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// True if somebody asked to stop early.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True if it is time.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped() || self.left().is_zero()
    }

    /// Sleeps for `length` or until it is time.
    pub(crate) fn sleep(&self, length: Duration) {
        let end = Instant::now() + length.min(self.left());
        while !self.stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}

/// Bytes or packets that arrived so far; written by a receiver, read by the progress display.
#[derive(Debug, Default)]
pub(crate) struct Arrived(AtomicU64);

impl Arrived {
    /// Counts what arrived.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// So far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Limits how long calls on this socket block.
fn limit_blocking(socket: &impl std::os::fd::AsFd) -> io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(TICK))?;
    Ok(set_socket_timeout(socket, Timeout::Send, Some(TICK))?)
}

/// True if a call failed only because nothing happened within [`TICK`].
fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests;
