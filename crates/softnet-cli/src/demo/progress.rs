//! The live display: one line on a terminal, nothing anywhere else.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval at which the line changes.
pub(super) const REFRESH: Duration = Duration::from_millis(100);

/// The line.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For `seconds` of measuring.
    pub(super) fn new(visible: bool, seconds: u64) -> Progress {
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(seconds * 1000), target);
        // A template that does not parse would only change the looks.
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}") {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Starts the display of one measurement.
    pub(super) fn phase(&self, name: &'static str) -> Phase<'_> {
        self.bar.set_message(name);
        Phase {
            bar: &self.bar,
            name,
            start: Instant::now(),
            shown: Duration::ZERO,
        }
    }

    /// Removes the line.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// One measurement's display.
#[derive(Debug)]
pub(super) struct Phase<'a> {
    bar: &'a ProgressBar,
    name: &'static str,
    start: Instant,
    shown: Duration,
}

impl Phase<'_> {
    /// Shows how far it is, and a number.
    pub(super) fn show(&mut self, value: &str) {
        let elapsed = self.start.elapsed();
        self.bar
            .inc(u64::try_from((elapsed - self.shown).as_millis()).unwrap_or(0));
        self.shown = elapsed;
        self.bar.set_message(format!("{:<28} {value}", self.name));
    }
}
