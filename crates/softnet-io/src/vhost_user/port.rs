//! State that the queues of a port share with the thread that talks to its front end.
//!
//! A virtqueue is behind a mutex, as the thread sets it up, changes it and takes it away. Whoever
//! moves packets tries the lock and never waits for it ([`Contended`]): [`Port::apply`] wakes
//! everybody when it is done.
//!
//! **Queue pairs.** A port has as many queues as it was configured with; the guest uses as many of
//! them as it likes. What is sent on a queue whose ring the guest does not use goes to a ring that
//! it does use ([`Port::route`]), so one ring may have several senders.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use softnet::tx::RingWaker;
use softnet_engine::{DeviceDrops, Link, LinkState};

use super::GuestSpec;
use super::contended::Contended;
use super::kick::Kick;
use super::ring::RingError;
use super::running::{Running, SetupError, Wanted, go_on, make};

/// Looks at packed rings that their drivers are just writing, for all rings together, and the time
/// until the next look.
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(1);

/// No ring: the guest uses none.
pub(super) const NOWHERE: usize = usize::MAX;

/// A virtqueue, if the guest uses it.
type Ring = Contended<Option<Running>>;

/// One queue pair of the port.
#[derive(Debug)]
pub(super) struct Pair {
    /// The ring that the guest receives from: even ring numbers.
    pub(super) to_guest: Ring,
    /// The ring that the guest sends on: odd ring numbers.
    pub(super) from_guest: Ring,
    /// For the receive queue.
    pub(super) sent: Kick,
    /// For the transmit queue: the kick of the ring that it is routed to.
    pub(super) offered: Kick,
    /// The pair whose ring is sent to.
    route: AtomicUsize,
    /// The transmit queue's.
    waker: Mutex<Option<RingWaker>>,
}

/// The shared state of a port.
pub struct Port {
    pub(super) guest: GuestSpec,
    pub(super) pairs: Box<[Pair]>,
    /// Tells the port's worker that the link has changed.
    changed: OwnedFd,
    link: Mutex<LinkState>,
    /// Tells the thread that it is to stop or that a ring failed.
    attention: OwnedFd,
    stop: AtomicBool,
    /// True if the thread was told of a failure.
    failed: AtomicBool,
    /// The longest IP packet of the port, which says nothing about other memory.
    mtu: AtomicU32,
    status: Mutex<String>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl Port {
    /// For so many queue pairs, which are down, and a guest that may do so much.
    ///
    /// # Errors
    /// If the system has no file descriptors left.
    pub fn new(pairs: usize, guest: GuestSpec) -> io::Result<Port> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let pair = |_| {
            Ok(Pair {
                to_guest: Ring::default(),
                from_guest: Ring::default(),
                sent: Kick::new()?,
                offered: Kick::new()?,
                route: AtomicUsize::new(NOWHERE),
                waker: Mutex::new(None),
            })
        };
        Ok(Port {
            guest,
            pairs: (0..pairs).map(pair).collect::<io::Result<_>>()?,
            changed: event()?,
            link: Mutex::new(LinkState {
                up: false,
                ..LinkState::default()
            }),
            attention: event()?,
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            mtu: AtomicU32::new(u32::MAX),
            status: Mutex::new(String::new()),
        })
    }

    fn ring(&self, number: usize) -> &Ring {
        let pair = &self.pairs[number / 2];
        if number.is_multiple_of(2) {
            &pair.to_guest
        } else {
            &pair.from_guest
        }
    }

    /// The pair whose ring takes what is sent on queue `pair`; [`NOWHERE`]: none.
    pub(super) fn route(&self, pair: usize) -> usize {
        // Says nothing about other memory: the ring has a lock of its own.
        self.pairs[pair].route.load(Ordering::Relaxed)
    }

    pub(super) fn bind(&self, pair: usize, waker: RingWaker) {
        *lock(&self.pairs[pair].waker) = Some(waker);
    }

