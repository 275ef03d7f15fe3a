//! The designs that are compared: ways to hand packets to a worker that sleeps when it has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use softnet::mem::PacketList;
use softnet::time::Clock;
use softnet::tx::{Notifier, Wake};
use softnet_engine::rx::{Backlog, BacklogOwner, HaltPoll, MAX_BACKLOG, Sleep};
use softnet_io::Poller;

use crate::baselines::snapshot::{Snapshot, SnapshotOwner};
use crate::error::BenchError;

/// The side that all threads have.
pub(crate) trait Inbox: Send + Sync + 'static {
    /// Hands packets over; returns how many found no room (they are freed).
    fn push(&self, packets: PacketList) -> usize;

    /// Ends a sender's round: wakes the worker if it must be.
    fn kick(&self) {}

    /// Wake-ups sent, if they are counted.
    fn wakes(&self) -> Option<u64> {
        None
    }

    /// Wakes the worker whatever it does, to make it stop.
    fn stop(&self);
}

/// The side that the worker has.
pub(crate) trait Owner: Send {
    /// Appends up to `quota` packets to `out`, which is empty; does not wait. What was given out
    /// before is processed.
    fn poll(&mut self, quota: usize, out: &mut PacketList);

    /// Waits until there is something, or until [`Inbox::stop`].
    fn wait(&mut self);
}

/// Both sides of one inbox.
pub(crate) type Pair = (Arc<dyn Inbox>, Box<dyn Owner>);

/// Softnet's workers when they sleep at once.
pub(crate) const NO_POLL: &str = "no-poll";
/// The older loop likewise.
pub(crate) const NO_POLL_SNAPSHOT: &str = "snapshot-no-poll";
/// Time that workers may busy-poll before they sleep.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// Makes an inbox of the variant `name`.
pub(crate) fn make(name: &str) -> Result<Pair, BenchError> {
    let poller = || Poller::new().map_err(|e| BenchError::io("making an epoll instance", e));
    Ok(match name {
        "snapshot" => snapshot(poller()?, BUSY_POLL),
        NO_POLL_SNAPSHOT => snapshot(poller()?, Duration::ZERO),
        "crossbeam" => crossbeam(),
        NO_POLL => softnet(poller()?, Duration::ZERO),
        _ => softnet(poller()?, BUSY_POLL),
    })
}

/// Softnet's backlog, notifier and busy polling, as its workers use them.
struct Ours {
    backlog: Arc<Backlog>,
    notifier: Arc<Notifier>,
}

struct OursOwner {
    inbox: Arc<Ours>,
    owner: BacklogOwner,
    poller: Poller,
    clock: Clock,
    halt_poll: HaltPoll,
}

fn softnet(poller: Poller, busy_poll: Duration) -> Pair {
    let (backlog, owner) = Backlog::new(MAX_BACKLOG);
    let inbox = Arc::new(Ours {
        backlog,
        notifier: Arc::new(Notifier::new(1, poller.waker())),
    });
    let owner = OursOwner {
        inbox: inbox.clone(),
        owner,
        poller,
        clock: Clock::monotonic(),
        halt_poll: HaltPoll::new(busy_poll),
    };
    (inbox, Box::new(owner))
}

impl Inbox for Ours {
    fn push(&self, packets: PacketList) -> usize {
        self.backlog.push(packets).len()
    }

    fn kick(&self) {
        self.notifier.wake();
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.notifier.wakes())
    }

    fn stop(&self) {
        self.notifier.notify(0);
    }
}

impl Owner for OursOwner {
    fn poll(&mut self, quota: usize, out: &mut PacketList) {
        self.owner.poll(quota, out);
    }

    fn wait(&mut self) {
        self.owner.done();
        let start = self.clock.now();
        let Ours { backlog, notifier } = &*self.inbox;
        if self.halt_poll.busy_poll(
            start,
            &self.clock,
            || !backlog.is_empty() || !notifier.is_quiet(),
            |_| {
                self.poller.yield_cpu();
                false
            },
        ) {
            return;
        }
        let poller = &mut self.poller;
        notifier.sleep_if(
            || backlog.is_empty(),
            || poller.sleep(start, None, &mut Vec::new()),
        );
        let woke = self.clock.now();
        self.halt_poll.was_idle(woke.since(start), woke);
    }
}

