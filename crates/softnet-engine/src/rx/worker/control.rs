//! Commands of the control path to a worker, carried out between two rounds.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::poll::FLOOD;
use super::token::Token;
use super::{Slot, Worker};
use crate::rx::command::{COMMANDS, Command, View};
use crate::rx::{Napi, RxQueue, Sleep, WEIGHT};
use softnet::time::Time;
use softnet::tx::TxRing;

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    /// Carries out waiting commands. False: stop.
    pub(super) fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::View(view) => self.use_view(view),
                Command::AddRx(napis, watched) => {
                    for napi in napis {
                        let port = napi.port();
                        let added = self.add(napi).map_err(|error| (port, error));
                        // The other side may have given up waiting.
                        let _ = watched.send(added);
                    }
                }
                Command::RemoveRx(opened) => {
                    for index in 0..self.napis.len() {
                        let slot = self.napis[index].as_ref();
                        let goes =
                            |slot: &Slot<Q, R>| opened.binary_search(&slot.napi.opened()).is_ok();
                        if slot.is_some_and(goes) {
                            self.remove(index);
                        }
                    }
                }
                Command::Steer(napi, spec) => napi.set_steering(&spec),
                Command::Tap(napi, tap) => napi.set_tap(tap),
                Command::Limit(napi, limit) => {
                    napi.set_limit(limit.map(|limit| *limit));
                    // One that is held asks anew.
                    let mut slots = self.napis.iter_mut().flatten();
                    if let Some(slot) = slots.find(|slot| Arc::ptr_eq(&slot.napi, &napi))
                        && slot.held
                    {
                        slot.next = Time::ZERO;
                    }
                }
                Command::SetTx(event, queue) => {
                    if self.queues.len() <= event {
                        self.queues.resize_with(event + 1, || None);
                        self.timers.resize(event + 1, Time::MAX);
                        self.in_line.resize(event + 1, false);
                    }
                    self.queues[event] = queue;
                    self.timers[event] = Time::MAX;
                    // Its file may have become ready before the queue was known here.
                    self.wake_queue(event);
                    self.run_queue(event, self.clock.now());
                }
                Command::WatchTx(event, file, watched) => {
                    // As above.
                    let _ =
                        watched.send(self.sleeper.watch_ring(&file, Token::Ring(event).pack()));
                }
                Command::UnwatchTx(file) => self.sleeper.unwatch(file.fd.as_fd()),
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

    /// Becomes an owner of the view's pools: one that wakes when it sleeps and much was freed to
    /// it. What it still has of a pool that is not among them can be taken by a thread that needs
    /// it, and goes when the thread exits.
    pub(super) fn use_view(&mut self, view: Arc<View<Q, R>>) {
        for pool in &view.pools {
            let notifier = self.shared.notifier.clone();
            pool.set_waker(move || notifier.notify(COMMANDS));
        }
        self.view = view;
    }

    /// Processes what is in the backlog now, whatever arrives meanwhile (the kernel's
    /// `flush_backlog` drops it).
    fn flush_backlog(&mut self) {
        let mark = self.shared.backlog.mark();
        while !self.backlog.is_empty() && !self.shared.backlog.passed(mark) {
            self.copies = FLOOD;
            self.poll_backlog(WEIGHT, self.clock.now());
        }
    }

    fn add(&mut self, napi: Arc<Napi<Q, R>>) -> io::Result<()> {
        let free = self.napis.iter().position(Option::is_none);
        let index = free.unwrap_or(self.napis.len());
        let sleeper = &mut self.sleeper;
        let link = napi.with_queue(RxQueue::link).flatten();
        let watched = napi.with_queue(|queue| {
            let fd = queue.fd();
            fd.map(|fd| sleeper.watch(fd, Token::Queue(index).pack()))
                .transpose()?;
            let changes = link.as_ref().and_then(|link| link.fd());
            if let Some(changes) = changes
                && let Err(error) = sleeper.watch(changes, Token::Link(index).pack())
            {
                fd.into_iter().for_each(|fd| sleeper.unwatch(fd));
                return Err(error);
            }
            Ok(fd.is_some())
        });
        match watched.transpose() {
            Ok(watched) if watched != Some(false) => {}
            Ok(_) => self.unwatched.push(index),
            Err(error) => {
                napi.close();
                return Err(error);
            }
        }
        if free.is_none() {
            self.napis.push(None);
        }
        self.napis[index] = Some(Slot {
            napi,
            link,
            scheduled: false,
            next: Time::ZERO,
            held: false,
            polled: Time::ZERO,
        });
        self.look_at_link(index);
        self.schedule(index);
        Ok(())
    }

    /// A queue may not be polled before `time`: its file says nothing until then.
    pub(super) fn hold(&mut self, index: usize, time: Time) {
        let Some(Some(slot)) = self.napis.get_mut(index) else {
            return;
        };
        slot.next = time;
        if !std::mem::replace(&mut slot.held, true) && !self.unwatched.contains(&index) {
            let sleeper = &mut self.sleeper;
            slot.napi
                .with_queue(|queue| queue.fd().map(|fd| sleeper.unwatch(fd)));
            self.unwatched.push(index);
            self.unarmed.retain(|&i| i != index);
        }
    }

    /// A queue that was held is polled as its file says again. If that cannot be watched (no
    /// memory is left), it is polled all the time.
    pub(super) fn release(&mut self, index: usize) {
        let Some(Some(slot)) = self.napis.get_mut(index) else {
            return;
        };
        if !std::mem::take(&mut slot.held) {
            return;
        }
        let sleeper = &mut self.sleeper;
        let watched = slot.napi.with_queue(|queue| {
            let fd = queue.fd();
            fd.map(|fd| sleeper.watch(fd, Token::Queue(index).pack()))
                .transpose()
                .map(|watched| watched.is_some())
        });
        match watched {
            Some(Ok(true)) | None => self.unwatched.retain(|&i| i != index),
            Some(Ok(false)) => {}
            Some(Err(_)) => slot.next = Time::ZERO,
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Some(slot) = self.napis[index].take() {
            if let Some(queue) = slot.napi.close()
                && let Some(fd) = queue.fd()
            {
                self.sleeper.unwatch(fd);
            }
            if let Some(fd) = slot.link.as_ref().and_then(|link| link.fd()) {
                self.sleeper.unwatch(fd);
            }
            self.unwatched.retain(|&i| i != index);
            self.unarmed.retain(|&i| i != index);
        }
    }
}