    /// Wakes the transmit queue of a pair.
    pub(super) fn wake(&self, pair: usize) {
        if let Some(waker) = &*lock(&self.pairs[pair].waker) {
            waker.wake();
        }
    }

    /// Wakes the senders that found a ring taken, after it was let go; all of them if `all`.
    pub(super) fn wake_senders(&self, to: usize, all: bool) {
        if self.pairs[to].to_guest.is_wanted() || all {
            let senders = self.pairs.iter().enumerate();
            senders
                .filter(|(number, _)| self.route(*number) == to)
                .for_each(|(number, _)| self.wake(number));
        }
    }

    /// Calls `f` with a ring of this number, for the thread.
    fn with_ring<T>(&self, number: usize, f: impl FnOnce(&mut Option<Running>) -> T) -> T {
        let mut running = self.ring(number).lock();
        let result = f(&mut running);
        drop(running);
        if number.is_multiple_of(2) {
            self.wake_senders(number / 2, false);
        } else if self.ring(number).is_wanted() {
            self.pairs[number / 2].sent.wake();
        }
        result
    }

    /// Makes a ring what is wanted, and tells whether it was not that before. `wait`: see
    /// [`make`].
    fn set_up(
        &self,
        number: usize,
        wanted: Option<&Wanted>,
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<bool, SetupError> {
        // Dropped when the ring is let go: it may be the last to hold all of the memory.
        let mut before = None;
        let Some(wanted) = wanted else {
            before = self.with_ring(number, Option::take);
            return Ok(before.is_some());
        };
        let went_on = self.with_ring(number, |ring| go_on(ring, wanted, &mut before))?;
        if let Some(changed) = went_on {
            return Ok(changed);
        }
        // The ring is let go, as this may take long.
        let queue = make(wanted, wait)?;
        self.with_ring(number, |ring| {
            let running = ring.insert(Running::new(queue, wanted, before.as_ref()));
            running.update(wanted)
        })?;
        Ok(true)
    }

    /// Makes the rings what the front end wants, and wakes whom that concerns. Waits for drivers
    /// that are writing a chain of a packed ring: one whose CPU is taken away meanwhile does so for
    /// some milliseconds.
    ///
    /// # Errors
    /// The first ring that cannot be set up or watched; the others are as wanted.
    pub(super) fn apply(&self, wanted: &[Option<Wanted>]) -> Result<(), SetupFailed> {
        let mut looks = LOOKS;
        self.apply_waiting(wanted, &mut || {
            std::thread::sleep(LOOK);
            looks -= 1;
            looks > 0 && !self.stop.load(Ordering::Relaxed)
        })
    }

    fn apply_waiting(
        &self,
        wanted: &[Option<Wanted>],
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<(), SetupFailed> {
        let mut failed = Ok(());
        let mut check = |number, result: Result<bool, SetupError>| match result {
            Ok(changed) => changed,
            Err(error) => {
                if failed.is_ok() {
                    failed = Err(SetupFailed { number, error });
                }
                true
            }
        };
        let mut changed: Vec<bool> = (0..)
            .zip(wanted)
            .map(|(number, wanted)| check(number, self.set_up(number, wanted.as_ref(), wait)))
            .collect();
        let in_use = |pair: &usize| {
            let ring = &wanted[2 * pair];
            ring.as_ref().is_some_and(|ring| ring.enabled)
        };
        let used: Vec<usize> = (0..self.pairs.len()).filter(in_use).collect();
        let kick = |number: usize| wanted[number].as_ref().map(|ring| &ring.kick);
        for (number, pair) in self.pairs.iter().enumerate() {
            let route = match used.get(number % used.len().max(1)) {
                _ if used.contains(&number) => number,
                Some(&other) => other,
                None => NOWHERE,
            };
            let (to_guest, from_guest) = (2 * number, 2 * number + 1);
            changed[to_guest] |= pair.route.swap(route, Ordering::Relaxed) != route;
            let offered = if route == NOWHERE {
                None
            } else {
                kick(2 * route)
            };
            changed[to_guest] |= check(
                to_guest,
                pair.offered.set(offered).map_err(SetupError::Kick),
            );
            let sent = pair.sent.set(kick(from_guest)).map_err(SetupError::Kick);
            changed[from_guest] |= check(from_guest, sent);
        }
        for (number, pair) in self.pairs.iter().enumerate() {
            let route = self.route(number);
            if changed[2 * number] || route != NOWHERE && changed[2 * route] {
                self.wake(number);
            }
            if changed[2 * number + 1] {
                pair.sent.wake();
            }
        }
        failed
    }

    /// Takes a ring away, and returns where it was.
    pub(super) fn stop_ring(&self, number: usize) -> Option<u32> {
        let running = self.with_ring(number, Option::take);
        running.map(|mut running| {
            // What came back, and was to be told with the owner's next look.
            running.notify();
            running.queue.base()
        })
    }

    /// The longest IP packet of the port.
    pub(super) fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Says what is at the other end.
    pub(super) fn set_link(&self, state: LinkState) {
        if let Some(mtu) = state.mtu {
            self.set_mtu(mtu);
        }
        if std::mem::replace(&mut *lock(&self.link), state) != state {
            let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
        }
    }

    /// True if the guest receives on any queue.
    pub(super) fn is_receiving(&self) -> bool {
        (0..self.pairs.len()).any(|pair| self.route(pair) != NOWHERE)
    }

    /// The thread is to look at the port: a ring failed, or its memory is lost.
    pub(super) fn fail(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.call_attention();
        }
    }

    /// The thread is to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.call_attention();
    }