/// The older loop, with the same place to sleep and the same looking around before.
struct Older {
    backlog: Snapshot,
    wake: Arc<dyn Wake>,
    owed: AtomicBool,
    wakes: AtomicU64,
}

struct OlderOwner {
    inbox: Arc<Older>,
    owner: SnapshotOwner,
    poller: Poller,
    clock: Clock,
    halt_poll: HaltPoll,
}

fn snapshot(poller: Poller, busy_poll: Duration) -> Pair {
    let inbox = Arc::new(Older {
        backlog: Snapshot::new(MAX_BACKLOG),
        wake: poller.waker(),
        owed: AtomicBool::new(false),
        wakes: AtomicU64::new(0),
    });
    let owner = OlderOwner {
        inbox: inbox.clone(),
        owner: SnapshotOwner::default(),
        poller,
        clock: Clock::monotonic(),
        halt_poll: HaltPoll::new(busy_poll),
    };
    (inbox, Box::new(owner))
}

impl Inbox for Older {
    fn push(&self, packets: PacketList) -> usize {
        match self.backlog.push(packets) {
            Ok(true) => {
                // Whoever ends its round first sends it; there is one to send at most.
                self.owed.store(true, Ordering::SeqCst);
                0
            }
            Ok(false) => 0,
            Err(refused) => refused.len(),
        }
    }

    fn kick(&self) {
        if self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::SeqCst) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.wake.wake();
        }
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.wakes.load(Ordering::Relaxed))
    }

    fn stop(&self) {
        self.wake.wake();
    }
}

impl Owner for OlderOwner {
    fn poll(&mut self, quota: usize, out: &mut PacketList) {
        self.owner.poll(&self.inbox.backlog, quota, out);
    }

    fn wait(&mut self) {
        let (start, backlog) = (self.clock.now(), &self.inbox.backlog);
        if !self.halt_poll.window().is_zero() {
            if !backlog.begin_looking() {
                return;
            }
            let found = self.halt_poll.busy_poll(
                start,
                &self.clock,
                || !backlog.is_empty(),
                |_| {
                    self.poller.yield_cpu();
                    false
                },
            );
            if found || !backlog.end_looking() {
                return;
            }
        }
        self.poller.sleep(start, None, &mut Vec::new());
        let woke = self.clock.now();
        self.halt_poll.was_idle(woke.since(start), woke);
    }
}

/// A channel of lists of packets. It is empty lists that end the wait.
struct Channel {
    sender: Sender<PacketList>,
    receiver: Receiver<PacketList>,
}

struct ChannelOwner {
    inbox: Arc<Channel>,
    rest: PacketList,
}

impl Inbox for Channel {
    fn push(&self, packets: PacketList) -> usize {
        let refused = self.sender.try_send(packets).err();
        refused.map_or(0, |refused| refused.into_inner().len())
    }

    fn stop(&self) {
        // If it is full, the worker is awake.
        let _ = self.sender.try_send(PacketList::new());
    }
}

impl Owner for ChannelOwner {
    fn poll(&mut self, quota: usize, out: &mut PacketList) {
        while out.len() < quota {
            if self.rest.is_empty() {
                match self.inbox.receiver.try_recv() {
                    Ok(list) => self.rest = list,
                    Err(_) => break,
                }
            }
            self.rest.split_front(quota - out.len(), out);
        }
    }

    fn wait(&mut self) {
        if self.rest.is_empty()
            && let Ok(list) = self.inbox.receiver.recv()
        {
            self.rest = list;
        }
    }
}

fn crossbeam() -> Pair {
    let (sender, receiver) = crossbeam_channel::bounded(MAX_BACKLOG);
    let inbox = Arc::new(Channel { sender, receiver });
    let owner = ChannelOwner {
        inbox: inbox.clone(),
        rest: PacketList::new(),
    };
    (inbox, Box::new(owner))
}
