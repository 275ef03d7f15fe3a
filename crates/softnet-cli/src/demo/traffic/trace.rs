//! Pings at fixed times, however long the answers take: what a person at a keyboard would have
//! waited at each moment.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use super::ping::{Pinger, RoundTrips, is_unreachable};
use super::{TICK, Until, is_timeout};

/// After this an answer counts as lost: long queues are what is looked at.
const LOST: Duration = Duration::from_secs(2);

/// An answered ping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// When it was sent, from the start.
    pub at: Duration,
    /// Time until the answer.
    pub time: Duration,
}

/// Pings over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// In the order in which they were answered.
    pub points: Vec<Point>,
    /// When those without an answer were sent.
    lost: Vec<Duration>,
}

impl Trace {
    /// For pictures.
    #[cfg(test)]
    pub(crate) fn new(points: Vec<Point>, lost: Vec<Duration>) -> Trace {
        Trace { points, lost }
    }

    /// Round trips of requests that were sent `from` the start or later.
    pub(crate) fn round_trips(&self, from: Duration) -> RoundTrips {
        let answered = self.points.iter().filter(|point| point.at >= from);
        RoundTrips::new(
            answered.map(|point| point.time).collect(),
            self.lost.iter().filter(|at| **at >= from).count() as u64,
        )
    }
}

impl Pinger {
    /// Pings every `interval` until it is time, and waits for the last answers; each round trip is
    /// handed to `each`.
    pub(crate) fn trace(
        &mut self,
        until: &Until,
        interval: Duration,
        mut each: impl FnMut(Duration),
    ) -> io::Result<Trace> {
        self.with_echo(|pinger| pinger.trace_answered(until, interval, &mut each))
    }

    /// [`trace`](Self::trace), with somebody at the far end.
    fn trace_answered(
        &mut self,
        until: &Until,
        interval: Duration,
        each: &mut impl FnMut(Duration),
    ) -> io::Result<Trace> {
        let start = Instant::now();
        let mut due = start;
        let mut trace = Trace::default();
        let mut waiting: VecDeque<(u16, Instant)> = VecDeque::new();
        loop {
            while waiting.front().is_some_and(|(_, at)| at.elapsed() > LOST) {
                let at = waiting.pop_front().map(|(_, at)| at - start);
                trace.lost.extend(at);
            }
            let now = Instant::now();
            if until.is_over() {
                if waiting.is_empty() || until.stopped() {
                    return Ok(trace);
                }
                // Nothing is sent any more: only answers are waited for.
                due = now + TICK;
            } else if now >= due {
                // A late one is not made up for.
                due = now.max(due + interval);
                if self.send()? {
                    waiting.push_back((self.sequence, now));
                } else {
                    trace.lost.push(now - start);
                }
            }
            self.wait(due.saturating_duration_since(Instant::now()).min(TICK))?;
            while let Some(sequence) = self.answer()? {
                let Some(found) = waiting.iter().position(|(s, _)| *s == sequence) else {
                    continue;
                };
                let Some((_, sent)) = waiting.remove(found) else {
                    continue;
                };
                let time = sent.elapsed();
                each(time);
                let at = sent - start;
                trace.points.push(Point { at, time });
            }
        }
    }

    /// The number of an answer that is there.
    fn answer(&self) -> io::Result<Option<u16>> {
        match self.receive(RecvFlags::DONTWAIT) {
            Err(e) if is_unreachable(e) => Ok(None),
            result => Ok(result?),
        }
    }

    /// Waits until something can be received, for at most `limit`.
    fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(
            &mut [PollFd::new(&self.socket, PollFlags::IN)],
            Some(&limit),
        ) {
            Err(e) if !is_timeout(&e.into()) => Err(e.into()),
            _ => Ok(()),
        }
    }
}