    fn call_attention(&self) {
        let _ = rustix::io::write(&self.attention, &1_u64.to_ne_bytes());
    }

    /// Readable when the thread is wanted.
    pub(super) fn attention(&self) -> BorrowedFd<'_> {
        self.attention.as_fd()
    }

    /// The reasons for which the thread is wanted.
    pub(super) fn take_attention(&self) -> Attention {
        let _ = rustix::io::read(&self.attention, &mut [0; 8]);
        if self.stop.load(Ordering::Relaxed) {
            return Attention::Stop;
        }
        if !self.failed.swap(false, Ordering::Relaxed) {
            return Attention::Nothing;
        }
        let failures = (0..2 * self.pairs.len()).filter_map(|number| {
            self.with_ring(number, |ring| match ring {
                Some(running) if running.memory.is_lost() => Some(Attention::MemoryLost),
                Some(running) if running.blocked => Some(Attention::CallBlocked(number)),
                Some(running) => {
                    let failed = running.queue.failed();
                    failed.map(|error| Attention::RingFailed(number, error))
                }
                None => None,
            })
        });
        // What a ring in lost memory fails with is not the reason.
        failures
            .max_by_key(|failure| *failure == Attention::MemoryLost)
            .unwrap_or(Attention::Nothing)
    }

    /// Says, for people, what the port is doing.
    pub(super) fn set_status(&self, status: String) {
        *lock(&self.status) = status;
    }
}

/// Reasons for which the thread is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    Nothing,
    Stop,
    MemoryLost,
    CallBlocked(usize),
    RingFailed(usize, RingError),
}

/// A ring that cannot be set up or watched.
#[derive(Debug, thiserror::Error)]
#[error("ring {number} cannot be used")]
pub struct SetupFailed {
    number: usize,
    #[source]
    error: SetupError,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link for Port {
    fn dropped(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.changed.as_fd())
    }

    fn state(&self) -> LinkState {
        // In this order: what changes later is reported again.
        let _ = rustix::io::read(&self.changed, &mut [0; 8]);
        *lock(&self.link)
    }

    fn set_mtu(&self, mtu: u32) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    fn status(&self) -> Option<String> {
        Some(lock(&self.status).clone())
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
