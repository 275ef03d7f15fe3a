//! Results of parts of the simulated time.

use std::collections::VecDeque;

use softnet::time::Time;

use super::flows::{FlowReport, Seen};
use super::report::ClassReport;
use super::simulator::Simulator;
use super::world::World;

/// Result of a part of the simulated time.
#[derive(Clone, Debug)]
pub struct Window {
    /// Start of it.
    pub from: Time,
    /// End of it, which belongs to the next one.
    pub until: Time,
    /// The root and all classes.
    pub classes: Vec<ClassReport>,
    /// Figures of the tree of the reverse direction; none if there is none.
    pub reverse: Vec<ClassReport>,
    /// The flows and connections that were to send then, or of which something was there.
    pub flows: Vec<FlowReport>,
}

/// Windows in which results are told.
#[derive(Debug)]
pub(super) struct Windows {
    /// Nanoseconds of one.
    width: u64,
    /// Start of the one that is open.
    from: Time,
    closed: VecDeque<Window>,
}

impl World {
    /// Adds up results in windows of so many nanoseconds, too, from now on; see
    /// [`take_window`](World::take_window).
    pub fn tell_windows(&mut self, width: u64) {
        let from = self.now();
        self.open();
        self.windows = Some(Windows {
            width: width.max(1),
            from,
            closed: VecDeque::new(),
        });
    }

    /// The earliest window that is over and was not taken yet. Where nothing happened for longer
    /// than a window, that is one.
    pub fn take_window(&mut self) -> Option<Window> {
        self.windows.as_mut()?.closed.pop_front()
    }

    /// The time up to which everything has happened.
    fn now(&self) -> Time {
        let reverse = self.reverse.as_ref().map(Simulator::now);
        self.simulator.now().max(reverse.unwrap_or(Time::ZERO))
    }

    fn open(&mut self) {
        self.simulator.open();
        if let Some(reverse) = &mut self.reverse {
            reverse.open();
        }
    }

    /// Ends the window that is open, however short it is.
    pub fn end_window(&mut self) {
        let now = self.now();
        if let Some(windows) = &self.windows
            && now >= windows.from
        {
            self.close(now.plus_nanos(1));
        }
    }

    /// Ends the windows that are over at a time.
    #[inline]
    pub(super) fn turn(&mut self, now: Time) {
        if let Some(windows) = &self.windows
            && now >= windows.from.plus_nanos(windows.width)
        {
            self.turn_to(now);
        }
    }

    #[cold]
    fn turn_to(&mut self, now: Time) {
        let Some(Windows { width, from, .. }) = self.windows else {
            return;
        };
        self.close(from.plus_nanos(width));
        let whole = now.since(from).as_nanos() as u64 / width;
        if whole > 1 {
            self.close(from.plus_nanos(whole * width));
        }
    }

    fn close(&mut self, until: Time) {
        let Some(windows) = &mut self.windows else {
            return;
        };
        let from = std::mem::replace(&mut windows.from, until);
        let nanos = until.since(from).as_nanos() as u64;
        self.collect();
        let flows = self
            .seen
            .iter()
            .filter_map(|seen| seen.in_window(from, until));
        let window = Window {
            from,
            until,
            classes: self.simulator.since_opened(nanos),
            reverse: match &mut self.reverse {
                Some(reverse) => reverse.since_opened(nanos),
                None => Vec::new(),
            },
            flows: flows.collect(),
        };
        self.seen.iter_mut().for_each(Seen::turn);
        self.open();
        if let Some(windows) = &mut self.windows {
            windows.closed.push_back(window);
        }
    }
}
