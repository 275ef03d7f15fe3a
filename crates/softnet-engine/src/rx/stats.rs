//! A worker as others see it: its notifier, its backlog, its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::Backlog;
use softnet::stats::Published;
use softnet::time::Time;
use softnet::tx::Notifier;

/// Counters of a worker, named as the columns of `/proc/net/softnet_stat` where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Frames processed: polled and not steered to others, or taken from the backlog (column 1).
    pub processed: u64,
    /// Frames that others could not steer to it: backlog full, or flow limit (column 2).
    pub dropped: u64,
    /// Rounds that ended with the budget or the time used up and work left (column 3).
    pub time_squeeze: u64,
    /// Times it was woken for its backlog (column 10).
    pub received_rps: u64,
    /// Frames it could not steer because their flow had too large a part (column 11).
    pub flow_limit: u64,
    /// Frames in its backlog that it has not taken; large ones count as several (column 14).
    pub input_qlen: u64,
    /// Frames it has taken from its backlog and not processed (column 15).
    pub process_qlen: u64,
    /// Wire packets it has steered to others.
    pub handed_over: u64,
    /// Wire packets it has processed out of its backlog.
    pub taken_over: u64,
    /// Rounds.
    pub rounds: u64,
    /// Times the worker slept.
    pub sleeps: u64,
    /// Wake-ups others sent it, for whatever reason.
    pub wakes: u64,
    /// Wake-ups it sent to others for their backlogs.
    pub wakes_sent: u64,
    /// Polls of another worker's queue, for the reply to what it had just sent.
    pub looked_ahead: u64,
    /// Time asleep.
    pub asleep: Duration,
    /// Time spent busy-polling before sleeping.
    pub polling: Duration,
    /// Time since it was started.
    pub uptime: Duration,
}

impl WorkerStats {
    /// Frames in its backlog (column 12).
    pub fn backlog(&self) -> u64 {
        self.input_qlen + self.process_qlen
    }

    /// The part of its time in which it worked, 0 to 1.
    pub fn busy(&self) -> f64 {
        let idle = (self.asleep + self.polling).as_secs_f64();
        (1.0 - idle / self.uptime.as_secs_f64().max(1e-9)).clamp(0.0, 1.0)
    }
}

macro_rules! own {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the worker itself.
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Own {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        const OWN: usize = [$(stringify!($name)),*].len();

        impl From<[u64; OWN]> for Own {
            fn from([$($name),*]: [u64; OWN]) -> Own {
                Own { $($name),* }
            }
        }

        impl From<&Own> for [u64; OWN] {
            fn from(own: &Own) -> Self {
                [$(own.$name),*]
            }
        }
    };
}

own! {
    processed,
    time_squeeze,
    rounds,
    sleeps,
    looked_ahead,
    taken_over,
    process_qlen,
    asleep,
    polling,
    flow_limit,
    handed_over,
    wakes_sent,
    /// When it was started.
    started,
    /// Since when it sleeps; 0 if it does not.
    sleeps_since,
}

/// The part of a worker that others see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) backlog: Arc<Backlog>,
    own: CachePadded<Published<OWN>>,
    /// Written by others, rarely.
    dropped: AtomicU64,
    kicks: AtomicU64,
}

impl Shared {
    pub(crate) fn new(notifier: Arc<Notifier>, backlog: Arc<Backlog>) -> Shared {
        Shared {
            notifier,
            backlog,
            own: CachePadded::default(),
            dropped: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
        }
    }

    /// Frames that could not be steered to this worker. By any thread (BUG-RX-6: one atomic step).
    pub(super) fn count_dropped(&self, frames: usize) {
        self.dropped.fetch_add(frames as u64, Ordering::Relaxed);
    }

    /// The worker was woken for its backlog.
    pub(super) fn count_kick(&self) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// By the worker itself.
    pub(super) fn publish(&self, own: &Own) {
        self.own.set(own.into());
    }

    /// Rounds that it has begun, as of the last that ended.
    pub(crate) fn rounds(&self) -> u64 {
        Own::from(self.own.get()).rounds
    }

    pub(crate) fn stats(&self, now: Time) -> WorkerStats {
        let own = Own::from(self.own.get());
        // A sleep that is going on counts.
        let sleeping = match own.sleeps_since {
            0 => Duration::ZERO,
            since => now.since(Time(since)),
        };
        let uptime = match own.rounds {
            0 => Duration::ZERO,
            _ => now.since(Time(own.started)),
        };
        WorkerStats {
            processed: own.processed,
            dropped: self.dropped.load(Ordering::Relaxed),
            time_squeeze: own.time_squeeze,
            received_rps: self.kicks.load(Ordering::Relaxed),
            flow_limit: own.flow_limit,
            input_qlen: self.backlog.len() as u64,
            process_qlen: own.process_qlen,
            handed_over: own.handed_over,
            taken_over: own.taken_over,
            rounds: own.rounds,
            sleeps: own.sleeps,
            wakes: self.notifier.wakes(),
            wakes_sent: own.wakes_sent,
            looked_ahead: own.looked_ahead,
            asleep: Duration::from_nanos(own.asleep) + sleeping,
            polling: Duration::from_nanos(own.polling),
            uptime,
        }
    }
}
