//! What the control path tells a worker, carried out between two rounds.

use std::io;
use std::sync::Arc;

use super::{COMMANDS, Command, Slot, Worker};
use crate::rx::{Napi, RxQueue, Sleep, WEIGHT};
use softnet::mem::Pool;
use softnet::time::Time;
use softnet::tx::TxRing;

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    /// Carries out waiting commands. False: stop.
    pub(super) fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::AddRx(napi, watched) => {
                    // The other side may have given up waiting.
                    let _ = watched.send(self.add(napi));
                }
                Command::Peers(peers) => self.peers = peers,
                Command::RemoveRx(port) => {
                    for index in 0..self.napis.len() {
                        if self.napis[index]
                            .as_ref()
                            .is_some_and(|n| n.napi.port() == port)
                        {
                            self.remove(index);
                        }
                    }
                }
                Command::AddTx(token, port) => {
                    if self.queues.len() <= token {
                        self.queues.resize_with(token + 1, || None);
                        self.timers.resize(token + 1, Time::MAX);
                    }
                    self.queues[token] = Some(port);
                    self.run_queue(token, self.clock.now());
                }
                Command::Pools(pools) => self.use_pools(pools),
                Command::Forward(forwarder) => self.forwarder = forwarder,
                Command::Sync(done) => {
                    self.flush_backlog();
                    self.publish();
                    // The other side may have given up waiting.
                    let _ = done.send(());
                }
                Command::Stop => return false,
            }
        }
        true
    }

    /// Becomes a home of these pools: one that wakes when it sleeps and much has come. What it still has of a pool that is not among them can be taken by who needs it,
    /// and goes when the thread exits.
    pub(super) fn use_pools(&mut self, pools: Arc<[Pool]>) {
        for pool in &pools[..] {
            let notifier = self.shared.notifier.clone();
            pool.set_waker(move || notifier.notify(COMMANDS));
        }
        self.pools = pools;
    }

    /// Works off what is in the backlog now, whatever arrives meanwhile (the kernel's `flush_backlog` drops it).
    fn flush_backlog(&mut self) {
        let mark = self.shared.backlog.mark();
        while !self.backlog.is_empty() && !self.shared.backlog.passed(mark) {
            self.poll_backlog(WEIGHT, self.clock.now());
        }
    }

    fn add(&mut self, napi: Arc<Napi<Q, R>>) -> io::Result<()> {
        let index = self
            .napis
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.napis.len());
        let sleeper = &mut self.sleeper;
        let watched = napi.with_queue(|queue| {
            let fd = queue.fd();
            fd.map(|fd| sleeper.watch(fd, index)).transpose()
        });
        match watched {
            Some(Ok(Some(()))) | None => {}
            Some(Ok(None)) => self.unwatched.push(index),
            Some(Err(error)) => {
                napi.close();
                return Err(error);
            }
        }
        let slot = Some(Slot {
            napi,
            scheduled: false,
        });
        if index == self.napis.len() {
            self.napis.push(slot);
        } else {
            self.napis[index] = slot;
        }
        self.schedule(index);
        Ok(())
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Some(slot) = self.napis[index].take() {
            if let Some(queue) = slot.napi.close()
                && let Some(fd) = queue.fd()
            {
                self.sleeper.unwatch(fd);
            }
            self.unwatched.retain(|&i| i != index);
        }
    }
}
