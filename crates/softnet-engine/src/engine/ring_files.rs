//! The files by which workers see that transmit rings have capacity again.
//!
//! A ring's file is watched before the ring is given away, so that a file that cannot be watched
//! refuses the change. What becomes ready before the worker knows the queue is made up for: the
//! worker wakes a queue when it is given one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::devices::Devices;
use super::error::EngineError;
use super::state::{State, TxEvent, Watched};
use crate::rx::Command;
use softnet::tx::TxRing;

impl<D: Devices> State<D> {
    /// Has the workers of `events` watch the files of `rings`: all or none.
    pub(super) fn watch_rings(
        &self,
        port: &str,
        rings: &[D::Tx],
        events: &[TxEvent],
    ) -> Result<Vec<Watched>, EngineError> {
        let mut files = Vec::new();
        if let Err(source) = self.try_watch(rings, events, &mut files) {
            self.unwatch_rings(files);
            let port = port.to_owned();
            return Err(EngineError::Watch { port, source });
        }
        Ok(files)
    }

    /// Takes an event for each of `queues` transmit queues, from worker `first` on, and has the
    /// workers watch the files of their rings, if there are any: all or none.
    pub(super) fn attach(
        &mut self,
        port: &str,
        rings: &[D::Tx],
        first: usize,
        queues: usize,
    ) -> Result<(Vec<TxEvent>, Vec<Watched>), EngineError> {
        let events = self.take_events(first, queues)?;
        match self.watch_rings(port, rings, &events) {
            Ok(files) => Ok((events, files)),
            Err(error) => {
                self.free_events(&events);
                Err(error)
            }
        }
    }

    /// Undoes [`attach`](State::attach).
    pub(super) fn detach(&mut self, events: &[TxEvent], files: Vec<Watched>) {
        self.unwatch_rings(files);
        self.free_events(events);
    }

    fn try_watch(
        &self,
        rings: &[D::Tx],
        events: &[TxEvent],
        files: &mut Vec<Watched>,
    ) -> io::Result<()> {
        let (watched, results) = channel();
        for (ring, &(worker, event)) in rings.iter().zip(events) {
            if let Some(file) = ring.file()?.map(Arc::new) {
                let watch = Command::WatchTx(event, file.clone(), watched.clone());
                self.workers[worker].tell(watch);
                files.push((worker, file));
            }
        }
        drop(watched);
        // Ends early if a worker has died, which its thread reports when joined.
        results.iter().collect()
    }

    pub(super) fn unwatch_rings(&self, files: Vec<Watched>) {
        for (worker, file) in files {
            self.workers[worker].tell(Command::UnwatchTx(file));
        }
    }
}
