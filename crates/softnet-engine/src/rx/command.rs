//! Commands of the control path to workers, and workers' reports to it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::{Napi, SteeringSpec};
use crate::Device;
use crate::forward::Forwarder;
use softnet::mem::Pool;
use softnet::stats::Tap;
use softnet::tx::RingFile;
use softnet_tc::rate::Limit;

/// The event by which a worker is told to look at its commands. Transmit queues use the others.
pub(crate) const COMMANDS: usize = 0;

/// A transmit queue that a worker serves.
#[derive(Debug)]
pub(crate) struct TxPort<R> {
    pub(crate) device: Arc<Device<R>>,
    /// Index of the queue.
    pub(crate) queue: usize,
    /// The device's port.
    pub(crate) port: u16,
}

/// Ports, bridges and pools as they are at one time. Built by the control path, shared by the
/// workers, never changed.
#[derive(Debug)]
pub(crate) struct View<Q, R> {
    /// Where received packets go.
    pub(crate) forwarder: Forwarder<R>,
    /// The receive queues of every port.
    pub(crate) peers: Vec<Vec<Arc<Napi<Q, R>>>>,
    /// Where packets come from.
    pub(crate) pools: Vec<Pool>,
}

/// A change to what a worker does, made by the worker itself between two rounds.
#[derive(Debug)]
pub(crate) enum Command<Q, R> {
    /// Forwards by these tables from now on.
    View(Arc<View<Q, R>>),
    /// Polls more receive queues, and says of each whether it can be watched; one that cannot is
    /// closed. With it the number of its port.
    AddRx(Vec<Arc<Napi<Q, R>>>, Sender<Result<(), (u16, io::Error)>>),
    /// Stops polling the queues of these openings, which are in order, and closes them.
    RemoveRx(Arc<[u32]>),
    /// Steers what this queue receives by these rules from now on.
    Steer(Arc<Napi<Q, R>>, SteeringSpec),
    /// Receives from this queue what the limit allows from now on.
    Limit(Arc<Napi<Q, R>>, Option<Box<Limit>>),
    /// Shows this tap what is received from this queue from now on.
    Tap(Arc<Napi<Q, R>>, Option<Arc<dyn Tap>>),
    /// Serves this transmit queue, or none, when this event is set.
    SetTx(usize, Option<TxPort<R>>),
    /// Wakes the transmit queue of this event whenever the file becomes ready, and says whether
    /// the file can be watched.
    WatchTx(usize, Arc<RingFile>, Sender<io::Result<()>>),
    /// Stops watching the file.
    UnwatchTx(Arc<RingFile>),
    /// Processes the backlog, and answers when all commands before it have been carried out.
    Sync(Sender<()>),
    /// Ends the thread.
    Stop,
}

/// Report of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The device behind a receive queue is gone.
    Gone {
        port: u16,
        /// Which opening of the port the queue belongs to.
        opened: u32,
    },
    /// The state of a port's link changed.
    Link { port: u16 },
}
