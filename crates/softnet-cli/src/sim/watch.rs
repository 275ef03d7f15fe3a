//! Windows of a simulation as they end: when expectations were first broken, and what is drawn.

use serde_json::Value;
use softnet_tc::sim::{Story, Window, World};

use super::expect::{Broken, WINDOW};
use super::explain;
use super::series::Series;
use crate::config::Expectation;

/// State of those who watch.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    expected: &'a [Expectation],
    /// Another name of the root.
    port: Option<&'a str>,
    /// By expectation: what its figure has come to if it is a count, and when it was broken.
    counts: Vec<f64>,
    broken: Vec<Option<Broken>>,
    series: Option<Series>,
    /// Number of the packet whose story is told, and the story.
    explained: Option<u64>,
    story: Option<Story>,
}

impl<'a> Watch<'a> {
    /// Nothing seen yet. `draws` says that a picture is made of it, `explained` is the number of
    /// the packet whose story is told.
    pub(super) fn new(
        expected: &'a [Expectation],
        port: Option<&'a str>,
        draws: bool,
        explained: Option<u64>,
    ) -> Self {
        Watch {
            expected,
            port,
            counts: vec![0.0; expected.len()],
            broken: vec![None; expected.len()],
            series: draws.then(Series::default),
            explained,
            story: None,
        }
    }

    /// Has the world tell its windows, if somebody wants to know.
    pub(super) fn begin(&self, world: &mut World) {
        if !self.expected.is_empty() || self.series.is_some() {
            world.tell_windows(WINDOW);
        }
        if let Some(number) = self.explained {
            world.simulator().tell(number);
        }
    }

    /// Looks at the windows that are over.
    pub(super) fn look(&mut self, world: &mut World) {
        while let Some(window) = world.take_window() {
            self.see(&window);
        }
    }

    /// Looks at what is left as the simulation is over.
    pub(super) fn end(&mut self, world: &mut World) {
        world.end_window();
        self.look(world);
        self.story = world.simulator().story().cloned();
    }

    /// The story in words; nothing if none is told.
    pub(super) fn story(&self) -> String {
        let story = self.story.as_ref();
        let text = self.explained.map(|number| explain::text(number, story));
        text.unwrap_or_default()
    }

    /// The same as JSON.
    pub(super) fn story_json(&self) -> Option<Value> {
        let story = self.story.as_ref();
        self.explained.map(|number| explain::json(number, story))
    }

    fn see(&mut self, window: &Window) {
        let states = self.broken.iter_mut().zip(&mut self.counts);
        for (expected, (broken, count)) in self.expected.iter().zip(states) {
            if broken.is_none() {
                *broken = expected.broken_in(window, self.port, count);
            }
        }
        if let Some(series) = &mut self.series {
            series.add(window);
        }
    }

    /// The first windows that broke the expectations.
    pub(super) fn broken(&self) -> &[Option<Broken>] {
        &self.broken
    }

    /// The series that is drawn.
    pub(super) fn series(&self) -> Option<&Series> {
        self.series.as_ref()
    }
}
